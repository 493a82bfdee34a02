"""Storage of X in a SciPy CSR matrix or array. Centring is kept as a rank-one term, so that X stays sparse."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from annealed.lazy import cached_property
from annealed.rows.base import Block, Design

MOST_USED = 0.5  # share of non-empty features up to which the empty ones are dropped


class CsrBlock(Block):
    def __init__(self, values, center, rows, labels, weight):
        super().__init__(rows, labels, weight)
        self.values = values
        self.center = center

    def part(self, chosen) -> CsrBlock:
        """Some of the rows, without weights."""
        return CsrBlock(self.values[chosen], self.center, chosen, self.labels[chosen], None)

    def product(self, coef):
        n_fits, n_classes, n_features = coef.shape
        flat = coef.reshape(-1, n_features)
        scores = self.values @ np.ascontiguousarray(flat.T)
        scores -= flat @ self.center.astype(flat.dtype, copy=False)
        return scores.reshape(-1, n_fits, n_classes)

    def transposed_product(self, residual):
        n_rows, n_fits, n_classes = residual.shape
        flat = residual.reshape(n_rows, -1)
        sums = (self.values.T @ flat).T - np.outer(flat.sum(axis=0), self.center)
        return sums.reshape(n_fits, n_classes, -1)

    def exact_sums(self, weight):
        values, center = self._near
        return CsrBlock(values, center, self.rows, self.labels, self.weight).transposed_product(weight)

    def rows_as_array(self):
        return self.values.toarray() - self.center

    @cached_property
    def _near(self):
        return _near_zero(self.values, self.center)

    def gram(self, weight):
        values, center = self._near
        weighted = sparse.diags_array(weight) @ values
        mean_part = np.outer(values.T @ weight, center)
        moment = (values.T @ weighted).toarray()
        return moment - mean_part - mean_part.T + weight.sum() * np.outer(center, center)

    def moments(self, weight):
        flat = weight.reshape(len(weight), -1)
        squares = np.stack([self.gram(column) for column in flat.T])
        sums = np.stack([self.column_sums(column) for column in flat.T])
        shape = weight.shape[1:]
        return squares.reshape(*shape, *squares.shape[1:]), sums.reshape(*shape, -1), weight.sum(axis=0)

    def column_sums(self, weight):
        values, center = self._near  # otherwise sums of a constant column, in another order, would differ by rounding
        return values.T @ weight - weight.sum() * center

    def column_squares(self, weight):
        """About the centre: stored entries directly, the implicit zeros as `center ** 2`."""
        entry_weight = np.repeat(weight, np.diff(self.values.indptr))
        columns, n_columns = self.values.indices, self.values.shape[1]
        deviation = entry_weight * (self.values.data - self.center[columns]) ** 2
        stored = np.bincount(columns, deviation, n_columns)
        stored_weight = np.bincount(columns, entry_weight, n_columns)
        has_zeros = np.bincount(columns, minlength=n_columns) < len(weight)
        return stored + has_zeros * (weight.sum() - stored_weight) * self.center**2

    def row_squares(self, scale):
        values, center = self._near
        scaled_center = center * scale**2
        squares = values.multiply(values) @ scale**2
        return squares - 2 * (values @ scaled_center) + center @ scaled_center

    def features(self, scale):
        return self.values


class CsrDesign(Design):
    def without_empty_columns(self):
        used = np.flatnonzero(np.bincount(self.X.indices, minlength=self.n_features))
        if not 0 < len(used) <= MOST_USED * self.n_features:
            return self, None
        new_index = np.zeros(self.n_features, dtype=self.X.indices.dtype)
        new_index[used] = np.arange(len(used))
        X = sparse.csr_array((self.X.data, new_index[self.X.indices], self.X.indptr), shape=(self.n_rows, len(used)))
        return CsrDesign(X, self.labels, self.weight, self.total_weight, self.n_classes), used

    @property
    def n_entries(self) -> float:
        """Mean number of stored entries of a row."""
        return self.X.nnz / max(1, self.n_rows)

    def scaled_rows(self, rows, columns, scale) -> CsrBlock:
        """Rows in some features, multiplied by `scale`."""
        values = self.X[rows][:, columns] @ sparse.diags_array(scale)
        return CsrBlock(sparse.csr_array(values), self.center[columns] * scale, rows, self.labels[rows], None)

    def block_rows(self, n_fits: int, copies_rows=True) -> int:
        """Limits only the temporaries with one row per sample: slicing CSR rows is expensive in itself."""
        return max(4096, (1 << 24) // (8 * n_fits * self.n_classes))

    def _block(self, rows, labels, weight):
        is_whole = isinstance(rows, slice) and rows == slice(0, self.n_rows)
        values = self.X if is_whole else self.X[rows]
        return CsrBlock(values, self.center, rows, labels, weight)

    def row_gram(self, scale):
        values, center = _near_zero(self.X, self.center)
        scaled, center = values @ sparse.diags_array(scale), center * scale
        gram = (scaled @ scaled.T).toarray().astype(np.float64)
        cross = scaled @ center
        return gram - cross[:, None] - cross[None, :] + center @ center


def _near_zero(values, center):
    """The same centred rows, with features that have no zero entry centred explicitly.

    If such a feature is far from zero, centring its squares afterwards would lose all their digits to cancellation.
    """
    n_rows, n_columns = values.shape
    is_moved = (np.bincount(values.indices, minlength=n_columns) == n_rows) & (center != 0)
    if not is_moved.any():
        return values, center
    entries = values.data - np.where(is_moved, center, 0.0)[values.indices]
    moved = sparse.csr_array((entries, values.indices, values.indptr), shape=values.shape)
    return moved, np.where(is_moved, 0.0, center)
