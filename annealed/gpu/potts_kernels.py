"""Triton kernel: one E-step pass of `annealed/potts/sweep.py` over float32 torch rows on a GPU.

    D = softmax over prototypes of (x @ directions.T + level),    sums over rows of w D x, w D, w D^2, w log partition

Rows are read once; scores and memberships are never written to memory. Float32 products run on tensor cores as products
of two half-precision parts, x = head + rest. Three of the four partial products (all but rest times rest), accumulated
in float32, keep 22 of the 24 bits. Columns, directions and memberships are scaled by powers of two to the exponents
that half precision has (`annealed/problems/device_rows.py`). Each program processes rows of a single class and adds
the level of that class. It writes its sums once, and torch sums over programs, always in the same order.

Shapes: rows (n_rows, n_features or more); K and F are the numbers of prototypes and features, rounded up to powers of
two.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

from annealed.gpu.gibbs_kernels import MOST_NUMBERS

LEAST_PROTOTYPES, LEAST_FEATURES = 64, 16  # smallest tile of the tensor cores
LINES, WARPS = 64, 8  # rows per step of a program, and warps per program


def padded_shape(n_prototypes, n_features):
    """K and F of the kernel, or None if its sums do not fit into registers."""
    prototypes = max(LEAST_PROTOTYPES, triton.next_power_of_2(n_prototypes))
    features = max(LEAST_FEATURES, triton.next_power_of_2(n_features))
    return (prototypes, features) if prototypes * features <= MOST_NUMBERS else None


def sum_memberships(wide_dtype, rows, factor, weight, gain, runs, table, unit, shape):
    """Sums over the rows of each program, in `wide_dtype`.

    They are sum w D x, times `factor` and `gain`, (n_programs, K, F); sum w D, times `gain`, (n_programs, K); and
    sum w D^2, times `gain`, beside sum w log partition, (n_programs, 2).

    `table` (F + n_classes, K) holds the directions, then the level of each class. Products of directions and `factor x`
    times `unit` are scores. Scores and logarithms are to base two. `runs` (n_programs, 3): first row, end row, class.
    """
    n_prototypes, n_features = shape
    n_programs = runs.shape[0]
    shapes = (n_programs, *shape), (n_programs, n_prototypes), (n_programs, 2)
    sums, counts, totals = (rows.new_empty(sizes, dtype=wide_dtype) for sizes in shapes)
    _sums_kernel[(n_programs,)](
        rows, factor, rows if weight is None else weight, gain, runs, table, unit, sums, counts, totals,
        weight is not None, rows.stride(0), factor.shape[0], n_features, n_prototypes, LINES, num_warps=WARPS,
    )  # fmt: skip
    return sums, counts, totals


@triton.jit(do_not_specialize=["gain", "unit"])
def _sums_kernel(
    rows, factor, weight, gain, runs, table, unit, sums, counts, numbers, HAS_WEIGHT: tl.constexpr,
    stride: tl.constexpr, n_features: tl.constexpr, F: tl.constexpr, K: tl.constexpr, LINES: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    first, last, label = tl.load(runs + 3 * program), tl.load(runs + 3 * program + 1), tl.load(runs + 3 * program + 2)
    prototypes, features, lines = tl.arange(0, K), tl.arange(0, F), tl.arange(0, LINES)
    is_feature = features < n_features
    whole = tl.load(table + features[None, :] * K + prototypes[:, None])
    head = whole.to(tl.float16)
    rest = (whole - head.to(tl.float32)).to(tl.float16)
    class_level = tl.load(table + (F + label) * K + prototypes)
    column_factor = tl.load(factor + features, mask=is_feature, other=0.0)
    places = rows + first * stride + (lines[:, None] * stride + features[None, :])
    weights = weight + first + lines
    n_rows = (last - first).to(tl.int32)
    added, counted = tl.zeros((K, F), tl.float32), tl.zeros((K,), tl.float32)
    squares, partition = tl.zeros((K,), tl.float32), tl.zeros((LINES,), tl.float32)
    for begin in range(0, n_rows, LINES):
        is_row = begin + lines < n_rows
        x = tl.load(places, mask=is_row[:, None] & is_feature[None, :], other=0.0) * column_factor[None, :]
        x_head = x.to(tl.float16)
        x_rest = (x - x_head.to(tl.float32)).to(tl.float16)
        scores = tl.dot(rest, tl.trans(x_head))
        scores = tl.dot(head, tl.trans(x_rest), scores)
        scores = tl.dot(head, tl.trans(x_head), scores)
        scores = scores * unit + class_level[:, None]
        top = tl.max(scores, 0)
        memberships = libdevice.exp2(scores - top[None, :])
        total = tl.sum(memberships, 0)
        row_weight = tl.load(weights, mask=is_row, other=0.0) if HAS_WEIGHT else is_row.to(tl.float32)
        partition += (top + libdevice.fast_log2f(total)) * row_weight
        memberships *= libdevice.fast_dividef(1.0, total)[None, :]
        weighted = memberships * (row_weight * gain)[None, :]
        squares += tl.sum(memberships * weighted, 1)
        counted += tl.sum(weighted, 1)
        weighted_head = weighted.to(tl.float16)
        weighted_rest = (weighted - weighted_head.to(tl.float32)).to(tl.float16)
        tile = tl.dot(weighted_rest, x_head)  # summed apart from `added`: tensor cores truncate instead of rounding
        tile = tl.dot(weighted_head, x_rest, tile)
        added += tl.dot(weighted_head, x_head, tile)
        places += LINES * stride
        weights += LINES
    tl.store(sums + program * (K * F) + prototypes[:, None] * F + features[None, :], added)
    tl.store(counts + program * K + prototypes, counted)
    tl.store(numbers + 2 * program, tl.sum(squares, 0))
    tl.store(numbers + 2 * program + 1, tl.sum(partition.to(tl.float64), 0))
