"""Subspace minimization: Newton's method over a few directions and the intercepts, without passes over X.

The images K alpha of the directions are known, and with them all scores. Shapes as in `subspace.py`: directions and
their images (n_points, n_directions, n_rows, n_scores).
"""

from __future__ import annotations

import numpy as np

from annealed.problems import gibbs
from annealed.problems.contrasts import imaginary_loss
from annealed.solvers.base import ARMIJO, ROUNDING, SHORTEST_STEP

MOST_STEPS = 40  # iterations of a point, and Newton steps within each


class Span:
    """The objective of the points of a search on the span of such directions, relative to where they are.

    promised : decrease that the first Newton step predicted
    """

    promised: np.ndarray

    def __init__(self, search, alphas, images) -> None:
        self.search, self.images = search, images
        self.contrasts = search.problem.contrasts
        n_points, n_directions = alphas.shape[:2]
        self.flat_alphas = alphas.reshape(n_points, n_directions, search.alpha[0].size)
        self.flat = images.reshape(self.flat_alphas.shape)
        self.linear = (self.flat_alphas @ search.image.reshape(n_points, -1, 1))[..., 0]
        square = self.flat_alphas @ np.swapaxes(self.flat, 1, 2)
        self.square = (square + np.swapaxes(square, 1, 2)) / 2
        self.constant = np.einsum("fns,fns->f", search.alpha, search.image)

    def minimize(self, thoroughly):
        """Newton's method. Unless `thoroughly`, it ends once a step has decreased the value as predicted.

        Returns the scalars, and intercepts, value, posterior and residual of the rows where they lead.
        """
        scalars, intercept = np.zeros(self.linear.shape), self.search.intercept
        value, posterior, residual = self.search.evaluated or self._evaluate(scalars, intercept)
        is_open = np.ones(len(value), dtype=bool)
        for number in range(MOST_STEPS):
            step, decrement = self._newton(scalars, intercept, posterior, residual)
            if number == 0:
                self.promised = 0.5 * decrement
            length = np.where(is_open, 1.0, 0.0)
            while True:
                move = length[:, None] * step
                moved = scalars + move[:, : scalars.shape[1]], intercept + move[:, scalars.shape[1] :]
                found = self._evaluate(*moved)
                falls = _falls(value, found[0], length * decrement) | (length == 0)
                if falls.all():
                    break
                shorter = 0.5 * length
                length = np.where(falls, length, np.where(shorter > SHORTEST_STEP, shorter, 0.0))
            is_quadratic = np.abs(value - found[0] - 0.5 * decrement) <= 0.1 * decrement
            is_open &= (length > 0) & (decrement > ROUNDING * value) & (thoroughly | ~is_quadratic)
            (scalars, intercept), (value, posterior, residual) = moved, found
            if not is_open.any():
                break
        return scalars, intercept, value, posterior, residual

    def moves(self, scalars):
        """Displacement of the points and of their images."""
        shape = self.search.image.shape
        return (scalars[:, None] @ self.flat_alphas).reshape(shape), (scalars[:, None] @ self.flat).reshape(shape)

    def _evaluate(self, scalars, intercept):
        search = self.search
        moved = (scalars[:, None] @ self.flat).reshape(search.image.shape)
        losses, posterior = self.contrasts.loss_and_posterior(moved + search.image + intercept[:, None], search.labels)
        loss = np.einsum("fn,fn->f", search.weight, losses)
        if search.missing.any():
            loss = (
                loss + imaginary_loss(self.contrasts, search.missing, self.contrasts.to_classes(intercept, axis=1))[0]
            )
        size = self.constant + 2 * np.einsum("fm,fm->f", scalars, self.linear)
        size += np.einsum("fm,fmk,fk->f", scalars, self.square, scalars)
        residual = self.contrasts.residual(posterior, search.labels, search.weight)
        return loss + search.kappa / 2 * size, posterior, residual

    def _newton(self, scalars, intercept, posterior, residual):
        """Newton steps in (scalars, intercept) and their predicted decrease."""
        search = self.search
        inner = self.linear + np.einsum("fmk,fk->fm", self.square, scalars)
        gradient = (self.flat @ residual.reshape(len(residual), -1, 1))[..., 0] + search.kappa[:, None] * inner
        hessian, cross, shifts = self.contrasts.hessian_along(self.images, posterior, search.weight)
        hessian += search.kappa[:, None, None] * self.square
        if search.problem.fit_intercept:
            intercept_gradient, intercept_hessian = self._intercept_terms(intercept, residual.sum(axis=1), shifts)
            gradient = np.concatenate([gradient, intercept_gradient], axis=1)
            rows = [hessian, cross], [np.swapaxes(cross, 1, 2), intercept_hessian]
            hessian = np.concatenate([np.concatenate(row, axis=2) for row in rows], axis=1)
        step = -_balanced_solve(hessian, gradient)
        decrement = -np.einsum("fp,fp->f", gradient, step)
        if not search.problem.fit_intercept:
            step = np.concatenate([step, np.zeros_like(intercept)], axis=1)
        return step, decrement

    def _intercept_terms(self, intercept, gradient, hessian):
        """Derivatives with respect to the intercepts, including the imaginary rows of missing classes.

        A common shift of all intercepts changes nothing: it is given some curvature.
        """
        if self.search.missing.any():
            missing, intercept = self.search.missing, self.contrasts.to_classes(intercept, axis=1)
            curvature = self.contrasts.whole_row_hessian(gibbs.posterior(intercept))
            gradient = gradient + imaginary_loss(self.contrasts, missing, intercept)[1]
            hessian = hessian + missing.sum(axis=1)[:, None, None] * curvature
        if gradient.shape[1] > 1:
            hessian = hessian + np.trace(hessian, axis1=1, axis2=2)[:, None, None] / gradient.shape[1]
        return gradient, hessian


def _falls(value, new_value, predicted):
    """Sufficient decrease, up to rounding. A convex function cannot decrease by more than predicted."""
    decrease, slack = value - new_value, ROUNDING * value
    return (decrease >= ARMIJO * predicted - slack) & (decrease <= 2 * predicted + slack)


def _balanced_solve(hessian, gradient):
    """Solutions of a stack of systems scaled to unit diagonal; the ridge stabilizes nearly parallel directions."""
    balance = 1 / np.sqrt(np.maximum(np.einsum("fpp->fp", hessian), np.finfo(float).tiny))
    balanced = hessian * balance[:, :, None] * balance[:, None, :]
    diagonal = np.einsum("fpp->fp", balanced)
    diagonal += ROUNDING
    return balance * np.linalg.solve(balanced, (balance * gradient)[..., None])[..., 0]
