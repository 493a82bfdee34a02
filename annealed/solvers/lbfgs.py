"""Limited-memory BFGS on a stack of fits, preconditioned by the family's curvature.

The final fit goes first. Its move from where it was predicted moves the folds too, and what it learned of its Hessian
serves them: most folds are then done at their first look. All folds step together: a pass evaluates each unfinished
fit at its own trial point; one that fails its line search tries a shorter step in the next pass while the others move
on. The memory keeps pairs of the LOSS part only; the quadratic penalty is added exactly, so where a family's loss does
not depend on the temperature the memory stays exact down the whole path.

Where there are rows in single precision, steps are by these. When the path has ended and is kept, it is confirmed in
double precision: fits that are not certified there go on.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from annealed.arrays import as_slice
from annealed.solvers.base import (
    ROUNDING,
    SINGLE_PRECISION_TOL,
    Solution,
    Solver,
    is_far,
    is_solved,
    look_at_final,
    unsolved,
)

ARMIJO = 1e-4
SHORTEST_STEP = 1e-10
SMALLEST_QUICK_PAIR = 1e-8  # relative fall promised by a step in single precision whose gradient change is kept
QUICK_DECREMENT = 1e-7  # relative: what a step promises below this may be rounding, in single precision, unless it is
CLEAR_FALL = 0.9  # no more than this share of the least that any step before promised
QUICK_ROUNDING = 1e-7  # as `ROUNDING`, in single precision
CONFIRMED_TOGETHER = 4  # temperatures: more take memory, and no less time each
STEPS_TOGETHER = 3  # of the final fit at several temperatures, before each goes on by itself
LEAST_PATIENCE = 1.0  # passes of the whole stack before a better preconditioner is asked for
KINDS = WHOLE, CLASSES = "whole", "classes"  # of what a family may learn of its Hessian
CLASSES_PATIENCE = 0.5  # of that, and of what they cost, before blocks of classes are
MUCH_HOTTER = 6.0  # than where a Hessian was learned: posteriors are so much softer there that it would mislead


class LBFGS(Solver):
    """Preconditioned limited-memory BFGS.

    Parameters
    ----------
    memory_size : int, default=10
        Number of (step, gradient change) pairs kept per fit.
    successor : Solver, default=None
        A solver with each fit's own Hessian, which takes over once a learned one was asked for twice since the node
        before.
    """

    filled_together = 8

    def __init__(self, *, memory_size=10, successor=None) -> None:
        self.memory_size = memory_size
        self.successor = successor

    def adapt(self, problem, tol):
        if tol >= SINGLE_PRECISION_TOL:
            problem.make_float32_copy()
        return problem

    def new_memory(self, problem):
        return _Pairs(self.memory_size, problem.n_fits)

    def fill(self, problem, starts, temperatures, *, tol, max_iter, memory):
        """A few looks at all of them, with a step between. Most are solved then, and the others are, one by one."""
        if memory.is_over:
            return self.successor.fill(problem, starts, temperatures, tol=tol, max_iter=max_iter, memory=None)
        memories = [self._recalled(problem, memory, own) for own in temperatures.tolist()]

        def solve(own, start):
            options = {"tol": tol, "max_iter": max_iter, "memory": memories[own], "final_only": True}
            return self.minimize(problem, start, float(temperatures[own]), **options).only(0)

        if len(starts) == 1:
            return solve(0, starts)
        found = _stepped_together(problem, starts, temperatures, tol, memories)
        for own in np.flatnonzero(~found.converged):
            found.put([own], solve(own, found.parameters[[own]]))
        return found

    def needs_confirmation(self, problem):
        return problem.has_quick_rows

    def confirm(self, problem, starts, temperatures, *, tol, max_iter, memory):
        groups = (slice(first, first + CONFIRMED_TOGETHER) for first in range(0, len(starts), CONFIRMED_TOGETHER))
        found = Solution.joined([look_at_final(problem, starts[few], temperatures[few], tol)[0] for few in groups])
        for own in np.flatnonzero(~found.converged):
            solution, temperature = unsolved(starts[[own]]), float(temperatures[own])
            known = self._recalled(problem, memory, temperature)
            _Search(problem, solution, temperature, tol, known, [0]).run(max_iter)
            found.put([own], solution)
        return found

    def _recalled(self, problem, memory, temperature):
        """What the walk remembers, or nothing far behind where it learned a Hessian."""
        return self.new_memory(problem) if temperature > MUCH_HOTTER * memory.learned_at else memory

    def minimize(self, problem, start, temperature, *, tol, max_iter, memory, final_only=False):
        if memory.is_over and not final_only:
            return self.successor.minimize(problem, start, temperature, tol=tol, max_iter=max_iter, memory=None)
        if not problem.temperature_free:
            memory.clear()
        solution = unsolved(start)
        state = (problem, solution, temperature, tol, memory)
        search = _Search(*state, [0], quick=problem.has_quick_rows)
        if final_only:
            bound = problem.certificate(search.gradient[:1], search.value[:1], temperature, [0])
            solution = replace(solution, was_far=is_far(bound, tol))
        search.run(max_iter)
        is_left_as_it_lies = final_only and not solution.n_iter[0]
        if search.quick and (is_left_as_it_lies or not solution.converged[0]):  # else it is confirmed with the others
            _Search(*state, [0]).run(max_iter - solution.n_iter[0])
        if problem.n_fits > 1 and not final_only:
            folds = np.arange(1, problem.n_fits)
            if problem.fits_are_alike:
                solution.parameters[folds] += solution.parameters[0] - start[0]
                memory.share()
            _run_folds(*state, folds, max_iter)
        memory.spend(-1)  # one step a temperature is what a good preconditioner costs
        if not final_only:
            memory.is_over = self.successor is not None and memory.n_learned > 1
            memory.n_learned = 0
        return solution

    def minimize_folds(self, problem, start, temperature, *, tol, max_iter, memory):
        solution, folds = unsolved(start), np.arange(1, problem.n_fits)
        _run_folds(problem, solution, temperature, tol, memory, folds, max_iter)
        return solution


def _run_folds(problem, solution, temperature, tol, memory, folds, max_iter):
    """In single precision where rows are quick; those that its rounding misled go on in double."""
    _Search(problem, solution, temperature, tol, memory, folds, quick=problem.has_quick_rows).run(max_iter)
    left = folds[~solution.converged[folds]]
    if problem.has_quick_rows and len(left):
        _Search(problem, solution, temperature, tol, memory, left).run(max_iter - solution.n_iter[left].max())


def _stepped_together(problem, starts, temperatures, tol, memories):
    """The final fit at several temperatures after a few steps by what is known; those that rise are not taken.

    The first look is in double precision: most temperatures that lie close together need no other.
    """
    quick, final = problem.has_quick_rows, np.zeros(1, dtype=int)
    slack = 1 + (QUICK_ROUNDING if quick else ROUNDING)
    found, gradient = look_at_final(problem, starts, temperatures, tol)
    rest = np.flatnonzero(~found.converged)
    for _ in range(STEPS_TOGETHER):
        if not len(rest):
            break
        aims = [_aimed(problem, memories[own], gradient[[own]], float(temperatures[own]), final)[1] for own in rest]
        trial, old = found.parameters[rest] + np.concatenate(aims), found.value[rest]
        seen, new_gradient = look_at_final(problem, trial, temperatures[rest], tol, quick)
        seen.n_iter[:] += 1
        is_level = (seen.value <= slack * old) & (seen.gradient_norm < found.gradient_norm[rest])
        falls = (seen.value < old) | is_level
        rest = rest[falls]
        found.put(rest, seen, falls)
        gradient[rest] = new_gradient[falls]
        rest = rest[~found.converged[rest]]
    return found


class _Search:
    """The state of a stack of line searches. Arrays are per fit; `active` names the unfinished fits."""

    def __init__(self, problem, solution, temperature, tol, memory, fits, quick=False):
        self.problem, self.solution, self.temperature, self.tol = problem, solution, temperature, tol
        self.pairs, self.quick = memory, quick
        self.price = 2.0 if problem.has_quick_rows and not quick else 1.0  # of a pass for one fit
        self.x, self.value = solution.parameters, solution.value
        self.gradient, self.loss_gradient = np.zeros_like(self.x), np.zeros_like(self.x)
        self.direction = np.zeros_like(self.x)
        self.slope, self.length = np.zeros(problem.n_fits), np.ones(problem.n_fits)
        self.least_promised = np.full(problem.n_fits, np.inf)  # by a step so far
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
                delays[kind] *= 2  # at one temperature, each further look is worth less
            memory.spend(self.price * len(self.active) / self.problem.n_fits)
            self.step()
        self.solution.note(self.problem, self.fits, self.gradient[self.fits], self.temperature, self.fits)

    def _aim(self, fits):
        """New directions for these fits, which stand at accepted points; solved ones are done.

        The final fit is judged by its gradient, before a direction is sought; in single precision by the fall that the
        direction promises too, as folds are.
        """
        is_final = len(fits) and fits[0] == 0
        if is_final:
            fits = self._retire(fits, np.full(len(fits), np.inf))
        self._new_directions(fits)
        if self.quick or not is_final:
            self._retire(fits, -0.5 * self.slope[fits])

    def _retire(self, fits, decrement):
        """Mark the solved ones of these fits, and let folds among them take a last step; the others.

        In single precision a fold is also solved where its steps end in rounding; the final fit is just left then.
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
        """Whether what steps promise is so little, in single precision, that it no longer falls."""
        least = self.least_promised[fits]
        self.least_promised[fits] = np.minimum(decrement, least)
        return (decrement <= QUICK_DECREMENT * np.abs(self.value[fits])) & (decrement >= CLEAR_FALL * least)

    def step(self):
        """One pass: try every active fit's point, accept or shorten, and aim again where accepted."""
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
        """In single precision the change of gradient over a tiny step is mostly rounding."""
        return len(fits) and (-self.slope[fits] > SMALLEST_QUICK_PAIR * np.abs(self.value[fits])).all()

    def _accept(self, fits, value, gradient):
        """Armijo's rule, or, where the value has no digits left to fall, a slope that did."""
        slope, old = self.slope[fits], self.value[fits]
        finite = np.isfinite(value)
        falls = value <= old + ARMIJO * self.length[fits] * slope
        new_slope = np.einsum("sp,sp->s", gradient, self.direction[fits])
        rounding = QUICK_ROUNDING if self.quick else ROUNDING
        level = (value <= old + rounding * np.abs(old)) & (np.abs(new_slope) <= 0.9 * np.abs(slope))
        return finite & (falls | level)

    def _shorten(self, fits, value):
        """Minimum of the parabola through both values and the slope, kept within [0.1, 0.5] of the step."""
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
    """The preconditioner there, and directions by it and by what steps have shown."""
    strength, _ = problem.penalty(temperature, fits)
    precondition = partial(problem.precondition, temperature=temperature, fits=fits, learned=pairs.learned)
    return precondition, -pairs.apply(fits, gradient, strength, precondition)


class _Pairs:
    """Per fit, a ring of the last (step, change of the loss gradient) pairs."""

    def __init__(self, size, n_fits):
        self.size, self.n_fits = size, n_fits
        self.steps = np.zeros((0, 0, 0))
        self.clear()

    def clear(self):
        self.count = np.zeros(self.n_fits, dtype=int)
        self.learned, self.level = None, -1  # what the family has said of its Hessian, and how much of the whole
        self.learned_at = np.inf  # temperature
        self.n_passes = dict.fromkeys(KINDS, 0.0)  # spent on steps since each kind, or a better one, was learned
        self.n_learned = 0  # whole Hessians, since the last node
        self.is_over = False  # from the next node on each fit needs its own, and a successor has them

    def spend(self, n_passes):
        self.n_passes = {kind: max(0.0, spent + n_passes) for kind, spent in self.n_passes.items()}

    def kind_due(self, problem, delays):
        """What to learn now, if anything: when steps since the last have cost as much as it does, and no less than some
        passes. Blocks of classes come first, and often; after a whole Hessian, another one.
        """
        if self.n_passes[WHOLE] < CLASSES_PATIENCE * LEAST_PATIENCE:  # not even for what comes first
            return None
        if self.n_passes[WHOLE] >= delays[WHOLE] * max(LEAST_PATIENCE, problem.learning_cost(self.level + 1)):
            return WHOLE
        patience = CLASSES_PATIENCE * max(LEAST_PATIENCE, problem.class_learning_cost())
        return CLASSES if self.level < 0 and self.n_passes[CLASSES] >= delays[CLASSES] * patience else None

    def learn(self, kind, problem, parameters, temperature):
        self.learned = None  # gives its memory back before the next takes more
        if kind == CLASSES:
            self.learned = problem.learn_classes(parameters, temperature)
        else:
            self.level += 1
            self.learned = problem.learn_curvature(parameters, temperature, self.level)
            self.n_learned += 1
            self.n_passes[WHOLE] = 0.0
        self.n_passes[CLASSES], self.learned_at = 0.0, temperature

    def share(self):
        """Give every fold the final fit's pairs: their Hessians are much alike."""
        self.count[1:] = self.count[0]
        if self.steps.size:
            self.steps[1:], self.changes[1:] = self.steps[0], self.changes[0]

    def add(self, fits, step, change):
        """Keep the pairs whose curvature is clearly positive: convex losses give no others."""
        if not self.steps.size:
            self.steps = np.zeros((self.n_fits, self.size, step.shape[1]))
            self.changes, self._penalized = np.zeros_like(self.steps), np.empty_like(self.steps)
        curvature = np.einsum("sp,sp->s", step, change)
        bound = 1e-12 * np.linalg.norm(step, axis=1) * np.linalg.norm(change, axis=1)
        keep = curvature > bound
        fits, slot = fits[keep], self.count[fits[keep]] % self.size
        self.steps[fits, slot], self.changes[fits, slot] = step[keep], change[keep]
        self.count[fits] += 1

    def apply(self, fits, gradient, strength, precondition):
        """The two-loop recursion on `changes + strength * steps`, started from the family's preconditioner.

        Each loop is a system in the inner products of steps and changes, triangular if the newest were first; the
        second's is the transpose of the first's.
        """
        count = self.count[fits, None]
        if not count.any():
            return precondition(gradient)
        own = as_slice(fits)
        steps, changes = self.steps[own], self._changes_with(strength, own, len(fits))
        age = (count - 1 - np.arange(self.size)) % self.size
        is_known = age < count
        is_later = (age[:, :, None] >= age[:, None]) & is_known[:, :, None] & is_known[:, None]
        triangle = np.where(is_later, steps @ changes.swapaxes(1, 2), 0.0)
        curvature = np.einsum("sii->si", triangle)
        curvature += ~is_known
        inverse = np.linalg.inv(triangle)
        weight = _along(inverse, _along(steps, gradient) * is_known)
        vector = precondition(gradient - _combined(weight, changes))
        back = _along(changes, vector) * is_known
        return vector + _combined(_combined(curvature * weight - back, inverse), steps)

    def _changes_with(self, strength, own, n_fits):
        """Changes of the gradient with its penalty, in an array that is kept: a new one of this size takes longer to
        get than to fill.
        """
        changes = np.multiply(self.steps[own], np.atleast_2d(strength)[:, None], out=self._penalized[:n_fits])
        changes += self.changes[own]
        return changes


def _along(pairs, vectors):
    """Inner products (n_fits, n_pairs) of each fit's pairs with its vector."""
    return (pairs @ vectors[..., None])[..., 0]


def _combined(weights, pairs):
    return (weights[:, None] @ pairs)[:, 0]
