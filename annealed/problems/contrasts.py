"""Scores from which logits are computed: a single score for two classes, otherwise one per class.

For two classes with score s the logits are -s / sqrt(2) and s / sqrt(2). The factor preserves lengths, so the penalty
|coef|^2 and the certificate have the same form in scores as in classes, at half the work.

For more classes, a common shift of all scores leaves the posterior unchanged. Hessians are therefore expressed in the
differences of scores from a `reference` score (by default the last). With D the differences of scores of mean zero,
|scores|^2 = D' (I - 1 / n_classes) D.

Shapes: scores (n_rows, n_fits, n_scores) or (n_rows, n_scores), logits and residual (n_rows, n_fits, n_classes).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from annealed.arrays import HOST, Place, namespace_of, reshaped, take
from annealed.lazy import cached_property
from annealed.problems import gibbs

HALF = float(np.sqrt(0.5))
MISSING_CLASS_WEIGHT = 0.5  # weight, in rows, of the imaginary row for a class that a fit lacks
MOST_ROWS = 1e12  # upper bound on the total weight, in rows


class Contrasts:
    """Maps between scores, their differences and the logits of `n_classes` classes."""

    def __init__(self, n_classes: int):
        self.n_classes = n_classes
        self.is_single = n_classes == 2
        self.n_scores = 1 if self.is_single else n_classes
        self.n_differences = n_classes - 1
        self.n_pairs = n_classes * (n_classes - 1) // 2
        self.pair_weight = 2 if self.is_single else 1  # factor of p_l p_r in the curvature by scores
        self.pairs = np.triu_indices(self.n_differences)
        self.square = np.eye(self.n_differences) - (0 if self.is_single else 1 / n_classes)  # |scores|^2 = D' square D
        self._centering = np.eye(self.n_scores) - 1 / self.n_scores  # subtracts the mean over scores
        self.numbers = np.empty((self.n_differences, self.n_differences), dtype=int)  # index into `pairs` of each entry
        self.numbers[self.pairs] = self.numbers[self.pairs[::-1]] = np.arange(len(self.pairs[0]))

    def logits(self, scores):
        """Logits from scores, which may be overwritten; in memory the axis of rows stays contiguous."""
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
            rest = np.exp(-np.abs(logit))  # ratio of the smaller posterior to the larger one
            loss, larger = gibbs.log_and_inverse(rest)
            smaller = rest * larger
            is_second = logit > 0
            loss += np.where(is_second == labels, 0, np.abs(logit))
            posterior = np.empty((2, *logit.shape))  # rows contiguous in memory
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
        """Loss (n_rows, n_fits), its weighted derivative by scores (n_rows, n_fits, n_scores), and the posterior.

        For two classes the posterior has the smaller probability first. In memory the axis of rows stays contiguous;
        scores are overwritten.
        """
        if self.is_single:
            return self._evaluate_two(scores[..., 0].T, labels, weight.T)
        losses, residual = gibbs.loss_and_residual(scores, labels)
        pulled = residual * weight[..., None]
        entries = residual.transpose(1, 2, 0).reshape(-1)  # a view, in the order in memory
        entries[gibbs.true_class_entries(labels, *residual.shape[1:])] += 1
        return losses, pulled, residual

    @staticmethod
    def _evaluate_two(score, labels, weight):
        """`evaluate` for two classes; score and weight (n_fits, n_rows)."""
        sign = np.where(labels, -1 / HALF, 1 / HALF)
        margin = score * sign  # logit of the other class minus that of the true one
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
        """Derivative by scores from the derivative by logits, whose sum over classes is zero."""
        return residual[..., 1:] / HALF if self.is_single else residual

    def pull_sums(self, pulled, sums):
        """`pull` of sums over rows, (n_fits, n_classes, width) and (n_fits, n_classes)."""
        return (pulled[:, 1:, ...] / HALF, self.pull(sums)) if self.is_single else (pulled, sums)

    def to_classes(self, values, axis):
        """Coefficients or intercepts of each class from those of scores."""
        if not self.is_single:
            return values
        return namespace_of(values).concat([-HALF * values, HALF * values], axis=axis)

    def from_classes(self, values):
        """Values of scores (..., n_scores) from values of classes (..., n_classes); for two, a common shift is lost."""
        return HALF * (values[..., 1:] - values[..., :1]) if self.is_single else values

    def others(self, reference=-1):
        """Indices of the scores other than the reference; for two classes, of the only score."""
        if reference in (-1, self.n_scores - 1):
            return slice(self.n_differences)
        numbers = np.arange(self.n_differences)
        return numbers + (numbers >= reference)

    def by_differences(self, gradient, reference=-1):
        """Derivative by differences (..., n_differences, width) from the derivative by scores, minus its mean."""
        return gradient if self.is_single else self._centering[self.others(reference)] @ gradient

    def from_differences(self, differences, reference=-1):
        """Scores (..., n_scores, width) of mean zero with the given differences from the reference."""
        return differences if self.is_single else self._centering[:, self.others(reference)] @ differences

    def without_shift(self, values):
        """Values of scores (..., n_scores, width) minus their mean over scores; unchanged for a single score."""
        if self.is_single:
            return values
        return values - namespace_of(values).sum(values, axis=-2, keepdims=True) / self.n_scores

    def variance(self, class_variance):
        """Variance of the derivative by each score, from `posterior * (1 - posterior)` of each class."""
        if not self.is_single:
            return class_variance
        return namespace_of(class_variance).sum(class_variance, axis=-1, keepdims=True)

    def pair_covariance(self, posterior):
        """`covariance` of all `pairs`, along the last axis."""
        return self.covariance(posterior, *self.pairs)

    def whole(self, blocks):
        """Symmetric matrices from their blocks (n_fits, n_pairs, width, width), one for each of `pairs`."""
        n_fits, _, width, _ = blocks.shape
        return blocks[:, self.numbers].swapaxes(2, 3).reshape(n_fits, self.n_differences * width, -1)

    def covariance(self, posterior, left, right):
        """Entries (left, right) of the Hessian of a row's loss by scores; those by differences are the same."""
        if self.is_single:
            return 2 * posterior[..., 1:] * posterior[..., :1]
        return posterior[..., left] * ((left == right) - posterior[..., right])

    def row_hessian(self, posterior):
        """Vectors (a, b), each (..., n_scores), of the Hessian `diag(a) - b b'` of a row's loss by its scores."""
        if self.is_single:
            along = 2 * posterior[..., 1:] * posterior[..., :1]
            return along, np.zeros_like(along)
        return posterior, posterior

    def whole_row_hessian(self, posterior):
        """`row_hessian` as matrices, (..., n_scores, n_scores)."""
        along, across = self.row_hessian(posterior)
        return along[..., None] * np.eye(along.shape[-1]) - across[..., None] * across[..., None, :]

    def curved(self, posterior, scores):
        """Hessian of each row times a vector of scores, (..., n_scores)."""
        along, across = self.row_hessian(posterior)
        return along * scores - across * np.sum(across * scores, axis=-1, keepdims=True)

    def hessian_along(self, vectors, posterior, weight):
        """The weighted sum of the rows' Hessians on the span of some vectors and of the intercepts.

        vectors : scores (n_fits, n_vectors, n_rows, n_scores). Returns the blocks vectors x vectors, vectors x
        intercepts and intercepts x intercepts, where an intercept shifts one score in all rows.
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
        mean = weighted @ np.ones(n_scores)  # weight times the vector's mean under the posterior
        inverse = np.divide(1, weight, out=np.zeros_like(weight), where=weight > 0)
        square -= (mean * inverse[:, None]) @ np.swapaxes(mean, 1, 2)
        summed = np.ones(n_rows) @ weighted - mean @ posterior
        total = share.sum(axis=1)[:, None] * np.eye(n_scores) - np.swapaxes(share, 1, 2) @ posterior
        return square, summed, total


@dataclass(frozen=True)
class ParameterTable:
    """Parameters as a table (n_fits, n_scores, width): the `rank` coefficients of a score, and its intercept."""

    contrasts: Contrasts
    rank: int
    fit_intercept: bool

    @property
    def n_scores(self) -> int:
        return self.contrasts.n_scores

    @property
    def width(self) -> int:
        return self.rank + self.fit_intercept

    @property
    def n_parameters(self) -> int:
        return self.n_scores * self.width

    @property
    def is_coef(self):
        """One for each parameter that is a coefficient, zero for intercepts."""
        return np.tile(np.arange(self.width) < self.rank, self.n_scores).astype(np.float64)

    def of(self, parameters):
        return reshaped(parameters, (-1, self.n_scores, self.width))

    def split(self, parameters):
        """Coefficients (n_fits, n_scores, rank) and intercepts (n_fits, n_scores)."""
        table = self.of(parameters)
        if self.fit_intercept:
            return table[..., :-1], table[..., -1]
        return table, namespace_of(table).zeros_like(table[..., 0])

    def join(self, coef, intercept):
        table = coef
        if self.fit_intercept:
            table = namespace_of(coef).concat([coef, intercept[..., None]], axis=2)
        return reshaped(table, (table.shape[0], -1))

    def class_intercept(self, parameters):
        """Intercepts of classes (n_fits, n_classes)."""
        return self.contrasts.to_classes(self.split(parameters)[1], axis=1)


@dataclass(frozen=True)
class MissingClasses:
    """Imaginary rows at the centre, one for each class of which a fit has no row, so that its intercept has a minimum.

    Their only score is the intercept.

    weight : of each class in each fit, (n_fits, n_classes); zero if the fit has rows of the class
    place : where parameters live
    """

    weight: np.ndarray
    table: ParameterTable
    place: Place = HOST

    @cached_property
    def placed_weight(self):
        """The weight beside the parameters."""
        return self.place.wide(self.weight)

    def any(self, fits) -> bool:
        return self.table.fit_intercept and bool(self.weight[fits].any())

    def with_loss(self, loss, gradient, parameters, fits):
        """Loss (n_fits,) and gradient (n_fits, n_parameters), including those of the imaginary rows."""
        if not self.any(fits):
            return loss, gradient
        intercept, weight = self.table.class_intercept(parameters), take(self.placed_weight, fits)
        more_loss, by_scores = imaginary_loss(self.table.contrasts, weight, intercept)
        coef, intercept_gradient = self.table.split(gradient)
        return loss + more_loss, self.table.join(coef, intercept_gradient + by_scores)

    def add_hessian(self, hessian, parameters, fits):
        """Add the Hessian by differences of intercepts, (n_fits, n_differences, width, n_differences, width)."""
        if self.any(fits):
            contrasts, posterior = self.table.contrasts, gibbs.posterior(self.table.class_intercept(parameters))
            covariance = contrasts.pair_covariance(posterior)[:, contrasts.numbers]
            hessian[..., -1, :, -1] += self.weight[fits].sum(axis=1)[:, None, None] * covariance

    def add_product(self, product, parameters, along, fits):
        """Add the Hessian times `along`, a product in the shape of the parameters."""
        if self.any(fits):
            posterior = gibbs.posterior(self.table.class_intercept(parameters))
            curved = self.table.contrasts.curved(posterior, self.table.split(along)[1])
            self.table.of(product)[..., -1] += self.weight[fits].sum(axis=1)[:, None] * curved


def imaginary_loss(contrasts, weight, intercept):
    """Loss (n_fits,) of imaginary rows and its derivative by scores; weight and intercept (n_fits, n_classes)."""
    xp = namespace_of(intercept)
    top = xp.max(intercept, axis=1, keepdims=True)
    log_partition = xp.log(xp.sum(xp.exp(intercept - top), axis=1, keepdims=True)) + top
    evidence = xp.sum(weight, axis=1, keepdims=True) * xp.exp(intercept - log_partition) - weight
    return xp.sum(weight * (log_partition - intercept), axis=1), contrasts.pull(evidence)


def missing_class_weight(class_shares, total_weight, unweighted):
    """Weight (n_fits, n_classes) of an imaginary row for each class of which a fit has no row, else zero.

    unweighted : its weight, in rows, if the final fit (the first) has no row of the class either. It is tiny, so
        that the class is never predicted.
    """
    weight = np.where(class_shares[0] > 0, MISSING_CLASS_WEIGHT, unweighted)
    return np.where(class_shares > 0, 0, weight / np.minimum(total_weight, MOST_ROWS)[:, None])
