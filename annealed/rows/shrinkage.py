"""Leave-one-out ridge regression, to decide whether a fit with more features than samples should shrink.

With whitened features such a fit follows the minimum-norm coefficients that interpolate every sample
(`annealed/rows/class_points.py`); with standardized features it is shrunk where samples vary little. Ridge regression
of the class indicators covers both cases, and one eigendecomposition gives its leave-one-out predictions for every
ridge. Predictions are compared at their best scale, because validation calibrates the scale of the posterior anyway.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

import numpy as np
from scipy import linalg

N_RIDGES = 25
FEW_NUMBERS = 50_000  # samples times classes times ridges evaluated at once
SMALLEST_RIDGE = 0.1  # relative to the smallest eigenvalue
SAME = 1e-10  # squared distance relative to the samples' mean square, up to which samples are duplicates
TWINS = 1e-6  # smallest eigenvalue relative to the median: below it, near-duplicates predict each other


class RidgeEffect(NamedTuple):
    """Relative change of the leave-one-out squared error by a ridge, compared with no ridge; NaN if unknown.

    gain : reduction by the best ridge
    cost : increase by a ridge as large as the median eigenvalue, negative if it reduces the error
    """

    gain: float
    cost: float


def ridge_effect(rows, weight, indicators, is_centered) -> RidgeEffect:
    """Ridge effect on least squares for class indicators; samples are left out together with their duplicates.

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
    lowest, median, highest = eigenvalues[0], np.median(eigenvalues), eigenvalues[-1]
    if not lowest > TWINS * median:
        return RidgeEffect(np.nan, np.nan)
    ridges = np.array([0.0, median, *np.geomspace(SMALLEST_RIDGE * lowest, highest, N_RIDGES)])
    along, squares = vectors.T @ targets, vectors**2

    def errors(some):
        inverse = 1 / (eigenvalues + some[:, None])
        residual = vectors @ (inverse[..., None] * along) / (inverse @ squares.T)[..., None]
        return np.maximum(_errors_at_best_scale(targets - residual, targets), np.finfo(float).eps).tolist()

    n_together = max(1, FEW_NUMBERS // targets.size)
    parts = [ridges[first : first + n_together] for first in range(0, len(ridges), n_together)]
    without, with_median, *with_ridges = chain.from_iterable(map(errors, parts))
    return RidgeEffect(gain=1 - min(without, *with_ridges) / without, cost=with_median / without - 1)


def _distinct(rows):
    """Indices of the first of each set of equal rows, and for every row the position of its first among these."""
    square = rows @ rows.T
    lengths = np.diag(square)
    is_same = lengths[:, None] + lengths - 2 * square <= SAME * lengths.mean()
    np.fill_diagonal(is_same, True)
    return np.unique(np.argmax(is_same, axis=1), return_inverse=True)


def _errors_at_best_scale(predicted, wanted) -> np.ndarray:
    """Squared error of predictions (..., n_rows, n_columns) for `wanted`, after scaling by the best factor >= 0."""
    along, size = np.einsum("...nc,nc->...", predicted, wanted), np.einsum("...nc,...nc->...", predicted, predicted)
    return np.sum(wanted**2) - np.maximum(along, 0.0) ** 2 / np.maximum(size, np.finfo(float).tiny)
