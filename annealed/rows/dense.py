"""Storage of X in a NumPy array (or memory map).

Products use the float64 rows in place and correct the small result for the centre, unless the centre is so far away
that digits would be lost. All other operations receive a block that is centred and converted to float64 in a buffer, or
a view of a centred copy of X if X is small.
"""

from __future__ import annotations

import platform
from itertools import pairwise

import numpy as np

from annealed.lazy import cached_property
from annealed.rows.base import FARTHEST_CENTER, SPREAD_ROWS, Block, Design, even_slices
from annealed.rows.coordinates import Coordinates
from annealed.rows.cost import BLOCK, BLOCK_BYTES, score_time
from annealed.rows.threads import map_in_order

HAS_SMALL_PRODUCTS = platform.machine().lower() in ("x86_64", "amd64")
MOST_WORK = 1_000_000  # largest number of multiplications in a piece
MOST_SCORES = 1200  # largest number of scores in a piece
FEWEST = 32  # rows and columns of a piece, for pieces to be faster


def scores_of(vectors, rows):
    """`vectors @ rows.T`, (n_vectors, n_rows)."""
    n_vectors = len(vectors)
    pieces = _pieces(rows, n_vectors)
    if pieces is None:
        return vectors @ rows.T
    n_pieces, length, _ = pieces.shape
    scores = np.empty((n_vectors, len(rows)), np.result_type(vectors, rows))
    inside, rest = scores[:, : n_pieces * length], slice(n_pieces * length, None)
    np.matmul(vectors, pieces.transpose(0, 2, 1), out=inside.reshape(n_vectors, n_pieces, length).transpose(1, 0, 2))
    np.matmul(vectors, rows[rest].T, out=scores[:, rest])
    return scores


def sums_of(weights, rows):
    """`weights @ rows`, (n_vectors, n_columns)."""
    n_vectors = len(weights)
    pays = rows.dtype == np.float32 and n_vectors * rows.size > MOST_WORK  # in float64 pieces are not faster
    pieces = _pieces(rows, n_vectors) if pays else None
    if pieces is None:
        return np.dot(weights, rows)  # `@` would hold the interpreter lock if the result is small
    n_pieces, length, _ = pieces.shape
    inside, rest = weights[:, : n_pieces * length], slice(n_pieces * length, None)
    sums = np.matmul(inside.reshape(n_vectors, n_pieces, length).transpose(1, 0, 2), pieces).sum(axis=0)
    sums += np.dot(weights[:, rest], rows[rest])
    return sums


def _pieces(rows, n_vectors):
    """Rows in pieces (n_pieces, length, n_columns), without the remainder; None if pieces would not be faster."""
    n_columns = rows.shape[1]
    length = min(MOST_SCORES, MOST_WORK // n_columns) // n_vectors
    is_narrow = n_vectors > 1 and length >= FEWEST and n_columns >= FEWEST
    if not (HAS_SMALL_PRODUCTS and is_narrow) or len(rows) < 2 * length:
        return None
    n_pieces = len(rows) // length
    return rows[: n_pieces * length].reshape(n_pieces, length, n_columns)


MOST_GROUPED = np.iinfo(np.int64).bits - 1  # fits whose subsets can be encoded in the bits of an integer


class DenseBlock(Block):
    """`values` are the centred rows; `raw` are the rows before `center` was subtracted, if `center` is given."""

    def __init__(self, raw, rows, labels, weight, center=None):
        super().__init__(rows, labels, weight)
        self.raw, self.center = raw, center

    @cached_property
    def values(self):
        return self.raw if self.center is None else self.raw - self.center

    def product(self, coef):
        """Samples are innermost in memory, so that sums and maxima over classes vectorize over samples."""
        n_fits, n_classes, n_features = coef.shape
        flat = coef.reshape(-1, n_features)
        scores = scores_of(flat, self.raw)
        if self.center is not None:
            scores -= (flat @ self.center)[:, None]
        return scores.reshape(n_fits, n_classes, -1).transpose(2, 0, 1)

    def transposed_product(self, residual):
        n_rows, n_fits, n_classes = residual.shape
        flat = residual.transpose(1, 2, 0).reshape(-1, n_rows)
        sums = sums_of(flat, self.raw)
        if self.center is not None:
            sums -= flat.sum(axis=1)[:, None] * self.center
        return sums.reshape(n_fits, n_classes, -1)

    def exact_sums(self, weight):
        return DenseBlock(self.values, self.rows, self.labels, self.weight).transposed_product(weight)

    def rows_as_array(self):
        return self.values

    def gram(self, weight):
        rooted = self.values * np.sqrt(weight)[:, None]
        return np.dot(rooted.T, rooted)  # NumPy computes A'A with half the multiplications

    def moments(self, weight):
        flat, by_column = weight.reshape(len(weight), -1).T, np.ascontiguousarray(self.values.T)
        squares, rooted = np.empty((len(flat), *[len(by_column)] * 2)), np.empty_like(by_column)
        for fit_weight, square in zip(flat, squares, strict=True):
            np.multiply(by_column, np.sqrt(np.abs(fit_weight)), out=rooted)
            np.dot(rooted, rooted.T, out=square)  # half the multiplications, as in `gram`
            square *= 1 if fit_weight.sum() >= 0 else -1
        shape, sums = weight.shape[1:], flat @ self.values
        return squares.reshape(*shape, *squares.shape[1:]), sums.reshape(*shape, -1), weight.sum(axis=0)

    def column_sums(self, weight):
        return np.dot(weight, self.values)

    def column_squares(self, weight):
        return np.dot(weight, self.values**2)

    def row_squares(self, scale):
        return np.sum((self.values * scale) ** 2, axis=1)

    def features(self, scale):
        return self.values * scale


class DenseDesign(Design):
    @cached_property
    def _center_is_near(self) -> bool:
        is_plain = isinstance(self.X, np.ndarray) and self.X.dtype == np.float64
        if not is_plain or self.n_rows <= self.n_features:  # such a design is passed over only a few times
            return False
        distance = np.abs(self.X[:: max(1, self.n_rows // SPREAD_ROWS)] - self.center).mean(axis=0)
        return bool(np.all(np.abs(self.center) <= FARTHEST_CENTER[8] * distance))

    @cached_property
    def _few_centered_rows(self):
        is_few = isinstance(self.X, np.ndarray) and 8 * self.X.size <= BLOCK_BYTES
        return _centered(self.X, self.center) if is_few else None

    def centered(self, center):
        recentred = super().centered(center)
        for name in ("_center_is_near", "_few_centered_rows"):
            recentred.__dict__.pop(name, None)
        return recentred

    @property
    def lends_rows(self) -> bool:  # type: ignore[override]
        return self._few_centered_rows is not None or self._center_is_near

    def _block(self, rows, labels, weight):
        if self._few_centered_rows is not None:
            return DenseBlock(self._few_centered_rows[rows], rows, labels, weight)
        if self._center_is_near:
            return DenseBlock(self.X[rows], rows, labels, weight, self.center)
        return DenseBlock(_centered(self.X[rows], self.center), rows, labels, weight)

    def row_gram(self, scale):
        def square(columns, part):
            part *= scale[columns]
            return part @ part.T

        return sum((gram for _, gram in self._of_columns(square)), start=np.zeros((self.n_rows, self.n_rows)))

    def combine_rows(self, weights):
        if not self._is_wide:
            return super().combine_rows(weights)
        return self._side_by_side(lambda part: weights @ part, len(weights))

    def covariances(self):
        """The Gram matrix of samples that the same fits leave out is computed once if fit weights are proportional."""
        shares = _shares_of_final(self.weight)
        order, starts, has_weight = _grouped(self.weight, smallest=0)
        if shares is None or len(has_weight) > 2 * self.n_fits:
            return super().covariances()
        moments = np.zeros((self.n_fits, self.n_features, self.n_features))
        for (first, last), fit_positions in zip(pairwise(starts), has_weight, strict=True):
            for gram in self.map_rows(lambda block: block.gram(self.weight[block.rows, 0]), order[first:last]):
                for fit in np.flatnonzero(fit_positions):
                    moments[fit] += gram
        moments /= shares[:, None, None]
        return list(moments)

    def column_mean(self, fit=0):
        if not self._is_wide:
            return super().column_mean(fit)
        return self._side_by_side(lambda part: self.weight[:, fit] @ part)

    def column_variance(self, fit=0):
        if not self._is_wide:
            return super().column_variance(fit)
        return self._side_by_side(lambda part: self.weight[:, fit] @ np.square(part, out=part))

    @property
    def _is_wide(self) -> bool:
        return self.n_features > self.n_rows

    def _of_columns(self, function, height=1):
        """Yield (columns, `function(columns, part)`) for groups of centred columns.

        A group is so small that it, or `height` numbers per column, stays in cache.
        """

        def apply(columns):
            return columns, function(columns, _centered(self.X[:, columns], self.center[columns]))

        most = max(64, BLOCK_BYTES // (8 * max(self.n_rows, height)))
        return map_in_order(apply, even_slices(0, self.n_features, most))

    def _side_by_side(self, function, height=1):
        """Results of `function(part)` for all groups of columns, joined along the last axis."""
        whole: np.ndarray | None = None
        for columns, values in self._of_columns(lambda _, part: function(part), height):
            if whole is None:
                whole = np.empty((*values.shape[:-1], self.n_features))
            whole[..., columns] = values
        return whole


def _centered(rows, center):
    """A centred copy in float64. Converting first is faster than NumPy's conversion within the subtraction."""
    centered = rows.astype(np.float64)
    centered -= center
    return centered


class SinglePrecisionRows(DenseDesign):
    """A float32 copy of a design's centred samples in `coordinates`: half the bytes, twice the speed.

    It serves fits that need no more precision. Coefficients are those of the coordinates. Entries are rounded after the
    rotation, so a coordinate of small spread keeps its significant digits; rounding X itself would lose them to
    cancellation. Sums over blocks are in float64.

    Samples left out by the same fits are stored together, so that a held-out part is scored in one piece. A large group
    forms separate blocks, which are skipped for the fits that leave it out. Callers use the sample indices of the
    design.
    """

    def __init__(self, design: Design, coordinates: Coordinates):
        of_row = design.n_classes * score_time(coordinates.rank, is_float32=True)
        self.order, self._starts, self._has_weight = _grouped(design.weight, BLOCK // of_row)
        self._place = np.empty_like(self.order)
        self._place[self.order] = np.arange(len(self.order))
        rows = np.empty((design.n_rows, coordinates.rank), dtype=np.float32)

        def fill(block):
            rows[self._place[block.rows]] = coordinates.from_features(block.values)

        list(design.map_blocks(fill))
        weight = np.asfortranarray(design.weight[self.order], dtype=np.float32)
        super().__init__(rows, design.labels[self.order], weight, design.total_weight, design.n_classes)

    lends_rows = True

    @property
    def n_groups(self) -> int:
        """Number of groups that form separate blocks."""
        return len(self._has_weight)

    def _block(self, rows, labels, weight):
        return DenseBlock(self.X[rows], rows, labels, weight)

    def map_blocks(self, function, fits=slice(None), copies_rows=True, n_numbers=0):
        weight = self.weight[:, fits]
        step = self.block_rows(weight.shape[1], copies_rows)
        parts = []
        for (first, last), has_weight in zip(pairwise(self._starts), self._has_weight[:, fits], strict=True):
            if not has_weight.any():
                continue
            fit_positions = None if has_weight.all() else np.flatnonzero(has_weight)
            parts += [(rows, fit_positions) for rows in even_slices(first, last, step)]

        def serve(part):
            rows, fit_positions = part
            fit_weight = weight[rows] if fit_positions is None else weight[rows, fit_positions]
            block = self._block(rows, self.labels[rows], fit_weight)
            block.fit_positions = fit_positions
            return function(block)

        return map_in_order(serve, parts, self.n_rows // self.rows_of_thread(weight.shape[1]))

    def product(self, coef):
        return super().product(coef)[self._place]

    def map_rows(self, function, rows):
        positions = self._place[rows]
        if not (np.diff(positions) == 1).all():
            return super().map_rows(function, positions)
        slices = even_slices(positions[0], positions[-1] + 1, self.block_rows(1))
        return map_in_order(lambda part: function(self._block(part, self.labels[part], None)), slices)


def _shares_of_final(weight):
    """Share of the final fit's weight that each fit keeps; None unless their weights are proportional."""
    if weight.shape[1] > MOST_GROUPED:
        return None
    kept = np.where(weight > 0, weight[:, :1], 0.0)
    shares = kept.sum(axis=0)
    return shares if np.allclose(kept, shares * weight, rtol=1e-12, atol=0) else None


def _grouped(weight, smallest):
    """Group the samples by the fits that leave them out.

    Returns the order of the samples, the start of every group followed by the end, and whether each fit gives the group
    weight, (n_groups, n_fits). There is a single group if the groups have fewer than `smallest` samples on average.
    """
    n_rows, n_fits = weight.shape
    order, whole = np.arange(n_rows), ([0, n_rows], np.ones((1, n_fits), dtype=bool))
    if n_fits > MOST_GROUPED:
        return order, *whole
    _, first, groups = np.unique((weight == 0) @ 2 ** np.arange(n_fits), return_index=True, return_inverse=True)
    order = np.argsort(groups, kind="stable")
    if n_rows < smallest * len(first):
        return order, *whole
    return order, np.concatenate([[0], np.cumsum(np.bincount(groups))]).tolist(), weight[first] > 0
