"""Rows along their own principal axes, where their second moment is diagonal: the form for many columns.

    z = x V,    S = V diag(variances) V'

Axes along which the rows do not vary are left out. Prototypes are means of rows, so there is nothing of them out there,
and what other rows have out there adds the same to their distances from all prototypes.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from annealed.objectives.diagonal_plus import DiagonalPlus
from annealed.objectives.potts import LabelledRows, symmetric_eigen

MANY_COLUMNS = 128  # from which on the axes are worth finding
SMALLEST_SHARE = 1e-10  # of the largest variance, below which an axis is left out


class PrincipalRows(LabelledRows):
    """The rows of another table along the principal axes of its second moment; `axes` (n_features, n_axes)."""

    def __init__(self, rows: LabelledRows):
        self.axes, self.variances, X = principal_axes(rows)
        super().__init__(X, rows.labels, rows.weight, rows.n_classes)

    def along(self, X):
        """Other rows along the same axes."""
        return X @ self.axes.astype(X.dtype)

    @cached_property
    def second_moment(self):
        return DiagonalPlus.of_diagonal(self.variances)


def principal_axes(rows: LabelledRows):
    """Axes and variances of the second moment, from the smaller of its two Gram matrices, and the rows along them."""
    share = np.sqrt(rows.weight / rows.total)[:, None]
    scaled = rows.X * share
    is_wide = scaled.shape[1] > scaled.shape[0]
    variances, vectors = symmetric_eigen(scaled @ scaled.T if is_wide else scaled.T @ scaled)
    kept = variances > SMALLEST_SHARE * variances[-1]
    if not kept.any():  # every row is the same
        return np.eye(scaled.shape[1])[:, :1], np.zeros(1), rows.X[:, :1]
    variances, vectors = variances[kept], vectors[:, kept]
    if not is_wide:
        return vectors, variances, rows.X @ vectors.astype(rows.X.dtype)
    sizes = np.sqrt(variances)
    return scaled.T @ (vectors / sizes), variances, (vectors * sizes / share).astype(rows.X.dtype)


def has_many_columns(rows: LabelledRows) -> bool:
    n_rows, n_features = rows.X.shape
    return n_features >= min(MANY_COLUMNS, n_rows)
