"""The choice of a kernel: gamma, the scales of the columns and the number of landmarks, by the folds of the path.

A candidate is a kernel with its landmarks. Ridge regression says with which one to begin (`Candidate.error`). For each
one that is tried a path is solved, with few landmarks; those of the best are then doubled as long as scores improve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from annealed.problems.kernel import LADDER, MOST_GAMMAS, Candidate, KernelProblem
from annealed.validation.selection import clearly_exceeds

ROWS_OF_COLUMN = 50  # samples for each column, from which its scale is learned
MOST_LANDMARKS = 4000
WORTHWHILE = 0.01  # relative gain of the mean score by twice as many landmarks, after which they are doubled again


class TriedKernel(NamedTuple):
    """A kernel whose path was validated.

    has_learned_scales : whether the columns were divided by their relevance
    temperatures, validation_score : of the path; the mean over folds of the score by which kernels are compared
    """

    gamma: float
    n_landmarks: int
    has_learned_scales: bool
    temperatures: np.ndarray
    validation_score: np.ndarray


class KernelSearch:
    """Solves the paths of several kernels and remembers the best one.

    solve : returns the `SolvedPath` of a problem
    is_stopped : whether a callback has ended the fit
    """

    def __init__(self, problem: KernelProblem, solve: Callable[[KernelProblem], Any], is_stopped: Callable[[], bool]):
        self.rows, self.family = problem.candidate.rows, problem.candidate.rows.family
        self._solve, self.is_stopped = solve, is_stopped
        self.tried: list[TriedKernel] = []
        self.best = self.solve(problem)

    @property
    def candidate(self) -> Candidate:
        """The best one so far."""
        problem = self.best.plan.problem
        return (problem if isinstance(problem, KernelProblem) else problem.primal).candidate

    def solve(self, problem: KernelProblem) -> Any:
        """The path of a kernel, recorded."""
        found, candidate = self._solve(problem), problem.candidate
        if found.is_validated:
            temperatures = np.array([step.temperature for step in found.steps])
            kernel = candidate.gamma, len(candidate.indices), candidate.rows.is_relative
            self.tried.append(TriedKernel(*kernel, temperatures, np.mean(found.scores, axis=1)))
        return found

    def run(self) -> Any:
        """The path of the best kernel."""
        if self.best.is_validated:
            self._improve()
        settings = {"approximation_error": self.candidate.lost(), "tried_kernels": self.tried}
        return replace(self.best, settings=settings)

    def _improve(self):
        if self.family.chooses_gamma:
            self._climb()
        if self.family.has_gamma:
            self._learn_scales()
        if self.family.n_landmarks == "auto":
            self._add_landmarks()

    def _climb(self):
        """Go along the ladder of gammas, towards the neighbour of less left-out error, as long as the score rises."""
        start, ratio = self.candidate, LADDER[self.family.kernel]
        neighbours = [start.rows.candidate(start.gamma * factor, start.indices) for factor in (ratio, 1 / ratio)]
        candidate = min(neighbours, key=Candidate.error)
        factor = candidate.gamma / start.gamma
        for _ in range(MOST_GAMMAS - 1):
            if self.is_stopped():
                return
            found = self.solve(candidate.problem)
            if score(found) <= score(self.best):
                return
            self.best, candidate = found, start.rows.candidate(candidate.gamma * factor, start.indices)

    def _learn_scales(self):
        """Divide the scales of the columns by their relevance, as long as that clearly raises the validation score.

        With "ard", any rise is enough the first time.
        """
        asked, n_columns = self.family.scale, max(1.0, self.rows.n_varying)
        is_asked = asked == "ard" or (asked == "auto" and len(self.rows.weighty) >= ROWS_OF_COLUMN * n_columns)
        while is_asked and n_columns >= 2 and not self.is_stopped():
            candidate, step = self.candidate, self.best.best_step
            reported = self.best.plan.problem.report(step.parameters[:1, ...], step.temperature, slice(0, 1))
            rows = candidate.rows.relative(candidate.relevance(reported["dual_coef"][0, ...]))
            found = self.solve(rows.best_candidate(candidate.gamma, len(candidate.indices)).problem)
            is_clear = asked == "ard" and not candidate.rows.is_relative
            is_clear = is_clear or clearly_exceeds(found.fold_scores, self.best.fold_scores)
            if not (is_clear and score(found) > score(self.best)):
                return
            self.best = found

    def _add_landmarks(self):
        """Double the landmarks as long as that raises the validation score."""
        n_rows = len(self.rows.weighty)
        while len(self.candidate.indices) < min(n_rows, MOST_LANDMARKS) and not self.is_stopped():
            best, number = self.candidate, 2 * len(self.candidate.indices)
            number = n_rows if number > 0.7 * n_rows else number
            found = self.solve(best.rows.candidate(best.gamma, best.rows.landmarks(number)).problem)
            gain, size = score(found) - score(self.best), abs(score(self.best))
            if gain > 0:
                self.best = found
            if not gain > WORTHWHILE * size:
                return


def score(path) -> float:
    return float(np.mean(path.fold_scores))
