"""Preconditioned subspace minimization in combinations of rows: one product with K = Z Z' an iteration.

An iteration aims by the row preconditioner, takes the new direction's image (the one pass over X), and minimizes the
objective exactly over the span of the current point, that direction, the last steps and the intercepts: a handful of
scalars whose scores are known, so the inner Newton steps touch no X. The first point at a new temperature is the
minimum over the span of earlier solutions, most often already good to a few parts in a million.

The final fit is solved to the tolerance and certified in double precision; folds, whose only use is the choice of the
temperature, to a relative suboptimality of FOLD_SUBOPTIMALITY. All fits of a small problem run as one stack until the
folds are there, which saves calls; those of a large one in threads, each by itself. Where a temperature takes many
steps, as of rows whose inner products have a long spectrum, all wait until the preconditioner knows more of it.

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

FOLD_SUBOPTIMALITY = 1e-4
N_EARLIER = 4  # solutions whose span predicts the next
N_STEPS = 3  # last steps kept in the subspace
MANY_STEPS = 30  # at one temperature, after which the preconditioner is to know more of K
PRECONDITIONER_LIFE = 12  # iterations after which it is made anew at the current posterior
LONGEST_STEP = 2.0  # beside the one it aims at: a longer one says that it is out of date
MOST_NEWTON = 20  # inner steps to a minimum over a span
PRECISION = 1e-10  # relative fall worth an inner step
NEAR_STEPS = 2  # that a filling takes at most, unless it began far from its minimum
NODE_SHARE = 0.5  # of the tolerance, for points that others are interpolated from
RIDGE = 1e-12
STACKED_VALUES = 120_000  # scores of all fits up to which they are solved as one stack


class Subspace(Solver):
    """Subspace minimization in combinations of rows, for the inner-product family on wide or sparse X."""

    def adapt(self, problem, tol):
        dtype = np.float32 if tol >= SINGLE_PRECISION_TOL else np.float64
        return RepresenterProblem(problem, dtype)

    def new_memory(self, problem):
        return _Earlier()

    def minimize(self, problem, start, temperature, *, tol, max_iter, memory, final_only=False):
        solution = unsolved(start)
        groups = [np.array([0])] if final_only else _groups(problem)
        final_tol = tol if final_only else NODE_SHARE * tol

        def begin(fits):
            ways = None if final_only else memory.directions(problem, fits, start)
            return _Search(problem, fits, start[fits], temperature, ways)

        searches, most = list(map_in_order(begin, groups)), min(MANY_STEPS, max_iter)
        while True:
            advance = partial(_advanced, solution=solution, tol=final_tol, most=most, is_last=most == max_iter)
            searches = list(map_in_order(advance, searches))
            if most == max_iter or all(search.converged for search in searches):
                break
            most = min(most + MANY_STEPS, max_iter) if problem.lead_further() else max_iter
            for search in searches:
                search.renew_aim()
        if final_only:
            return replace(solution, was_far=solution.n_iter > NEAR_STEPS)
        memory.add(solution.parameters)
        return solution


def _advanced(search, solution, tol, most, is_last):
    """A search as far as `most` iterations lead; the final fit goes on by itself once the folds beside it are there."""
    if search.has_folds and not search.converged:
        search.solve(FOLD_SUBOPTIMALITY, most)
        search.write(solution)
    if search.fits[0] == 0 and (search.converged or is_last):
        search = search.of_final()
    if search.is_final and not search.converged:
        search.solve_certified(tol, most)
        search.write(solution)
    return search


def _groups(problem):
    """Fits that go in step: all of a small problem, each by itself of a large one."""
    fits = np.arange(problem.n_fits)
    n_values = len(fits) * problem.design.n_rows * problem.contrasts.n_scores
    return [fits] if n_values <= STACKED_VALUES else [fits[[own]] for own in range(len(fits))]


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
    """Some fits at one temperature, in step."""

    def __init__(self, problem, fits, start, temperature, ways=None):
        self.problem, self.fits = problem, fits
        self.kappa = problem.l2_strength * temperature
        self.weight = problem.design.weight[:, fits].T
        self.labels = problem.design.labels
        self.missing = problem.missing[fits]
        self.alpha, self.image, self.intercept = (part.copy() for part in problem.split(start))
        self.n_iter, self.converged, self.gradient_norm = 0, False, np.nan
        self.precision = PRECISION
        self.decrement = np.zeros(len(fits))  # that the last direction promised
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
        solution.parameters[self.fits] = self.problem.join(self.alpha, self.image, self.intercept)
        solution.value[self.fits], solution.gradient_norm[self.fits] = self.value, self.gradient_norm
        solution.n_iter[self.fits], solution.converged[self.fits] = self.n_iter, self.converged

    @property
    def has_folds(self) -> bool:
        return bool(self.fits[-1] > 0)

    @property
    def is_final(self) -> bool:
        """Whether it is of the final fit alone."""
        return len(self.fits) == 1 and not self.has_folds

    def renew_aim(self):
        """Make a new preconditioner before the next step."""
        self._age = PRECONDITIONER_LIFE

    def of_final(self):
        """The final fit, the first of these, from here on by itself."""
        if len(self.fits) == 1:
            return self
        other = copy(self)
        for name in ("fits", "weight", "missing", "alpha", "image", "intercept", "value", "posterior", "decrement"):
            setattr(other, name, getattr(self, name)[:1])
        other.steps, other.converged = [(step[:1], image[:1]) for step, image in self.steps], False
        other._known, other.preconditioner = None, self.preconditioner.of_first()
        return other

    def solve(self, suboptimality, max_iter):
        """Iterate until the decrement, an estimate of the relative suboptimality, is small."""
        while self.n_iter < max_iter and not self.converged:
            self.converged = bool((self._iterate() <= suboptimality * self.value).all())

    def solve_certified(self, tol, max_iter):
        """Iterate until the certificate of (17) holds in double precision; it is asked once the decrement is small."""
        self.precision = min(self.precision, (0.1 * tol) ** 2)
        target = SUBOPTIMALITY_SHARE * tol
        is_likely = self.decrement[0] <= target * self.value[0]
        while not (is_likely and self._is_certified(tol)) and self.n_iter < max_iter:
            is_likely, before = True, self.value[0]
            while self.n_iter < max_iter and self._iterate()[0] > 0.3 * target * self.value[0]:
                pass
            target /= 4
            if before - self.value[0] <= 1e-15 * before and target < 1e-3 * SUBOPTIMALITY_SHARE * tol:
                break

    def _is_certified(self, tol):
        gradient = self.problem.products.combine(self._residual()[0])
        by_intercept = self._intercept_gradient()
        largest = max(np.abs(gradient).max() / self.problem.gradient_unit, np.abs(by_intercept).max())
        # At the best intercept the gradient differs by no more than the rows' length times the intercept's.
        length = np.linalg.norm(gradient) + self.problem.row_length * np.linalg.norm(by_intercept)
        certificate = length**2 / (2 * self.kappa) / max(self.value[0], np.finfo(float).tiny)
        self.gradient_norm = largest
        self.converged = bool(largest <= tol and certificate <= SUBOPTIMALITY_SHARE * tol)
        return self.converged

    def row_residual(self, posterior):
        """Weight (posterior - targets), by scores; the last one asked for is remembered."""
        if self._known is None or self._known[0] is not posterior:
            self._known = posterior, self.problem.contrasts.residual(posterior, self.labels, self.weight)
        return self._known[1]

    def _residual(self):
        """Kappa alpha - weight (targets - posterior): the optimum's condition, and minus the fall's direction."""
        return self.row_residual(self.posterior) + self.kappa * self.alpha

    def _intercept_gradient(self):
        return self.row_residual(self.posterior).sum(axis=1) if self.problem.fit_intercept else np.zeros(1)

    def _iterate(self):
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
        self._is_stuck = not (self.value < before).any()
        if scalars[:, 0].max() > LONGEST_STEP:
            self.renew_aim()
        return self.decrement

    def minimize_over(self, alphas, images, thoroughly):
        """Move towards the minimum over the current point plus these directions, and the intercepts."""
        span = _Span(self, alphas, images)
        scalars, self.intercept, self.value, self.posterior = span.minimize(thoroughly)
        move, move_image = span.moves(scalars)
        self.alpha, self.image = self.alpha + move, self.image + move_image
        self.steps = [(move, move_image), *self.steps][:N_STEPS]
        return scalars


class _Span:
    """The objective over a few directions and the intercepts, whose scores are all known."""

    def __init__(self, search, alphas, images):
        self.search, self.images = search, images
        self.contrasts = search.problem.contrasts
        n_fits, n_directions = alphas.shape[:2]
        flat_alphas = self.flat_alphas = alphas.reshape(n_fits, n_directions, search.alpha[0].size)
        self.flat = images.reshape(flat_alphas.shape)
        own = search.image.reshape(n_fits, -1, 1)
        self.linear = (flat_alphas @ own)[..., 0]
        square = flat_alphas @ np.swapaxes(self.flat, 1, 2)
        self.square = (square + np.swapaxes(square, 1, 2)) / 2
        self.constant = np.einsum("fns,fns->f", search.alpha, search.image)

    def minimize(self, thoroughly):
        """Newton's method; unless thoroughly, done once a step's fall was the one it promised."""
        search = self.search
        scalars, intercept = np.zeros(self.linear.shape), search.intercept
        value, posterior = search.value, search.posterior
        if value is None:
            value, posterior = self._evaluate(scalars, intercept)
        for _ in range(MOST_NEWTON):
            step, decrement = self._newton(scalars, intercept, posterior)
            active = decrement > search.precision * value
            if not active.any():
                break
            length = np.where(active, 1.0, 0.0)
            for _ in range(20):
                moves = length[:, None] * step
                moved = scalars + moves[:, : scalars.shape[1]], intercept + moves[:, scalars.shape[1] :]
                new_value, new_posterior = self._evaluate(*moved)
                falls = (new_value <= value - 1e-4 * length * decrement) | ~active  # these stay, but for rounding
                if falls.all():
                    break
                length = np.where(falls, length, length / 2)
            if not (falls.all() and (new_value < value).any()):
                break
            is_quadratic = np.abs(value - new_value - 0.5 * decrement) <= 0.1 * decrement
            (scalars, intercept), value, posterior = moved, new_value, new_posterior
            if not thoroughly and (is_quadratic | ~active).all():
                break
        return scalars, intercept, value, posterior

    def moves(self, scalars):
        """By how much a point moves, and its image."""
        shape = self.search.image.shape
        return (scalars[:, None] @ self.flat_alphas).reshape(shape), (scalars[:, None] @ self.flat).reshape(shape)

    def _evaluate(self, scalars, intercept):
        search = self.search
        moved = (scalars[:, None] @ self.flat).reshape(search.image.shape)
        losses, posterior = self.contrasts.loss_and_posterior(moved + search.image + intercept[:, None], search.labels)
        loss = np.einsum("fn,fn->f", search.weight, losses)
        if search.missing.any():
            loss = loss + self._missing_loss(intercept)
        size = self.constant + 2 * np.einsum("fm,fm->f", scalars, self.linear)
        size += np.einsum("fm,fmk,fk->f", scalars, self.square, scalars)
        return loss + search.kappa / 2 * size, posterior

    def _missing_loss(self, intercept):
        logits = self.contrasts.to_classes(intercept, axis=1)
        log_partition = np.logaddexp.reduce(logits, axis=1, keepdims=True)
        return np.sum(self.search.missing * (log_partition - logits), axis=1)

    def _newton(self, scalars, intercept, posterior):
        """Newton steps in (scalars, intercept) and the fall they promise; balanced, since scales differ widely."""
        search = self.search
        residual = search.row_residual(posterior)
        flat_residual = residual.reshape(len(residual), -1, 1)
        inner = self.linear + np.einsum("fmk,fk->fm", self.square, scalars)
        gradient = (self.flat @ flat_residual)[..., 0] + search.kappa * inner
        hessian, cross, shifts = self.contrasts.hessian_along(self.images, posterior, search.weight)
        hessian += search.kappa * self.square
        if search.problem.fit_intercept:
            intercept_gradient, intercept_hessian = self._intercept_terms(intercept, residual.sum(axis=1), shifts)
            gradient = np.concatenate([gradient, intercept_gradient], axis=1)
            hessian = np.concatenate(
                [
                    np.concatenate([hessian, cross], axis=2),
                    np.concatenate([np.swapaxes(cross, 1, 2), intercept_hessian], axis=2),
                ],
                axis=1,
            )
        step = -_balanced_solve(hessian, gradient)
        decrement = -np.einsum("fp,fp->f", gradient, step)
        if not search.problem.fit_intercept:
            step = np.concatenate([step, np.zeros_like(intercept)], axis=1)
        return step, decrement

    def _intercept_terms(self, intercept, gradient, hessian):
        """Derivatives by the intercepts from those of the rows: with the imaginary rows of missing classes."""
        missing = self.search.missing
        if not missing.any():
            return gradient, hessian
        logits = self.contrasts.to_classes(intercept, axis=1)
        p = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
        total = missing.sum(axis=1, keepdims=True)
        along, across = self.contrasts.row_hessian(p)
        own = along[:, None] * np.eye(along.shape[1]) - across[:, :, None] * across[:, None]
        return gradient + self.contrasts.pull(total * p - missing), hessian + total[..., None] * own


def _balanced_solve(hessian, gradient):
    """Solutions of a stack of systems balanced to a unit diagonal; the ridge settles directions that agree."""
    diagonal = np.einsum("fpp->fp", hessian)
    balance = 1 / np.sqrt(np.maximum(diagonal, np.finfo(float).tiny))
    balanced = hessian * balance[:, :, None] * balance[:, None, :]
    balanced += RIDGE * np.eye(balanced.shape[1])
    return balance * np.linalg.solve(balanced, (balance * gradient)[..., None])[..., 0]
