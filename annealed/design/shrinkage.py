"""Whether a fit of rows that columns outnumber should shrink its coefficients, asked of least squares.

Whitened, such a fit goes along the shortest coefficients that meet every row (`annealed/design/class_points.py`); in
the diagonal metric it is held back where rows vary little. Least squares on class indicators have both among the ridges
that they may have, and one eigendecomposition tells, for all of these, how rows are predicted by fits without them.
Predictions are compared at their best scale: that of a posterior is found by validation.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from annealed.design.coordinates import SMALLEST_EIGENVALUE

N_RIDGES = 25
SMALLEST_RIDGE = 0.1  # of the smallest eigenvalue


def excess_without_ridge(rows, weight, indicators, is_centered) -> float:
    """Squared error, each row left out in turn, of the fit that meets every row, beside the least that a ridge gives.

    rows : (n_rows, n_columns), independent but for their weighted mean, which is zero where they are centred
    weight : (n_rows,), positive, of sum one
    """
    root = np.sqrt(weight)[:, None]
    wanted = root * (indicators - root.T**2 @ indicators if is_centered else indicators)
    eigenvalues, vectors = linalg.eigh((root * rows) @ (root * rows).T)
    if is_centered:  # the mean is free: what is along it has no residual
        eigenvalues, vectors = eigenvalues[1:], vectors[:, 1:]
    eigenvalues = np.maximum(eigenvalues, SMALLEST_EIGENVALUE * eigenvalues[-1])
    ridges = np.append(0.0, np.geomspace(SMALLEST_RIDGE * eigenvalues[0], eigenvalues[-1], N_RIDGES))
    inverse = 1 / (eigenvalues + ridges[:, None])
    residual = vectors @ (inverse[:, :, None] * (vectors.T @ wanted)) / (inverse @ vectors.T**2)[:, :, None]
    errors = np.maximum(_errors_at_best_scale(wanted - residual, wanted), np.finfo(float).eps)
    return float(errors[0] / errors.min())


def _errors_at_best_scale(predicted, wanted):
    """Sum of squares left of `wanted` by each of a stack of predictions times the best factor that is not negative."""
    along, size = np.sum(predicted * wanted, axis=(1, 2)), np.sum(predicted**2, axis=(1, 2))
    return np.sum(wanted**2) - np.maximum(along, 0) ** 2 / np.maximum(size, np.finfo(float).tiny)
