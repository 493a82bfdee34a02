"""Limited-memory BFGS on a stack of fits, preconditioned by the curvature that the family provides.

The final fit is solved first. Its displacement from the predicted start also shifts the folds, which reuse its pairs
and its preconditioner, so most folds are solved at their first evaluation. All folds step simultaneously: a pass
evaluates the trial point of every unfinished fit; a fit whose line search fails tries a shorter step in the next pass,
while the others move on. The memory stores pairs of the LOSS part only and the quadratic penalty is added exactly, so
the memory stays exact along the whole path if the loss of the family does not depend on the temperature.

If the rows have a float32 copy, steps use it. The path that is kept is confirmed in float64 at the end: fits that are
not certified there continue.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from annealed.solvers.base import (
    ROUNDING,
    SINGLE_PRECISION_TOL,
    Solution,
    Solver,
    evaluate_final,
    is_far,
    is_solved,
    unsolved,
)
from annealed.solvers.pairs import KINDS, PairsOfFits

ARMIJO = 1e-4
SHORTEST_STEP = 1e-10
SMALLEST_QUICK_PAIR = 1e-8  # predicted relative decrease of a float32 step below which no pair is stored
QUICK_DECREMENT = 1e-7  # predicted relative decrease below which it may be rounding error of float32
CLEAR_FALL = 0.9  # share of the smallest decrease predicted so far, below which a new one counts as smaller
QUICK_ROUNDING = 1e-7  # like `ROUNDING`, for float32
CONFIRMED_TOGETHER = 4  # temperatures confirmed in one evaluation: more need memory and save no time
STEPS_TOGETHER = 3  # joint steps of the final fit at several temperatures, before each continues alone
MUCH_HOTTER = 6.0  # ratio to the temperature of a Hessian, beyond which it misleads: posteriors are much softer


class LBFGS(Solver):
    """Preconditioned limited-memory BFGS.

    Parameters
    ----------
    memory_size : int, default=10
        Number of (step, gradient change) pairs kept per fit.
    successor : Solver, default=None
        A solver with an exact Hessian per fit. It takes over at the next node once the preconditioner's Hessian was
        computed more than once since the node before.
    """

    filled_together = 8

    def __init__(self, *, memory_size=10, successor=None) -> None:
        self.memory_size = memory_size
        self.successor = successor

    def adapt(self, problem, tol):
        if tol >= SINGLE_PRECISION_TOL:
            problem.scores.make_float32_copy()
        return problem

    def new_memory(self, problem):
        return PairsOfFits(self.memory_size, problem.n_fits)

    def fill(self, problem, starts, temperatures, *, tol, max_iter, memory):
        """Evaluate all starts with a few joint steps, which solve most of them; solve the others one by one."""
        if memory.is_over:
            return self.successor.fill(problem, starts, temperatures, tol=tol, max_iter=max_iter, memory=None)
        memories = [self._recalled(problem, memory, temperature) for temperature in temperatures.tolist()]

        def solve(position, start):
            options = {"tol": tol, "max_iter": max_iter, "memory": memories[position], "final_only": True}
            return self.minimize(problem, start, float(temperatures[position]), **options).only(0)

        if len(starts) == 1:
            return solve(0, starts)
        solution = _stepped_together(problem, starts, temperatures, tol, memories)
        for position in np.flatnonzero(~solution.converged):
            solution.put([position], solve(position, solution.parameters[[position]]))
        return solution

    def needs_confirmation(self, problem):
        return problem.has_float32_rows

    def confirm(self, problem, starts, temperatures, *, tol, max_iter, memory):
        groups = (slice(first, first + CONFIRMED_TOGETHER) for first in range(0, len(starts), CONFIRMED_TOGETHER))
        confirmed = Solution.joined(
            [evaluate_final(problem, starts[part], temperatures[part], tol)[0] for part in groups]
        )
        for position in np.flatnonzero(~confirmed.converged):
            solution, temperature = unsolved(starts[[position]]), float(temperatures[position])
            recalled = self._recalled(problem, memory, temperature)
            _Search(problem, solution, temperature, tol, recalled, [0]).run(max_iter)
            confirmed.put([position], solution)
        return confirmed

    def _recalled(self, problem, memory, temperature):
        """The memory of the path, or an empty one if it has learned a Hessian at a much lower temperature."""
        return self.new_memory(problem) if temperature > MUCH_HOTTER * memory.learned_at else memory

    def minimize(self, problem, start, temperature, *, tol, max_iter, memory, final_only=False):
        if memory.is_over and not final_only:
            return self.successor.minimize(problem, start, temperature, tol=tol, max_iter=max_iter, memory=None)
        if not problem.temperature_free:
            memory.clear()
        solution = unsolved(start)
        state = (problem, solution, temperature, tol, memory)
        search = _Search(*state, [0], quick=problem.has_float32_rows)
        if final_only:
            bound = problem.certificate(search.gradient[:1], search.value[:1], temperature, [0])
            solution = replace(solution, was_far=is_far(bound, tol))
        search.run(max_iter)
        is_unchanged = final_only and not solution.n_iter[0]
        if search.quick and (is_unchanged or not solution.converged[0]):  # otherwise `confirm` follows
            _Search(*state, [0]).run(max_iter - solution.n_iter[0])
        if problem.n_fits > 1 and not final_only:
            folds = np.arange(1, problem.n_fits)
            if problem.fits_are_alike:
                solution.parameters[folds] += solution.parameters[0] - start[0]
                memory.share()
            _run_folds(*state, folds, max_iter)
        memory.spend(-1)  # a good preconditioner needs one step per temperature
        if not final_only:
            memory.is_over = self.successor is not None and memory.n_learned > 1
            memory.n_learned = 0
        return solution

    def minimize_folds(self, problem, start, temperature, *, tol, max_iter, memory):
        solution, folds = unsolved(start), np.arange(1, problem.n_fits)
        _run_folds(problem, solution, temperature, tol, memory, folds, max_iter)
        return solution


def _run_folds(problem, solution, temperature, tol, memory, folds, max_iter):
    """In float32 if the rows have such a copy; folds that its rounding has stopped continue in float64."""
    _Search(problem, solution, temperature, tol, memory, folds, quick=problem.has_float32_rows).run(max_iter)
    left = folds[~solution.converged[folds]]
    if problem.has_float32_rows and len(left):
        _Search(problem, solution, temperature, tol, memory, left).run(max_iter - solution.n_iter[left].max())


def _stepped_together(problem, starts, temperatures, tol, memories):
    """The final fit at several temperatures after a few joint steps; steps that increase the value are rejected.

    The first evaluation is in float64: most temperatures that are close together need no other.
    """
    quick, final = problem.has_float32_rows, np.zeros(1, dtype=int)
    slack = 1 + (QUICK_ROUNDING if quick else ROUNDING)
    solution, gradient = evaluate_final(problem, starts, temperatures, tol)
    rest = np.flatnonzero(~solution.converged)
    for _ in range(STEPS_TOGETHER):
        if not len(rest):
            break
        aims = [
            _aimed(problem, memories[position], gradient[[position]], float(temperatures[position]), final)[1]
            for position in rest
        ]
        trial, old = solution.parameters[rest] + np.concatenate(aims), solution.value[rest]
        trial_solution, new_gradient = evaluate_final(problem, trial, temperatures[rest], tol, quick)
        trial_solution.n_iter[:] += 1
        is_level = (trial_solution.value <= slack * old) & (trial_solution.gradient_norm < solution.gradient_norm[rest])
        decreases = (trial_solution.value < old) | is_level
        rest = rest[decreases]
        solution.put(rest, trial_solution, decreases)
        gradient[rest] = new_gradient[decreases]
        rest = rest[~solution.converged[rest]]
    return solution


class _Search:
    """The state of a stack of line searches. Arrays are per fit; `active` are the unfinished fits."""

    def __init__(self, problem, solution, temperature, tol, memory, fits, quick=False):
        self.problem, self.solution, self.temperature, self.tol = problem, solution, temperature, tol
        self.pairs, self.quick = memory, quick
        self.price = 2.0 if problem.has_float32_rows and not quick else 1.0  # cost of a pass for one fit
        self.x, self.value = solution.parameters, solution.value
        self.gradient, self.loss_gradient = np.zeros_like(self.x), np.zeros_like(self.x)
        self.direction = np.zeros_like(self.x)
        self.slope, self.length = np.zeros(problem.n_fits), np.ones(problem.n_fits)
        self.least_predicted = np.full(problem.n_fits, np.inf)  # smallest predicted decrease so far
        self.is_done = np.zeros(problem.n_fits, dtype=bool)
        self.fits = self.active = np.asarray(fits)
        self.value[fits], self.gradient[fits], self.loss_gradient[fits] = self._objective(self.x[fits], self.fits)
        solution.converged[fits] = False
        self._aim(self.active)

    def _objective(self, points, fits):
        return self.problem.objective(points, self.temperature, fits, self.quick)

    def run(self, max_iter):
        memory, delays = self.pairs, dict.fromkeys(KINDS, 1)
        for _ in range(max_iter):
            if not len(self.active):
                break
            kind = memory.kind_due(self.problem, delays)
            if kind is not None:
                memory.learn(kind, self.problem, self.x[0], self.temperature)
                self._new_directions(self.active)
                delays[kind] *= 2  # at one temperature, every further Hessian is worth less
            memory.spend(self.price * len(self.active) / self.problem.n_fits)
            self.step()
        self.solution.note(self.problem, self.fits, self.gradient[self.fits], self.temperature, self.fits)

    def _aim(self, fits):
        """New directions for fits at newly accepted points; solved fits are retired.

        The final fit is tested by its gradient before a direction is computed; in float32 also by the decrease that the
        direction predicts, like the folds.
        """
        is_final = len(fits) and fits[0] == 0
        if is_final:
            fits = self._retire(fits, np.full(len(fits), np.inf))
        self._new_directions(fits)
        if self.quick or not is_final:
            self._retire(fits, -0.5 * self.slope[fits])

    def _retire(self, fits, decrement):
        """Mark the solved fits, let solved folds take a last step, and return the other fits.

        In float32 a fold also counts as solved once its predicted decrease is rounding error; the final fit only stops.
        """
        if not len(fits):
            return fits
        at = self.value[fits], self.gradient[fits], self.temperature, fits
        has_last_step = self.problem.takes_last_step
        solved = is_solved(self.problem, *at, self.tol, decrement, has_last_step)
        is_done = solved
        if self.quick:
            is_done = solved | self._is_rounding(fits, decrement)
            solved = np.where(fits > 0, is_done, solved)
        last = fits[solved & (fits > 0) & has_last_step]
        self.x[last] += self.direction[last]
        self.value[last] += 0.5 * self.slope[last]
        self.solution.converged[fits[solved]] = True
        self.is_done[fits] = is_done
        self.active = self.active[~self.is_done[self.active]]
        return fits[~is_done]

    def _is_rounding(self, fits, decrement):
        """Whether the predicted decrease is so small in float32 that it no longer shrinks."""
        least = self.least_predicted[fits]
        self.least_predicted[fits] = np.minimum(decrement, least)
        return (decrement <= QUICK_DECREMENT * np.abs(self.value[fits])) & (decrement >= CLEAR_FALL * least)

    def step(self):
        """One pass: evaluate the trial point of every active fit, accept it or shorten the step, aim again."""
        fits = self.active
        trial = self.x[fits] + self.length[fits, None] * self.direction[fits]
        value, gradient, loss_gradient = self._objective(trial, fits)
        self.solution.n_iter[fits] += 1
        accepted = self._accept(fits, value, gradient)
        self._shorten(fits[~accepted], value[~accepted])
        good = fits[accepted]
        if not self.quick or self._is_worth_a_pair(good):
            self.pairs.add(good, trial[accepted] - self.x[good], loss_gradient[accepted] - self.loss_gradient[good])
        self.x[good] = trial[accepted]
        self.value[good], self.gradient[good] = value[accepted], gradient[accepted]
        self.loss_gradient[good] = loss_gradient[accepted]
        stuck = ~accepted & (self.length[fits] < SHORTEST_STEP)
        self.active = fits[~stuck]
        self._aim(good)

    def _is_worth_a_pair(self, fits):
        """Over a tiny step in float32, the change of the gradient is mostly rounding error."""
        return len(fits) and (-self.slope[fits] > SMALLEST_QUICK_PAIR * np.abs(self.value[fits])).all()

    def _accept(self, fits, value, gradient):
        """Armijo's rule, or, if the value cannot resolve a decrease, a slope that decreased."""
        slope, old = self.slope[fits], self.value[fits]
        finite = np.isfinite(value)
        decreases = value <= old + ARMIJO * self.length[fits] * slope
        new_slope = np.einsum("sp,sp->s", gradient, self.direction[fits])
        rounding = QUICK_ROUNDING if self.quick else ROUNDING
        level = (value <= old + rounding * np.abs(old)) & (np.abs(new_slope) <= 0.9 * np.abs(slope))
        return finite & (decreases | level)

    def _shorten(self, fits, value):
        """Minimum of the parabola through both values and the slope, clipped to [0.1, 0.5] of the step."""
        if not len(fits):
            return
        length, slope = self.length[fits], self.slope[fits]
        rise = value - self.value[fits] - length * slope
        with np.errstate(all="ignore"):
            parabola = -slope * length / (2 * rise)
        factor = np.where(np.isfinite(parabola), np.clip(parabola, 0.1, 0.5), 0.1)
        self.length[fits] = length * factor

    def _new_directions(self, fits):
        if not len(fits):
            return
        gradient = self.gradient[fits]
        precondition, direction = _aimed(self.problem, self.pairs, gradient, self.temperature, fits)
        slope = np.einsum("sp,sp->s", gradient, direction)
        uphill = ~(slope < 0)
        if uphill.any():
            direction[uphill] = -precondition(gradient)[uphill]
            slope = np.einsum("sp,sp->s", gradient, direction)
        self.direction[fits], self.slope[fits], self.length[fits] = direction, slope, 1.0


def _aimed(problem, pairs, gradient, temperature, fits):
    """The preconditioner, and directions from it and the stored pairs."""
    strength, _ = problem.penalty(temperature, fits)
    precondition = partial(problem.precondition, temperature=temperature, fits=fits, learned=pairs.learned)
    return precondition, -pairs.apply(fits, gradient, strength, precondition)
