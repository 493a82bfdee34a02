"""Rows in principal axes (PCA), where their second moment is diagonal: used when there are many columns.

    z = x V,    S = V diag(variances) V'

Axes along which the rows do not vary are dropped, and nothing is lost. Prototypes are weighted means of rows, so they
have no component along a dropped axis. A component of a new sample there adds the same amount to its squared distance
from every prototype.

Shapes: X (n_rows, n_features), axes V (n_features, n_axes), z (n_rows, n_axes).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from annealed.potts.diagonal_plus import DiagonalPlus
from annealed.potts.problem import SMALLEST_VARIANCE, LabelledRows, symmetric_eigen

MANY_COLUMNS = 128  # columns, from which on diagonal plus low-rank algebra repays the eigendecomposition


class PrincipalRows(LabelledRows):
    """Given rows in the principal axes of their second moment; `axes` (n_features, n_axes)."""

    def __init__(self, rows: LabelledRows):
        self.axes, self.variances, X = principal_axes(rows)
        super().__init__(X, rows.labels, rows.weight, rows.n_classes)

    def along(self, X):
        """Other rows in the same axes."""
        return X @ self.axes.astype(X.dtype)

    @cached_property
    def second_moment(self):
        return DiagonalPlus.of_diagonal(self.variances)


def principal_axes(rows: LabelledRows):
    """Axes and variances of the second moment, from the smaller of its Gram matrices, and the rows in these axes."""
    root_weight = np.sqrt(rows.weight / rows.total)[:, None]
    scaled = rows.X * root_weight
    is_wide = scaled.shape[1] > scaled.shape[0]
    variances, vectors = symmetric_eigen(scaled @ scaled.T if is_wide else scaled.T @ scaled)
    kept = variances > SMALLEST_VARIANCE[8] * variances[-1]
    if not kept.any():  # all rows are equal
        return np.eye(scaled.shape[1])[:, :1], np.zeros(1), rows.X[:, :1]
    variances, vectors = variances[kept], vectors[:, kept]
    if not is_wide:
        return vectors, variances, rows.X @ vectors.astype(rows.X.dtype)
    spread = np.sqrt(variances)
    return scaled.T @ (vectors / spread), variances, (vectors * spread / root_weight).astype(rows.X.dtype)


def has_many_columns(rows: LabelledRows) -> bool:
    n_rows, n_features = rows.X.shape
    return n_features >= min(MANY_COLUMNS, n_rows)
