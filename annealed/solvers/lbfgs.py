"""Limited-memory BFGS on a stack of points, preconditioned by the curvature that the family provides.

The final fit is solved first. Its displacement from the predicted start also shifts the folds, which reuse its pairs
and its preconditioner, so most folds are solved at their first evaluation. All points step simultaneously: a pass
evaluates the trial point of every unfinished one; a point whose line search fails tries a shorter step in the next
pass, while the others move on. The memory stores pairs of the LOSS part only and the quadratic penalty is added
exactly, so the memory stays exact along the whole path if the loss of the family does not depend on the temperature.

If the rows have a float32 copy, steps use it. Points that must be certified are evaluated in float64 first, which most
interpolated starts pass, and in the end; those that float32 has left unsolved continue in float64.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from annealed.solvers.base import (
    ROUNDING,
    SINGLE_PRECISION_TOL,
    Accuracy,
    Points,
    Solution,
    Solver,
    is_far,
    is_solved,
)
from annealed.solvers.pairs import KINDS, PathMemory

ARMIJO = 1e-4
SHORTEST_STEP = 1e-10
SMALLEST_QUICK_PAIR = 1e-8  # predicted relative decrease of a float32 step below which no pair is stored
QUICK_DECREMENT = 1e-7  # predicted relative decrease below which it may be rounding error of float32
CLEAR_FALL = 0.9  # share of the smallest decrease predicted so far, below which a new one counts as smaller
QUICK_ROUNDING = 1e-7  # like `ROUNDING`, for float32
POINTS_TOGETHER = 8  # temperatures of the final fit that step together: more need memory and save no time
MUCH_HOTTER = 6.0  # ratio to the temperature of a Hessian, beyond which it misleads: posteriors are much softer


class LBFGS(Solver):
    """Preconditioned limited-memory BFGS.

    Parameters
    ----------
    memory_size : int, default=10
        Number of (step, gradient change) pairs kept per fit.
    """

    gaps_together = POINTS_TOGETHER

    def __init__(self, *, memory_size=10) -> None:
        self.memory_size = memory_size

    def adapt(self, problem, tol):
        if tol >= SINGLE_PRECISION_TOL:
            problem.scores.make_float32_copy()
        return problem

    def new_memory(self, problem):
        return PathMemory(self.memory_size, problem.n_fits)

    def solve(self, problem, points: Points, accuracy: Accuracy, memory) -> Solution:
        if not problem.temperature_free:
            each = points.by_temperature()
            if len(each) > 1:
                return Solution.joined([self.solve(problem, few, accuracy, memory) for few in each])
            memory.clear()
        solution = Solution.unsolved(points.parameters)
        solve = partial(self._solve, problem, solution, points, accuracy)
        is_final = points.fits == 0
        final, folds = np.flatnonzero(is_final), np.flatnonzero(~is_final)
        is_hot = points.temperatures[final] > MUCH_HOTTER * memory.learned_at
        for positions, recalled in ((final[~is_hot], memory), (final[is_hot], self.new_memory(problem))):
            for first in range(0, len(positions), POINTS_TOGETHER):
                solve(positions[first : first + POINTS_TOGETHER], recalled)
        if len(folds):
            if len(final) == 1 and problem.fits_are_alike:
                solution.parameters[folds] += solution.parameters[final] - points.parameters[final]
                memory.share()
            solve(folds, memory)
        memory.spend(-1)  # a good preconditioner needs one step per temperature
        return solution

    def _solve(self, problem, solution, points, accuracy: Accuracy, positions, memory):
        """Solve the points at these positions of the solution."""
        search = partial(_Search, problem, solution, points, accuracy.tol, memory)
        if problem.has_float32_rows:
            if accuracy.certify and not points.fits[positions].any():
                search(positions).finish()
                positions = positions[~solution.converged[positions]]
            if len(positions):
                search(positions, quick=True).run(accuracy.max_iter)
            is_left = solution.n_iter[positions] < accuracy.max_iter
            is_left &= ~solution.converged[positions] | (accuracy.certify & (points.fits[positions] == 0))
            positions = positions[is_left]
        if len(positions):
            search(positions).run(accuracy.max_iter - solution.n_iter[positions].max())


class _Search:
    """The state of a stack of line searches, one per point."""

    def __init__(self, problem, solution, points: Points, tol, memory, positions, quick=False):
        self.problem, self.solution, self.positions = problem, solution, positions
        self.fits, self.temperatures, self.tol = points.fits[positions], points.temperatures[positions], tol
        self.memory, self.pairs, self.quick = memory, memory.pairs_of(self.fits), quick
        self.price = 2.0 if problem.has_float32_rows and not quick else 1.0  # cost of a pass for one fit
        n_points = len(positions)
        is_one = (self.temperatures == self.temperatures[0]).all()
        self.temperature = float(self.temperatures[0]) if is_one else None  # the common one, if there is one
        self.x = solution.parameters[positions]
        self.direction = np.zeros_like(self.x)
        self.slope, self.length = np.zeros(n_points), np.ones(n_points)
        self.least_predicted = np.full(n_points, np.inf)  # smallest predicted decrease so far
        self.n_iter, self.converged = np.zeros(n_points, dtype=int), np.zeros(n_points, dtype=bool)
        self.active, self.is_done = np.arange(n_points), np.zeros(n_points, dtype=bool)
        self.value, self.gradient, self.loss_gradient = self._objective(self.x, self.active)
        if not quick and not solution.n_iter[positions].any() and not self.fits.any():
            bound = problem.certificate(self.gradient, self.value, self.temperatures, self.fits)
            solution.was_far[positions] = is_far(bound, tol)
        self._aim(self.active)

    def _objective(self, points, chosen):
        return self.problem.objective(points, self._temperature(chosen), self.fits[chosen], self.quick)

    def _temperature(self, chosen):
        return self.temperatures[chosen] if self.temperature is None else self.temperature

    def run(self, max_iter):
        memory, delays = self.memory, dict.fromkeys(KINDS, 1)
        for _ in range(max_iter):
            if not len(self.active):
                break
            kind = memory.kind_due(self.problem, delays)
            if kind is not None:
                memory.learn(kind, self.problem, *self._final())
                self._new_directions(self.active)
                delays[kind] *= 2  # in one search, every further Hessian is worth less
            memory.spend(self.price * len(self.active) / self.problem.n_fits)
            self.step()
        self.finish()

    def _final(self):
        """Parameters and temperature of the final fit, at the lowest temperature that is not solved yet."""
        last = self.active[-1]
        if self.fits[last] == 0:
            return self.x[last], float(self.temperatures[last])
        return self.solution.parameters[0], float(self.temperatures[last])

    def finish(self):
        """Write the points to the solution."""
        places, solution = self.positions, self.solution
        solution.parameters[places], solution.value[places] = self.x, self.value
        solution.converged[places] = self.converged
        solution.is_certified[places] = self.converged & (not self.quick)
        solution.n_iter[places] += self.n_iter
        solution.note(self.problem, places, self.gradient, self._temperature(slice(None)), self.fits)
        self.memory.keep(self.fits, self.pairs)

    def _aim(self, chosen):
        """New directions for newly accepted points; solved ones are retired.

        Final fits are tested by their gradient before a direction is computed; in float32 also by the decrease that the
        direction predicts, like the folds.
        """
        is_final = len(chosen) and self.fits[chosen[0]] == 0
        if is_final:
            chosen = self._retire(chosen, np.full(len(chosen), np.inf))
        self._new_directions(chosen)
        if self.quick or not is_final:
            self._retire(chosen, -0.5 * self.slope[chosen])

    def _retire(self, chosen, decrement):
        """Mark the solved points, let solved folds take a last step, and return the other points.

        In float32 a fold also counts as solved once its predicted decrease is rounding error; a final fit only stops.
        """
        if not len(chosen):
            return chosen
        fits, has_last_step = self.fits[chosen], self.problem.takes_last_step
        at = self.value[chosen], self.gradient[chosen], self._temperature(chosen), fits
        is_done = solved = is_solved(self.problem, *at, self.tol, decrement, has_last_step)
        if self.quick:
            is_done = solved | self._is_rounding(chosen, decrement)
            solved = np.where(fits > 0, is_done, solved)
        last = chosen[solved & (fits > 0) & has_last_step]
        self.x[last] += self.direction[last]
        self.value[last] += 0.5 * self.slope[last]
        self.converged[chosen[solved]] = True
        self.is_done[chosen] = is_done
        self.active = self.active[~self.is_done[self.active]]
        return chosen[~is_done]

    def _is_rounding(self, chosen, decrement):
        """Whether the predicted decrease is so small in float32 that it no longer shrinks."""
        least = self.least_predicted[chosen]
        self.least_predicted[chosen] = np.minimum(decrement, least)
        return (decrement <= QUICK_DECREMENT * np.abs(self.value[chosen])) & (decrement >= CLEAR_FALL * least)

    def step(self):
        """One pass: evaluate the trial point of every active one, accept it or shorten the step, aim again."""
        chosen = self.active
        trial = self.x[chosen] + self.length[chosen, None] * self.direction[chosen]
        value, gradient, loss_gradient = self._objective(trial, chosen)
        self.n_iter[chosen] += 1
        accepted = self._accept(chosen, value, gradient)
        self._shorten(chosen[~accepted], value[~accepted])
        good = chosen[accepted]
        if not self.quick or self._is_worth_a_pair(good):
            self.pairs.add(good, trial[accepted] - self.x[good], loss_gradient[accepted] - self.loss_gradient[good])
        self.x[good] = trial[accepted]
        self.value[good], self.gradient[good] = value[accepted], gradient[accepted]
        self.loss_gradient[good] = loss_gradient[accepted]
        stuck = ~accepted & (self.length[chosen] < SHORTEST_STEP)
        self.active = chosen[~stuck]
        self._aim(good)

    def _is_worth_a_pair(self, chosen):
        """Over a tiny step in float32, the change of the gradient is mostly rounding error."""
        return len(chosen) and (-self.slope[chosen] > SMALLEST_QUICK_PAIR * np.abs(self.value[chosen])).all()

    def _accept(self, chosen, value, gradient):
        """Armijo's rule, or, if the value cannot resolve a decrease, a slope that decreased."""
        slope, old = self.slope[chosen], self.value[chosen]
        finite = np.isfinite(value)
        decreases = value <= old + ARMIJO * self.length[chosen] * slope
        new_slope = np.einsum("sp,sp->s", gradient, self.direction[chosen])
        rounding = QUICK_ROUNDING if self.quick else ROUNDING
        level = (value <= old + rounding * np.abs(old)) & (np.abs(new_slope) <= 0.9 * np.abs(slope))
        return finite & (decreases | level)

    def _shorten(self, chosen, value):
        """Minimum of the parabola through both values and the slope, clipped to [0.1, 0.5] of the step."""
        length, slope = self.length[chosen], self.slope[chosen]
        rise = value - self.value[chosen] - length * slope
        with np.errstate(all="ignore"):
            parabola = -slope * length / (2 * rise)
        self.length[chosen] = length * np.where(np.isfinite(parabola), np.clip(parabola, 0.1, 0.5), 0.1)

    def _new_directions(self, chosen):
        if not len(chosen):
            return
        gradient, fits, temperature = self.gradient[chosen], self.fits[chosen], self._temperature(chosen)
        strength, _ = self.problem.penalty(temperature, fits)
        precondition = partial(_preconditioned, self.problem, self.memory.learned, temperature, fits)
        direction = -self.pairs.apply(chosen, gradient, strength, precondition)
        slope = np.einsum("sp,sp->s", gradient, direction)
        uphill = ~(slope < 0)
        if uphill.any():
            direction[uphill] = -precondition(gradient)[uphill]
            slope = np.einsum("sp,sp->s", gradient, direction)
        self.direction[chosen], self.slope[chosen], self.length[chosen] = direction, slope, 1.0


def _preconditioned(problem, learned, temperature, fits, vectors):
    """The approximate inverse Hessian of each point's fit at its temperature, applied to vectors."""
    if isinstance(temperature, float):
        return problem.precondition(vectors, temperature, fits, learned)
    solved = np.empty_like(vectors)
    for each in np.unique(temperature):
        of_it = temperature == each
        solved[of_it] = problem.precondition(vectors[of_it], float(each), fits[of_it], learned)
    return solved
