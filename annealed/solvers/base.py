"""Interface of the solvers: they minimize a stack of fits at one temperature and return a frozen `Solution`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from annealed.arrays import namespace_of
from annealed.problems import Problem, SmoothProblem

SUBOPTIMALITY_SHARE = 0.01  # of `tol`: bound on the certified relative suboptimality of the final fit
FOLD_SUBOPTIMALITY_SHARE = 1.0  # of `tol`: bound on the estimated one of a fold, which only selects a temperature
SINGLE_PRECISION_TOL = 1e-5  # smallest `tol` at which folds are solved in float32
FAR = 10.0  # certificate of an interpolated start, in units of its bound, above which starts next to it may fail too
ROUNDING = 64 * np.finfo(np.float64).eps  # relative decrease below which there is no progress


@dataclass(frozen=True)
class Solution:
    """Minima of a stack of fits at one temperature; every array has a leading axis of fits.

    Fits that were not requested keep their start and count as converged.

    certificate : bound on the relative suboptimality, NaN where unknown; None if the solver computes none
    tangent : derivative of the parameters with respect to log temperature, if the solver computes it
    was_far : whether the start of the final fit was far from its minimum, if the solver reports it
    entropy : mean entropy of the posterior, as in `Problem.summarize`; NaN if the last evaluation did not yield it
    """

    parameters: np.ndarray
    value: np.ndarray
    gradient_norm: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray
    certificate: Any = None
    tangent: np.ndarray | None = None
    was_far: Any = None
    entropy: Any = None

    def only(self, fit: int) -> Solution:
        """One fit of the stack."""
        return self.part(slice(fit, fit + 1))

    def part(self, fits: slice) -> Solution:
        """Some fits of the stack, as views: writing to them writes to this solution."""
        whole = [getattr(self, name) for name in FIELDS]
        parts: list[Any] = [None if array is None else array[fits, ...] for array in whole]
        return Solution(*parts)

    def put(self, places, other: Solution, chosen=slice(None)):
        """Replace the fits in `places` by the chosen fits of another solution, and add up the iterations."""
        for name in ("parameters", "value", "gradient_norm", "converged", "certificate", "entropy"):
            getattr(self, name)[places] = getattr(other, name)[chosen]
        self.n_iter[places] += other.n_iter[chosen]

    def note(self, problem: SmoothProblem, places, gradient, temperature, fits, bound=None):
        """Record gradient norm, entropy and certificate of evaluated points; `bound` is the certificate, if known."""
        value = self.value[places]
        self.gradient_norm[places] = largest_entry(gradient)
        self.entropy[places] = problem.entropy_at(self.parameters[places], value, gradient, temperature, fits)
        if problem.has_certificate:
            certificate = problem.certificate(gradient, value, temperature, fits) if bound is None else bound
            self.certificate[places] = certificate

    @classmethod
    def joined(cls, solutions: list[Solution]) -> Solution:
        """The fits of several solutions in one stack."""
        return cls(*(_joined([getattr(solution, name) for solution in solutions]) for name in FIELDS))


FIELDS = tuple(field.name for field in fields(Solution))


def _joined(parts):
    if any(part is None for part in parts):
        return None
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else namespace_of(parts[0]).concat(parts)


class Solver(BaseEstimator, ABC):
    """Base class: minimizes at one temperature, all fits of a stack simultaneously."""

    @abstractmethod
    def minimize(self, problem: Problem, start, temperature, *, tol, max_iter, memory, final_only=False) -> Solution:
        """Minimize from `start`: all fits, or the final fit only.

        `memory` is the state returned by `new_memory`, passed on from one temperature to the next.
        """

    def minimize_folds(self, problem: Problem, start, temperature, *, tol, max_iter, memory) -> Solution:
        """Minimize the folds only, or all fits if the solver cannot leave out the final one."""
        return self.minimize(problem, start, temperature, tol=tol, max_iter=max_iter, memory=memory)

    leaves_folds_rough = True  # whether further steps would still change the validation of the folds slightly
    settles_last = False  # whether a path may be computed by `approach` and finished by `settle`

    def n_together(self, problem: Problem) -> int:
        """Number of temperatures that `approach` should receive per call."""
        return 1

    def approach(self, problem: Problem, starts, temperatures, *, tol, max_iter, memory) -> list[Solution]:
        """All fits at several temperatures, the final fit only as accurate as the folds."""
        raise NotImplementedError

    def settle(self, problem: Problem, starts, temperatures, *, tol, max_iter, memory) -> Solution:
        """The final fit to full tolerance at several temperatures, from the results of `approach`."""
        raise NotImplementedError

    filled_together = 1  # number of intermediate temperatures that `fill` should receive per call
    fills_last = False  # whether `fill` comes after the end of the path, up to which every node keeps its folds

    def fill(self, problem: Problem, starts, temperatures, *, tol, max_iter, memory) -> Solution:
        """The final fit at intermediate temperatures, one start each; temperatures replace fits as the leading axis.

        All starts are evaluated together; those that are not solved yet are solved one by one.
        """
        n_starts = len(temperatures)
        solutions: list = [None] if n_starts == 1 else self.evaluate(problem, starts, temperatures, tol)
        options = {"tol": tol, "max_iter": max_iter, "memory": memory, "final_only": True}
        for number, temperature in enumerate(temperatures.tolist()):
            if solutions[number] is None:
                start = starts[number : number + 1, ...]
                solutions[number] = self.minimize(problem, start, temperature, **options).only(0)
        return Solution.joined(solutions)

    def evaluate(self, problem: Problem, starts, temperatures, tol) -> list:
        """The solution at each temperature whose start is already solved, else None."""
        return [None] * len(temperatures)

    def needs_confirmation(self, problem: Problem) -> bool:
        """Whether a path that is kept must be verified in float64 by `confirm`, at its nodes and at those intermediate
        temperatures where steps were taken.
        """
        return False

    sees_fillings_exactly = True  # whether `fill` certifies accepted starts in float64, so that `confirm` skips them

    def confirm(self, problem: Problem, starts, temperatures, *, tol, max_iter, memory) -> Solution:
        """Verify the final fit at several temperatures in float64, and continue where its certificate fails."""
        raise NotImplementedError

    def adapt(self, problem: Problem, tol) -> Problem:
        """The problem in the form that this solver works with; by default unchanged."""
        return problem

    def new_memory(self, problem: Problem):
        """State that a path keeps for the solver; by default none."""
        return None


def largest_entry(gradient):
    return np.abs(gradient).max(axis=1)


def evaluate_final(problem: SmoothProblem, starts, temperatures, tol, quick=False) -> tuple[Solution, np.ndarray]:
    """Evaluate the final fit at several temperatures: a solution, converged where it is solved, and the gradients."""
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
    """Whether the certificate of a start is far above the tolerance."""
    return bound > FAR * SUBOPTIMALITY_SHARE * tol


def is_solved(
    problem: SmoothProblem, value, gradient, temperature, fits, tol, decrement, has_last_step=False, bound=None
):
    """Whether each fit is solved.

    The final fit is solved if every entry of its gradient is within `tol` and, if the family has a certificate, its
    relative suboptimality is certified. A fold is solved if `decrement`, the decrease predicted by a (quasi-)Newton
    step, is small relative to the value, and its gradient is within `tol` or the solver takes that step as a last one.

    A gradient of pure rounding error counts as solved at any tolerance. `bound` is the certificate, if known.
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
    """A solution before the first evaluation."""
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
