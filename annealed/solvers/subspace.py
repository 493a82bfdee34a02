"""Preconditioned subspace minimization in combinations of rows: one product with K = Z Z' an iteration.

An iteration aims by the row preconditioner, takes the new direction's image (the one pass over X), and minimizes the
objective exactly over the span of the current point, that direction, the last steps and the intercepts: a handful of
scalars whose scores are known, so the inner Newton steps touch no X. The first point at a new temperature is the
minimum over the span of earlier solutions, most often already good to a few parts in a million.

The final fit is solved to the tolerance, and certified in double precision: where products are in single, once more
when the path has ended, at images made anew (`confirm`), as those of many steps add up their roundings. Folds, whose
only use is the choice of the temperature, to a relative suboptimality of FOLD_SUBOPTIMALITY. All fits of a small
problem run as one stack until the folds are there, which saves calls; those of a larger one in threads, as two stacks
or each by itself. The path of a yet smaller one is filled when it has ended, all temperatures as one stack. Where a
temperature takes many steps, as of rows whose inner products have a long spectrum, all wait until the preconditioner
knows more of it.

Shapes: directions and their images (n_fits, n_directions, n_rows, n_scores).
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from annealed.design.threads import map_in_order
from annealed.objectives import RepresenterProblem, RowPreconditioner
from annealed.solvers.base import SINGLE_PRECISION_TOL, SUBOPTIMALITY_SHARE, Solver, unsolved
from annealed.solvers.span import Span

FOLD_SUBOPTIMALITY = 1e-4
N_EARLIER = 4  # solutions whose span predicts the next
N_STEPS = 3  # last steps kept in the subspace
MANY_STEPS = 30  # at one temperature, after which the preconditioner is to know more of K
PRECONDITIONER_LIFE = 12  # iterations after which it is made anew at the current posterior
LONGEST_STEP = 2.0  # beside the one it aims at: a longer one says that it is out of date
PRECISION = 1e-10  # relative fall worth an inner step
FINER, FINEST = 0.25, 1e-16  # by how much less is worth it where no certificate was given, and the least that ever is
NEAR_STEPS = 2  # that a filling takes at most, unless it began far from its minimum
NODE_SHARE = 0.5  # of the tolerance, for points that others are interpolated from
WHOLE_VALUES = 20_000  # scores of all fits up to which they are solved as one stack
STACKED_VALUES = 120_000  # likewise, as two, each in a thread
FEW_SCORES = 4000  # of a fit, up to which a path is filled when it has ended, all temperatures in step
OF_EACH = (  # what a search holds of each of its fits
    *("fits", "places", "kappa", "weight", "missing", "alpha", "image", "intercept"),
    *("value", "posterior", "gradient_norm", "certificate", "decrement", "target", "before"),
)


class Subspace(Solver):
    """Subspace minimization in combinations of rows, for the inner-product family on wide or sparse X."""

    def adapt(self, problem, tol):
        dtype = np.float32 if tol >= SINGLE_PRECISION_TOL else np.float64
        adapted = RepresenterProblem(problem, dtype)
        self.fills_last = _n_scores(adapted) <= FEW_SCORES
        self.filled_together = STACKED_VALUES // _n_scores(adapted) if self.fills_last else 1
        return adapted

    def new_memory(self, problem):
        return _Earlier()

    def minimize(self, problem, start, temperature, *, tol, max_iter, memory, final_only=False):
        if final_only:
            return self.fill(problem, start, np.array([temperature]), tol=tol, max_iter=max_iter, memory=memory)
        solution = unsolved(start)

        def begin(fits):
            return _Search(problem, fits, fits, start[fits], temperature, memory.directions(problem, fits, start))

        _run(problem, list(map_in_order(begin, _groups(problem))), solution, NODE_SHARE * tol, max_iter)
        memory.add(solution.parameters)
        return solution

    def fill(self, problem, starts, temperatures, *, tol, max_iter, memory):
        """The final fit at several temperatures, in step; starts beyond those are left as they are."""
        solution = unsolved(starts)
        for places in _in_stacks(problem, temperatures):
            search = _Search(problem, np.zeros(len(places), dtype=int), places, starts[places], temperatures[places])
            _run(problem, [search], solution, tol, max_iter)
        return replace(solution, was_far=solution.n_iter > NEAR_STEPS)

    sees_fillings_exactly = False

    def needs_confirmation(self, problem):
        return problem.products.is_rounded

    def confirm(self, problem, starts, temperatures, *, tol, max_iter, memory):
        """Certificates at images made anew; what these do not hold for is solved on in double precision."""
        solution = unsolved(starts)

        def evaluate(places):
            points = problem.seen_exactly(starts[places])
            search = _Search(problem, np.zeros(len(places), dtype=int), places, points, temperatures[places])
            search.certify(solution, tol, 0)

        list(map_in_order(evaluate, _in_stacks(problem, temperatures)))
        rest = np.flatnonzero(~solution.converged)
        if len(rest):
            exact = problem.in_double()
            points = exact.seen_exactly(starts[rest])
            found = self.fill(exact, points, temperatures[rest], tol=tol, max_iter=max_iter, memory=memory)
            solution.put(rest, found)
        return solution


def _in_stacks(problem, temperatures):
    """Numbers of temperatures whose final fits go in step."""
    size = max(1, STACKED_VALUES // _n_scores(problem))
    return np.split(np.arange(len(temperatures)), range(size, len(temperatures), size))


def _n_scores(problem) -> int:
    return problem.design.n_rows * problem.contrasts.n_scores


def _groups(problem):
    """Fits that go in step: all of a small problem, halves of a larger one, each by itself of a large one."""
    n_values = problem.n_fits * _n_scores(problem)
    n_groups = problem.n_fits if n_values > STACKED_VALUES else 2 if n_values > WHOLE_VALUES else 1
    return np.array_split(np.arange(problem.n_fits), min(n_groups, problem.n_fits))


def _run(problem, searches, solution, final_tol, max_iter):
    """Solve, and make the preconditioner know more where steps become many."""
    most = min(MANY_STEPS, max_iter)
    while True:
        advance = partial(_advanced, solution=solution, tol=final_tol, most=most, is_last=most == max_iter)
        searches = list(map_in_order(advance, searches))
        if most == max_iter or all(search.converged for search in searches):
            return
        most = min(most + MANY_STEPS, max_iter) if problem.lead_further() else max_iter
        for search in searches:
            search.renew_aim()


def _advanced(search, solution, tol, most, is_last):
    """A search as far as `most` iterations lead; the final fit goes on by itself once the folds beside it are there."""
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
        """The current point, which is the newest, and the ways from it to those before, with their images."""
        if not self.points:
            return None
        here = start[fits]
        ways = [here, *(point[fits] - here for point in self.points[:-1])]
        parts = [problem.split(way) for way in ways]
        return np.stack([alpha for alpha, _, _ in parts], axis=1), np.stack([image for _, image, _ in parts], axis=1)


class _Search:
    """Some fits at one temperature, or the final one at several, in step. `places` are theirs in the solution."""

    def __init__(self, problem, fits, places, start, temperature, ways=None):
        self.problem, self.fits, self.places = problem, fits, places
        self.kappa = np.broadcast_to(problem.l2_strength * temperature, len(fits))
        self.weight = problem.design.weight[:, fits].T
        self.labels = problem.design.labels
        self.missing = problem.missing[fits]
        self.alpha, self.image, self.intercept = (part.copy() for part in problem.split(start))
        self.n_iter, self.converged = 0, False
        self.gradient_norm, self.certificate = np.full((2, len(fits)), np.nan)
        self.precision = PRECISION
        self.decrement = np.zeros(len(fits))  # that the last direction promised
        self.target = self.before = self.decrement  # what it is to be, and the value when it last was
        self.preconditioner: Any = None
        self.steps: list = []
        self.value: Any = None
        self.posterior: Any = None
        self._known: tuple | None = None
        self._is_stuck = False
        self._age = PRECONDITIONER_LIFE  # of the preconditioner, in iterations: none was made yet
        nothing = np.zeros((len(fits), 0, *self.alpha.shape[1:]))
        alphas, images = (nothing, nothing) if ways is None else ways
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

    def renew_aim(self):
        """Make a new preconditioner before the next step."""
        self._age = PRECONDITIONER_LIFE

    def part(self, few):
        """Some of these, from here on by themselves."""
        other = copy(self)
        for name in OF_EACH:
            setattr(other, name, getattr(self, name)[few])
        other.steps = [(step[few], image[few]) for step, image in self.steps]
        other.preconditioner = None if self.preconditioner is None else self.preconditioner.part(few)
        other._known = None
        return other

    def solve(self, suboptimality, max_iter):
        """Iterate until the decrement, an estimate of the relative suboptimality, is small."""
        while self.n_iter < max_iter and not self.converged:
            self.converged = bool((self.iterate(suboptimality) <= suboptimality * self.value).all())

    def certify(self, solution, tol, max_iter):
        """Iterate until the certificate of (17) holds in double precision; it is asked once the decrement is small.

        Those for which it holds are written and left behind. What comes back are the others, none if it converged.
        """
        search, share = self, SUBOPTIMALITY_SHARE * tol
        search.precision = min(search.precision, (0.1 * tol) ** 2)
        search.target, search.before = np.full(len(self.fits), share), search.value
        asked, is_stuck = search.decrement <= share * search.value, np.zeros(len(self.fits), dtype=bool)
        while True:
            holds = search.has_certificate(asked, tol)
            if (asked & ~holds).any():
                search.precision = max(FINER * search.precision, FINEST)
            if holds.any():
                search, is_stuck = search.without(holds, solution), is_stuck[~holds]
            if not len(search.fits):
                search.converged = True
                return search
            if search.n_iter >= max_iter or is_stuck.all():
                search.write(solution)
                return search
            asked = search.iterate() <= 0.3 * search.target * search.value
            search.target = np.where(asked, FINER * search.target, search.target)
            is_stuck = asked & (search.before - search.value <= 1e-15 * search.before) & (search.target < 1e-3 * share)
            search.before = np.where(asked, search.value, search.before)

    def without(self, done, solution):
        """What is left when those that are done are written."""
        solved = self.part(done)
        solved.converged = True
        solved.write(solution)
        return self.part(~done)

    def has_certificate(self, asked, tol):
        """Of which of those asked it holds."""
        holds = np.zeros(len(self.fits), dtype=bool)
        if not asked.any():
            return holds
        residual = self._residual()[asked]
        gradient = self.problem.combine(residual)
        by_intercept = self._intercept_gradient()[asked]
        largest = np.abs(gradient).max(axis=(0, 2)) / self.problem.gradient_unit
        self.gradient_norm[asked] = largest = np.maximum(largest, np.abs(by_intercept).max(axis=1))
        # At the best intercept the gradient differs by no more than the rows' length times the intercept's.
        length = np.sqrt(np.einsum("pfs,pfs->f", gradient, gradient))
        length += self.problem.row_length * np.linalg.norm(by_intercept, axis=1)
        certificate = length**2 / (2 * self.kappa[asked]) / np.maximum(self.value[asked], np.finfo(float).tiny)
        holds[asked] = (largest <= tol) & (certificate <= SUBOPTIMALITY_SHARE * tol)
        self.certificate[asked] = certificate
        return holds

    def row_residual(self, posterior):
        """Weight (posterior - targets), by scores; the last one asked for is remembered."""
        if self._known is None or self._known[0] is not posterior:
            self._known = posterior, self.problem.contrasts.residual(posterior, self.labels, self.weight)
        return self._known[1]

    def _residual(self):
        """Kappa alpha - weight (targets - posterior): the optimum's condition, and minus the fall's direction."""
        return self.row_residual(self.posterior) + self.kappa[:, None, None] * self.alpha

    def _intercept_gradient(self):
        by_rows = self.row_residual(self.posterior).sum(axis=1)
        return by_rows if self.problem.fit_intercept else np.zeros_like(by_rows)

    def iterate(self, enough=0.0):
        """One direction a fit, one image, one subspace; the decrement the direction promised.

        A step longer than aimed at would lengthen what the direction has outside K's range, too, which no value sees
        but rounding does: the next aim is by a new preconditioner. Where K is little like what that takes it for, a
        direction may lead nowhere; the residual itself, the steepest way down, then joins the next.
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
            np.stack([*images, *(own for _, own in self.steps)], axis=1),
            thoroughly=False,
        )
        self._is_stuck = bool(((self.value >= before) & (self.decrement > enough * self.value)).any())
        if scalars[:, 0].max() > LONGEST_STEP:
            self.renew_aim()
        return self.decrement

    def minimize_over(self, alphas, images, thoroughly):
        """Move towards the minimum over the current point plus these directions, and the intercepts."""
        span = Span(self, alphas, images)
        scalars, self.intercept, self.value, self.posterior = span.minimize(thoroughly)
        move, move_image = span.moves(scalars)
        self.alpha, self.image = self.alpha + move, self.image + move_image
        self.steps = [(move, move_image), *self.steps][:N_STEPS]
        return scalars
