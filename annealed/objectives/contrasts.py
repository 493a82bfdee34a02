"""Scores that the logits of all classes are made of: one a class, but a single one for two classes.

Two classes share one direction: with score s the logits are -s / sqrt(2) and s / sqrt(2). The factor keeps lengths, so
the penalty |coef|^2 and the certificate read the same in scores as in classes, at half the work.

A common shift of more scores moves no posterior. Hessians are therefore kept by the differences from one of them, the
`reference` (the last, if nothing is said); with D the differences of scores of mean zero,
|scores|^2 = D' (I - 1 / n_classes) D.

Shapes: scores (n_rows, n_fits, n_scores) or (n_rows, n_scores), logits and residual (n_rows, n_fits, n_classes).
"""

from __future__ import annotations

import numpy as np

from annealed.objectives import gibbs

HALF = float(np.sqrt(0.5))


class Contrasts:
    def __init__(self, n_classes: int):
        self.n_classes = n_classes
        self.is_single = n_classes == 2
        self.n_scores = 1 if self.is_single else n_classes
        self.n_differences = n_classes - 1
        self.n_pairs = n_classes * (n_classes - 1) // 2
        self.pair_weight = 2 if self.is_single else 1  # of p_l p_r, in the curvature by scores
        self.pairs = np.triu_indices(self.n_differences)
        self.square = np.eye(self.n_differences) - (0 if self.is_single else 1 / n_classes)  # of |scores|^2
        self._centering = np.eye(self.n_scores) - 1 / self.n_scores  # of scores: takes off their mean
        self.numbers = np.empty((self.n_differences, self.n_differences), dtype=int)  # of each pair
        self.numbers[self.pairs] = self.numbers[self.pairs[::-1]] = np.arange(len(self.pairs[0]))

    def logits(self, scores):
        """Logits from scores, which may be overwritten; rows stay innermost in memory."""
        if not self.is_single:
            return scores
        both = np.empty((*scores.shape[1:-1], 2, len(scores)), dtype=scores.dtype)
        np.multiply(scores[..., 0].T, HALF, out=both[..., 1, :])
        np.negative(both[..., 1, :], out=both[..., 0, :])
        return both.transpose(-1, *range(both.ndim - 1))

    def loss_and_posterior(self, scores, labels):
        """Loss (..., n_rows) and posterior (..., n_rows, n_classes); scores (..., n_rows, n_scores) are overwritten."""
        if self.is_single:
            logit = scores[..., 0] / HALF
            rest = np.exp(-np.abs(logit))  # of the likelier class's weight
            loss, larger = gibbs.log_and_inverse(rest)
            smaller = rest * larger
            is_second = logit > 0
            loss += np.where(is_second == labels, 0, np.abs(logit))
            posterior = np.empty((2, *logit.shape))  # rows innermost in memory
            posterior[0] = np.where(is_second, smaller, larger)
            posterior[1] = np.where(is_second, larger, smaller)
            return loss, posterior.transpose(*range(1, posterior.ndim), 0)
        scores -= scores.max(axis=-1, keepdims=True)
        true = scores[..., np.arange(len(labels)), labels]
        posterior = np.exp(scores, out=scores)
        total = posterior.sum(axis=-1)
        posterior /= total[..., None]
        return np.log(total) - true, posterior

    def evaluate(self, scores, labels, weight):
        """Loss (n_rows, n_fits), its weighted derivative by scores (n_rows, n_fits, n_scores), and the posterior; that
        of two classes has the smaller share first. Rows stay innermost in memory; scores are overwritten.
        """
        if self.is_single:
            return self._look_at_two(scores[..., 0].T, labels, weight.T)
        losses, residual = gibbs.loss_and_residual(scores, labels)
        pulled = residual * weight[..., None]
        entries = residual.transpose(1, 2, 0).reshape(-1)  # as they lie
        entries[gibbs.own_entries(labels, *residual.shape[1:])] += 1
        return losses, pulled, residual

    @staticmethod
    def _look_at_two(score, labels, weight):
        """The same, one row a fit."""
        sign = np.where(labels, -1 / HALF, 1 / HALF)
        margin = score * sign  # of the other class over the true one
        loss, smaller, larger = gibbs.loss_and_shares(margin)
        pulled = np.where(margin > 0, larger, smaller)
        pulled *= sign
        pulled *= weight
        return loss.T, pulled.T[..., None], np.stack([smaller, larger], axis=1).transpose(2, 0, 1)

    def residual(self, posterior, labels, weight):
        """Derivative by scores of the weighted loss: posterior (..., n_rows, n_classes), weight (..., n_rows)."""
        if self.is_single:
            return (weight * (posterior[..., 1] - labels) / HALF)[..., None]
        residual = weight[..., None] * posterior
        residual[..., np.arange(len(labels)), labels] -= weight
        return residual

    def pull(self, residual):
        """Derivative by scores from that by logits, whose sum over classes is zero."""
        return residual[..., 1:] / HALF if self.is_single else residual

    def to_classes(self, values, axis):
        """One value a class from one a score: coefficients or intercepts."""
        if not self.is_single:
            return values
        return np.concatenate([-HALF * values, HALF * values], axis=axis)

    def from_classes(self, values):
        """Scores' own part of values of each class, (..., n_classes) to (..., n_scores); a common shift is lost."""
        return HALF * (values[..., 1:] - values[..., :1]) if self.is_single else values

    def others(self, reference=-1):
        """Scores that are not the reference; the only one of two classes."""
        if reference in (-1, self.n_scores - 1):
            return slice(self.n_differences)
        numbers = np.arange(self.n_differences)
        return numbers + (numbers >= reference)

    def by_differences(self, gradient, reference=-1):
        """Derivative by differences (..., n_differences, width) from that by scores, less its common shift."""
        return gradient if self.is_single else self._centering[self.others(reference)] @ gradient

    def from_differences(self, differences, reference=-1):
        """Scores (..., n_scores, width) of mean zero that have these differences from the reference."""
        return differences if self.is_single else self._centering[:, self.others(reference)] @ differences

    def without_shift(self, values):
        """Values of scores, (..., n_scores, width), less their mean over scores where there are several."""
        return values if self.is_single else self._centering @ values

    def variance(self, class_variance):
        """Variance of each score's derivative, from `posterior * (1 - posterior)` of each class."""
        return class_variance.sum(axis=-1, keepdims=True) if self.is_single else class_variance

    def pair_covariance(self, posterior):
        """`covariance` of every pair in `pairs`, along the last axis."""
        return self.covariance(posterior, *self.pairs)

    def whole(self, blocks):
        """Square matrices from blocks (n_fits, n_pairs, width, width) of each pair in `pairs`, symmetric."""
        n_fits, _, width, _ = blocks.shape
        return blocks[:, self.numbers].swapaxes(2, 3).reshape(n_fits, self.n_differences * width, -1)

    def covariance(self, posterior, left, right):
        """Entries (left, right) of the Hessian of one row's loss, by scores and so by differences too."""
        if self.is_single:
            return 2 * posterior[..., 1:] * posterior[..., :1]
        return posterior[..., left] * ((left == right) - posterior[..., right])

    def row_hessian(self, posterior):
        """(a, b), each (..., n_scores), of a row's Hessian by its scores, `diag(a) - b b'`."""
        if self.is_single:
            along = 2 * posterior[..., 1:] * posterior[..., :1]
            return along, np.zeros_like(along)
        return posterior, posterior

    def whole_row_hessian(self, posterior):
        """The same as matrices, (..., n_scores, n_scores)."""
        along, across = self.row_hessian(posterior)
        return along[..., None] * np.eye(along.shape[-1]) - across[..., None] * across[..., None, :]

    def curved(self, posterior, scores):
        """The rows' Hessians times their scores."""
        along, across = self.row_hessian(posterior)
        return along * scores - across * np.sum(across * scores, axis=-1, keepdims=True)

    def hessian_along(self, vectors, posterior, weight):
        """The weighted sum of the rows' Hessians, between vectors of scores (n_fits, n_vectors, n_rows, n_scores); from
        them to a shift of each score in all rows; and between such shifts.
        """
        if self.is_single:
            share = 2 * weight * posterior[..., 0] * posterior[..., 1]
            flat = vectors[..., 0]
            weighted = flat * share[:, None]
            summed, total = weighted.sum(axis=2), share.sum(axis=1)
            return weighted @ np.swapaxes(flat, 1, 2), summed[..., None], total[:, None, None]
        n_rows, n_scores = vectors.shape[2:]
        share = weight[..., None] * posterior
        weighted = vectors * share[:, None]
        flat = (*vectors.shape[:2], n_rows * n_scores)
        square = weighted.reshape(flat) @ np.swapaxes(vectors.reshape(flat), 1, 2)
        seen = weighted @ np.ones(n_scores)  # weight times the vector's mean under the posterior
        inverse = np.divide(1, weight, out=np.zeros_like(weight), where=weight > 0)
        square -= (seen * inverse[:, None]) @ np.swapaxes(seen, 1, 2)
        summed = np.ones(n_rows) @ weighted - seen @ posterior
        total = share.sum(axis=1)[:, None] * np.eye(n_scores) - np.swapaxes(share, 1, 2) @ posterior
        return square, summed, total
