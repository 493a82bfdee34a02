"""A pass of `annealed/objectives/potts.py` over float32 rows of torch on a GPU, in one kernel: rows are read once, and
neither their scores nor their memberships are ever written.

    D = softmax over prototypes of (x @ directions.T + level),    sums over rows of w D x, w D, w D^2, w log partition

Numbers of single precision are multiplied on tensor cores in two parts, x = head + rest, each of half precision: of the
four products the three larger ones leave 22 of the 24 bits, added up in float32. Powers of two on columns, directions
and memberships bring them to the exponents that half precision has (`annealed/objectives/device_rows.py`). A program
takes rows of one class, whose level it adds; its sums are written once, and torch adds up the programs, always in the
same order.

Shapes: rows (n_rows, n_features or more); K and F are the numbers of prototypes and features up to powers of two.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

MOST_SUMS = 1 << 14  # K times F, in the registers of one program
LEAST_PROTOTYPES, LEAST_FEATURES = 64, 16  # that tensor cores multiply at once
LINES, WARPS = 64, 8  # rows of a step of a program, and its warps


def padded_shape(n_prototypes, n_features):
    """K and F of the kernel, or None where its sums would not fit."""
    prototypes = max(LEAST_PROTOTYPES, triton.next_power_of_2(n_prototypes))
    features = max(LEAST_FEATURES, triton.next_power_of_2(n_features))
    return (prototypes, features) if prototypes * features <= MOST_SUMS else None


def sum_memberships(wide_dtype, rows, factor, weight, gain, runs, table, unit, shape):
    """Sums over the rows of each program, wide: of w D x times factor and gain, (n_programs, K, F); of w D times the
    gain, (n_programs, K); and of w D^2 times the gain and of w times the logarithm of the partition, (n_programs, 2).

    `table` (F + n_classes, K) holds directions, whose products with `factor x` are scores in a `unit`, and the levels
    of every class; scores and logarithms are to base two. `runs` (n_programs, 3): first and last row and class.
    """
    n_prototypes, n_features = shape
    n_programs = runs.shape[0]
    shapes = (n_programs, *shape), (n_programs, n_prototypes), (n_programs, 2)
    sums, counts, numbers = (rows.new_empty(own, dtype=wide_dtype) for own in shapes)
    _sums_kernel[(n_programs,)](
        rows, factor, rows if weight is None else weight, gain, runs, table, unit, sums, counts, numbers,
        weight is not None, rows.stride(0), factor.shape[0], n_features, n_prototypes, LINES, num_warps=WARPS,
    )  # fmt: skip
    return sums, counts, numbers


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
    own_level = tl.load(table + (F + label) * K + prototypes)
    own_factor = tl.load(factor + features, mask=is_feature, other=0.0)
    places = rows + first * stride + (lines[:, None] * stride + features[None, :])
    weights = weight + first + lines
    n_rows = (last - first).to(tl.int32)
    added, counted = tl.zeros((K, F), tl.float32), tl.zeros((K,), tl.float32)
    squares, partition = tl.zeros((K,), tl.float32), tl.zeros((LINES,), tl.float32)
    for begin in range(0, n_rows, LINES):
        is_row = begin + lines < n_rows
        x = tl.load(places, mask=is_row[:, None] & is_feature[None, :], other=0.0) * own_factor[None, :]
        x_head = x.to(tl.float16)
        x_rest = (x - x_head.to(tl.float32)).to(tl.float16)
        scores = tl.dot(rest, tl.trans(x_head))
        scores = tl.dot(head, tl.trans(x_rest), scores)
        scores = tl.dot(head, tl.trans(x_head), scores)
        scores = scores * unit + own_level[:, None]
        top = tl.max(scores, 0)
        found = libdevice.exp2(scores - top[None, :])
        total = tl.sum(found, 0)
        own_weight = tl.load(weights, mask=is_row, other=0.0) if HAS_WEIGHT else is_row.to(tl.float32)
        partition += (top + libdevice.fast_log2f(total)) * own_weight
        found *= libdevice.fast_dividef(1.0, total)[None, :]
        weighted = found * (own_weight * gain)[None, :]
        squares += tl.sum(found * weighted, 1)
        counted += tl.sum(weighted, 1)
        found_head = weighted.to(tl.float16)
        found_rest = (weighted - found_head.to(tl.float32)).to(tl.float16)
        tile = tl.dot(found_rest, x_head)  # added up apart: tensor cores do not round, they cut off
        tile = tl.dot(found_head, x_rest, tile)
        added += tl.dot(found_head, x_head, tile)
        places += LINES * stride
        weights += LINES
    tl.store(sums + program * (K * F) + prototypes[:, None] * F + features[None, :], added)
    tl.store(counts + program * K + prototypes, counted)
    tl.store(numbers + 2 * program, tl.sum(squares, 0))
    tl.store(numbers + 2 * program + 1, tl.sum(partition.to(tl.float64), 0))
