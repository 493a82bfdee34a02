"""Whether a fit of rows that columns outnumber should shrink its coefficients, asked of least squares.

Whitened, such a fit goes along the shortest coefficients that meet every row (`annealed/design/class_points.py`); in
the diagonal metric it is held back where rows vary little. Least squares on class indicators have both among the ridges
that they may have, and one eigendecomposition tells, for all of these, how rows are predicted by fits without them.
Predictions are compared at their best scale: that of a posterior is found by validation.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

import numpy as np
from scipy import linalg

N_RIDGES = 25
FEW_NUMBERS = 50_000  # of rows by classes, for as many ridges as are tried in one go
SMALLEST_RIDGE = 0.1  # of the smallest eigenvalue
SAME = 1e-10  # of the mean square of rows: those that are no farther apart are one row
TWINS = 1e-6  # of the median eigenvalue, for the smallest: rows that are all but the same foretell each other


class RidgeEffect(NamedTuple):
    """How squared errors of rows left out differ by a ridge, relative to those without; not a number where unknown.

    gain : by the best one
    cost : by the median eigenvalue, negative where it gains
    """

    gain: float
    cost: float


def ridge_effect(rows, weight, indicators, is_centered) -> RidgeEffect:
    """Of least squares on class indicators, each row left out in turn, with all that are the same.

    rows : (n_rows, n_columns), independent but for their weighted mean, which is zero where they are centred
    weight : (n_rows,), positive, of sum one
    """
    first, owner = _distinct(rows)
    rows, indicators, weight = rows[first], indicators[first], np.bincount(owner, weight)
    root = np.sqrt(weight)[:, None]
    wanted = root * (indicators - root.T**2 @ indicators if is_centered else indicators)
    eigenvalues, vectors = linalg.eigh((root * rows) @ (root * rows).T)
    if is_centered:  # the mean is free: what is along it has no residual
        eigenvalues, vectors = eigenvalues[1:], vectors[:, 1:]
    lowest, median, highest = eigenvalues[0], np.median(eigenvalues), eigenvalues[-1]
    if not lowest > TWINS * median:
        return RidgeEffect(np.nan, np.nan)
    ridges = np.array([0.0, median, *np.geomspace(SMALLEST_RIDGE * lowest, highest, N_RIDGES)])
    along, squares = vectors.T @ wanted, vectors**2

    def errors(some):
        inverse = 1 / (eigenvalues + some[:, None])
        residual = vectors @ (inverse[..., None] * along) / (inverse @ squares.T)[..., None]
        return np.maximum(_errors_at_best_scale(wanted - residual, wanted), np.finfo(float).eps).tolist()

    together = max(1, FEW_NUMBERS // wanted.size)
    parts = [ridges[first : first + together] for first in range(0, len(ridges), together)]
    without, with_median, *others = chain.from_iterable(map(errors, parts))
    return RidgeEffect(gain=1 - min(without, *others) / without, cost=with_median / without - 1)


def _distinct(rows):
    """The first of all rows that are the same, and for every row the number of its first one among these."""
    square = rows @ rows.T
    own = np.diag(square)
    is_same = own[:, None] + own - 2 * square <= SAME * own.mean()
    np.fill_diagonal(is_same, True)
    return np.unique(np.argmax(is_same, axis=1), return_inverse=True)


def _errors_at_best_scale(predicted, wanted) -> np.ndarray:
    """Sums of squares left of `wanted` by predictions (..., n_rows, n_columns) times the best factor not below zero."""
    along, size = np.einsum("...nc,nc->...", predicted, wanted), np.einsum("...nc,...nc->...", predicted, predicted)
    return np.sum(wanted**2) - np.maximum(along, 0.0) ** 2 / np.maximum(size, np.finfo(float).tiny)
