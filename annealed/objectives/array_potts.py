"""Rows of a device for the sweeps of `annealed/objectives/potts.py`.

The classes of the rows stand beside the columns, one-hot, so that one product a block gives `beta v_ik` of all
prototypes and one more adds up both `n_km` and `sum_i w_i D_ik x_i`. Memberships are never whole in memory.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from annealed.arrays import Place, to_host
from annealed.objectives.potts import SMALLEST_VARIANCE, LabelledRows, PottsState, Sums

BLOCK_BYTES = 1 << 28  # of a block of memberships on an accelerator
CPU_BLOCK_BYTES = 1 << 21


class ArrayLabelledRows(LabelledRows):
    """Rows in standardized columns on a device; `take` brings a part of them to the host, for what looks at few.

    rows : (n_rows, n_features + n_classes), the columns and the one-hot classes
    labels : classes as NumPy codes; weight : (n_rows,) on the device
    """

    def __init__(self, X, labels, weight, n_classes):
        place = self.place = Place.of(X)
        xp = place.xp
        codes = place.whole(labels)
        targets = codes[:, None] == xp.arange(n_classes, dtype=codes.dtype, device=place.device)[None, :]
        self.rows = xp.concat([X, place.row(targets)], axis=1)
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
            counts = counts + xp.sum(weighted[:, self.n_features :], axis=0)
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
        place, xp = self.place, self.place.xp
        directions = beta * (state.prototypes @ state.metric)
        level = -0.5 * np.sum(directions * state.prototypes, axis=1)
        flat = place.row(np.concatenate([directions, (beta * coupling) * state.labels], axis=1))
        level = place.row(level)
        added, squares, log_partition = place.zeros((len(state), self.rows.shape[1])), place.zeros(()), place.zeros(())
        with place.products_in(None):
            for rows, weight in self._blocks(len(state)):
                memberships, partition = _memberships(place, rows, flat, level)
                if self.is_unweighted:
                    squares = squares + place.wide(xp.sum(memberships * memberships))
                    log_partition = log_partition + xp.sum(place.wide(partition))
                else:
                    own = xp.sum(memberships * memberships, axis=1)
                    squares = squares + place.wide(own) @ weight
                    log_partition = log_partition + place.wide(partition) @ weight
                    memberships = memberships * place.row(weight)[:, None]
                added = added + place.wide(memberships.T @ rows)
        added, squares, log_partition = place.host(added, squares, log_partition)
        return Sums(added[:, self.n_features :], added[:, : self.n_features], float(squares), float(log_partition))


def _memberships(place: Place, rows, flat, level):
    """Memberships (n_rows, K) of a block, and the logarithm of each row's partition."""
    xp = place.xp
    if place.is_torch:
        scores = xp.addmm(level, rows, flat.T)
        memberships = scores.softmax(-1)
        return memberships, scores.amax(-1) - memberships.amax(-1).log()
    scores = rows @ flat.T + level
    top = xp.max(scores, axis=1, keepdims=True)
    weights = xp.exp(scores - top)
    total = xp.sum(weights, axis=1, keepdims=True)
    return weights / total, top[:, 0] + xp.log(total[:, 0])
