"""Coordinates in which the covariance of a fit's own rows is the identity.

Those of the final fit make the second moment diagonal, too: its entries tell a solver how curved the loss is. Seen in
them, the covariance of a fold is not far from the identity, and one Cholesky factor is all that is left to find.

Columns are divided by their spread first, so that shrinking respects their units (in the span of the rows that has been
done already).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import blas, lapack

from annealed.design.base import Design
from annealed.design.coordinates import Coordinates
from annealed.design.threads import map_in_order

SMALLEST_VARIANCE = 1e-10  # relative floor under the eigenvalues of a covariance that is not shrunk


class Covariances(NamedTuple):
    """How each fit estimates its own.

    means, shares : of the classes, (n_fits, n_classes, n_features) and (n_fits, n_classes)
    is_pooled : about the class means, or about the mean of all rows
    shrinkage : "oas", "ledoit_wolf" or an amount, towards a multiple of the columns' variances
    usual : spreads of the columns over all rows; None in the span of the rows
    n_columns : before rows were seen in their span
    """

    design: Design
    means: np.ndarray
    shares: np.ndarray
    is_pooled: bool
    shrinkage: str | float
    usual: np.ndarray | None
    n_columns: int

    def of_fit(self, fit) -> _Estimate:
        design, means, shares = self.design, self.means[fit], self.shares[fit]
        moment = design.covariance(fit)
        mean = shares @ means
        spread = np.ones(len(moment))
        if self.usual is not None:
            spread = _spread(np.diag(moment) - mean**2, np.diag(moment), design.n_rows, self.usual)
        inner_means = means if self.is_pooled else np.broadcast_to(mean, means.shape)
        matrix = (moment - (inner_means.T * shares) @ inner_means) / np.outer(spread, spread)
        if self.shrinkage == "oas":
            amount = _oas(matrix, design.total_weight[fit], self.n_columns)
        elif self.shrinkage == "ledoit_wolf":
            amount = _ledoit_wolf(matrix, design, fit, inner_means, spread, self.n_columns)
        else:
            amount = float(self.shrinkage)
        return _Estimate(moment, matrix, spread, amount, amount * np.trace(matrix) / self.n_columns)


class _Estimate(NamedTuple):
    """`(1 - amount) matrix + ridge` is the covariance, in units of the columns' `spread`; `moment` is the second one,
    in the columns' own.
    """

    moment: np.ndarray
    matrix: np.ndarray
    spread: np.ndarray
    amount: float
    ridge: float


class _Whitening(NamedTuple):
    """`Coordinates` of one fit."""

    basis: np.ndarray
    inverse: np.ndarray
    spectrum: np.ndarray


def whitening_coordinates(covariances: Covariances, all_diagonal: bool) -> Coordinates:
    """With `all_diagonal`, the second moment of every fold is diagonal too. Where minima are approached, not reached,
    what is reached depends on it, most of all where the rows of a fold span less than all rows do.
    """
    final = _diagonalized(covariances.design, covariances.of_fit(0))

    def whitened(fold):
        estimate = covariances.of_fit(fold)
        near = None if all_diagonal else _from_final(final, estimate)
        return near or _diagonalized(covariances.design, estimate)

    found = [final, *map_in_order(whitened, range(1, covariances.design.n_fits))]
    basis, inverse, spectrum = (np.stack(parts) for parts in zip(*found, strict=True))
    return Coordinates(basis, inverse, spectrum, per_fit=True)


def _diagonalized(design: Design, estimate: _Estimate) -> _Whitening:
    moment, matrix, scale, amount, ridge = estimate
    eigenvalues, vectors = design.eigh(matrix)
    eigenvalues = (1 - amount) * eigenvalues + ridge
    largest = eigenvalues[-1] if eigenvalues[-1] > SMALLEST_VARIANCE else 1.0  # where classes have none, the columns'
    spread = np.sqrt(np.maximum(eigenvalues, SMALLEST_VARIANCE * largest))
    whitener = vectors / spread / scale[:, None]
    spectrum, rotation = design.eigh(whitener.T @ moment @ whitener)
    inverse = (vectors * spread @ rotation) * scale[:, None]
    return _Whitening(whitener @ rotation, inverse, np.maximum(spectrum, 0))


def _from_final(final: _Whitening, estimate: _Estimate) -> _Whitening | None:
    """None where only a floor under the eigenvalues of the covariance may make its directions bearable."""
    if estimate.ridge <= SMALLEST_VARIANCE * max(1.0, np.trace(estimate.matrix)):
        return None
    covariance = (1 - estimate.amount) * estimate.matrix
    np.einsum("ii->i", covariance)[:] += estimate.ridge
    factor = _factor_seen_in(final.basis * estimate.spread[:, None], covariance)
    if factor is None:
        return None
    turn, _ = lapack.dtrtri(factor, lower=1)
    basis = blas.dtrmm(1.0, turn, final.basis, side=1, lower=1, trans_a=1)
    return _Whitening(basis, blas.dtrmm(1.0, factor, final.inverse, side=1, lower=1), final.spectrum)


def _factor_seen_in(basis, covariance):
    """The lower Cholesky factor of basis' covariance basis, or None. Products with triangles take half the time."""
    own, has_failed = lapack.dpotrf(covariance, lower=1, overwrite_a=1)
    if has_failed:
        return None
    seen = blas.dsyrk(1.0, blas.dtrmm(1.0, own, basis, lower=1, trans_a=1), trans=1, lower=1)
    factor, has_failed = lapack.dpotrf(seen, lower=1, overwrite_a=1)
    return None if has_failed else factor


def _spread(variance, moment, n_rows, usual):
    """Standard deviations; the usual ones where a column is constant up to the rounding of sums of so many rows."""
    rounding = 4 * n_rows * np.finfo(float).eps
    return np.sqrt(np.where(variance > rounding * moment, variance, usual**2))


def _oas(covariance, n_rows, n_columns):
    """Oracle approximating shrinkage (Chen et al. 2010) of a covariance from `n_rows` rows."""
    mean_square = np.sum(covariance**2) / n_columns**2
    mean_variance = np.trace(covariance) / n_columns
    denominator = (n_rows + 1) * (mean_square - mean_variance**2 / n_columns)
    return 1.0 if denominator <= 0 else min(1.0, (mean_square + mean_variance**2) / denominator)


def _ledoit_wolf(covariance, design, fit, means, scale, n_columns):
    """Ledoit and Wolf's (2004) shrinkage from the fourth moment of the rows about their class means."""
    inverse = 1 / scale
    norms = np.sum((means * inverse) ** 2, axis=1)

    def kernel(block):
        cross = block.product((means * inverse**2)[None])[np.arange(len(block.labels)), 0, block.labels]
        squares = block.row_squares(inverse) - 2 * cross + norms[block.labels]
        return (np.array([block.weight[:, fit] @ squares**2]),)

    (fourth,) = design.sum_rows(kernel)
    size = np.sum(covariance**2)
    noise = (fourth[0] - size) / design.total_weight[fit]
    distance = size - np.trace(covariance) ** 2 / n_columns
    return 1.0 if distance <= 0 else min(max(noise, 0.0), distance) / distance
