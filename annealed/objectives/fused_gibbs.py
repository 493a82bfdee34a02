"""The Gibbs posterior of torch rows on a GPU in one kernel: logits are read once, the residual is written once.

    residual = weight (posterior - targets), with the true class's own as minus the sum of the others

Triton comes with torch's builds for CUDA. `annealed/objectives/array_gibbs.py` imports this file when such rows are
there, and takes torch's own steps where it cannot.

Shapes: logits (n_rows, n_fits, n_classes), labels (n_rows,), weight (n_rows, n_fits) or None.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime import driver

MOST_CLASSES = 1 << 14  # in the registers of one program
TILE_VALUES = 1 << 10  # of a program at a time, in as many rows as make them up
TILES = 16  # of a program, one after the other: their sums need no reading again


def can_take(logits) -> bool:
    """Whether the kernel is for these: launches go to the current device."""
    is_here = logits.is_cuda and logits.device.index == driver.active.get_current_device()
    return is_here and logits.is_contiguous() and logits.shape[-1] <= MOST_CLASSES


def loss_residual_sums(logits, labels, weight, dtype, wide_dtype):
    """Loss (n_fits,) as `wide_dtype`, the residual as `dtype`, in place where that is the logits', and its sums over
    rows (n_fits, n_classes).
    """
    n_rows, n_fits, n_classes = logits.shape
    residual = logits if dtype == logits.dtype else logits.new_empty(logits.shape, dtype=dtype)
    n_columns = triton.next_power_of_2(n_classes)
    n_tile_rows = max(1, TILE_VALUES // n_columns)
    n_programs = triton.cdiv(n_rows, n_tile_rows * TILES)
    loss = logits.new_empty((n_programs, n_fits), dtype=wide_dtype)
    sums = logits.new_empty((n_programs, n_fits, n_classes))
    strides = (0, 0) if weight is None else weight.stride()
    _kernel[(n_programs, n_fits)](
        logits, labels, weight, residual, loss, sums, n_rows, n_fits, n_classes, *strides,
        weight is not None, n_tile_rows, n_columns, TILES, num_warps=min(16, max(4, n_columns // 512)),
    )  # fmt: skip
    return loss.sum(0), residual, sums.sum(0)


@triton.jit(do_not_specialize=["labels", "weight", "n_rows", "n_fits", "row_stride", "fit_stride"])
def _kernel(
    logits, labels, weight, residual, loss, sums, n_rows, n_fits, n_classes, row_stride, fit_stride,
    IS_WEIGHTED: tl.constexpr, TILE_ROWS: tl.constexpr, COLUMNS: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    program, fit = tl.program_id(0), tl.program_id(1)
    columns = tl.arange(0, COLUMNS)
    is_class = columns < n_classes
    added = tl.zeros([COLUMNS], logits.dtype.element_ty)
    losses = tl.zeros([TILE_ROWS], tl.float64)
    for tile in range(TILES):
        rows = (program.to(tl.int64) * TILES + tile) * TILE_ROWS + tl.arange(0, TILE_ROWS)
        is_row = rows < n_rows
        places = (rows * n_fits + fit)[:, None] * n_classes + columns[None, :]
        is_there = is_row[:, None] & is_class[None, :]
        values = tl.load(logits + places, mask=is_there, other=-float("inf"))
        label = tl.load(labels + rows, mask=is_row, other=0)
        is_true = columns[None, :] == label[:, None]
        shifted = values - tl.max(values, 1)[:, None]
        weights = tl.exp(shifted)
        total = tl.sum(weights, 1)
        posterior = tl.where(is_true, 0.0, weights / total[:, None])
        others = tl.sum(posterior, 1)
        found = tl.where(is_true, -others[:, None], posterior)
        doubtful = tl.log(total) - tl.sum(tl.where(is_true, shifted, 0.0), 1)
        own = tl.where(others < 0.5, -libdevice.log1p(-tl.minimum(others, 0.5)), doubtful).to(tl.float64)
        if IS_WEIGHTED:
            weighs = tl.load(weight + rows * row_stride + fit * fit_stride, mask=is_row, other=0.0)
            found *= weighs[:, None]
            own *= weighs.to(tl.float64)
        tl.store(residual + places, found.to(residual.dtype.element_ty), mask=is_there)
        added += tl.sum(tl.where(is_there, found, 0.0), 0)
        losses += tl.where(is_row, own, 0.0)
    tl.store(sums + (program * n_fits + fit) * n_classes + columns, added, mask=is_class)
    tl.store(loss + program * n_fits + fit, tl.sum(losses, 0))
