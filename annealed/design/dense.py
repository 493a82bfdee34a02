"""Rows of a NumPy array (or memory map), in blocks.

Products take rows of float64 as they lie and correct the small result for the centre, unless the centre is so far out
that digits would be lost; everything else sees a block centred and widened to float64 in a buffer of its own.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from annealed.design.base import BLOCK_BYTES, Block, Design
from annealed.design.coordinates import Coordinates

FARTHEST_CENTER = 2.0  # mean distances of a column from it: products of rows as they lie then lose a bit or two
SPREAD_ROWS = 1000  # rows that tell that distance well enough


class DenseBlock(Block):
    """`values` are the centred rows; `raw` those before `center` was subtracted, where `center` is given."""

    def __init__(self, raw, rows, labels, weight, center=None):
        super().__init__(rows, labels, weight)
        self.raw, self.center = raw, center

    @cached_property
    def values(self):
        return self.raw if self.center is None else self.raw - self.center

    def product(self, coef):
        """Rows lie innermost in memory: sums and maxima over classes then run along whole vectors of rows."""
        n_fits, n_classes, n_features = coef.shape
        flat = coef.reshape(-1, n_features)
        scores = flat @ self.raw.T
        if self.center is not None:
            scores -= (flat @ self.center)[:, None]
        return scores.reshape(n_fits, n_classes, -1).transpose(2, 0, 1)

    def transposed_product(self, residual):
        n_rows, n_fits, n_classes = residual.shape
        flat = residual.transpose(1, 2, 0).reshape(-1, n_rows)
        sums = flat @ self.raw
        if self.center is not None:
            sums -= flat.sum(axis=1)[:, None] * self.center
        return sums.reshape(n_fits, n_classes, -1)

    def rows_as_array(self):
        return self.values

    def gram(self, weight):
        return (self.values * weight[:, None]).T @ self.values

    def moments(self, weight):
        flat = weight.reshape(len(weight), -1)
        squares = (flat.T[:, None, :] * self.values.T) @ self.values
        shape = weight.shape[1:]
        sums = flat.T @ self.values
        return squares.reshape(*shape, *squares.shape[1:]), sums.reshape(*shape, -1), weight.sum(axis=0)

    def column_sums(self, weight):
        return weight @ self.values

    def column_squares(self, weight):
        return weight @ self.values**2

    def row_squares(self, scale):
        return np.sum((self.values * scale) ** 2, axis=1)

    def features(self, scale):
        return self.values * scale


class DenseDesign(Design):
    @cached_property
    def _center_is_near(self) -> bool:
        is_plain = isinstance(self.X, np.ndarray) and self.X.dtype == np.float64
        if not is_plain or self.n_rows <= self.n_features:  # such rows are read only a few times
            return False
        distance = np.abs(self.X[:: max(1, self.n_rows // SPREAD_ROWS)] - self.center).mean(axis=0)
        return bool(np.all(np.abs(self.center) <= FARTHEST_CENTER * distance))

    def centered(self, center):
        other = super().centered(center)
        other.__dict__.pop("_center_is_near", None)
        return other

    def _block(self, rows, labels, weight):
        if self._center_is_near:
            return DenseBlock(self.X[rows], rows, labels, weight, self.center)
        return DenseBlock(np.subtract(self.X[rows], self.center, dtype=np.float64), rows, labels, weight)

    def row_gram(self, scale):
        gram = np.zeros((self.n_rows, self.n_rows))
        step = max(64, BLOCK_BYTES // (8 * self.n_rows))
        for first in range(0, self.n_features, step):
            columns = slice(first, first + step)
            part = np.subtract(self.X[:, columns], self.center[columns], dtype=np.float64)
            part *= scale[columns]
            gram += part @ part.T
        return gram


class SinglePrecisionRows(DenseDesign):
    """A float32 copy of a design's centred rows in `coordinates`, for fits that need no more: half the bytes, twice
    the speed. Coefficients are those of the coordinates.

    Each entry is rounded after the rotation, so a coordinate of small spread keeps its own digits; rounding X itself
    would lose them to cancellation. Sums over blocks are in double precision.
    """

    def __init__(self, design: Design, coordinates: Coordinates):
        rows = np.empty((design.n_rows, coordinates.rank), dtype=np.float32)

        def fill(block):
            rows[block.rows] = coordinates.from_features(block.values)

        list(design.map_blocks(fill))
        super().__init__(rows, design.labels, design.weight, design.total_weight, design.n_classes)

    def _block(self, rows, labels, weight):
        return DenseBlock(self.X[rows], rows, labels, weight)
