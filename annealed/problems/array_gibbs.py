"""The Gibbs posterior (eq. 7) of rows on a device, in the array-API standard.

    residual = weight (posterior - targets),    posterior = softmax(unit logits + level)

Torch computes the same in place, and on a GPU in one Triton kernel where that can be compiled.
Shapes: logits (n_rows, n_fits, n_classes), labels (n_rows,).
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

from annealed.arrays import Place

_WORKS: dict[Any, bool] = {}  # by device: whether the fused kernel runs, once that was tried


class Residual(NamedTuple):
    """The residual and its sums over rows.

    values : (n_rows, n_fits, n_classes)
    sums : (n_fits, n_classes + 1), in the widest float: sums of the residual, then of the negative log-likelihood. With
        `learn`, n_classes more columns: sums of `posterior (1 - posterior)`
    """

    sums: Any
    values: Any


def loss_and_residual(
    place: Place, logits, level, labels, weight=None, *, unit=None, dtype=None, gain=None, learn=False
) -> Residual:
    """The loss of rows and their residual, `posterior - targets` (15), both times the weights (n_rows, n_fits).

    The actual logits are `unit * logits + level`, with unit and level (n_fits, n_classes); `logits` may be overwritten.
    Residuals are multiplied by `gain` (n_fits,) and converted to torch's `dtype` if these are given. As in
    `annealed/problems/gibbs.py`, the residual of the true class is minus the sum of the others, and the loss of an
    almost certain row is computed from that sum, so that both keep their digits in float32 too.
    """
    fused = fused_kernel(logits) if place.is_torch else None
    if fused is not None:
        residual = logits if dtype in (None, logits.dtype) else place.aligned(logits.shape, dtype)
        options = (weight, unit, residual, gain, learn)
        return Residual(fused.loss_and_residual(place.wide_dtype, logits, level, labels, *options).sum(0), residual)
    xp, logits = place.xp, place.row(logits)
    if unit is not None:
        logits *= unit
    logits += level
    true, others, residual = (_with_torch if place.is_torch else _in_the_standard)(place, logits, labels)
    spread = [_spread(place, residual)] if learn else []
    certain = others < 0.5
    loss = place.wide(xp.where(certain, -xp.log1p(-xp.where(certain, others, xp.zeros_like(others))), -true))
    if weight is not None:
        residual *= weight[:, :, None]
        loss = loss * place.wide(weight)
    sums = xp.concat([place.wide(xp.sum(residual, axis=0)), xp.sum(loss, axis=0)[:, None], *spread], axis=1)
    if gain is not None:
        residual *= gain[:, None]
    return Residual(sums, residual if dtype is None else residual.to(dtype))


def _in_the_standard(place, logits, labels):
    xp = place.xp
    classes = xp.arange(logits.shape[-1], dtype=labels.dtype, device=place.device)
    is_true = (labels[:, None] == classes[None, :])[:, None, :]
    zero = xp.zeros_like(logits)
    shifted = logits - xp.max(logits, axis=-1, keepdims=True)
    weights = xp.exp(shifted)
    total = xp.sum(weights, axis=-1, keepdims=True)
    true = xp.sum(xp.where(is_true, shifted, zero), axis=-1) - xp.log(total[..., 0])
    posterior = xp.where(is_true, zero, weights / total)
    others = xp.sum(posterior, axis=-1)
    return true, others, xp.where(is_true, -others[..., None], posterior)


def _with_torch(place, logits, labels):
    index = labels[:, None, None].expand(-1, logits.shape[1], 1)
    log_posterior = logits.log_softmax(-1)
    true = log_posterior.gather(2, index)[..., 0]
    posterior = log_posterior.exp_().scatter_(2, index, 0.0)
    others = posterior.sum(-1)
    return true, others, posterior.scatter_(2, index, -others[..., None])


def fused_kernel(logits) -> ModuleType | None:
    """The module `annealed/gpu/gibbs_kernels.py` if its kernels support these torch logits, otherwise None."""
    if not logits.is_cuda or not _WORKS.get(logits.device, True):
        return None
    try:
        from annealed.gpu import gibbs_kernels

        if not gibbs_kernels.can_take(logits):
            return None
        if logits.device not in _WORKS:
            few = logits.new_zeros((1, 1, 2)).float()
            gibbs_kernels.loss_and_residual(few.dtype, few, few[0, ...], few[0, 0, :1].long())
            _WORKS[logits.device] = True
    except Exception:  # no Triton, or no C compiler for it: torch computes the same without a fused kernel
        _WORKS[logits.device] = False
        return None
    return gibbs_kernels


def _spread(place: Place, residual):
    """Sum over rows of posterior * (1 - posterior), (n_fits, n_classes)."""
    size = place.xp.abs(residual)
    return place.wide(place.xp.sum(size - size * size, axis=0))


def deviations(place: Place, logits, labels):
    """Logits (..., n_rows, n_classes) minus that of the true class."""
    xp = place.xp
    index = xp.broadcast_to(labels[:, None], (*logits.shape[:-1], 1))
    return logits - xp.take_along_axis(logits, index, axis=-1)


def scaled_moments(place: Place, scale, deviation):
    """Loss, and mean and variance of deviations under the posterior, of each row at a scale.

    Returns (3, n_rows) in the widest float.
    """
    xp = place.xp
    weights = scale * deviation
    top = xp.max(weights, axis=1, keepdims=True)
    weights -= top
    weights = xp.exp(weights)
    total = xp.sum(weights, axis=1)
    weights *= deviation
    mean = xp.sum(weights, axis=1) / total
    weights *= deviation
    square = xp.sum(weights, axis=1) / total
    return place.wide(xp.stack([xp.log(total) + top[:, 0], mean, square - mean * mean]))


def scaled_losses(place: Place, scale, deviation):
    """Minus the log posterior of the true class of each row at a scale, in the widest float."""
    xp = place.xp
    shifted = scale * deviation
    top = xp.max(shifted, axis=-1, keepdims=True)
    shifted -= top
    return place.wide(xp.log(xp.sum(xp.exp(shifted), axis=-1)) + top[..., 0])


def margins(place: Place, deviation):
    """True class's logit (where the deviation is zero) minus the largest other one, per row, in the widest float."""
    xp = place.xp
    next_best = xp.max(xp.where(deviation == 0, -xp.inf, deviation), axis=1)
    return place.wide(-xp.where(next_best == -xp.inf, 0.0, next_best))
