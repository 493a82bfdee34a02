"""What a solver takes and gives: a stack of problems at one temperature, a frozen record of the minimum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator

from annealed.objectives import Problem, SmoothProblem

SUBOPTIMALITY_SHARE = 0.01  # the final fit's certified relative suboptimality is held under this share of `tol`
FOLD_SUBOPTIMALITY_SHARE = 1.0  # and a fold's, whose only use is the choice of the temperature, under this
ROUNDING = 64 * np.finfo(np.float64).eps  # progress below this, relative to the value, is not progress


@dataclass(frozen=True)
class Solution:
    """Minima of a stack of fits at one temperature; every array has a leading axis of fits."""

    parameters: np.ndarray
    value: np.ndarray
    gradient_norm: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray


class Solver(BaseEstimator, ABC):
    """One minimum at one temperature, for all fits of a stack side by side."""

    @abstractmethod
    def minimize(self, problem: Problem, start, temperature, *, tol, max_iter, memory) -> Solution:
        """Minimize from `start`; `memory` is what `new_memory` made, kept from one temperature to the next."""

    def adapt(self, problem: Problem, tol) -> Problem:
        """The problem in the terms this solver works in; most take it as it is."""
        return problem

    def new_memory(self, problem: Problem):
        """State a path carries along for the solver; most need none."""
        return None


def largest_entry(gradient):
    return np.abs(gradient).max(axis=1)


def is_solved(problem: SmoothProblem, value, gradient, temperature, tol, fits):
    """Gradient within `tol` entry by entry, and its certified relative suboptimality where a family has one.

    A gradient that is nothing but rounding is solved whatever the tolerance.
    """
    largest = largest_entry(gradient)
    certificate = problem.certificate(gradient, value, temperature, fits)
    is_final = np.arange(problem.n_fits)[fits] == 0
    share = np.where(is_final, SUBOPTIMALITY_SHARE, FOLD_SUBOPTIMALITY_SHARE)
    is_small = (largest <= tol) & (certificate <= share * tol)
    return is_small | (largest <= problem.gradient_noise())
