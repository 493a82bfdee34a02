"""Preconditioned subspace minimization in combinations of samples, with one product with K = Z Z' per iteration.

An iteration computes a direction with the row preconditioner and its image under K (the only pass over X), and
minimizes the objective exactly over the span of that direction, the latest step and the intercepts (`span.py`). Of
these the scores are known, so the inner Newton steps need no X.

A fold is solved when a step has promised little, the final fit when its certificate holds. The certificate costs
half a product: it is computed when a step has promised little, and again when one promises less by the factor by
which the certificate was too large. No point takes more than MOST_STEPS iterations: rounding errors, or a Gram matrix
that the preconditioner models poorly, are answered by another solver (`Plan.solve`), not by further steps.

Points are solved in stacks, which saves calls, and large stacks are split over threads. Shapes: alpha, image and their
steps (n_points, n_rows, n_scores).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from annealed.problems import RepresenterProblem, RowPreconditioner
from annealed.rows.cost import BLOCK_BYTES
from annealed.rows.threads import map_in_order
from annealed.solvers.base import (
    ROUNDING,
    SUBOPTIMALITY_SHARE,
    Accuracy,
    Points,
    Solution,
    Solver,
    is_far,
)
from annealed.solvers.span import MOST_STEPS, Span

LONGEST_STEP = 2.0  # in steps of the preconditioner: beyond, it is out of date


class Subspace(Solver):
    """Subspace minimization in combinations of samples, for the inner-product family on wide or sparse X."""

    def adapt(self, problem, tol):
        adapted = RepresenterProblem(problem)
        self.gaps_together = _stack_size(adapted)
        self.gaps_last = self.gaps_together > 1
        return adapted

    def solve(self, problem, points: Points, accuracy: Accuracy, memory=None) -> Solution:
        n_points = len(points.fits)
        stacks = np.array_split(np.arange(n_points), -(-n_points // _stack_size(problem)))
        solution = Solution.joined(list(map_in_order(lambda few: _solved(problem, points.part(few), accuracy), stacks)))
        left = np.flatnonzero(~solution.converged)
        if len(left) and accuracy.max_iter > MOST_STEPS and problem.grow():
            rest = points.part(left)._replace(parameters=solution.parameters[left])
            solution.put(left, self.solve(problem, rest, accuracy))
        return solution


def _stack_size(problem) -> int:
    """Points whose arrays, some sixteen of the size of alpha, fill the cache; fewer make more calls."""
    return max(1, BLOCK_BYTES // (16 * 8 * problem.design.n_rows * problem.contrasts.n_scores))


def _solved(problem, points: Points, accuracy: Accuracy) -> Solution:
    solution = Solution.unsolved(points.parameters)
    search, most = Search(problem, points), min(MOST_STEPS, accuracy.max_iter)
    while True:
        is_last = search.n_iter == most
        solved = search.is_solved(accuracy.tol, checks_all=is_last)
        if not search.n_iter:
            solution.was_far[:] = is_far(search.bound, accuracy.tol)
        if is_last or solved.any():
            search.write(solution, solved, np.flatnonzero(solved | is_last))
        if is_last or solved.all():
            return solution
        search.keep(~solved)
        search.iterate()


class Search:
    """Points that are solved together; `places` are their positions in the solution."""

    of_each = (  # attributes with an entry for each point
        *("places", "is_final", "kappa", "weight", "missing", "alpha", "image", "intercept", "value", "posterior"),
        *("row_residual", "decrement", "aim", "largest", "bound", "is_stuck", "step", "step_image"),
    )

    def __init__(self, problem, points: Points):
        self.problem, self.n_iter = problem, 0
        self.places, self.is_final = np.arange(len(points.fits)), points.fits == 0
        self.kappa, self.labels = problem.l2_strength * points.temperatures, problem.design.labels
        self.weight, self.missing = problem.design.weight[:, points.fits].T, problem.missing[points.fits]
        self.alpha, self.image, self.intercept = (part.copy() for part in problem.split(points.parameters))
        # What the last direction promised; where only final fits are solved, most starts are accurate already.
        self.decrement = np.full(len(points.fits), np.inf if points.fits.any() else 0.0)
        self.aim, self.largest, self.bound = np.full((3, len(points.fits)), np.inf)
        self.is_stuck = np.zeros(len(points.fits), dtype=bool)
        self.preconditioner: RowPreconditioner | None = None
        self.value: Any = None
        self.posterior: Any = None
        self.row_residual: Any = None
        self.minimize_over([self.alpha], [self.image], thoroughly=True)  # the start may be too long or too short

    def keep(self, chosen):
        """Drop the other points."""
        if chosen.all():
            return
        for name in self.of_each:
            setattr(self, name, getattr(self, name)[chosen])
        if self.preconditioner is not None:
            self.preconditioner = self.preconditioner.part(chosen)

    def write(self, solution: Solution, solved, chosen):
        places, bound = self.places[chosen], self.bound[chosen]
        solution.parameters[places] = self.problem.join(self.alpha[chosen], self.image[chosen], self.intercept[chosen])
        solution.value[places], solution.gradient_norm[places] = self.value[chosen], self.largest[chosen]
        solution.certificate[places] = np.where(np.isfinite(bound), bound, np.nan)
        solution.n_iter[places], solution.converged[places] = self.n_iter, solved[chosen]
        solution.is_certified[places] = (solved & self.is_final)[chosen]

    def is_solved(self, tol, checks_all):
        """Whether the last step of a fold promised less than `tol`, or the certificate of a final fit holds."""
        share = np.where(self.is_final, SUBOPTIMALITY_SHARE, 1.0) * tol
        solved = self.decrement <= share * self.value
        due = np.flatnonzero(self.is_final & (checks_all | (solved & (self.decrement <= self.aim))))
        solved &= ~self.is_final
        if len(due):
            at = self.row_residual[due], self.posterior[due], self.weight[due], self.value[due], self.kappa[due]
            self.largest[due], self.bound[due] = self.problem.certificate(self.alpha[due], *at)
            excess = np.maximum(self.bound[due] / share[due], (self.largest[due] / tol) ** 2)
            solved[due] = excess <= 1
            if self.n_iter:
                self.aim[due] = self.decrement[due] / excess
        return solved

    def residual(self, chosen=slice(None)):
        """`kappa alpha - weight (targets - posterior)`: zero at the optimum, minus steepest descent."""
        return self.row_residual[chosen] + self.kappa[chosen, None, None] * self.alpha[chosen]

    def iterate(self):
        """One direction per point, its image, and a subspace minimization.

        If the preconditioner models K poorly, its direction may not decrease the value; the next one is then the
        residual itself, steepest descent. If a step is too long, the preconditioner is computed anew: such a step also
        magnifies the part of the direction outside the range of K, on which no value depends, but which amplifies
        rounding.
        """
        if self.preconditioner is None:
            self.preconditioner = RowPreconditioner(self.problem, self.posterior, self.weight, self.kappa)
        residual, before = self.residual(), self.value
        direction = np.where(self.is_stuck[:, None, None], residual, self.preconditioner.apply(residual))
        image = self.problem.image(direction)
        lengths, promised = self.minimize_over([direction, self.step], [image, self.step_image])
        if (-lengths[:, 0] > LONGEST_STEP).any():
            self.preconditioner = None
        self.decrement = np.where(self.is_stuck, np.inf, promised)
        self.is_stuck = ~self.is_stuck & (self.value >= before) & (promised > ROUNDING * self.value)
        self.n_iter += 1

    @property
    def evaluated(self):
        """Value, posterior and weighted residual of the rows; None before the first evaluation."""
        return None if self.value is None else (self.value, self.posterior, self.row_residual)

    def minimize_over(self, alphas, images, thoroughly=False):
        """Move to the minimum over the span of these directions and the intercepts.

        Returns the multiples of the directions, and the decrease that the first Newton step predicted.
        """
        span = Span(self, np.stack(alphas, axis=1), np.stack(images, axis=1))
        scalars, self.intercept, self.value, self.posterior, self.row_residual = span.minimize(thoroughly)
        self.step, self.step_image = span.moves(scalars)
        self.alpha, self.image = self.alpha + self.step, self.image + self.step_image
        return scalars, span.promised
