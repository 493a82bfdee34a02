"""Coordinates of the prototypes: standardized columns, rotated to principal axes if there are many of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from sklearn.utils import gen_batches

from annealed.arrays import Place
from annealed.problems.linear import check_spread

ROUNDING = 1e-14  # standard deviation relative to |mean|; a column with less is constant up to rounding
BLOCK_ROWS = 1 << 18  # rows that are converted to float64 at once


@dataclass(frozen=True)
class Columns:
    """`z = (x - center)[kept] / scale`, then `z @ turn` unless `turn` is None.

    kept : indices of the columns that are not constant; turn : (n_kept, n_axes) with orthonormal columns, or None
    """

    center: np.ndarray
    kept: np.ndarray
    scale: np.ndarray
    turn: np.ndarray | None

    @classmethod
    def of_rows(cls, X, weight) -> Columns:
        """The coordinates of X and weight (n_rows,), both in NumPy or on a device."""
        place = Place.of(X)
        share = weight / place.xp.sum(weight)
        parts = list(gen_batches(X.shape[0], BLOCK_ROWS))
        with np.errstate(over="ignore", invalid="ignore"):
            center = sum(share[rows] @ place.wide(X[rows, :]) for rows in parts)
            square = sum(share[rows] @ (place.wide(X[rows, :]) - center) ** 2 for rows in parts)
        center, square = place.host(center, square)
        spread = np.sqrt(square)
        check_spread(spread, center)
        kept = np.flatnonzero(spread > ROUNDING * np.maximum(np.abs(center), np.finfo(float).tiny))
        if not len(kept):  # all rows are equal: keep one column, of zeros, so that no shape is empty
            kept, spread = np.array([0]), np.ones_like(spread)
        return cls(center, kept, spread[kept], None)

    def turned(self, axes) -> Columns:
        """The coordinates with these axes; None for no rotation."""
        return replace(self, turn=axes)

    def rows(self, X):
        """X in these coordinates, in its dtype; values are clipped so that their squares do not overflow."""
        place = Place.of(X)
        xp, farthest = place.xp, float(place.xp.finfo(X.dtype).max) ** 0.5
        with np.errstate(over="ignore"):
            rows = X if len(self.kept) == X.shape[1] else xp.take(X, place.whole(self.kept), axis=1)
            rows = (rows - place.row(self.center[self.kept])) / place.row(self.scale)
        rows = xp.clip(rows, -farthest, farthest)
        return rows if self.turn is None else rows @ place.row(self.turn)

    def points(self, rows):
        """Points in the units of the features; the inverse of `rows` on the span of the axes."""
        points = np.tile(self.center, (len(rows), 1))
        points[:, self.kept] += (rows if self.turn is None else rows @ self.turn.T) * self.scale
        return points

    def metric(self, metric):
        """A metric in these coordinates converted to the units of the features; zero for constant columns."""
        standardized = metric if self.turn is None else self.turn @ metric @ self.turn.T
        converted = np.zeros((len(self.center), len(self.center)))
        converted[np.ix_(self.kept, self.kept)] = standardized / np.outer(self.scale, self.scale)
        return converted


def distinct_rows(X, labels, weight):
    """Merge equal rows of a class, add their weights, and sort the rows canonically.

    A sample of weight 2 is then the same as two equal samples, and no sample is held out from a fit that was trained on
    a duplicate of it. The order is by a hash of the ranks of a row in every column, so it depends neither on the order
    of the samples nor on the units of the features.
    """
    factors = np.random.RandomState(0).randint(1 << 62, size=X.shape[1], dtype=np.uint64) * 2 + 1
    code = labels.astype(np.uint64)
    for column, factor in zip(X.T, factors, strict=True):
        code += np.unique(column, return_inverse=True)[1].astype(np.uint64) * factor
    code ^= code >> np.uint64(32)
    order = np.lexsort([labels, code])
    X, labels, weight = X[order], labels[order], weight[order]
    is_new = np.ones(len(X), dtype=bool)
    is_new[1:] = (labels[1:] != labels[:-1]) | (X[1:] != X[:-1]).any(axis=1)
    return X[is_new], labels[is_new], np.add.reduceat(weight, np.flatnonzero(is_new))
