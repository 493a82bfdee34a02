"""Leave-one-out ridge regression, to decide whether a fit with more features than samples should shrink.

With whitened features such a fit follows the minimum-norm coefficients that interpolate every sample
(`annealed/rows/class_points.py`); with standardized features it is shrunk where samples vary little. Ridge regression
of the class indicators covers both cases, and one eigendecomposition gives its leave-one-out predictions for any ridge.
Predictions are compared at their best scale, because validation calibrates the scale of the posterior anyway.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from annealed.rows.coordinates import SMALLEST_VARIANCE

TWINS = 1e-6  # smallest eigenvalue relative to the median: below it, near-duplicates predict each other


def ridge_cost(rows, weight, indicators, is_centered) -> float:
    """Relative change of the leave-one-out squared error of class indicators by a ridge as large as the median
    eigenvalue, compared with no ridge; negative if the ridge reduces it, NaN if unknown.

    Samples are left out together with their duplicates.

    rows : (n_rows, n_columns), linearly independent except for their weighted mean, which is zero if `is_centered`
    weight : (n_rows,), positive, summing to one
    """
    first, owner = _distinct(rows)
    rows, indicators, weight = rows[first], indicators[first], np.bincount(owner, weight)
    root = np.sqrt(weight)[:, None]
    targets = root * (indicators - root.T**2 @ indicators if is_centered else indicators)
    eigenvalues, vectors = linalg.eigh((root * rows) @ (root * rows).T)
    if is_centered:  # the mean is unpenalized: no residual along it
        eigenvalues, vectors = eigenvalues[1:], vectors[:, 1:]
    median = np.median(eigenvalues)
    if not eigenvalues[0] > TWINS * median:
        return np.nan
    without, with_median = (_error(eigenvalues + ridge, vectors, targets) for ridge in (0.0, median))
    return with_median / without - 1


def _error(eigenvalues, vectors, targets):
    """Squared error of leave-one-out predictions, after scaling by the best factor >= 0."""
    residual = vectors @ ((vectors.T @ targets) / eigenvalues[:, None]) / (vectors**2 @ (1 / eigenvalues))[:, None]
    predicted = targets - residual
    along, size = np.sum(predicted * targets), np.sum(predicted**2)
    error = np.sum(targets**2) - max(along, 0.0) ** 2 / max(size, np.finfo(float).tiny)
    return max(error, np.finfo(float).eps)


def _distinct(rows):
    """Indices of the first of each set of equal rows, and for every row the position of its first among these."""
    square = rows @ rows.T
    lengths = np.diag(square)
    is_same = lengths[:, None] + lengths - 2 * square <= SMALLEST_VARIANCE * lengths.mean()
    np.fill_diagonal(is_same, True)
    return np.unique(np.argmax(is_same, axis=1), return_inverse=True)
