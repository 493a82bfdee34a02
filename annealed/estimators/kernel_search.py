"""The choice of a kernel: gamma, the scales of the columns and the number of landmarks, by the folds of the path.

For each candidate one path is solved, with few landmarks. The landmarks of the best one are then doubled until that no
longer raises the validation score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from annealed.problems.kernel import Candidate, KernelProblem, KernelRows
from annealed.validation.selection import clearly_exceeds

LADDER = {"rbf": 4.0, "laplacian": 2.0, "polynomial": 4.0}  # ratio of successive gammas
MOST_GAMMAS = 8  # tried for one scale of the columns
ROWS_OF_COLUMN = 50  # samples for each column, from which its scale is learned
MOST_LANDMARKS = 4000
WORTHWHILE = 0.01  # relative gain of the mean score by twice as many landmarks, for which they are kept


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
        self.best = self.solve(best_candidate(self.rows, problem.candidate.gamma, len(problem.candidate.indices)))

    @property
    def candidate(self) -> Candidate:
        """The best one so far."""
        problem = self.best.plan.problem
        return (problem if isinstance(problem, KernelProblem) else problem.primal).candidate

    def solve(self, candidate: Candidate) -> Any:
        """The path of a kernel, recorded."""
        found = self._solve(candidate.problem)
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
        if self.family.has_gamma:
            if self.family.gamma == "cv":
                self._climb()
            self._learn_scales()
        if self.family.n_landmarks == "auto":
            self._add_landmarks()

    def _climb(self):
        """Go along the ladder of gammas as long as the validation score rises, first to the better neighbour."""
        ratio, start, step = LADDER[self.family.kernel], self.candidate, None
        tried = {0}
        while not self.is_stopped():
            place = 0 if step is None else step
            ends = [near for near in (place + 1, place - 1) if near not in tried]
            if not ends or len(tried) >= MOST_GAMMAS:
                return
            candidates = {near: start.rows.candidate(start.gamma * ratio**near, start.indices) for near in ends}
            near = min(ends, key=lambda near: candidates[near].error())
            tried.add(near)
            found = self.solve(candidates[near])
            if score(found) > score(self.best):
                self.best, step = found, near
            elif len(ends) == 1 or step is None:
                return

    def _learn_scales(self):
        """Divide the scales of the columns by their relevance, as long as that clearly raises the validation score."""
        asked, n_columns = self.family.scale, max(1.0, self.rows.n_varying)
        is_asked = asked == "ard" or (asked == "auto" and len(self.rows.weighty) >= ROWS_OF_COLUMN * n_columns)
        while is_asked and n_columns >= 2 and not self.is_stopped():
            candidate, step = self.candidate, self.best.best_step
            reported = self.best.plan.problem.report(step.parameters[:1, ...], step.temperature, slice(0, 1))
            rows = candidate.rows.relative(candidate.relevance(reported["dual_coef"][0, ...]))
            found = self.solve(best_candidate(rows, candidate.gamma, len(candidate.indices)))
            is_clear = asked == "ard" and not candidate.rows.is_relative  # the first time that is asked for
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
            found = self.solve(best.rows.candidate(best.gamma, best.rows.landmarks(number)))
            gain, size = score(found) - score(self.best), abs(score(self.best))
            if gain > 0:
                self.best = found
            if not gain > WORTHWHILE * size:
                return


def best_candidate(rows: KernelRows, gamma, n_landmarks) -> Candidate:
    """The candidate with the least error of left-out samples, among gammas near this one if it is not given."""
    indices = rows.landmarks(n_landmarks)
    if rows.family.gamma != "cv" or not rows.family.has_gamma:
        return rows.candidate(gamma, indices)
    ratio, best = LADDER[rows.family.kernel], 0
    tried: dict[int, tuple[float, Candidate]] = {}
    while len(tried) < MOST_GAMMAS:
        left = [place for place in (best, best + 1, best - 1) if place not in tried]
        if not left:
            break
        candidate = rows.candidate(gamma * ratio ** left[0], indices)
        tried[left[0]] = candidate.error(), candidate
        best = min(tried, key=lambda place: tried[place][0])
    return tried[best][1]


def score(path) -> float:
    return float(np.mean(path.fold_scores))
