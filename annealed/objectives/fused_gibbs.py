"""The Gibbs posterior of torch rows on a GPU in one kernel: logits are read once, the residual is written once.

    residual = posterior - targets, with the true class's own as minus the sum of the others

Triton comes with torch's builds for CUDA. `annealed/objectives/array_gibbs.py` imports this file when such rows are
there, and takes torch's own steps where it cannot.

Shapes: logits (n_rows, n_fits, n_classes), labels (n_rows,).
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime import driver

MOST_CLASSES = 1 << 14  # in the registers of one program
VALUES = 1 << 10  # of a program, in as many lines of classes as make them up


def can_take(logits) -> bool:
    """Whether the kernel is for these: launches go to the current device."""
    is_here = logits.is_cuda and logits.device.index == driver.active.get_current_device()
    return is_here and logits.is_contiguous() and logits.shape[-1] <= MOST_CLASSES


def loss_and_residual(logits, labels, dtype):
    """Loss (n_rows, n_fits), and the residual as `dtype`: in place where that is the logits'."""
    n_rows, n_fits, n_classes = logits.shape
    residual = logits if dtype == logits.dtype else logits.new_empty(logits.shape, dtype=dtype)
    loss, n_lines = logits.new_empty((n_rows, n_fits)), n_rows * n_fits
    columns = triton.next_power_of_2(n_classes)
    lines = max(1, VALUES // columns)
    n_warps = min(16, max(4, columns // 512))
    grid = (triton.cdiv(n_lines, lines),)
    _kernel[grid](logits, labels, residual, loss, n_lines, n_fits, n_classes, lines, columns, num_warps=n_warps)
    return loss, residual


@triton.jit(do_not_specialize=["labels", "n_lines", "n_fits"])  # one compilation for any number of rows and of fits
def _kernel(logits, labels, residual, loss, n_lines, n_fits, n_classes, LINES: tl.constexpr, COLUMNS: tl.constexpr):
    lines = tl.program_id(0).to(tl.int64) * LINES + tl.arange(0, LINES)
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
    posterior = tl.where(is_true, 0.0, weights / total[:, None])
    others = tl.sum(posterior, 1)
    found = tl.where(is_true, -others[:, None], posterior)
    doubtful = tl.log(total) - tl.sum(tl.where(is_true, shifted, 0.0), 1)
    own = tl.where(others < 0.5, -libdevice.log1p(-tl.minimum(others, 0.5)), doubtful)
    tl.store(residual + places, found.to(residual.dtype.element_ty), mask=is_there)
    tl.store(loss + lines, own, mask=is_line)
