"""Calibration: one factor exp(s) on held-out logits, the posterior scale, minimizing

    loss(exp(s) * logits) + SCALE_PRIOR s^2 / n_rows + UNSEEN_ERRORS / n_rows * (loss + exp(s) margin)

The minimum is found by Newton's method, from the moments under the posterior of the logits' deviations from the true
class's logit. If all held-out rows are classified correctly, the loss alone decreases without bound as s grows, however
few rows there are. The last term represents an error that was not observed: a row like the others, but of the second
most likely class. Its loss is that of the others plus their mean margin over that class.

Shapes: logits and deviations (..., n_rows, n_classes), one scale for each leading index. For two classes, the deviation
of the other class is sufficient: (..., n_rows, 1).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from annealed.problems import gibbs
from annealed.rows.cost import BLOCK_BYTES
from annealed.rows.threads import map_in_order

SCALE_PRIOR = 2.0  # weight of s^2 / n_rows: how strongly the posterior scale is pulled to one
UNSEEN_ERRORS = 0.1  # number of unobserved errors among the held-out rows: bounds the certainty on separable data
SCALE_STEP = 1e-2  # a Newton step in s shorter than this is the last: the remaining error is its square


def deviations(logits, labels):
    """Logits minus that of the true class, overwriting them."""
    if logits.shape[-1] == 2:
        margin = logits[..., 1] - logits[..., 0]
        margin *= np.where(labels, -1, 1)
        return margin[..., None]
    logits -= logits[..., np.arange(len(labels)), labels][..., None]
    return logits


def mean_margin(deviation, labels, weight):
    """Weighted mean over rows of the true class's logit minus the largest of the others."""
    if deviation.shape[-1] == 1:
        return -(deviation[..., 0] @ weight) / weight.sum()
    rows = np.arange(len(labels))
    deviation[..., rows, labels] = -np.inf
    next_best = deviation.max(axis=-1)
    deviation[..., rows, labels] = 0
    return -(next_best @ weight) / weight.sum()


def penalty(log_scale, loss, margin, n_rows: float):
    """Prior and unobserved errors, which are added to a mean held-out loss at that scale to compare models."""
    return SCALE_PRIOR * log_scale**2 / n_rows + UNSEEN_ERRORS / n_rows * (loss + np.exp(log_scale) * margin)


def rescaled(deviation, weight, margin=None, start=0.0) -> tuple[np.ndarray, np.ndarray]:
    """The best s, and the loss of each row there; `margin` and `start` are as in `least_log_scale`.

    The losses after the last Newton step are extrapolated from the moments before it, because the step is short.
    """
    n_rows = weight.sum()
    share = weight / n_rows
    last: dict = {}

    def moments(scale):
        last.update(scale=scale, rows=scaled_moments(scale, deviation))
        return last["rows"] @ share

    log_scale = least_log_scale(moments, n_rows, margin, np.full(deviation.shape[:-2], start))
    losses, mean, variance = last["rows"]
    change = (np.exp(log_scale) - last["scale"])[..., None]
    return log_scale, losses + change * mean + 0.5 * change**2 * variance


def least_log_scale(moments: Callable, n_rows: float, margin=None, start=0.0) -> np.ndarray:
    """The best s, or an array of them, by Newton's method with step halving from `start`.

    moments : function of the scale; returns the mean loss, and mean and variance of the deviations under the posterior
    margin : `mean_margin`; None leaves out the unobserved errors
    """
    unseen = 0.0 if margin is None else UNSEEN_ERRORS / n_rows
    unseen_margin = 0.0 if margin is None else unseen * margin

    def terms(s):
        scale = np.exp(s)
        loss, slope, variance = (1 + unseen) * np.asarray(moments(scale))
        slope += unseen_margin
        value = loss + unseen_margin * scale + SCALE_PRIOR * s**2 / n_rows
        first = scale * slope + 2 * SCALE_PRIOR * s / n_rows
        convex = scale**2 * variance + 2 * SCALE_PRIOR / n_rows
        return value, first, np.maximum(convex + scale * slope, 0.1 * convex)

    s = np.asarray(start, dtype=float)
    value, first, second = terms(s)
    for _ in range(50):
        move = np.minimum(np.maximum(-first / second, -1.0), 1.0)
        if (np.abs(move) < SCALE_STEP).all():
            return s + move
        new = terms(s + move)
        highest = value + 1e-12 * np.abs(value)
        while ((new[0] > highest) & (np.abs(move) > 1e-6)).any():
            move = np.where(new[0] > highest, move / 2, move)
            new = terms(s + move)
        s, (value, first, second) = s + move, new
    return s


def scaled_moments(scale, deviation):
    """Loss, and mean and variance of deviations under the posterior, of each row at a scale: (3, ..., n_rows)."""
    n_rows = deviation.shape[-2]
    size = max(1, BLOCK_BYTES * n_rows // (8 * deviation.size + 1))
    parts = [deviation[..., first : first + size, :] for first in range(0, n_rows, size)]
    moments = list(map_in_order(lambda part: _moments_of_rows(np.asarray(scale)[..., None, None], part), parts))
    return moments[0] if len(moments) == 1 else np.concatenate(moments, axis=-1)


def _moments_of_rows(scale, deviation):
    scale = scale.astype(deviation.dtype)
    if deviation.shape[-1] == 1:
        return _moments_of_two(scale[..., 0], deviation[..., 0])
    shifted = scale * deviation
    most = gibbs.LARGEST_EXPONENT[shifted.dtype.type] / 2  # half of it, because exponentials are multiplied by squares
    top = shifted.max(axis=-1) if shifted.max(initial=0) > most else 0.0
    shifted -= np.asarray(top)[..., None]
    weights = np.exp(shifted, out=shifted)
    total = weights.sum(axis=-1)
    moments = np.empty((3, *total.shape), total.dtype)
    loss, mean, variance = moments
    np.add(np.log(total), top, out=loss)
    weights *= deviation
    np.divide(weights.sum(axis=-1), total, out=mean)
    weights *= deviation
    np.divide(weights.sum(axis=-1), total, out=variance)
    variance -= mean**2
    return moments


def _moments_of_two(scale, margin):
    """`_moments_of_rows` for two classes; margin : logit of the other class minus that of the true one."""
    scaled = scale * margin
    loss, smaller, larger = gibbs.loss_and_shares(scaled)
    mean = np.where(scaled > 0, larger, smaller)
    mean *= margin
    smaller *= larger
    smaller *= margin
    smaller *= margin
    return np.stack([loss, mean, smaller])
