"""Rows on a device for the sweeps of `annealed/potts/sweep.py`, through the array API.

As on the host, rows are sorted by class. On a GPU, one fused kernel makes a pass over float32 torch rows if the number
of prototypes and columns fits it (`annealed/gpu/potts_kernels.py`). Otherwise the one-hot classes are stored as
further columns of the rows. One matrix product per block then gives `beta v_ik` for all prototypes, and a second one
sums both `n_km` and `sum_i w_i D_ik x_i`. The full membership matrix is never in memory.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from annealed.arrays import Place, aligned_width, to_host
from annealed.lazy import cached_property
from annealed.potts.rows import LabelledRows
from annealed.potts.state import PottsState, Sums, directions_and_levels, label_leads
from annealed.problems.array_gibbs import fused_kernel
from annealed.problems.device_rows import half_factor
from annealed.rows.array_api import row_batches


class ArrayLabelledRows(LabelledRows):
    """Rows in standardized columns on a device; `take` copies a subset to the host, for the search and the growth.

    rows : (n_rows, n_features + n_classes + padding), the columns, the one-hot classes, and zeros
    labels : ascending class codes, in NumPy; weight : (n_rows,) on the device
    """

    def __init__(self, X, labels, weight, n_classes):
        place = self.place = Place.of(X)
        xp = place.xp
        order = np.argsort(labels, kind="stable")
        self.labels, order = labels[order], place.whole(order)
        self.weight = xp.take(weight, order)
        codes = place.whole(self.labels)
        targets = codes[:, None] == xp.arange(n_classes, dtype=codes.dtype, device=place.device)[None, :]
        n_zeros = aligned_width(X.shape[1] + n_classes) - X.shape[1] - n_classes
        zeros = xp.zeros((X.shape[0], n_zeros), dtype=place.row_dtype, device=place.device)
        self.rows = xp.concat([xp.take(X, order, axis=0), place.row(targets), zeros], axis=1)
        self.n_features, self.n_classes, self.itemsize = X.shape[1], n_classes, place.row_bytes
        total, least, most = place.host(xp.sum(weight), xp.min(weight), xp.max(weight))
        self.total, self.is_unweighted = float(total), bool(least == 1 and most == 1)
        self._largest_weight = float(most)

    @property
    def X(self):
        return self.rows[:, : self.n_features]

    def take(self, rows) -> LabelledRows:
        xp, indices = self.place.xp, self.place.whole(rows)
        X = np.ascontiguousarray(to_host(xp.take(self.rows, indices, axis=0))[:, : self.n_features])
        return LabelledRows(X, self.labels[rows], to_host(xp.take(self.weight, indices)), self.n_classes)

    def _blocks(self, width):
        for rows in row_batches(self.n_rows, width, self.place):
            yield self.rows[rows, :], self.weight[rows]

    @cached_property
    def second_moment(self):
        squares = self.place.zeros((self.n_features, self.n_features))
        for rows, weight in self._blocks(2 * self.rows.shape[1]):
            wide = self.place.wide(rows[:, : self.n_features])
            squares = squares + (wide * weight[:, None]).T @ wide
        return self.place.host(squares)[0] / self.total

    def sums(self, state: PottsState, beta: float, coupling: float) -> Sums:
        """The E-step for memberships. Results are transferred to the host once, at the end."""
        fused = self._fused_kernel
        if fused is not None and (shape := fused.padded_shape(len(state), self.n_features)) is not None:
            try:
                return self._fused_sums(fused, shape, state, beta, coupling)
            except Exception:  # for example no GPU memory for the partial sums: matrix products give the same
                self._fused_kernel = None
        place = self.place
        directions, levels = directions_and_levels(state.prototypes, beta * state.metric)
        level = place.row(levels)
        zeros = np.zeros((len(state), self.rows.shape[1] - self.n_features - self.n_classes))
        flat = place.row(np.concatenate([directions, (beta * coupling) * label_leads(state.labels), zeros], axis=1))
        sums, totals = place.zeros((len(state), self.rows.shape[1])), place.zeros((2,))
        with place.products_in(None):
            for rows, weight in self._blocks(len(state)):
                scores = rows @ flat.T
                memberships, block_totals = _memberships(place, scores, level, None if self.is_unweighted else weight)
                totals = totals + block_totals
                sums = sums + place.wide(memberships.T @ rows)
        sums, (squares, log_partition) = place.host(sums, totals)
        last = self.n_features + self.n_classes
        return Sums(sums[:, self.n_features : last], sums[:, : self.n_features], float(squares), float(log_partition))

    # -- the fused kernel ---------------------------------------------------------------------------------------

    @cached_property
    def _fused_kernel(self):
        """The module `annealed/gpu/potts_kernels.py` if it supports these rows, or None."""
        is_single = self.place.is_torch and self.itemsize == 4
        if not is_single or fused_kernel(self.rows[:, None, :]) is None:
            return None
        from annealed.gpu import potts_kernels

        return potts_kernels

    @cached_property
    def _factor(self) -> np.ndarray:
        """Powers of two that scale the columns to the range of half precision; infinite for columns of zeros."""
        (largest,) = self.place.host(self.place.xp.max(self.place.xp.abs(self.X), axis=0))
        return np.where(largest > 0, half_factor(largest), np.inf)

    @cached_property
    def _runs(self):
        """First row, end row and class of each program, (n_programs, 3); one-hot classes (n_classes, n_programs)."""
        two_rounds = 2 * self.place.xp.cuda.get_device_properties(self.place.device).multi_processor_count
        step = -(-self.n_rows // max(two_rounds - self.n_classes, two_rounds // 2))
        ends = np.searchsorted(self.labels, np.arange(self.n_classes + 1)).tolist()
        runs = np.array(
            [
                (first, min(first + step, end), label)
                for label, (begin, end) in enumerate(pairwise(ends))
                for first in range(begin, end, step)
            ]
        )
        targets = np.arange(self.n_classes)[:, None] == runs[:, 2]
        return self.place.whole(runs), self.place.wide(targets)

    @cached_property
    def _own_weight(self):
        return None if self.is_unweighted else self.place.row(self.weight)

    def _fused_sums(self, fused, shape, state: PottsState, beta, coupling) -> Sums:
        """The fused pass: one transfer to the device, of the table of `sum_memberships`, and one back.

        Scores and logarithms are to base two.
        """
        place, n_prototypes, n_features = self.place, len(state), self.n_features
        beta = beta / np.log(2)
        directions, level = directions_and_levels(state.prototypes, beta * state.metric)
        directions /= self._factor
        unit = half_factor(max(directions.max(), -directions.min()))
        table = np.zeros((shape[1] + self.n_classes, shape[0]), dtype=np.float32)
        np.multiply(directions.T, unit, out=table[:n_features, :n_prototypes], casting="same_kind")
        table[shape[1] :, n_prototypes:] = -np.inf
        table[shape[1] :, :n_prototypes] = level + beta * coupling * label_leads(state.labels).T
        (runs, targets), gain = self._runs, float(half_factor(self._largest_weight))
        options = (self._own_weight, gain, runs, place.row(table), float(1 / unit), shape)
        sums, counts, totals = fused.sum_memberships(place.wide_dtype, self.rows, self._device_factor, *options)
        sums, counts, (squares, log_partition) = place.host(sums.sum(0), targets @ counts, totals.sum(0))
        sums, counts = sums[:n_prototypes, :n_features] / (gain * self._factor), counts.T[:n_prototypes] / gain
        return Sums(counts, sums, float(squares) / gain, float(np.log(2) * log_partition))

    @cached_property
    def _device_factor(self):
        return self.place.row(np.where(np.isfinite(self._factor), self._factor, 0.0))


def _memberships(place: Place, scores, level, weight):
    """Weighted memberships (n_rows, K) of a block, and two weighted sums over its rows, which may overwrite `scores`.

    The sums are those of the squared memberships and of the log partition.
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
