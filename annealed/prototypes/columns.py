"""Coordinates in which prototypes live: centred columns in standard deviations, turned to the rows' axes if many."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from annealed.arrays import Place, is_foreign
from annealed.objectives.linear import check_spread

ROUNDING = 1e-14  # spread of a column, as a share of its size, that is rounding: the column is constant
DEVICE_ROWS = 1 << 18  # read at once on a device


@dataclass(frozen=True)
class Columns:
    """`z = (x - center)[kept] / scale`, and `z @ turn` where columns are many.

    kept : numbers of the columns that are not constant; turn : (n_kept, n_axes), orthonormal, or None
    """

    center: np.ndarray
    kept: np.ndarray
    scale: np.ndarray
    turn: np.ndarray | None

    @classmethod
    def of_rows(cls, X, weight) -> Columns:
        share = weight / weight.sum()
        with np.errstate(over="ignore", invalid="ignore"):
            center = share @ X.astype(np.float64, copy=False)
            spread = np.sqrt(share @ np.square(X - center))
        check_spread(spread, center)
        kept = np.flatnonzero(spread > ROUNDING * np.maximum(np.abs(center), np.finfo(float).tiny))
        if not len(kept):  # every row is the same: one column of zeros keeps the shapes
            kept, spread = np.array([0]), np.ones_like(spread)
        return cls(center, kept, spread[kept], None)

    def turned(self, axes) -> Columns:
        """The coordinates along other axes; None leaves them."""
        return replace(self, turn=axes)

    @classmethod
    def on_device(cls, X, weight) -> Columns:
        """The same of rows on a device, more of them than columns; weight (n_rows,) is there too."""
        place, xp = Place.of(X), Place.of(X).xp
        share = weight / xp.sum(weight)
        center, square = place.zeros((X.shape[1],)), place.zeros((X.shape[1],))
        parts = [slice(first, min(first + DEVICE_ROWS, X.shape[0])) for first in range(0, X.shape[0], DEVICE_ROWS)]
        for rows in parts:
            center = center + share[rows] @ place.wide(X[rows, :])
        for rows in parts:
            square = square + share[rows] @ (place.wide(X[rows, :]) - center) ** 2
        center, square = place.host(center, square)
        spread = np.sqrt(square)
        check_spread(spread, center)
        kept = np.flatnonzero(spread > ROUNDING * np.maximum(np.abs(center), np.finfo(float).tiny))
        if not len(kept):
            kept, spread = np.array([0]), np.ones_like(spread)
        return cls(center, kept, spread[kept], None)

    def rows(self, X):
        """Rows in these coordinates, of the type of X; no farther out than where a product with them is a number."""
        if is_foreign(X):
            place = Place.of(X)
            kept = X if len(self.kept) == X.shape[1] else place.xp.take(X, place.whole(self.kept), axis=1)
            rows = (kept - place.row(self.center[self.kept])) / place.row(self.scale)
            farthest = float(place.xp.finfo(X.dtype).max) ** 0.5
            rows = place.xp.clip(rows, -farthest, farthest)
            return rows if self.turn is None else rows @ place.row(self.turn)
        with np.errstate(over="ignore"):
            rows = (X[:, self.kept] - self.center[self.kept]) / self.scale
        farthest = float(np.finfo(X.dtype).max) ** 0.5
        rows = np.clip(rows, -farthest, farthest, out=rows)
        rows = rows if self.turn is None else rows @ self.turn
        return np.ascontiguousarray(rows, dtype=X.dtype)

    def points(self, rows):
        """Points in the user's units, the inverse of `rows` on their span."""
        points = np.tile(self.center, (len(rows), 1))
        points[:, self.kept] += (rows if self.turn is None else rows @ self.turn.T) * self.scale
        return points

    def metric(self, metric):
        """A metric of these coordinates as one of the user's; zero along constant columns."""
        within = metric if self.turn is None else self.turn @ metric @ self.turn.T
        whole = np.zeros((len(self.center), len(self.center)))
        whole[np.ix_(self.kept, self.kept)] = within / np.outer(self.scale, self.scale)
        return whole


def distinct_rows(X, labels, weight):
    """Rows with equal ones of a class merged and their weights added, in an order of their own.

    So a row of weight 2 is that row twice, wherever it stands, and no row is held out from a fit that sees its twin.
    Rows are ordered by a hash of their ranks in every column, which knows neither their order nor the columns' units.
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
