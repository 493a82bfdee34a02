"""Rows for prototypes: distinct, in standardized columns, sorted by class, and in principal axes if columns are many.

With many columns, rows are rotated to the principal axes (PCA) of their second moment, which is then diagonal. Axes
along which the rows do not vary are dropped, and nothing is lost: prototypes are weighted means of rows, so they have
no component there, and a component of a new sample adds the same amount to its squared distance from every prototype.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from sklearn.utils import gen_batches

from annealed.arrays import Place, to_host
from annealed.lazy import cached_property
from annealed.potts.state import (
    DiagonalPlus,
    PottsState,
    Sums,
    Symmetric,
    diagonal,
    directions_and_levels,
    label_leads,
    symmetric_eigen,
)
from annealed.problems import gibbs
from annealed.problems.linear import check_spread
from annealed.rows.array_api import row_batches
from annealed.rows.base import MANY_BLOCKS
from annealed.rows.coordinates import CONSTANT
from annealed.rows.cost import BLOCK_BYTES
from annealed.rows.threads import map_in_order

SMALLEST_VARIANCE = {8: 1e-10, 4: 1e-6}  # floor, in units of the mean variance, by item size: below it is rounding
MANY_COLUMNS = 64  # columns, from which on diagonal plus low-rank algebra repays the eigendecomposition


# --- columns -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Columns:
    """`z = (x - center)[kept] / scale`, then `z @ turn` unless `turn` is None.

    kept : indices of the columns that are not constant; turn : (n_kept, n_axes) with orthonormal columns, or None
    """

    center: np.ndarray
    kept: np.ndarray
    scale: np.ndarray
    turn: np.ndarray | None = None

    @classmethod
    def of_rows(cls, X, weight) -> Columns:
        """The coordinates of X and weight (n_rows,), both in NumPy or on a device."""
        place = Place.of(X)
        share = weight / place.xp.sum(weight)
        parts = list(row_batches(X.shape[0], X.shape[1], place))
        with np.errstate(over="ignore", invalid="ignore"):
            center = sum(share[rows] @ place.wide(X[rows, :]) for rows in parts)
            square = sum(share[rows] @ (place.wide(X[rows, :]) - center) ** 2 for rows in parts)
        center, square = place.host(center, square)
        spread = np.sqrt(square)
        check_spread(spread, center)
        kept = np.flatnonzero(spread > CONSTANT * np.maximum(np.abs(center), np.finfo(float).tiny))
        if not len(kept):  # all rows are equal: keep one column, of zeros, so that no shape is empty
            kept, spread = np.array([0]), np.ones_like(spread)
        return cls(center, kept, spread[kept])

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


# --- rows ----------------------------------------------------------------------------------------------------


class Block(NamedTuple):
    """Consecutive rows; class code, first row within the block, and length of each run of equal class."""

    rows: slice
    labels: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray

    def spread(self, values):
        """Repeat values (K, n_classes) for the rows of each class, (K, n_rows)."""
        return np.repeat(values[:, self.labels], self.sizes, axis=1)

    def class_sums(self, values):
        """Sums of values (K, n_rows) over the rows of each class in the block, (K, n_runs)."""
        return np.add.reduceat(values, self.starts, axis=1)


class LabelledRows:
    """Rows sorted by class, so that class sums are sums over slices. Columns must be centred.

    axes, variances : of the rows' principal axes, if they are in these; otherwise None
    """

    axes: np.ndarray | None = None
    variances: np.ndarray | None = None

    def __init__(self, X, labels, weight, n_classes):
        order = np.argsort(labels, kind="stable")
        self.X, self.labels, self.weight = X[order], labels[order], np.asarray(weight, dtype=np.float64)[order]
        self.n_classes, self.itemsize = n_classes, X.dtype.itemsize
        self.total = float(self.weight.sum())
        self.is_unweighted = bool((self.weight == 1).all())

    def like(self, X) -> LabelledRows:
        """Other coordinates of the same rows."""
        return type(self)(X, self.labels, self.weight, self.n_classes)

    def in_single_precision(self) -> LabelledRows:
        return self.like(self.X.astype(np.float32))

    def take(self, rows) -> LabelledRows:
        """A subset of the rows, by their indices in the sorted order."""
        return LabelledRows(self.X[rows], self.labels[rows], self.weight[rows], self.n_classes)

    def turned(self, axes) -> LabelledRows:
        """The rows in the coordinates of other axes, (n_features, n_axes), or as they are if these are None."""
        return self if axes is None else self.like(self.X @ Place.of(self.X).row(axes))

    @property
    def n_rows(self) -> int:
        return self.X.shape[0]

    @cached_property
    def second_moment(self) -> Symmetric:
        """S, the weighted mean of x x'."""
        if self.variances is not None:
            return DiagonalPlus.of_diagonal(self.variances)
        share = self.weight / self.total
        parts = gen_batches(self.n_rows, 1 << 12)
        return np.sum(list(map_in_order(lambda rows: (self.X[rows].T * share[rows]) @ self.X[rows], parts)), axis=0)

    @cached_property
    def class_weight(self) -> np.ndarray:
        return np.bincount(self.labels, to_host(self.weight), self.n_classes)

    @cached_property
    def smallest_variance(self) -> float:
        """Floor on the eigenvalues of a scatter matrix: a small fraction of the mean variance."""
        mean = diagonal(self.second_moment).mean()
        return SMALLEST_VARIANCE[self.itemsize] * (mean if mean > 0 else 1.0)

    def sums(self, state: PottsState, beta: float, coupling: float) -> Sums:
        """The E-step for memberships: per block of rows, one matrix product gives D and a second one sums it."""
        directions, levels = directions_and_levels(state.prototypes, state.metric)
        level = beta * (levels[:, None] + coupling * label_leads(state.labels))
        directions, level = (beta * directions).astype(self.X.dtype), level.astype(self.X.dtype)

        def block_sums(block):
            X, weight = self.X[block.rows], self.weight[block.rows]
            scores = directions @ X.T  # (K, n_rows): the softmax is vectorized over rows
            scores += block.spread(level)
            top, total = gibbs.exponentials(scores)
            scores *= 1 / total
            squares = np.einsum("kn,kn->n", scores, scores) @ weight
            if not self.is_unweighted:
                scores *= weight.astype(scores.dtype)
            return block.class_sums(scores), scores @ X, squares, (np.log(total) + top) @ weight

        counts, sums = np.zeros((len(state), self.n_classes)), np.zeros(state.prototypes.shape)
        squares = log_partition = 0.0
        blocks = self.blocks(len(state))
        for block, part in zip(blocks, map_in_order(block_sums, blocks), strict=True):
            counts[:, block.labels] += part[0]
            sums += part[1]
            squares += float(part[2])
            log_partition += float(part[3])
        return Sums(counts, sums, squares, log_partition)

    def blocks(self, n_prototypes) -> list[Block]:
        """Blocks of rows: their memberships stay in cache, and threads share them evenly."""
        step = max(64, BLOCK_BYTES // (MANY_BLOCKS * self.itemsize * n_prototypes))
        if step >= self.n_rows:
            return [self.whole]
        return [self._block(first, first + step) for first in range(0, self.n_rows, step)]

    @cached_property
    def whole(self) -> Block:
        """All rows in one block."""
        return self._block(0, self.n_rows)

    def _block(self, first, last) -> Block:
        starts = np.minimum(np.maximum(self._class_starts, first), last) - first
        sizes = np.diff(starts)
        labels = np.flatnonzero(sizes)
        return Block(slice(first, last), labels, starts[labels], sizes[labels])

    @cached_property
    def _class_starts(self) -> np.ndarray:
        """Index of the first row of each class, followed by the number of rows."""
        return np.searchsorted(self.labels, np.arange(self.n_classes + 1))


def along_axes(rows: LabelledRows) -> LabelledRows:
    """The rows in their principal axes if there are many columns: equivalent, and faster."""
    n_rows, n_features = rows.X.shape
    return rows if rows.axes is not None or n_features < min(MANY_COLUMNS, n_rows) else principal_rows(rows)


def principal_rows(rows: LabelledRows) -> LabelledRows:
    """The rows in the principal axes of their second moment, from the smaller of its Gram matrices."""
    root_weight = np.sqrt(rows.weight / rows.total)[:, None]
    scaled = rows.X * root_weight
    is_wide = scaled.shape[1] > scaled.shape[0]
    variances, vectors = symmetric_eigen(scaled @ scaled.T if is_wide else scaled.T @ scaled)
    kept = variances > SMALLEST_VARIANCE[8] * variances[-1]
    variances, vectors = variances[kept], vectors[:, kept]
    if not kept.any():  # all rows are equal
        X, axes, variances = rows.X[:, :1], np.eye(scaled.shape[1])[:, :1], np.zeros(1)
    elif is_wide:
        spread = np.sqrt(variances)
        X, axes = (vectors * spread / root_weight).astype(rows.X.dtype), scaled.T @ (vectors / spread)
    else:
        X, axes = rows.X @ vectors.astype(rows.X.dtype), vectors
    turned = rows.like(X)
    turned.axes, turned.variances = axes, variances
    return turned


def subsample(rows: LabelledRows, most, seed) -> LabelledRows:
    """A random subset of about `most` rows, which keeps at least one row of every class."""
    if rows.n_rows <= most:
        return rows
    order = np.random.RandomState(seed).permutation(rows.n_rows)
    first = np.unique(rows.labels[order], return_index=True)[1]
    return rows.take(np.union1d(order[:most], order[first]))
