"""Limited-memory BFGS on a stack of points, preconditioned by the curvature that the family provides.

The final fit is solved first. Its displacement from the predicted start also shifts the folds, which reuse its pairs
and its preconditioner, so most folds are solved at their first evaluation. Where the cost of a pass is reading X, as
with few columns on a device, all fits are solved at once. All points step simultaneously: a pass evaluates the trial
point of every unfinished one; a point whose line search fails tries a shorter step in the next pass, while the others
move on. The memory stores pairs of the LOSS part only and the quadratic penalty is added exactly, so the memory stays
exact along the whole path if the loss of the family does not depend on the temperature.

Vectors live where the parameters do; numbers, such as values and inner products, are transferred to the host, at most
three times a pass.

The precision of a pass is that of `Scores.rounding`. On the host, final fits are certified in float64: if the rows have
a float32 copy, rounded steps come first, and points that must be certified are evaluated in float64 before them, which
most interpolated starts pass, and after them. On a device, where full precision is mostly float32, a fit is solved when
its next step promises little, and a point is certified only if that is asked for. If its steps are in half precision,
they are then corrected by one evaluation in full precision (`LinearScores.corrected_at`), before a search in full
precision.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from annealed.arrays import copied, inner, put, take
from annealed.problems.device_passes import FEW_COLUMNS
from annealed.problems.linear import refined_at
from annealed.problems.smooth import Rounding
from annealed.solvers.base import (
    ARMIJO,
    SHORTEST_STEP,
    SINGLE_PRECISION_TOL,
    STEP_SHARE,
    SUBOPTIMALITY_SHARE,
    Accuracy,
    Points,
    Solution,
    Solver,
    is_far,
    is_solved,
    largest_entry,
)
from annealed.solvers.pairs import KINDS, PathMemory, preconditioned

REFINED_SHARE = 0.8  # of `tol`: tolerance of corrected half precision, before full precision verifies it
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
        self.certifies_gaps = problem.scores.rounding(quick=False).is_exact
        if not problem.place.is_host and problem.temperature_free:
            self.gaps_together = max(1, FEW_COLUMNS // problem.n_classes)
            self.gaps_last = self.gaps_together > 1
        return problem

    def new_memory(self, problem):
        return PathMemory(self.memory_size, problem.n_fits, problem.place)

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
        if len(folds) and not problem.place.is_host and len(points.fits) * problem.n_classes <= FEW_COLUMNS:
            solve(np.arange(len(points.fits)), memory)
            return solution
        is_hot = points.temperatures[final] > MUCH_HOTTER * memory.learned_at
        for positions, recalled in ((final[~is_hot], memory), (final[is_hot], self.new_memory(problem))):
            for first in range(0, len(positions), self.gaps_together):
                solve(positions[first : first + self.gaps_together], recalled)
        if len(folds):
            if len(final) == 1 and problem.fits_are_alike:
                shift = take(solution.parameters, final) - take(points.parameters, final)
                put(solution.parameters, folds, take(solution.parameters, folds) + shift)
                memory.share()
            solve(folds, memory)
        memory.spend(-1)  # a good preconditioner needs one step per temperature
        return solution

    def _solve(self, problem, solution, points, accuracy: Accuracy, positions, memory):
        """Solve the points at these positions of the solution."""
        search = partial(_Search, problem, solution, points, accuracy, memory)
        is_exact, first = problem.scores.rounding(quick=False).is_exact, None
        if problem.scores.has_quick_rows:
            if accuracy.certify and not points.fits[positions].any():
                first = search(positions)
                first.finish()
                positions = positions[~solution.converged[positions]]
            if first is not None and not is_exact:
                self._refine(first, points, positions, accuracy)
            elif len(positions):
                search(positions, quick=True).run(accuracy.max_iter)
            if not (is_exact or accuracy.certify):
                return
            is_left = solution.n_iter[positions] < accuracy.max_iter
            is_left &= ~solution.converged[positions] | (accuracy.certify & (points.fits[positions] == 0))
            positions = positions[is_left]
        if len(positions):
            search(positions).run(accuracy.max_iter - solution.n_iter[positions].max())

    def _refine(self, first, points, positions, accuracy: Accuracy):
        """Steps in half precision, corrected by the evaluation in full precision that a search began with."""
        accuracy = accuracy._replace(tol=REFINED_SHARE * accuracy.tol)
        for position in positions.tolist():
            at, one = np.flatnonzero(first.positions == position), np.array([position])
            where = take(first.x, at), float(first.temperatures[at[0]]), first.fits[at]
            known = first.problem.place.wide(first.value[at]), take(first.loss_gradient, at)
            refined = refined_at(first.problem, *where, *known)
            _Search(refined, first.solution, points, accuracy, first.memory, one).run(accuracy.max_iter)
            first.solution.is_certified[one] = False


class _Rules(NamedTuple):
    """What depends on the precision of the passes.

    may_be_exact : whether there are exact passes, if not here then later
    certifies : whether a final fit is solved only when it is certified
    has_last_step : whether solved folds take a last step, unevaluated
    has_factor : whether the preconditioner gets a factor from the latest pairs
    price : cost of a pass for one fit
    """

    rounding: Rounding
    may_be_exact: bool
    certifies: bool
    has_last_step: bool
    has_factor: bool
    price: float

    @classmethod
    def of(cls, problem, quick, accuracy: Accuracy) -> _Rules:
        rounding, is_exact = problem.scores.rounding(quick), problem.scores.rounding(quick=False).is_exact
        has_last_step, has_factor = problem.takes_last_step and is_exact, not problem.place.is_host
        price = 2.0 if problem.scores.has_quick_rows and not quick else 1.0
        return cls(rounding, is_exact, is_exact or accuracy.certify, has_last_step, has_factor, price)


class _Search:
    """The state of a stack of line searches, one per point."""

    def __init__(self, problem, solution, points: Points, accuracy: Accuracy, memory, positions, quick=False):
        self.problem, self.solution, self.positions = problem, solution, positions
        self.fits, self.temperatures, self.tol = points.fits[positions], points.temperatures[positions], accuracy.tol
        self.memory, self.pairs, self.quick = memory, memory.pairs_of(self.fits), quick
        self.rules = _Rules.of(problem, quick, accuracy)
        n_points = len(positions)
        is_one = (self.temperatures == self.temperatures[0]).all()
        self.temperature = float(self.temperatures[0]) if is_one else None  # the common one, if there is one
        self.x = copied(take(solution.parameters, positions))
        self.direction = self.problem.place.xp.zeros_like(self.x)
        self.slope, self.length = np.zeros(n_points), np.ones(n_points)
        self.least_predicted = np.full(n_points, np.inf)  # smallest predicted decrease so far
        self.decrease = np.full(n_points, np.inf)  # of the value by the last step
        self.n_iter, self.converged = np.zeros(n_points, dtype=int), np.zeros(n_points, dtype=bool)
        self.active, self.is_done = np.arange(n_points), np.zeros(n_points, dtype=bool)
        self.gradient, self.loss_gradient, terms = self._evaluate(self.x, self.active)
        self.value, self.largest, self.bound = self.problem.place.host(*terms)
        if points.hotter is not None:
            _leave_misleading_starts(self, *points.hotter)
        if self.rules.rounding.is_exact and not solution.n_iter[positions].any() and not self.fits.any():
            solution.was_far[positions] = is_far(self.bound, self.tol)
        self._aim(self.active)

    def _evaluate(self, points, chosen):
        """Gradients of Q / T and of the loss; value, largest entry of the gradient, and certificate if any is final."""
        fits, temperature = self.fits[chosen], self._temperature(chosen)
        value, gradient, loss_gradient = self.problem.objective(points, temperature, fits, self.quick)
        bound = value * 0.0 if fits.all() else self.problem.certificate(gradient, value, temperature, fits)
        return gradient, loss_gradient, (value, largest_entry(gradient), bound)

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
            memory.spend(self.rules.price * len(self.active) / self.problem.n_fits)
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
        put(solution.parameters, places, self.x)
        solution.value[places] = self.value
        solution.converged[places] = self.converged
        solution.is_certified[places] = self.converged & (self.rules.certifies and not self.quick)
        solution.n_iter[places] += self.n_iter
        at = self._temperature(slice(None)), self.fits
        solution.note(self.problem, places, self.gradient, self.largest, self.bound, *at)
        self.memory.keep(self.fits, self.pairs)

    def _aim(self, chosen):
        """New directions for newly accepted points; solved ones are retired.

        Final fits that are certified are tested by their gradient before a direction is computed; in rounded precision
        also by the decrease that the direction predicts, like the folds.
        """
        is_tested = len(chosen) and self.rules.certifies and not self.fits[chosen].any()
        if is_tested:
            chosen = self._retire(chosen, np.full(len(chosen), np.inf))
        self._new_directions(chosen)
        if not (is_tested and self.rules.rounding.is_exact):
            self._retire(chosen, -0.5 * self.slope[chosen])

    def _retire(self, chosen, decrement):
        """Mark the solved points, let solved folds take a last step, and return the other points."""
        if not len(chosen):
            return chosen
        solved, is_done = self._judged(chosen, decrement)
        last = chosen[solved & (self.fits[chosen] > 0) & self.rules.has_last_step]
        if len(last):
            put(self.x, last, take(self.x, last) + take(self.direction, last))
            self.value[last] += 0.5 * self.slope[last]
        self.converged[chosen[solved]] = True
        self.is_done[chosen] = is_done
        self.active = self.active[~self.is_done[self.active]]
        return chosen[~is_done]

    def _judged(self, chosen, decrement):
        """Which points are solved, and which end here.

        Where exact passes follow rounded ones, a fold also counts as solved once its predicted decrease is rounding
        error that no longer shrinks; a final fit only ends. Where none follow, rounding error is as good as solved.
        """
        value, largest, bound, fits = self.value[chosen], self.largest[chosen], self.bound[chosen], self.fits[chosen]
        size, is_final = np.abs(value), fits == 0
        solved = is_solved(self.problem, value, largest, bound, fits, self.tol, decrement, self.rules.has_last_step)
        if self.rules.rounding.is_exact:
            return solved, solved
        is_rounding = decrement <= self.rules.rounding.decrease * size
        if self.rules.may_be_exact:
            least = self.least_predicted[chosen]
            self.least_predicted[chosen] = np.minimum(decrement, least)
            is_done = solved | (is_rounding & (decrement >= least))
            return np.where(is_final, solved, is_done), is_done
        share = SUBOPTIMALITY_SHARE if self.rules.certifies else STEP_SHARE
        promises_little = decrement <= share * self.tol * size
        if self.rules.certifies:
            promises_little &= (largest <= self.tol) & (bound <= self.tol)
        solved |= (is_final & promises_little) | is_rounding
        if self.quick:  # it reaches no further once the value stops decreasing
            solved |= self.decrease[chosen] <= self.rules.rounding.decrease * size
        return solved, solved

    def step(self):
        """One pass: evaluate the trial point of every active one, accept it or shorten the step, aim again."""
        chosen, place = self.active, self.problem.place
        x, direction, old_gradient = self.x, self.direction, self.loss_gradient
        if len(chosen) < len(self.fits):
            x, direction, old_gradient = take(x, chosen), take(direction, chosen), take(old_gradient, chosen)
        trial = x + place.wide(self.length[chosen])[:, None] * direction
        gradient, loss_gradient, terms = self._evaluate(trial, chosen)
        with np.errstate(over="ignore", invalid="ignore"):
            step, change = trial - x, loss_gradient - old_gradient
            products = inner(gradient, direction), inner(step, change), inner(step, step), inner(change, change)
            ratio = self._ratio(chosen, step, change) if self.rules.has_factor else ()
        value, largest, bound, new_slope, *numbers = place.host(*terms, *products, *ratio)
        self.n_iter[chosen] += 1
        accepted = self._accept(chosen, value, largest, bound, new_slope)
        is_noise = _is_noise(self, chosen, value, new_slope)
        self._shorten(chosen[~accepted], value[~accepted])
        good = chosen[accepted]
        self.pairs.add(chosen, step, change, numbers, accepted)
        self.decrease[good] = self.value[good] - value[accepted]
        self.value[good], self.largest[good], self.bound[good] = value[accepted], largest[accepted], bound[accepted]
        if len(good) == len(self.fits):
            self.x, self.gradient, self.loss_gradient = trial, gradient, loss_gradient
        elif len(good):
            at = np.flatnonzero(accepted)
            put(self.x, good, take(trial, at))
            put(self.gradient, good, take(gradient, at))
            put(self.loss_gradient, good, take(loss_gradient, at))
        self._give_up(chosen[~accepted], is_noise[~accepted])
        self._aim(good)

    def _give_up(self, chosen, is_noise):
        """Drop points whose steps are too short. In rounded precision, no digits may be left to resolve a decrease."""
        is_stuck = self.length[chosen] < SHORTEST_STEP
        if not self.rules.may_be_exact:
            resolved = -0.5 * self.slope[chosen] > self.rules.rounding.loss * np.abs(self.value[chosen])
            is_accurate = (self.bound[chosen] <= self.tol) | (not self.rules.certifies)
            self.converged[chosen] = (is_noise & is_accurate) | (is_stuck & (self.quick | ~resolved))
        self.is_done[chosen[is_stuck | is_noise]] = True
        self.active = self.active[~self.is_done[self.active]]

    def _ratio(self, chosen, step, change):
        """Products s'y and y'Dy of each step, with the penalty's part of y."""
        at = self._temperature(chosen), self.fits[chosen]
        total = change + self.problem.penalty(*at)[0] * step
        return inner(step, total), inner(total, self.problem.precondition(total, *at))

    def _accept(self, chosen, value, largest, bound, new_slope):
        """Armijo's rule, or, if the value cannot resolve a decrease, a slope that decreased, or a small certificate.

        The last is for rounded rows, whose corrected values and gradients agree only approximately. A certificate of
        zero means that the family has none.
        """
        slope, old = self.slope[chosen], self.value[chosen]
        finite = np.isfinite(value)
        decreases = value <= old + ARMIJO * self.length[chosen] * slope
        level = (value <= old + self.rules.rounding.loss * np.abs(old)) & (np.abs(new_slope) <= 0.9 * np.abs(slope))
        if self.rules.certifies and not self.rules.may_be_exact:
            level |= (bound > 0) & (bound <= self.tol) & (largest <= self.tol)
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
        is_all = len(chosen) == len(self.fits)
        gradient = self.gradient if is_all else take(self.gradient, chosen)
        fits, temperature = self.fits[chosen], self._temperature(chosen)
        strength, _ = self.problem.penalty(temperature, fits)
        factor = self.problem.place.wide(self.pairs.factor(chosen))[:, None] if self.rules.has_factor else None
        precondition = partial(preconditioned, self.problem, self.memory.learned, temperature, fits, factor)
        direction, product = self.pairs.apply(chosen, gradient, strength, precondition)
        uphill = np.flatnonzero(~(product > 0))
        if len(uphill):
            put(direction, uphill, take(precondition(gradient), uphill))
            (product,) = self.problem.place.host(inner(gradient, direction))
        if is_all:
            self.direction = -direction
        else:
            put(self.direction, chosen, -direction)
        self.slope[chosen], self.length[chosen] = -product, 1.0


def _leave_misleading_starts(search: _Search, parameters, value):
    """Start where a fit was solved at a hotter temperature, if the predicted start has a larger value than that.

    From there, Q / T can only decrease. An outlying sample can make tangents point in a wrong direction.
    """
    misled = np.flatnonzero(~(search.value <= value[search.fits]))
    if len(misled):
        put(search.x, misled, take(parameters, search.fits[misled]))
        gradient, loss_gradient, terms = search._evaluate(take(search.x, misled), misled)
        put(search.gradient, misled, gradient)
        put(search.loss_gradient, misled, loss_gradient)
        search.value[misled], search.largest[misled], search.bound[misled] = search.problem.place.host(*terms)


def _is_noise(search: _Search, chosen, value, slope):
    """Whether the gradient is rounding error: a convex function does not rise where its slope still falls.

    value, slope : at the trial points
    """
    old = search.value[chosen]
    is_resolved = -search.length[chosen] * search.slope[chosen] > search.rules.rounding.loss * np.abs(old)
    return (value > old) & (slope < 0) & is_resolved & (not search.rules.may_be_exact)
