"""Hessians of the final fit's loss, estimated from sampled rows in leading coordinates.

The covariance of a row's scores is a sum over pairs of classes:

    diag(p) - p p' = sum over l < r of p_l p_r (e_l - e_r) (e_l - e_r)'

Rows are therefore sampled separately for every pair, with probability proportional to the share w p_l p_r times the
squared length of the row in coordinates of unit spread, up to one. Where the posterior is nearly hard, few rows matter
to a pair, and a column that is rarely nonzero is known from few rows: these are included with certainty. The estimate
is positive semidefinite for any sample, and unbiased. The block of a single class is sampled in the same way, by the
share w p (1 - p), the variance of its score.

Shapes: posterior (n_rows, n_classes), Hessian (n_differences * width, n_differences * width), class blocks (n_classes,
width, width); width counts the leading coordinates and the intercept.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from annealed.rows import CsrDesign
from annealed.rows.coordinates import SMALLEST_EIGENVALUE, SMALLEST_ROOT
from annealed.rows.cost import BLOCK_BYTES, STORED_BYTES, THREAD, sparse_squares_time, squares_time
from annealed.rows.threads import map_in_order

N_LEVELS = 3  # each has twice as many parameters as the one before; the last has as many as memory allows
ROWS_PER_COORDINATE = 48  # rows sampled for the block of a pair or a class: accuracy against time
MOST_VALUES = STORED_BYTES // 4  # in float32, of the rows, of their posterior, of a Hessian, and of all class blocks
NEGLIGIBLE = np.finfo(np.float64).eps  # probabilities, and shares relative to the largest, whose products would be slow


class HessianSample:
    """Rows in leading coordinates, from which Hessians are sampled.

    rows, weight : indices of the rows in the design, and weights (summing to one) that represent all rows of fit 0
    leading : positions of the leading coordinates among a score's parameters, the intercept last if there is one
    spread : root mean square of each
    """

    def __init__(self, design, coordinates, table, n_leading, float32_rows=None):
        self.fit_intercept, self.n_leading, self.contrasts = table.fit_intercept, n_leading, table.contrasts
        n_bytes = 8 * (table.contrasts.n_differences * (n_leading + table.fit_intercept)) ** 2
        self.dtype = np.float64 if n_bytes <= BLOCK_BYTES else np.float32  # of a small Hessian, rounding is avoidable
        rank, variance = table.rank, coordinates.spectrum
        # Columns of the float32 copy are in ascending order of variance.
        ascending = np.argsort(variance) if float32_rows is None else np.arange(rank)
        kept = np.sort(ascending[rank - n_leading :])
        spread = np.sqrt(np.maximum(variance[kept], SMALLEST_EIGENVALUE * variance.max()))
        self.leading, self.spread = kept, np.maximum(spread, SMALLEST_ROOT)
        self._widest = self._unit = self.spread.max(initial=SMALLEST_ROOT)  # squares in this unit do not overflow
        if self.fit_intercept:
            self.leading, self.spread = np.append(kept, rank), np.append(self.spread, 1.0)
        self._sparse: Any = None  # rows in coordinates of unit spread, if they are sampled as sparse rows
        if _are_kept_sparse(design, coordinates, len(self.leading)):
            self.rows, self.weight = _representatives(design, MOST_VALUES // design.n_classes)
            scale = coordinates.of_final.basis[kept] / self.spread[:n_leading]
            self._sparse = design.scaled_rows(self.rows, kept, scale)
        elif float32_rows is None:
            width, along, first = len(self.leading), coordinates.along(kept), 0
            # Dense rows stay a small part of X; of sparse ones, which fill little memory, more know rare columns.
            few = max(BLOCK_BYTES // (8 * width), design.n_classes * ROWS_PER_COORDINATE * width)
            most = MOST_VALUES // width
            self.rows, self.weight = _representatives(design, most if isinstance(design, CsrDesign) else min(few, most))
            self._points, self._unit = np.empty((len(self.rows), n_leading), self.dtype), 1.0
            for part in design.map_rows(lambda block: along(block.rows_as_array()), self.rows):
                np.divide(part, self._widest, out=self._points[first : first + len(part)], casting="same_kind")
                first += len(part)
        else:
            every = slice(None, None, max(1, design.n_rows * design.n_classes // MOST_VALUES))
            self.rows, weight = float32_rows.order[every], float32_rows.weight[every, 0].astype(np.float64)
            self.weight = weight / max(weight.sum(), np.finfo(float).tiny)
            self._points = float32_rows.X[every, kept[0] : kept[0] + n_leading]  # a view, not a copy
        self._leverage = self._squared_lengths()

    def _squared_lengths(self):
        """Of every row in coordinates of unit spread, the intercept among them."""
        if self._sparse is not None:
            return 1.0 + np.maximum(self._sparse.row_squares(np.ones(self.n_leading)), 0)
        scale = (self._widest / (self._unit * self.spread[: self.n_leading])).astype(self._points.dtype)
        parts = np.array_split(self._points, max(1, self._points.nbytes // BLOCK_BYTES))
        return 1.0 + np.concatenate([np.einsum("nk,nk->n", part, part * scale**2) for part in parts])

    @staticmethod
    def count_leading(table, level):
        """Number of leading coordinates in the full part of the Hessian at a level."""
        most = int(np.sqrt(MOST_VALUES)) >> max(0, N_LEVELS - 1 - level)
        return max(0, min(table.rank, most // table.contrasts.n_differences - table.fit_intercept))

    @staticmethod
    def count_in_classes(table):
        """Number of leading coordinates in the blocks of single classes."""
        return min(table.rank, int(np.sqrt(MOST_VALUES / table.n_scores)) - table.fit_intercept)

    @staticmethod
    def n_sampled(n_rows, width):
        """Number of rows sampled for a block, the block of a pair or of a class."""
        wanted = ROWS_PER_COORDINATE * width
        return n_rows if n_rows <= 2 * wanted else wanted

    @staticmethod
    def block_time(design, coordinates, width):
        """Estimated time of a block, in nanoseconds."""
        n_rows = HessianSample.n_sampled(design.n_rows, width)
        if _are_kept_sparse(design, coordinates, width):
            return sparse_squares_time(n_rows, design.n_entries, width)
        return squares_time(n_rows, width, is_float32=True)

    def class_blocks(self, posterior):
        """Weighted mean over rows of the variance of each class's score times z z', (n_classes, width, width).

        Each coordinate of z is divided by its spread.
        """
        by_class = _without_negligible(posterior)
        return np.stack(list(self._squares(lambda p: self.weight * p * (1 - p), by_class)))

    def hessian(self, posterior, reference):
        """Weighted mean over rows of the scores' covariance kron z z', by differences from the reference score.

        Each coordinate of z is divided by its spread. The block of a pair with the reference belongs on the diagonal,
        at the other class.
        """
        width, size, by_class = len(self.leading), self.contrasts.n_differences, _without_negligible(posterior)
        hessian = np.zeros((size, width, size, width), self.dtype)
        number = np.full(posterior.shape[1], -1)  # index of each class's difference from the reference
        number[self.contrasts.others(reference)] = np.arange(size)
        pairs, weight = list(combinations(range(posterior.shape[1]), 2)), self.contrasts.pair_weight * self.weight
        squares = self._squares(lambda pair: weight * by_class[pair[0]] * by_class[pair[1]], pairs)
        for pair, square in zip(pairs, squares, strict=True):
            low, high = sorted(number[list(pair)])
            hessian[high, :, high] += square
            if low >= 0:
                hessian[low, :, low] += square
                hessian[low, :, high] = hessian[high, :, low] = -square
        return hessian.reshape(size * width, -1)

    def _squares(self, share, items):
        """Sums of share(item) times z z' over the sampled rows of each item, in threads if that saves time."""
        width = len(self.leading)
        time = len(items) * squares_time(self.n_sampled(len(self.weight), width), width, is_float32=True)
        return map_in_order(
            lambda item: self._square(*sampled(share(item), self._leverage, width)), items, int(time / THREAD)
        )

    def penalty(self, strength):
        """Penalty on the square of each leading coordinate divided by its spread; zero for the intercept."""
        penalty = strength / self.spread**2
        if self.fit_intercept:
            penalty[-1] = 0
        return penalty

    def _square(self, drawn, share):
        """Sum over the sampled rows of share times z z', with each coordinate of z divided by its spread.

        drawn : indices of the rows, None for all of them; share : the share that each represents
        """
        if self._sparse is not None:
            return self._sparse_square(drawn, share)
        root, n_leading, width = np.sqrt(share), self.n_leading, len(self.leading)
        weight, root = (root / self._unit).astype(self.dtype), root.astype(self.dtype)
        total = np.zeros((width, width), self.dtype)
        step = max(width, BLOCK_BYTES // (width * 4))
        for first in range(0, len(root), step):
            chunk = slice(first, first + step)
            points = self._points[chunk if drawn is None else drawn[chunk]]
            points = points * weight[chunk, None]
            total[:n_leading, :n_leading] += np.dot(points.T, points)
            if self.fit_intercept:
                total[-1, :n_leading] += root[chunk] @ points
        scale = self._widest / self.spread
        if self.fit_intercept:
            total[:n_leading, -1], total[-1, -1], scale[-1] = total[-1, :n_leading], share.sum(), 1.0
        scale = scale.astype(self.dtype)
        total *= scale
        total *= scale[:, None]
        return total

    def _sparse_square(self, drawn, share):
        rows = self._sparse if drawn is None else self._sparse.part(drawn)
        total = rows.gram(share)
        if self.fit_intercept:
            sums = rows.column_sums(share)[:, None]
            total = np.block([[total, sums], [sums.T, share.sum()]])
        return total.astype(self.dtype)


def _are_kept_sparse(design, coordinates, width) -> bool:
    """Whether coordinates are scaled features, and products of sparse rows take less time than those of dense ones."""
    if not isinstance(design, CsrDesign) or coordinates.of_final.basis.ndim > 1:
        return False
    n_rows = HessianSample.n_sampled(design.n_rows, width)
    return sparse_squares_time(n_rows, design.n_entries, width) < squares_time(n_rows, width, is_float32=True)


def _without_negligible(posterior):
    """Probabilities by class; negligible ones are set to zero in place."""
    posterior[posterior <= NEGLIGIBLE] = 0
    return posterior.T


def sampled(share, leverage, width):
    """Indices of the rows sampled for a block, None for all of them, and the share that each represents."""
    n_drawn = HessianSample.n_sampled(len(share), width)
    if n_drawn >= len(share):
        return None, np.where(share > NEGLIGIBLE * share.max(), share, 0)
    drawn, represented = systematic_sample(share * leverage, n_drawn)
    return drawn, represented / leverage[drawn]


def systematic_sample(share, n_drawn, start=0.5):
    """Indices of at most `n_drawn` rows in proportion to their share, and the share that each represents.

    One row is drawn at every step of the cumulated shares. A row whose share is at least a step is always drawn and
    represents itself, any other represents a step: sums over the sample are unbiased if `start`, the place of the first
    row within its step, is random.
    """
    cumulated = np.cumsum(share, dtype=np.float64)
    step = max(cumulated[-1] / n_drawn, np.finfo(float).tiny)
    drawn = np.flatnonzero(np.diff(np.floor(cumulated / step + start), prepend=np.floor(start)))
    return drawn, np.maximum(share[drawn], step)


def _representatives(design, size):
    """Indices of rows, with all rows of rare classes, and weights (summing to one) that represent all rows of fit 0."""
    rows, weight = np.arange(design.n_rows), design.weight[:, 0]
    if size < len(rows):
        by_class = np.argsort(design.labels, kind="stable")
        of_class = np.bincount(design.labels)[design.labels[by_class]]
        drawn, share = systematic_sample(1 / of_class, size)
        rows = by_class[drawn]
        weight = weight[rows] * share * of_class[drawn]
    return rows, weight / max(weight.sum(), np.finfo(float).tiny)
