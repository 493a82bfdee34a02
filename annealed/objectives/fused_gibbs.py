"""The Gibbs posterior of torch rows on a GPU in one kernel: logits are read once, the residual is written once.

    residual = posterior - targets, with the true class's own as minus the sum of the others

Triton comes with torch's builds for CUDA. `annealed/objectives/array_gibbs.py` imports this file when such rows are
there, and takes torch's own steps where it cannot.

Shapes: logits (n_rows, n_fits, n_classes), labels (n_rows,).
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.runtime import driver

MOST_CLASSES = 1 << 14  # in the registers of one program
VALUES = 1 << 10  # of a program, in as many rows as make them up


def can_take(logits) -> bool:
    """Whether the kernel is for these: launches go to the current device."""
    is_here = logits.is_cuda and logits.device.index == driver.active.get_current_device()
    return is_here and logits.is_contiguous() and logits.shape[-1] <= MOST_CLASSES


def true_residual_others(logits, labels, dtype):
    """Log posterior of the true class, the residual as `dtype` (in place where that is the logits'), and the sum of
    the other classes' posterior.
    """
    n_rows, n_fits, n_classes = logits.shape
    residual = logits if dtype == logits.dtype else logits.new_empty(logits.shape, dtype=dtype)
    true, others = logits.new_empty((n_rows, n_fits)), logits.new_empty((n_rows, n_fits))
    columns = triton.next_power_of_2(n_classes)
    rows = max(1, VALUES // columns)
    n_warps = min(16, max(4, columns // 512))
    n_lines = n_rows * n_fits
    _kernel[(triton.cdiv(n_lines, rows),)](
        logits, labels, residual, true, others, n_lines, n_fits, n_classes, rows, columns, num_warps=n_warps
    )
    return true, residual, others


@triton.jit
def _kernel(logits, labels, residual, true, others, n_lines, n_fits, n_classes, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # fmt: skip # noqa: E501
    lines = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    is_line = lines < n_lines
    places = lines[:, None] * n_classes + columns[None, :]
    is_there = is_line[:, None] & (columns < n_classes)[None, :]
    values = tl.load(logits + places, mask=is_there, other=-float("inf"))
    label = tl.load(labels + lines // n_fits, mask=is_line, other=0)
    is_true = columns[None, :] == label[:, None]
    shifted = values - tl.max(values, 1)[:, None]
    weights = tl.exp(shifted)
    total = tl.sum(weights, 1)
    own = tl.sum(tl.where(is_true, shifted, 0.0), 1) - tl.log(total)
    posterior = tl.where(is_true, 0.0, weights / total[:, None])
    rest = tl.sum(posterior, 1)
    found = tl.where(is_true, -rest[:, None], posterior)
    tl.store(residual + places, found.to(residual.dtype.element_ty), mask=is_there)
    tl.store(true + lines, own, mask=is_line)
    tl.store(others + lines, rest, mask=is_line)
