"""Rows of a device for the sweeps of `annealed/objectives/potts.py`.

The classes of the rows stand beside the columns, one-hot, so that one product a block gives `beta v_ik` of all
prototypes and one more adds up both `n_km` and `sum_i w_i D_ik x_i`. Memberships are never whole in memory.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from annealed.arrays import Place, to_host
from annealed.objectives.array_gibbs import fused_kernel
from annealed.objectives.potts import SMALLEST_VARIANCE, LabelledRows, PottsState, Sums

ALIGNED_COLUMNS = 4  # up to which rows are filled with zeros: a GPU reads so many at once
BLOCK_BYTES = 1 << 30  # of a block of memberships on an accelerator
CPU_BLOCK_BYTES = 1 << 21


class ArrayLabelledRows(LabelledRows):
    """Rows in standardized columns on a device; `take` brings a part of them to the host, for what looks at few.

    rows : (n_rows, n_features + n_classes and some zeros), the columns and the one-hot classes
    labels : classes as NumPy codes; weight : (n_rows,) on the device
    """

    def __init__(self, X, labels, weight, n_classes):
        place = self.place = Place.of(X)
        xp = place.xp
        codes = place.whole(labels)
        targets = codes[:, None] == xp.arange(n_classes, dtype=codes.dtype, device=place.device)[None, :]
        n_zeros = -(X.shape[1] + n_classes) % ALIGNED_COLUMNS
        zeros = xp.zeros((X.shape[0], n_zeros), dtype=place.row_dtype, device=place.device)
        self.rows = xp.concat([X, place.row(targets), zeros], axis=1)
        self.n_features, self.n_classes = X.shape[1], n_classes
        self.labels, self.weight = labels, weight
        total, least, most = place.host(xp.sum(weight), xp.min(weight), xp.max(weight))
        self.total, self.is_unweighted = float(total), bool(least == 1 and most == 1)

    @property
    def X(self):
        return self.rows[:, : self.n_features]

    @property
    def n_rows(self) -> int:
        return self.rows.shape[0]

    def take(self, rows) -> LabelledRows:
        xp, numbers = self.place.xp, self.place.whole(rows)
        X = np.ascontiguousarray(to_host(xp.take(self.rows, numbers, axis=0))[:, : self.n_features])
        return LabelledRows(X, self.labels[rows], to_host(xp.take(self.weight, numbers)), self.n_classes)

    def turned(self, axes) -> LabelledRows:
        return ArrayLabelledRows(self.X @ self.place.row(axes), self.labels, self.weight, self.n_classes)

    def _blocks(self, width):
        bytes_of_block = BLOCK_BYTES if self.place.is_accelerator else CPU_BLOCK_BYTES
        step = max(64, bytes_of_block // (self.place.row_bytes * width))
        for first in range(0, self.n_rows, step):
            rows = slice(first, min(first + step, self.n_rows))
            yield self.rows[rows, :], self.weight[rows]

    @cached_property
    def _moments(self):
        """S of the columns and the weights of the classes."""
        place, xp = self.place, self.place.xp
        squares, counts = place.zeros((self.n_features,) * 2), place.zeros((self.n_classes,))
        for rows, weight in self._blocks(2 * self.rows.shape[1]):
            wide = place.wide(rows)
            weighted = wide * weight[:, None]
            squares = squares + weighted[:, : self.n_features].T @ wide[:, : self.n_features]
            counts = counts + xp.sum(weighted[:, self.n_features : self.n_features + self.n_classes], axis=0)
        squares, counts = place.host(squares, counts)
        return squares / self.total, counts

    @property
    def second_moment(self):
        return self._moments[0]

    @property
    def class_weight(self):
        return self._moments[1]

    @cached_property
    def smallest_variance(self) -> float:
        mean = np.trace(self.second_moment) / len(self.second_moment)
        return SMALLEST_VARIANCE[self.place.row_bytes] * (mean if mean > 0 else 1.0)

    def sums(self, state: PottsState, beta: float, coupling: float) -> Sums:
        """The membership block: see `sum_over_rows`. The host hears of it once, at the end."""
        place = self.place
        directions = beta * (state.prototypes @ state.metric)
        level = place.row(-0.5 * np.sum(directions * state.prototypes, axis=1))
        zeros = np.zeros((len(state), self.rows.shape[1] - self.n_features - self.n_classes))
        flat = place.row(np.concatenate([directions, (beta * coupling) * state.labels, zeros], axis=1))
        added, numbers = place.zeros((len(state), self.rows.shape[1])), place.zeros((2,))
        with place.products_in(None):
            for rows, weight in self._blocks(len(state)):
                scores = rows @ flat.T
                memberships, own = _memberships(place, scores, level, None if self.is_unweighted else weight)
                numbers = numbers + own
                added = added + place.wide(memberships.T @ rows)
        added, (squares, log_partition) = place.host(added, numbers)
        last = self.n_features + self.n_classes
        return Sums(added[:, self.n_features : last], added[:, : self.n_features], float(squares), float(log_partition))


def _memberships(place: Place, scores, level, weight):
    """Weights times memberships (n_rows, K) of a block, and sums over its rows: of weight times squares of memberships,
    and of weight times the logarithm of the partition. Scores may be overwritten.
    """
    fused = fused_kernel(scores[:, None, :]) if place.is_torch else None
    if fused is not None:
        sums = fused.memberships(place.wide_dtype, scores, level, weight)
        return scores, sums.sum(0)
    xp = place.xp
    scores += level
    top = xp.max(scores, axis=1, keepdims=True)
    scores -= top
    weights = xp.exp(scores)
    total = xp.sum(weights, axis=1, keepdims=True)
    weights /= total
    squares, partition = place.wide(xp.sum(weights * weights, axis=1)), place.wide(top[:, 0] + xp.log(total[:, 0]))
    if weight is not None:
        squares, partition = squares * weight, partition * weight
        weights *= place.row(weight)[:, None]
    return weights, xp.stack([xp.sum(squares), xp.sum(partition)])
