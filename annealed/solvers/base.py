"""What a solver takes and gives: a stack of problems at one temperature, a frozen record of the minimum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from annealed.arrays import namespace_of
from annealed.objectives import Problem, SmoothProblem

SUBOPTIMALITY_SHARE = 0.01  # the final fit's certified relative suboptimality is held under this share of `tol`
FOLD_SUBOPTIMALITY_SHARE = 1.0  # and a fold's estimated one, whose only use is to choose a temperature, under this
SINGLE_PRECISION_TOL = 1e-5  # tolerances down to this are served by folds in single precision
FAR = 10.0  # times what is certified: what lies halfway to the neighbours of a start so far off may not be, either
ROUNDING = 64 * np.finfo(np.float64).eps  # progress below this, relative to the value, is not progress


@dataclass(frozen=True)
class Solution:
    """Minima of a stack of fits at one temperature; every array has a leading axis of fits.

    Fits that were not asked for stay where they started and count as converged. `certificate` bounds the relative
    suboptimality, NaN where that is not known; `tangent` is the derivative of the parameters by the logarithm of the
    temperature, `was_far` tells whether the final fit began far from its minimum, where a solver says so; `entropy` is
    what `Problem.summarize` would find at `parameters`, NaN where it was not told by the last look.
    """

    parameters: np.ndarray
    value: np.ndarray
    gradient_norm: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray
    certificate: Any = None  # an array, as the others, or None of a solver that does not say
    tangent: np.ndarray | None = None
    was_far: Any = None
    entropy: Any = None

    def only(self, fit: int) -> Solution:
        """One fit of the stack, alone."""
        return self.part(slice(fit, fit + 1))

    def part(self, few: slice) -> Solution:
        """Some fits of the stack; what is written there is written here."""
        whole = [getattr(self, name) for name in FIELDS]
        parts: list[Any] = [None if own is None else own[few, ...] for own in whole]
        return Solution(*parts)

    def put(self, places, other: Solution, chosen=slice(None)):
        """The chosen fits of another solution in these places, with the iterations that both have taken."""
        for name in ("parameters", "value", "gradient_norm", "converged", "certificate", "entropy"):
            getattr(self, name)[places] = getattr(other, name)[chosen]
        self.n_iter[places] += other.n_iter[chosen]

    def note(self, problem: SmoothProblem, places, gradient, temperature, fits, bound=None):
        """What a look has told of the points in these places; their certificate, where it is known."""
        value = self.value[places]
        self.gradient_norm[places] = largest_entry(gradient)
        self.entropy[places] = problem.entropy_at(self.parameters[places], value, gradient, temperature, fits)
        if problem.has_certificate:
            known = problem.certificate(gradient, value, temperature, fits) if bound is None else bound
            self.certificate[places] = known

    @classmethod
    def joined(cls, solutions: list[Solution]) -> Solution:
        """The fits of several solutions in one stack."""
        return cls(*(_joined([getattr(each, name) for each in solutions]) for name in FIELDS))


FIELDS = tuple(own.name for own in fields(Solution))


def _joined(parts):
    if any(part is None for part in parts):
        return None
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else namespace_of(parts[0]).concat(parts)


class Solver(BaseEstimator, ABC):
    """One minimum at one temperature, for all fits of a stack side by side."""

    @abstractmethod
    def minimize(self, problem: Problem, start, temperature, *, tol, max_iter, memory, final_only=False) -> Solution:
        """Minimize from `start`, all fits or the final one alone.

        `memory` is what `new_memory` made, kept from one temperature to the next.
        """

    def minimize_folds(self, problem: Problem, start, temperature, *, tol, max_iter, memory) -> Solution:
        """The folds, and the final fit too unless a solver can leave it alone."""
        return self.minimize(problem, start, temperature, tol=tol, max_iter=max_iter, memory=memory)

    leaves_folds_rough = True  # so that further steps change their validation, if by little
    settles_last = False  # whether a path may be walked by `approach`, and `settle` come when it has ended

    def n_together(self, problem: Problem) -> int:
        """Temperatures that `approach` is best given at a time."""
        return 1

    def approach(self, problem: Problem, starts, temperatures, *, tol, max_iter, memory) -> list[Solution]:
        """All fits at several temperatures, the final one no further than the folds."""
        raise NotImplementedError

    def settle(self, problem: Problem, starts, temperatures, *, tol, max_iter, memory) -> Solution:
        """The final fit solved to the tolerance at several temperatures, from where `approach` has left it."""
        raise NotImplementedError

    filled_together = 1  # temperatures that `fill` is best given at a time
    fills_last = False  # whether a path is filled when it has ended, with every fold at hand until then

    def fill(self, problem: Problem, starts, temperatures, *, tol, max_iter, memory) -> Solution:
        """The final fit from `starts`, one for each of the temperatures, which take the place of fits in the answer.

        One look at all of them; those that are not solved as they lie are solved one by one.
        """
        n_starts = len(temperatures)
        found: list = [None] if n_starts == 1 else self.evaluate(problem, starts, temperatures, tol)
        options = {"tol": tol, "max_iter": max_iter, "memory": memory, "final_only": True}
        for number, temperature in enumerate(temperatures.tolist()):
            if found[number] is None:
                start = starts[number : number + 1, ...]
                found[number] = self.minimize(problem, start, temperature, **options).only(0)
        return Solution.joined(found)

    def evaluate(self, problem: Problem, starts, temperatures, tol) -> list:
        """The solution at each temperature whose start is one already, else None."""
        return [None] * len(temperatures)

    def needs_confirmation(self, problem: Problem) -> bool:
        """Whether a path that is kept must still be seen in full precision, by `confirm`: at its nodes, and where steps
        were taken between them.
        """
        return False

    sees_fillings_exactly = True  # those that `fill` leaves as they lie: they are not to be confirmed

    def confirm(self, problem: Problem, starts, temperatures, *, tol, max_iter, memory) -> Solution:
        """The final fit at several temperatures in full precision, solved on where it is found wanting."""
        raise NotImplementedError

    def adapt(self, problem: Problem, tol) -> Problem:
        """The problem in the terms this solver works in; most take it as it is."""
        return problem

    def new_memory(self, problem: Problem):
        """State a path carries along for the solver; most need none."""
        return None


def largest_entry(gradient):
    return np.abs(gradient).max(axis=1)


def look_at_final(problem: SmoothProblem, starts, temperatures, tol, quick=False) -> tuple[Solution, np.ndarray]:
    """One look at the final fit at several temperatures: which starts are solved as they lie, and all gradients."""
    fits = np.zeros(len(starts), dtype=int)
    value, gradient, _ = problem.objective(starts, temperatures, fits, quick)
    at, solution = (value, gradient, temperatures, fits), unsolved(starts)
    solution.value[:] = value
    bound = problem.certificate(gradient, value, temperatures, fits)
    solution.converged[:] = is_solved(problem, *at, tol, np.full(len(starts), np.inf), bound=bound)
    solution.was_far[:] = is_far(bound, tol)
    solution.note(problem, slice(None), gradient, temperatures, fits, bound)
    return solution, gradient


def is_far(bound, tol):
    """Whether the final fit is far from its minimum by its certificate, where it has not yet taken a step."""
    return bound > FAR * SUBOPTIMALITY_SHARE * tol


def is_solved(
    problem: SmoothProblem, value, gradient, temperature, fits, tol, decrement, has_last_step=False, bound=None
):
    """The final fit: gradient within `tol` entry by entry, and its certified relative suboptimality where a family
    has one. A fold: the fall that a (quasi-)Newton step promises, `decrement`, is small beside the value, and its
    gradient is within `tol` too, or the solver takes that step as its last.

    A gradient that is nothing but rounding is solved whatever the tolerance. `bound` is the certificate, where it is
    known.
    """
    largest = largest_entry(gradient)
    is_final = np.arange(problem.n_fits)[fits] == 0
    share = problem.last_step_share if has_last_step else FOLD_SUBOPTIMALITY_SHARE
    solved = decrement <= share * tol * np.abs(value)
    if not has_last_step:
        solved &= largest <= tol
    if is_final.any():
        certificate = problem.certificate(gradient, value, temperature, fits) if bound is None else bound
        solved = np.where(is_final, (largest <= tol) & (certificate <= SUBOPTIMALITY_SHARE * tol), solved)
    return solved | (largest <= problem.gradient_noise())


def unsolved(start) -> Solution:
    """A solution in which nothing has been done yet."""
    n_fits = len(start)
    return Solution(
        start.copy(),
        np.full(n_fits, np.nan),
        np.zeros(n_fits),
        np.zeros(n_fits, dtype=int),
        np.ones(n_fits, dtype=bool),
        certificate=np.full(n_fits, np.nan),
        was_far=np.zeros(n_fits, dtype=bool),
        entropy=np.full(n_fits, np.nan),
    )
