"""Preconditioned subspace minimization in combinations of samples, with one product with K = Z Z' per iteration.

An iteration computes a direction with the row preconditioner and its image under K (the only pass over X), and
minimizes the objective exactly over the span of the current point, that direction, the latest steps and the intercepts.
These are a few scalars whose scores are known, so the inner Newton steps (`span.py`) need no X. At a new temperature
the search starts from the minimum over the span of earlier solutions (a Galerkin step), whose relative suboptimality is
often a few millionths already.

The final fit is solved to the tolerance and certified in float64. If products are in float32, the images of many steps
accumulate rounding errors; the certificate is then computed once more at the end of the path, with new images
(`confirm`). Folds, which only serve to choose the temperature, are solved to a relative suboptimality of
FOLD_SUBOPTIMALITY.

All fits of a small problem are solved as one stack until the folds are done, which saves calls. Those of a larger
problem are solved in threads, as two stacks or one by one. For the smallest problems, intermediate temperatures are
filled in at the end of the path, all as one stack. If a temperature takes many steps, because the spectrum of K decays
slowly, all fits pause until the preconditioner contains more eigenvectors of K.

Shapes: directions and their images (n_fits, n_directions, n_rows, n_scores).
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from annealed.problems import RepresenterProblem, RowPreconditioner
from annealed.rows.threads import map_in_order
from annealed.solvers.base import SINGLE_PRECISION_TOL, SUBOPTIMALITY_SHARE, Accuracy, Points, Solution, Solver
from annealed.solvers.span import Span

FOLD_SUBOPTIMALITY = 1e-4
N_EARLIER = 4  # earlier solutions whose span predicts the next one
N_STEPS = 3  # latest steps kept in the subspace
MANY_STEPS = 30  # iterations at one temperature, after which the preconditioner takes in more eigenvectors of K
PRECONDITIONER_LIFE = 12  # iterations after which the preconditioner is computed anew at the current posterior
LONGEST_STEP = 2.0  # step length, in full steps of the preconditioner, beyond which the preconditioner is out of date
PRECISION = 1e-10  # relative decrease that justifies an inner Newton step
FINER, FINEST = 0.25, 1e-16  # factor on PRECISION whenever the certificate fails, and its lower bound
NEAR_STEPS = 2  # most iterations at an intermediate temperature whose start was not far from its minimum
NODE_SHARE = 0.5  # of `tol`: tolerance at nodes, because other temperatures are interpolated from them
WHOLE_VALUES = 20_000  # scores of all fits up to which they are solved as one stack
STACKED_VALUES = 120_000  # scores of all fits up to which they are solved as two stacks, each in a thread
FEW_SCORES = 4000  # scores of a fit up to which intermediate temperatures are filled in at the end, as one stack
OF_EACH = (  # attributes of a search that have one entry per fit
    *("fits", "places", "kappa", "weight", "missing", "alpha", "image", "intercept"),
    *("value", "posterior", "gradient_norm", "certificate", "decrement", "target", "before"),
)


class Subspace(Solver):
    """Subspace minimization in combinations of samples, for the inner-product family on wide or sparse X."""

    certifies_gaps = False

    def adapt(self, problem, tol):
        dtype = np.float32 if tol >= SINGLE_PRECISION_TOL else np.float64
        adapted = RepresenterProblem(problem, dtype)
        self.gaps_last = _n_scores(adapted) <= FEW_SCORES
        self.gaps_together = STACKED_VALUES // _n_scores(adapted) if self.gaps_last else 1
        return adapted

    def new_memory(self, problem):
        return _Earlier()

    def solve(self, problem, points: Points, accuracy: Accuracy, memory) -> Solution:
        """In float32, unless the final fit must be certified: then with new images, and in float64 where that fails."""
        if points.fits.any():
            each = points.by_temperature()
            return Solution.joined([self._solve_fits(problem, few, accuracy, memory) for few in each])
        solution = Solution.unsolved(points.parameters)
        is_rounded = problem.products.is_rounded
        if not (accuracy.certify and is_rounded):
            _solve_final(problem, points, accuracy, solution)
            solution.is_certified[:] = solution.converged & (not is_rounded)
            return solution
        _evaluate(problem, points, accuracy.tol, solution)
        rest = np.flatnonzero(~solution.converged)
        if len(rest):
            exact = problem.in_double()
            starts = points.part(rest)
            starts = starts._replace(parameters=exact.with_exact_images(starts.parameters))
            refined = Solution.unsolved(starts.parameters)
            _solve_final(exact, starts, accuracy, refined)
            solution.put(rest, refined)
        solution.is_certified[:] = solution.converged
        return solution

    def _solve_fits(self, problem, points, accuracy, memory) -> Solution:
        """All fits at one temperature, each in a stack or a thread."""
        (fits, temperatures, start), solution = points, Solution.unsolved(points.parameters)

        def begin(few):
            directions = memory.directions(problem, few, start)
            return _Search(problem, fits[few], few, start[few], temperatures[few], directions)

        searches = list(map_in_order(begin, _groups(problem)))
        _run(problem, searches, solution, NODE_SHARE * accuracy.tol, accuracy.max_iter)
        is_rounded = problem.products.is_rounded
        solution.is_certified[:] = solution.converged & (not is_rounded)
        if accuracy.certify and is_rounded and solution.converged[0]:
            final = points.part(np.arange(1))._replace(parameters=solution.parameters[:1])
            solution.put(slice(0, 1), self.solve(problem, final, accuracy, memory))
        memory.add(solution.parameters)
        return solution


def _solve_final(problem, points: Points, accuracy: Accuracy, solution):
    """The final fit at several temperatures, simultaneously."""
    for places in _in_stacks(problem, points.temperatures):
        few = points.part(places)
        search = _Search(problem, few.fits, places, few.parameters, few.temperatures)
        _run(problem, [search], solution, accuracy.tol, accuracy.max_iter)
    solution.was_far[:] = solution.n_iter > NEAR_STEPS


def _evaluate(problem, points: Points, tol, solution):
    """Certify the final fit where it is solved, with new images in float64."""

    def evaluate(places):
        few = points.part(places)
        search = _Search(problem, few.fits, places, problem.with_exact_images(few.parameters), few.temperatures)
        search.certify(solution, tol, 0)

    list(map_in_order(evaluate, _in_stacks(problem, points.temperatures)))


def _in_stacks(problem, temperatures):
    """Positions of the temperatures, split into those whose final fits are solved as one stack."""
    size = max(1, STACKED_VALUES // _n_scores(problem))
    return np.split(np.arange(len(temperatures)), range(size, len(temperatures), size))


def _n_scores(problem) -> int:
    return problem.design.n_rows * problem.contrasts.n_scores


def _groups(problem):
    """Fits that are solved as one stack: all of a small problem, halves of a larger one, single fits of a large one."""
    n_values = problem.n_fits * _n_scores(problem)
    n_groups = problem.n_fits if n_values > STACKED_VALUES else 2 if n_values > WHOLE_VALUES else 1
    return np.array_split(np.arange(problem.n_fits), min(n_groups, problem.n_fits))


def _run(problem, searches, solution, final_tol, max_iter):
    """Solve, extending the preconditioner if steps become many."""
    most = min(MANY_STEPS, max_iter)
    while True:
        advance = partial(_advanced, solution=solution, tol=final_tol, most=most, is_last=most == max_iter)
        searches = list(map_in_order(advance, searches))
        if most == max_iter or all(search.converged for search in searches):
            return
        most = min(most + MANY_STEPS, max_iter) if problem.add_eigenvectors() else max_iter
        for search in searches:
            search.renew_preconditioner()


def _advanced(search, solution, tol, most, is_last):
    """Advance a search up to `most` iterations; the final fit continues alone once the folds of its stack are done."""
    if search.converged:
        return search
    if search.has_folds:
        search.solve(FOLD_SUBOPTIMALITY, most)
        search.write(solution)
        if search.fits[0] > 0 or not (search.converged or is_last):
            return search
        search = search.part(slice(1))
        search.converged = False
    return search.certify(solution, tol, most)


@dataclass
class _Earlier:
    """Parameters of all fits at earlier temperatures, newest last."""

    points: list = field(default_factory=list)

    def add(self, parameters):
        self.points = [*self.points, parameters][-N_EARLIER:]

    def directions(self, problem, fits, start):
        """The current point, which is the newest solution, and its differences from the earlier ones, with images."""
        if not self.points:
            return None
        newest = start[fits]
        directions = [newest, *(point[fits] - newest for point in self.points[:-1])]
        parts = [problem.split(direction) for direction in directions]
        return np.stack([alpha for alpha, _, _ in parts], axis=1), np.stack([image for _, image, _ in parts], axis=1)


class _Search:
    """Some fits at one temperature, or the final one at several; `places` are their positions in the solution."""

    def __init__(self, problem, fits, places, start, temperature, directions=None):
        self.problem, self.fits, self.places = problem, fits, places
        self.kappa = np.broadcast_to(problem.l2_strength * temperature, len(fits))
        self.weight = problem.design.weight[:, fits].T
        self.labels = problem.design.labels
        self.missing = problem.missing[fits]
        self.alpha, self.image, self.intercept = (part.copy() for part in problem.split(start))
        self.n_iter, self.converged = 0, False
        self.gradient_norm, self.certificate = np.full((2, len(fits)), np.nan)
        self.precision = PRECISION
        self.decrement = np.zeros(len(fits))  # predicted by the last direction
        self.target = self.before = self.decrement  # decrement to reach, and value when it was last reached
        self.preconditioner: Any = None
        self.steps: list = []
        self.value: Any = None
        self.posterior: Any = None
        self._known: tuple | None = None
        self._is_stuck = False
        self._age = PRECONDITIONER_LIFE  # iterations since the preconditioner was computed: the first step computes it
        empty = np.zeros((len(fits), 0, *self.alpha.shape[1:]))
        alphas, images = (empty, empty) if directions is None else directions
        self.minimize_over(alphas, images, thoroughly=True)
        self.steps = []

    def write(self, solution):
        solution.parameters[self.places] = self.problem.join(self.alpha, self.image, self.intercept)
        solution.value[self.places], solution.gradient_norm[self.places] = self.value, self.gradient_norm
        solution.certificate[self.places] = self.certificate
        solution.n_iter[self.places], solution.converged[self.places] = self.n_iter, self.converged

    @property
    def has_folds(self) -> bool:
        return bool(self.fits[-1] > 0)

    def renew_preconditioner(self):
        """Compute a new preconditioner before the next step."""
        self._age = PRECONDITIONER_LIFE

    def part(self, chosen):
        """A search over some of the fits, which continues separately."""
        search = copy(self)
        for name in OF_EACH:
            setattr(search, name, getattr(self, name)[chosen])
        search.steps = [(step[chosen], image[chosen]) for step, image in self.steps]
        search.preconditioner = None if self.preconditioner is None else self.preconditioner.part(chosen)
        search._known = None
        return search

    def solve(self, suboptimality, max_iter):
        """Iterate until the decrement, an estimate of the suboptimality, is small relative to the value."""
        while self.n_iter < max_iter and not self.converged:
            self.converged = bool((self.iterate(suboptimality) <= suboptimality * self.value).all())

    def certify(self, solution, tol, max_iter):
        """Iterate until (17) is certified in float64; the certificate is computed once the decrement is small.

        Certified fits are written to the solution and dropped. Returns a search over the others, converged if none is
        left.
        """
        search, share = self, SUBOPTIMALITY_SHARE * tol
        search.precision = min(search.precision, (0.1 * tol) ** 2)
        search.target, search.before = np.full(len(self.fits), share), search.value
        is_due, is_stuck = search.decrement <= share * search.value, np.zeros(len(self.fits), dtype=bool)
        while True:
            holds = search.has_certificate(is_due, tol)
            if (is_due & ~holds).any():
                search.precision = max(FINER * search.precision, FINEST)
            if holds.any():
                search, is_stuck = search.without(holds, solution), is_stuck[~holds]
            if not len(search.fits):
                search.converged = True
                return search
            if search.n_iter >= max_iter or is_stuck.all():
                search.write(solution)
                return search
            is_due = search.iterate() <= 0.3 * search.target * search.value
            search.target = np.where(is_due, FINER * search.target, search.target)
            is_stuck = is_due & (search.before - search.value <= 1e-15 * search.before) & (search.target < 1e-3 * share)
            search.before = np.where(is_due, search.value, search.before)

    def without(self, done, solution):
        """Write the fits that are done; return a search over the others."""
        solved = self.part(done)
        solved.converged = True
        solved.write(solution)
        return self.part(~done)

    def has_certificate(self, is_due, tol):
        """Whether the certificate holds, computed for the fits in the mask `is_due` only."""
        holds = np.zeros(len(self.fits), dtype=bool)
        if not is_due.any():
            return holds
        residual = self._residual()[is_due]
        gradient = self.problem.combine(residual)
        by_intercept = self._intercept_gradient()[is_due]
        largest = np.abs(gradient).max(axis=(0, 2)) / self.problem.gradient_unit
        self.gradient_norm[is_due] = largest = np.maximum(largest, np.abs(by_intercept).max(axis=1))
        # At the best intercept, the gradient differs by at most `row_length` times the intercept's gradient.
        length = np.sqrt(np.einsum("pfs,pfs->f", gradient, gradient))
        length += self.problem.row_length * np.linalg.norm(by_intercept, axis=1)
        certificate = length**2 / (2 * self.kappa[is_due]) / np.maximum(self.value[is_due], np.finfo(float).tiny)
        holds[is_due] = (largest <= tol) & (certificate <= SUBOPTIMALITY_SHARE * tol)
        self.certificate[is_due] = certificate
        return holds

    def row_residual(self, posterior):
        """Weight (posterior - targets), by scores; cached for the latest posterior."""
        if self._known is None or self._known[0] is not posterior:
            self._known = posterior, self.problem.contrasts.residual(posterior, self.labels, self.weight)
        return self._known[1]

    def _residual(self):
        """The residual `kappa alpha - weight (targets - posterior)`: zero at the optimum, minus steepest descent."""
        return self.row_residual(self.posterior) + self.kappa[:, None, None] * self.alpha

    def _intercept_gradient(self):
        by_rows = self.row_residual(self.posterior).sum(axis=1)
        return by_rows if self.problem.fit_intercept else np.zeros_like(by_rows)

    def iterate(self, enough=0.0):
        """One direction per fit, its image, and a subspace minimization. Returns the decrement the direction predicted.

        If the step is much longer than expected, the preconditioner is computed anew: such a step also magnifies the
        part of the direction outside the range of K, on which no value depends, but which amplifies rounding. If the
        preconditioner models K poorly, its direction may not decrease the value; the next iteration then adds the
        residual itself, the direction of steepest descent.
        """
        if self._age >= PRECONDITIONER_LIFE:
            self.preconditioner = RowPreconditioner(self.problem, self.posterior, self.weight, self.kappa)
            self._age = 0
        residual, before = self._residual(), self.value
        directions = [-self.preconditioner.apply(residual), *([residual] if self._is_stuck else [])]
        images = [self.problem.image(direction) for direction in directions]
        self.n_iter += 1
        self._age += 1
        self.decrement = np.abs(0.5 * np.einsum("fns,fns->f", residual, images[0]))
        scalars = self.minimize_over(
            np.stack([*directions, *(step for step, _ in self.steps)], axis=1),
            np.stack([*images, *(step_image for _, step_image in self.steps)], axis=1),
            thoroughly=False,
        )
        self._is_stuck = bool(((self.value >= before) & (self.decrement > enough * self.value)).any())
        if scalars[:, 0].max() > LONGEST_STEP:
            self.renew_preconditioner()
        return self.decrement

    def minimize_over(self, alphas, images, thoroughly):
        """Move to the minimum over the span of the current point, these directions and the intercepts."""
        span = Span(self, alphas, images)
        scalars, self.intercept, self.value, self.posterior = span.minimize(thoroughly)
        move, move_image = span.moves(scalars)
        self.alpha, self.image = self.alpha + move, self.image + move_image
        self.steps = [(move, move_image), *self.steps][:N_STEPS]
        return scalars
