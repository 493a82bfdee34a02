"""Triton kernels: posteriors of torch rows on a GPU, with each logit read once and each result written once.

    residual = weight (posterior - targets),    posterior = softmax(unit logits + level)

The residual of the true class is minus the sum of the others. Sums over rows are computed in the same kernel: a program
sums its rows, and torch sums over programs, always in the same order. The number of columns is a compile-time constant,
so that memory is read in whole words. Triton comes with torch's builds for CUDA. `annealed/problems/array_gibbs.py`
imports this module for such rows, and falls back to torch operations if that fails.

Shapes: logits (n_rows, n_fits, n_classes), level and unit (n_fits, n_classes), labels (n_rows,), weight (n_rows,
n_fits), gain (n_fits,), scores (n_rows, n_columns).
"""

from __future__ import annotations

from math import e, log, log2

import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime import driver

MOST_NUMBERS = 1 << 14  # logits of a row, or sums, that fit into the registers of a program
VALUES = {2: 1 << 10, 4: 1 << 10, 8: 1 << 7}  # logits per step of a program, by item size: rows times padded classes
WARP_VALUES = 512  # logits of a row per warp, if the row is long
LEAST_WARPS = 2  # smallest number of warps of a program
STEPS = 64  # steps of a program before it writes its sums: fewer partial sums against fewer programs
LOG2_E, LOG_2 = tl.constexpr(log2(e)), tl.constexpr(log(2))


def can_take(logits) -> bool:
    """Whether the kernels support these logits; kernels are launched on the current device."""
    is_here = logits.is_cuda and logits.device.index == driver.active.get_current_device()
    is_line = logits.stride(-1) == 1 and logits.stride(-2) == logits.shape[-1]
    return is_here and is_line and logits.shape[-1] <= MOST_NUMBERS


def _shape(n_columns, itemsize):
    """Columns of a program (a power of two), rows per step, and warps."""
    columns = triton.next_power_of_2(n_columns)
    return columns, max(1, VALUES[itemsize] // columns), min(16, max(LEAST_WARPS, columns // WARP_VALUES))


def loss_and_residual(wide_dtype, logits, level, labels, weight=None, unit=None, residual=None, gain=None, learn=False):
    """Sums over the rows of each program, (n_programs, n_fits, n_classes + 1).

    They are the sums of the residual, then of the loss; with `learn`, n_classes more columns with the unweighted sums
    of `posterior (1 - posterior)`. The residual, times `gain`, is written to the array `residual`, by default over the
    logits, whose dtype may be narrower than that of the level.
    """
    n_rows, n_fits, n_classes = logits.shape
    residual = logits if residual is None else residual
    columns, lines, n_warps = _shape(n_classes, logits.element_size())
    n_programs = triton.cdiv(n_rows, lines * STEPS)
    sums = level.new_empty((n_programs, n_fits, n_classes + 1 + n_classes * learn), dtype=wide_dtype)
    level, has_unit = level.contiguous(), unit is not None
    _residual_kernel[(n_programs * n_fits,)](
        logits, level, unit.contiguous() if has_unit else level, labels.contiguous(),
        logits if weight is None else weight, residual, level if gain is None else gain,
        sums, n_rows, n_fits, logits.stride(0), residual.stride(0), *((0, 0) if weight is None else weight.stride()),
        has_unit, weight is not None, gain is not None, learn,
        n_classes, STEPS, lines, columns, num_warps=n_warps,
    )  # fmt: skip
    return sums


@triton.jit
def own_loss(others, own, true, share):
    """Loss of rows from the logit `true` of the true class, to base two, and its exponential `own`.

    `others` is the sum of the exponentials of the other classes; `share` is 1 / (own + others).
    """
    is_likely = others < own  # then the loss is small, and is computed from the others to keep its digits
    found = libdevice.log1p(tl.where(is_likely, -others * share, others + own - 1.0))
    return tl.where(is_likely, -found, found - true * LOG_2)


@triton.jit(do_not_specialize=["labels", "n_rows", "n_fits", "weight_stride", "weight_step"])
def _residual_kernel(  # compiled once for any number of rows and fits
    logits, level, unit, labels, weight, residual, gain, sums, n_rows, n_fits, logits_stride, stride,
    weight_stride, weight_step, HAS_UNIT: tl.constexpr, HAS_WEIGHT: tl.constexpr, HAS_GAIN: tl.constexpr,
    LEARNS: tl.constexpr, n_classes: tl.constexpr, STEPS: tl.constexpr, LINES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64)
    fit, first = place % n_fits, place // n_fits * (STEPS * LINES)
    kind = level.dtype.element_ty
    columns, rows = tl.arange(0, COLUMNS), tl.arange(0, LINES)
    is_class, n_left = columns < n_classes, (n_rows - first).to(tl.int32)
    logits += first * logits_stride + fit * n_classes
    residual += first * stride + fit * n_classes
    labels, weight, level = labels + first, weight + first * weight_stride + fit * weight_step, level + fit * n_classes
    own_level = tl.load(level + columns, mask=is_class, other=0.0) * LOG2_E  # logits are to base two
    own_unit = tl.full((COLUMNS,), LOG2_E, kind)
    if HAS_UNIT:
        unit += fit * n_classes
        own_unit *= tl.load(unit + columns, mask=is_class, other=1.0)
    added, spread = tl.zeros((LINES, COLUMNS), kind), tl.zeros((LINES, COLUMNS), kind)
    lost = tl.zeros((LINES,), kind)
    next_label = tl.load(labels + rows, mask=rows < n_left, other=0)
    next_values = tl.load(
        logits + rows[:, None] * logits_stride + columns[None, :],
        mask=(rows < n_left)[:, None] & is_class[None, :], other=-float("inf"),
    )  # fmt: skip
    next_true = tl.load(logits + rows * logits_stride + next_label, mask=rows < n_left, other=0.0)
    for step in range(STEPS):  # the next rows are loaded while these are processed
        is_row = rows < n_left
        is_there = is_row[:, None] & is_class[None, :]
        label = next_label
        values = next_values.to(kind) * own_unit[None, :] + own_level[None, :]
        true = next_true.to(kind)
        if HAS_UNIT:
            true *= tl.load(unit + label, mask=is_row, other=1.0)
        true = true * LOG2_E + tl.load(level + label, mask=is_row, other=0.0) * LOG2_E
        ahead = rows + LINES
        is_ahead = (ahead < n_left) & (step + 1 < STEPS)
        next_label = tl.load(labels + ahead, mask=is_ahead, other=0)
        next_values = tl.load(
            logits + ahead[:, None] * logits_stride + columns[None, :],
            mask=is_ahead[:, None] & is_class[None, :], other=-float("inf"),
        )  # fmt: skip
        top = tl.where(is_row, tl.max(values, 1), 0.0)
        true = tl.where(is_row, true - top, 0.0)
        is_true = columns[None, :] == label[:, None]
        weights = tl.where(is_true, 0.0, libdevice.exp2(values - top[:, None]))
        others, own = tl.sum(weights, 1), libdevice.exp2(true)
        share = 1.0 / (others + own)
        found = tl.where(is_true, -(others * share)[:, None], weights * share[:, None])
        found_loss = own_loss(others, own, true, share)
        if LEARNS:
            size = tl.abs(found)
            spread += size - size * size
        if HAS_WEIGHT:
            own_weight = tl.load(weight + rows * weight_stride, mask=is_row, other=0.0)
            found, found_loss = found * own_weight[:, None], found_loss * own_weight
        added += found
        lost += found_loss
        if HAS_GAIN:
            found *= tl.load(gain + fit)
        next_true = tl.load(logits + ahead * logits_stride + next_label, mask=is_ahead, other=0.0)
        new = residual + rows[:, None] * stride + columns[None, :]
        tl.store(new, found.to(residual.dtype.element_ty), mask=is_there)
        rows = ahead
    own_sums = sums + place * (n_classes + 1 + (n_classes if LEARNS else 0))
    tl.store(own_sums + columns, tl.sum(added, 0), mask=is_class)
    tl.store(own_sums + n_classes, tl.sum(lost, 0))
    if LEARNS:
        tl.store(own_sums + n_classes + 1 + columns, tl.sum(spread, 0), mask=is_class)


def memberships(wide_dtype, scores, level, weight=None):
    """Replace scores by weight times the softmax of `scores + level`; return sums over the rows of each program.

    The sums (n_programs, 2) are of weight times the squares of the softmax, and of weight times the log partition.
    """
    n_rows, n_columns = scores.shape
    columns, lines, n_warps = _shape(n_columns, scores.element_size())
    n_programs = triton.cdiv(n_rows, lines * STEPS)
    sums = scores.new_empty((n_programs, 2), dtype=wide_dtype)
    _memberships_kernel[(n_programs,)](
        scores, level, scores if weight is None else weight, sums, n_rows, scores.stride(0),
        weight is not None, n_columns, STEPS, lines, columns, num_warps=n_warps,
    )  # fmt: skip
    return sums


@triton.jit(do_not_specialize=["n_rows"])
def _memberships_kernel(
    scores, level, weight, sums, n_rows, stride,
    HAS_WEIGHT: tl.constexpr, n_columns: tl.constexpr, STEPS: tl.constexpr, LINES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    program, columns = tl.program_id(0).to(tl.int64), tl.arange(0, COLUMNS)
    is_column = columns < n_columns
    own_level = tl.load(level + columns, mask=is_column, other=0.0)
    squares, partition = tl.zeros((LINES,), sums.dtype.element_ty), tl.zeros((LINES,), sums.dtype.element_ty)
    for step in range(STEPS):
        rows = (program * STEPS + step) * LINES + tl.arange(0, LINES)
        is_row = rows < n_rows
        is_there = is_row[:, None] & is_column[None, :]
        places = scores + rows[:, None] * stride + columns[None, :]
        values = tl.load(places, mask=is_there, other=-float("inf")) + own_level[None, :]
        top = tl.where(is_row, tl.max(values, 1), 0.0)
        weights = tl.exp(values - top[:, None])
        share = 1.0 / tl.where(is_row, tl.sum(weights, 1), 1.0)
        found = weights * share[:, None]
        own_square, own_partition = tl.sum(found * found, 1), top - tl.log(share)
        if HAS_WEIGHT:
            own_weight = tl.load(weight + rows, mask=is_row, other=0.0)
            own_square, own_partition = own_square * own_weight, own_partition * own_weight
            found *= own_weight[:, None].to(found.dtype)
        tl.store(places, found, mask=is_there)
        squares += own_square
        partition += own_partition
    tl.store(sums + 2 * program, tl.sum(squares, 0))
    tl.store(sums + 2 * program + 1, tl.sum(partition, 0))
