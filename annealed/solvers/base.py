"""The interface of the solvers: one question, `solve`, for any mixture of fits and temperatures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from annealed.arrays import as_slice, copied, namespace_of, put, take
from annealed.problems import Problem, SmoothProblem
from annealed.problems.smooth import EXACT

SUBOPTIMALITY_SHARE = 0.01  # of `tol`: bound on the certified relative suboptimality of the final fit
STEP_SHARE = 0.1  # of `tol`: predicted relative decrease by a step that is left out, or taken without an evaluation
SINGLE_PRECISION_TOL = 1e-5  # smallest `tol` at which rows are multiplied in float32, before the path is certified
ROUNDING = EXACT.loss  # relative decrease below which there is no progress
ARMIJO = 1e-4  # share of the predicted decrease that a step must achieve
SHORTEST_STEP = float(np.sqrt(np.finfo(float).eps))  # relative length of a step: of less, rounding errors decide


class Points(NamedTuple):
    """What is to be solved: point i belongs to fit `fits[i]` at `temperatures[i]` and starts at `parameters[i]`.

    The fits of a temperature are consecutive, the final one first.

    hotter : parameters and values of all fits at a hotter temperature, whose values no minimum exceeds; None if unknown
    """

    fits: np.ndarray
    temperatures: np.ndarray
    parameters: Any
    hotter: tuple[Any, np.ndarray] | None = None

    @classmethod
    def of_fits(cls, starts: list, temperatures, hotter=None) -> Points:
        """All fits at each temperature; `starts` has the parameters of all fits at each."""
        n_fits = starts[0].shape[0]
        parameters = starts[0] if len(starts) == 1 else namespace_of(starts[0]).concat(starts)
        fits = np.tile(np.arange(n_fits), len(starts))
        return cls(fits, np.repeat(np.asarray(temperatures), n_fits), parameters, hotter)

    @classmethod
    def of_final(cls, parameters, temperatures) -> Points:
        """The final fit at several temperatures."""
        return cls(np.zeros(len(temperatures), dtype=int), np.asarray(temperatures, dtype=float), parameters)

    def by_temperature(self) -> list[Points]:
        """The points of each temperature."""
        starts = np.flatnonzero(np.diff(self.temperatures, prepend=np.nan) != 0)
        return [self.part(each) for each in np.split(np.arange(len(self.fits)), starts[1:])]

    def part(self, positions) -> Points:
        chosen = as_slice(positions)
        return Points(self.fits[chosen], self.temperatures[chosen], self.parameters[chosen, ...], self.hotter)


class Accuracy(NamedTuple):
    """How near to its minimum a point must come.

    tol : tolerance; a final fit is solved if the largest entry of its gradient is at most `tol` and its certified
        relative suboptimality at most SUBOPTIMALITY_SHARE * tol, a fold if a step promises less than about `tol`
    max_iter : the budget: largest number of iterations of a point
    certify : whether final fits must be certified in full precision. Otherwise a solver may leave that for later; the
        points that are certified already are marked in the solution.
    """

    tol: float
    max_iter: int
    certify: bool = True


@dataclass(frozen=True)
class Solution:
    """What was found: every array has an entry for each point.

    converged : whether the point is as accurate as asked; if not, its budget is spent or no step decreases its value
    is_certified : whether that was verified in full precision, by the certificate if the family has one
    certificate : bound on the relative suboptimality, NaN where unknown
    was_far : whether the start was so far from the minimum that interpolated starts nearby may be far too
    entropy : mean entropy of the posterior, as in `Problem.summarize`; NaN if the last evaluation did not yield it
    tangent : derivative of the parameters with respect to log temperature; None if the solver computes none
    """

    parameters: Any
    value: np.ndarray
    gradient_norm: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray
    is_certified: np.ndarray
    certificate: np.ndarray
    was_far: np.ndarray
    entropy: np.ndarray
    tangent: Any = None

    @classmethod
    def unsolved(cls, parameters) -> Solution:
        """A solution before the first evaluation, with a copy of the parameters."""
        n, unknown = parameters.shape[0], np.full(parameters.shape[0], np.nan)
        no = np.zeros(n, dtype=bool)
        return cls(
            copied(parameters), unknown, np.zeros(n), np.zeros(n, dtype=int), no, no.copy(), unknown.copy(), no.copy(),
            unknown.copy(),
        )  # fmt: skip

    def part(self, chosen) -> Solution:
        """Some of the points, as views if they are a slice: writing to them writes to this solution."""
        arrays = (getattr(self, field.name) for field in fields(self))
        parts: list[Any] = [None if array is None else array[chosen, ...] for array in arrays]
        return Solution(*parts)

    @classmethod
    def joined(cls, solutions: list[Solution]) -> Solution:
        """The points of several solutions."""
        parts = ([getattr(solution, field.name) for solution in solutions] for field in fields(cls))
        whole: list[Any] = [None if part[0] is None else namespace_of(part[0]).concat(part) for part in parts]
        return cls(*whole)

    def put(self, places, other: Solution, chosen=slice(None)):
        """Replace the points in `places` by the chosen ones of another solution, and add up the iterations."""
        self.was_far[places] |= other.was_far[chosen]
        self.n_iter[places] += other.n_iter[chosen]
        put(self.parameters, places, take(other.parameters, chosen))
        for name in ("value", "gradient_norm", "converged", "is_certified", "certificate", "entropy"):
            getattr(self, name)[places] = getattr(other, name)[chosen]

    def note(self, problem: SmoothProblem, places, gradient, largest, bound, temperature, fits):
        """Record the largest entry of the gradient, the certificate and the entropy of evaluated points."""
        value = problem.place.wide(self.value[places])
        entropy = problem.entropy_at(take(self.parameters, places), value, gradient, temperature, fits)
        (self.entropy[places],) = problem.place.host(entropy)
        self.gradient_norm[places] = largest
        if problem.has_certificate:
            self.certificate[places] = np.where(fits == 0, bound, np.nan)


class Solver(BaseEstimator, ABC):
    """Base class of the solvers.

    nodes_together, gaps_together : number of temperatures between which nothing is gained by separate calls of `solve`,
        where all fits are solved and where only the final fit is
    gaps_last : whether the latter come at the end of the path, up to which every node keeps its folds
    certifies_gaps : whether they are certified at once, and not at the end, for the path that is kept
    """

    nodes_together = 1
    gaps_together = 1
    gaps_last = False
    certifies_gaps = True

    @abstractmethod
    def solve(self, problem: Problem, points: Points, accuracy: Accuracy, memory) -> Solution:
        """Minimize at all points. It ends when every point is accurate, or has spent its budget.

        memory : the result of `new_memory`, which keeps what one call learns for the next
        """

    def adapt(self, problem: Problem, tol) -> Problem:
        """The problem in the form that this solver works with; by default unchanged. Sets the numbers above."""
        return problem

    def new_memory(self, problem: Problem):
        """State that a path keeps for the solver; by default none."""
        return None


def largest_entry(gradient):
    if isinstance(gradient, np.ndarray):
        return np.abs(gradient).max(axis=1)
    xp = namespace_of(gradient)
    return xp.max(xp.abs(gradient), axis=1)


def is_far(bound, tol):
    """Whether the certificate of a start is far above the tolerance."""
    return bound > STEP_SHARE * tol


def is_solved(problem: SmoothProblem, value, largest, bound, fits, tol, decrement, has_last_step=False):
    """Whether each point is solved, given its value, the largest entry of its gradient and its certificate.

    The final fit is solved if every entry of its gradient is within `tol` and, if the family has a certificate, its
    relative suboptimality is certified. A fold is solved if `decrement`, the decrease predicted by a (quasi-)Newton
    step, is small relative to the value, and its gradient is within `tol` or the solver takes that step as a last one.

    A gradient of pure rounding error counts as solved at any tolerance.
    """
    is_final = np.asarray(fits) == 0
    share = STEP_SHARE * (problem.last_step_share if has_last_step else 1.0)
    solved = decrement <= share * tol * np.abs(value)
    if not has_last_step:
        solved &= largest <= tol
    if is_final.any():
        solved = np.where(is_final, (largest <= tol) & (bound <= SUBOPTIMALITY_SHARE * tol), solved)
    return solved | (largest <= problem.gradient_noise())
