"""The Gibbs posterior (eq. 7) of each row, and its entropy, loss, residual and variance.

    posterior_j = exp(logit_j) / sum_k exp(logit_k),   logit_j = g_j(x) / temperature

All sums of exponentials are log-sum-exp. Shapes: logits (n_rows, n_fits, n_classes) or (n_rows, n_classes).
"""

from __future__ import annotations

import numpy as np

from annealed.arrays import namespace_of

LARGEST_EXPONENT = {np.float32: 80.0, np.float64: 700.0}  # exponentials of more may overflow when summed over classes
SMALLEST_EXPONENT = {np.float32: -60.0, np.float64: -600.0}  # exponentials of less are negligible and may be subnormal
CHECKED_EVERY = 16  # check one row in so many for exponents below it: saves most of the check's time


def log_posterior(logits):
    """Logarithm of (7) over the last axis."""
    xp = namespace_of(logits)
    shifted = logits - xp.max(logits, axis=-1, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))


def posterior(logits):
    """The Gibbs distribution (7) over the last axis."""
    xp = namespace_of(logits)
    weights = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    weights /= xp.sum(weights, axis=-1, keepdims=True)
    return weights


def entropy(logits):
    """Shannon entropy of (7), over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    weights = np.exp(shifted)
    total = weights.sum(axis=-1)
    weights *= shifted
    return np.log(total) - weights.sum(axis=-1) / total


def negative_log_likelihood(logits, labels):
    """Minus the log posterior of the true class: the bracket of (9) divided by the temperature.

    logits (n_rows, ..., n_classes), labels (n_rows,).
    """
    shifted = logits - logits.max(axis=-1, keepdims=True)
    true = shifted[np.arange(len(labels)), ..., labels]
    return np.log(np.exp(shifted, out=shifted).sum(axis=-1)) - true


def loss_and_residual(logits, labels):
    """Negative log-likelihood (n_rows, n_fits) and `posterior - targets` (15), overwriting `logits`.

    The residual of the true class is computed as minus the sum of the others, and the loss as log1p of the others'
    exponentials, so that both keep their digits on rows that are almost certain, in float32 too. Logits are taken
    relative to the true one, or relative to the largest if that would overflow.
    """
    _, n_fits, n_classes = logits.shape
    by_class = np.ascontiguousarray(logits.transpose(1, 2, 0))  # rows contiguous; no copy for the logits of a block
    if n_classes == 2:
        return _loss_and_residual_of_two(by_class, labels)
    entries, true = by_class.reshape(-1), true_class_entries(labels, n_fits, n_classes)
    by_class -= entries.take(true)[:, None]
    shift = np.zeros(1, logits.dtype)
    if by_class.max(initial=0) > LARGEST_EXPONENT[logits.dtype.type]:
        shift = np.maximum(by_class.max(axis=1), 0)
        by_class -= shift[:, None]
    cut_off(by_class)
    np.exp(by_class, out=by_class)
    entries[true] = 0
    others = by_class.sum(axis=1)
    excess = others + np.expm1(-shift)  # the partition sum minus one
    loss, share = log_and_inverse(excess)
    loss += shift
    by_class *= share[:, None]
    entries[true] = -others * share
    return loss.T, by_class.transpose(2, 0, 1)


def true_class_entries(labels, n_fits, n_classes):
    """Flat indices (n_fits, n_rows) of each row's true class in an array (n_fits, n_classes, n_rows).

    Flat indices take a fifth of the time of fancy indexing by three arrays.
    """
    n_rows = len(labels)
    return (np.arange(n_fits) * (n_classes * n_rows))[:, None] + (labels * n_rows + np.arange(n_rows))


def exponentials(scores):
    """Compute exp(score - largest) over the first axis in place; return the largest and the sum of each column."""
    top = scores.max(axis=0)
    scores -= top
    cut_off(scores)
    np.exp(scores, out=scores)
    return top, scores.sum(axis=0)


def cut_off(exponents):
    """Raise very small exponents in place, if a sample of the rows (the last axis) has any.

    Their exponentials are subnormal numbers, with which sums take up to thirty times as long.
    """
    smallest = SMALLEST_EXPONENT[exponents.dtype.type]
    if exponents[..., : 1 + exponents.shape[-1] // CHECKED_EVERY].min() < smallest:
        np.maximum(exponents, smallest, out=exponents)


def _loss_and_residual_of_two(by_class, labels):
    """`loss_and_residual` for two classes."""
    sign = np.where(labels, -1, 1).astype(by_class.dtype)
    margin = by_class[:, 1] - by_class[:, 0]  # logit of the other class minus that of the true one
    margin *= sign
    loss, smaller, larger = loss_and_shares(margin)
    other = np.where(margin > 0, larger, smaller)
    other *= sign
    by_class[:, 1] = other
    np.negative(other, out=by_class[:, 0])
    return loss.T, by_class.transpose(2, 0, 1)


def loss_and_shares(margin):
    """Loss of two classes, and the smaller and the larger of their posteriors, with one exponential per row.

    margin : logit of the other class minus that of the true one
    """
    rest = -np.abs(margin)
    cut_off(rest)
    np.exp(rest, out=rest)
    loss, larger = log_and_inverse(rest)
    loss += np.maximum(margin, 0)
    rest *= larger
    return loss, rest, larger


def log_and_inverse(excess):
    """Logarithm and inverse of `1 + excess`.

    The logarithm is corrected for the rounding of the sum: as exact as `log1p`, which NumPy does not vectorize.
    """
    total = 1 + excess
    inverse = 1 / total
    lost = excess - (total - 1)
    lost *= inverse
    logarithm = np.log(total)
    logarithm += lost
    return logarithm, inverse


def class_variance(residual, weight):
    """Weighted sum over rows of posterior * (1 - posterior), (n_classes,), from one fit's residual and weights."""
    size = np.abs(residual.T)  # rows are already contiguous
    total = size @ weight
    total -= np.multiply(size, size, out=size) @ weight
    return total
