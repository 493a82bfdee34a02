"""Triton kernel: posteriors of torch rows on a GPU, for few classes whose logits are contiguous class by class.

    residual = weight (posterior - targets),    posterior = softmax(logits + level)

In `annealed/objectives/fused_gibbs.py` the logits of a row are contiguous, and several threads share a row. Here each
thread processes all classes of a row, so there are no reductions across threads and no duplicate computations, which
dominate the time of posteriors in float64.

Shapes: logits (n_rows, n_fits, n_classes), level (n_fits, n_classes), labels (n_rows,), weight (n_rows, n_fits).
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime import driver

from annealed.objectives.fused_gibbs import LOG2_E, own_loss

MOST_CLASSES = 16  # classes that fit into the registers of a thread
ROWS, WARPS, STEPS = 64, 2, 16  # of a program: rows per step (one per thread), warps, steps before it writes sums


def can_take(logits) -> bool:
    """Whether the kernel supports these logits; kernels are launched on the current device."""
    is_here = logits.is_cuda and logits.device.index == driver.active.get_current_device()
    row, fit, across = logits.stride()
    is_by_class = row == 1 and across > 1 and (logits.shape[1] == 1 or fit == logits.shape[2] * across)
    return is_here and is_by_class and logits.element_size() >= 4 and logits.shape[2] <= MOST_CLASSES


def loss_and_residual(wide_dtype, logits, level, labels, weight, learn):
    """Sums over the rows of each program, (n_programs, n_fits, n_classes + 1); the residual overwrites the logits.

    They are the sums of the residual, then of the loss; with `learn`, n_classes more columns with the unweighted sums
    of `posterior (1 - posterior)`.
    """
    n_rows, n_fits, n_classes = logits.shape
    n_programs = triton.cdiv(n_rows, ROWS * STEPS)
    sums = level.new_empty((n_programs, n_fits, n_classes + 1 + n_classes * learn), dtype=wide_dtype)
    _kernel[(n_programs * n_fits,)](
        logits, level.contiguous(), labels.contiguous(), logits if weight is None else weight, sums,
        n_rows, n_fits, logits.stride(2), *((0, 0) if weight is None else weight.stride()), weight is not None, learn,
        n_classes, STEPS, ROWS, triton.next_power_of_2(n_classes), num_warps=WARPS,
    )  # fmt: skip
    return sums


@triton.jit(do_not_specialize=["labels", "weight", "n_rows", "n_fits", "across", "weight_stride", "weight_step"])
def _kernel(  # compiled once for any number of rows; specialized on `across`, a thread would get two rows and spill
    logits, level, labels, weight, sums, n_rows, n_fits, across, weight_stride, weight_step, HAS_WEIGHT: tl.constexpr,
    LEARNS: tl.constexpr, n_classes: tl.constexpr, STEPS: tl.constexpr, ROWS: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64)
    fit, first = place % n_fits, place // n_fits * (STEPS * ROWS)
    kind = logits.dtype.element_ty
    classes, rows, n_left = tl.arange(0, CLASSES), tl.arange(0, ROWS), (n_rows - first).to(tl.int32)
    is_class = (classes < n_classes)[:, None]
    logits += first + fit * n_classes * across
    labels, weight, level = labels + first, weight + first * weight_stride + fit * weight_step, level + fit * n_classes
    own_level = (
        tl.load(level + classes, mask=classes < n_classes, other=0.0)[:, None] * LOG2_E
    )  # logits are to base two
    added, spread = tl.zeros((CLASSES, ROWS), kind), tl.zeros((CLASSES, ROWS), kind)
    lost = tl.zeros((ROWS,), kind)
    for _ in range(STEPS):
        is_row = rows < n_left
        is_there = is_class & is_row[None, :]
        label = tl.load(labels + rows, mask=is_row, other=0)
        places = logits + classes[:, None] * across + rows[None, :]
        values = tl.load(places, mask=is_there, other=-float("inf")) * LOG2_E + own_level
        true = tl.load(logits + label * across + rows, mask=is_row, other=0.0) * LOG2_E
        true += tl.load(level + label, mask=is_row, other=0.0) * LOG2_E
        top = tl.where(is_row, tl.max(values, 0), 0.0)
        true = tl.where(is_row, true - top, 0.0)
        is_true = classes[:, None] == label[None, :]
        weights = tl.where(is_class & ~is_true, libdevice.exp2(values - top[None, :]), 0.0)
        others, own = tl.sum(weights, 0), libdevice.exp2(true)
        share = 1.0 / (others + own)
        found = tl.where(is_true, -(others * share)[None, :], weights * share[None, :])
        found_loss = own_loss(others, own, true, share)
        if LEARNS:
            size = tl.abs(found)
            spread += tl.where(is_there, size - size * size, 0.0)
        if HAS_WEIGHT:
            own_weight = tl.load(weight + rows * weight_stride, mask=is_row, other=0.0)
            found, found_loss = found * own_weight[None, :], found_loss * own_weight
        added += tl.where(is_there, found, 0.0)
        lost += found_loss
        tl.store(places, found, mask=is_there)
        rows += ROWS
    own_sums = sums + place * (n_classes + 1 + (n_classes if LEARNS else 0))
    tl.store(own_sums + classes, tl.sum(added, 1), mask=classes < n_classes)
    tl.store(own_sums + n_classes, tl.sum(lost, 0))
    if LEARNS:
        tl.store(own_sums + n_classes + 1 + classes, tl.sum(spread, 1), mask=classes < n_classes)
