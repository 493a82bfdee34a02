"""Subspace minimization: Newton's method over a few directions and the intercepts, without passes over X.

The images K alpha of the directions are known, and with them all scores. Shapes as in `subspace.py`: directions and
their images (n_fits, n_directions, n_rows, n_scores).
"""

from __future__ import annotations

import numpy as np

from annealed.solvers.base import ROUNDING

MOST_NEWTON = 20  # Newton steps
ARMIJO = 1e-4
SHORTER = (*0.5 ** np.arange(1, 20), 0.0, 0.0)  # lengths tried after the full step; the last is always accepted
RIDGE = 1e-12


class Span:
    """The objective of the fits of a search on the span of such directions, relative to their current points."""

    def __init__(self, search, alphas, images) -> None:
        self.search, self.images = search, images
        self.contrasts = search.problem.contrasts
        n_fits, n_directions = alphas.shape[:2]
        flat_alphas = self.flat_alphas = alphas.reshape(n_fits, n_directions, search.alpha[0].size)
        self.flat = images.reshape(flat_alphas.shape)
        image = search.image.reshape(n_fits, -1, 1)
        self.linear = (flat_alphas @ image)[..., 0]
        square = flat_alphas @ np.swapaxes(self.flat, 1, 2)
        self.square = (square + np.swapaxes(square, 1, 2)) / 2
        self.constant = np.einsum("fns,fns->f", search.alpha, search.image)
        self.ridge = ROUNDING * self._lost_share(search.problem.model.eigenvalues.max())

    def _lost_share(self, largest_eigenvalue):
        """Factor by which rounding in alpha' K alpha is amplified by the part of alpha outside the range of K."""
        length = np.einsum("fmn,fmn->fm", self.flat_alphas, self.flat_alphas)
        square = np.maximum(np.einsum("fmm->fm", self.square), np.finfo(float).tiny)
        return np.sqrt(largest_eigenvalue * length / square)

    def minimize(self, thoroughly):
        """Newton's method. Unless `thoroughly`, it ends once a step has decreased the value as predicted."""
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
            for shorter in SHORTER:
                moves = length[:, None] * step
                moved = scalars + moves[:, : scalars.shape[1]], intercept + moves[:, scalars.shape[1] :]
                new_value, new_posterior = self._evaluate(*moved)
                # Inactive fits do not move: their value changes by rounding only.
                decreases = _falls(value, new_value, length * decrement) | ~active
                if decreases.all():
                    break
                length = np.where(decreases, length, shorter)
            if not (new_value < value).any():
                break
            is_quadratic = np.abs(value - new_value - 0.5 * decrement) <= 0.1 * decrement
            (scalars, intercept), value, posterior = moved, new_value, new_posterior
            if not thoroughly and (is_quadratic | (length == 0)).all():
                break
        return scalars, intercept, value, posterior

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
            loss = loss + self._missing_loss(intercept)
        size = self.constant + 2 * np.einsum("fm,fm->f", scalars, self.linear)
        size += np.einsum("fm,fmk,fk->f", scalars, self.square, scalars)
        return loss + search.kappa / 2 * size, posterior

    def _missing_loss(self, intercept):
        logits = self.contrasts.to_classes(intercept, axis=1)
        log_partition = np.logaddexp.reduce(logits, axis=1, keepdims=True)
        return np.sum(self.search.missing * (log_partition - logits), axis=1)

    def _newton(self, scalars, intercept, posterior):
        """Newton steps in (scalars, intercept) and their predicted decrease; balanced, since scales differ widely."""
        search = self.search
        residual = search.row_residual(posterior)
        flat_residual = residual.reshape(len(residual), -1, 1)
        inner = self.linear + np.einsum("fmk,fk->fm", self.square, scalars)
        gradient = (self.flat @ flat_residual)[..., 0] + search.kappa[:, None] * inner
        hessian, cross, shifts = self.contrasts.hessian_along(self.images, posterior, search.weight)
        hessian += search.kappa[:, None, None] * self.square
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
        step = -_balanced_solve(hessian, gradient, self.ridge)
        decrement = -np.einsum("fp,fp->f", gradient, step)
        if not search.problem.fit_intercept:
            step = np.concatenate([step, np.zeros_like(intercept)], axis=1)
        return step, decrement

    def _intercept_terms(self, intercept, gradient, hessian):
        """Derivatives with respect to the intercepts, including the pseudo-samples of missing classes."""
        missing = self.search.missing
        if not missing.any():
            return gradient, hessian
        logits = self.contrasts.to_classes(intercept, axis=1)
        p = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
        total = missing.sum(axis=1, keepdims=True)
        curvature = self.contrasts.whole_row_hessian(p)
        return gradient + self.contrasts.pull(total * p - missing), hessian + total[..., None] * curvature


def _falls(value, new_value, predicted):
    """Sufficient decrease. A convex function cannot decrease by more than predicted: that would be rounding error."""
    decrease = value - new_value
    return (decrease >= ARMIJO * predicted) & (decrease <= 2 * predicted + ROUNDING * value)


def _balanced_solve(hessian, gradient, ridge):
    """Solutions of a stack of systems scaled to unit diagonal; the ridge stabilizes nearly parallel directions."""
    diagonal = np.einsum("fpp->fp", hessian)
    balance = 1 / np.sqrt(np.maximum(diagonal, np.finfo(float).tiny))
    balanced = hessian * balance[:, :, None] * balance[:, None, :]
    balanced_diagonal = np.einsum("fpp->fp", balanced)
    balanced_diagonal += RIDGE
    balanced_diagonal[:, : ridge.shape[1]] += ridge
    return balance * np.linalg.solve(balanced, (balance * gradient)[..., None])[..., 0]
