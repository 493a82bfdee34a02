"""The Gibbs posterior (eq. 7) and what is read off it, row by row.

    posterior_j = exp(logit_j) / sum_k exp(logit_k),   logit_j = g_j(x) / temperature

Everything goes through log-sum-exp. Shapes: logits (n_rows, n_fits, n_classes) or (n_rows, n_classes).
"""

from __future__ import annotations

import numpy as np

from annealed.arrays import namespace_of

LARGEST_EXPONENT = {np.float32: 80.0, np.float64: 700.0}  # whose exponential, summed over classes, is still finite
SMALLEST_EXPONENT = {np.float32: -60.0, np.float64: -600.0}  # less is as good as nothing
LOOKED_AT = 16  # one row of so many


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

    The true class's residual is formed as minus the sum of the others, and its loss by log1p of what the others
    add, so that both keep their digits on rows that are all but certain, in single precision too. Logits are taken
    relative to the true one; only where that would overflow, relative to the largest.
    """
    _, n_fits, n_classes = logits.shape
    by_class = np.ascontiguousarray(logits.transpose(1, 2, 0))  # rows innermost, as the logits of a block are already
    if n_classes == 2:
        return _loss_and_residual_of_two(by_class, labels)
    entries, own = by_class.reshape(-1), own_entries(labels, n_fits, n_classes)
    by_class -= entries.take(own)[:, None]
    shift = np.zeros(1, logits.dtype)
    if by_class.max(initial=0) > LARGEST_EXPONENT[logits.dtype.type]:
        shift = np.maximum(by_class.max(axis=1), 0)
        by_class -= shift[:, None]
    cut_off(by_class)
    np.exp(by_class, out=by_class)
    entries[own] = 0
    others = by_class.sum(axis=1)
    excess = others + np.expm1(-shift)  # the partition sum less one
    loss, share = log_and_inverse(excess)
    loss += shift
    by_class *= share[:, None]
    entries[own] = -others * share
    return loss.T, by_class.transpose(2, 0, 1)


def own_entries(labels, n_fits, n_classes):
    """Where each row's true class is, (n_fits, n_rows), among (n_fits, n_classes, n_rows) entries in one line: written
    there by one number each, which takes a fifth of the time.
    """
    n_rows = len(labels)
    return (np.arange(n_fits) * (n_classes * n_rows))[:, None] + (labels * n_rows + np.arange(n_rows))


def exponentials(scores):
    """exp(score - the largest) over the first axis, in place; the largest of every column, and what they add up to."""
    top = scores.max(axis=0)
    scores -= top
    cut_off(scores)
    np.exp(scores, out=scores)
    return top, scores.sum(axis=0)


def cut_off(exponents):
    """Raise the smallest, in place, where some rows, the last axis, have such. Exponentials too small for a number's
    usual digits make sums take up to thirty times as long.
    """
    smallest = SMALLEST_EXPONENT[exponents.dtype.type]
    if exponents[..., : 1 + exponents.shape[-1] // LOOKED_AT].min() < smallest:
        np.maximum(exponents, smallest, out=exponents)


def _loss_and_residual_of_two(by_class, labels):
    """The same for two classes."""
    sign = np.where(labels, -1, 1).astype(by_class.dtype)
    margin = by_class[:, 1] - by_class[:, 0]  # of the other class over the true one
    margin *= sign
    loss, smaller, larger = loss_and_shares(margin)
    other = np.where(margin > 0, larger, smaller)
    other *= sign
    by_class[:, 1] = other
    np.negative(other, out=by_class[:, 0])
    return loss.T, by_class.transpose(2, 0, 1)


def loss_and_shares(margin):
    """Loss of two classes, and the smaller and the larger of their posteriors, by the other's lead over the true one;
    from one exponential a row, of the less likely class's weight beside the other's.
    """
    rest = -np.abs(margin)
    cut_off(rest)
    np.exp(rest, out=rest)
    loss, larger = log_and_inverse(rest)
    loss += np.maximum(margin, 0)
    rest *= larger
    return loss, rest, larger


def log_and_inverse(excess):
    """Logarithm and inverse of `1 + excess`. The logarithm is that of the sum, plus what rounding took off the sum: as
    exact as `log1p`, which NumPy makes one by one, not in vectors.
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
    size = np.abs(residual.T)  # rows innermost, as they lie
    total = size @ weight
    total -= np.multiply(size, size, out=size) @ weight
    return total
