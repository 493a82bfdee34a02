"""Whitening coordinates: in them, the shrunk covariance of a fit's samples is the identity.

The coordinates of the final fit also diagonalize the second moment, whose entries give a solver the curvature of the
loss. In these coordinates the covariance of a fold is close to the identity, so one Cholesky factor completes it.

Features are divided by their spread first, so that shrinkage respects their units. In the span of the samples this has
already been done. There, the axes diagonalize the second moment, from which the covariance differs by a few class means
only; dividing the axes by the spread along them already brings the final fit's covariance close to the identity.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import blas, lapack

from annealed.rows.base import Design
from annealed.rows.coordinates import SMALLEST_VARIANCE, Coordinates, TurnedCoordinates
from annealed.rows.threads import map_in_order


class Covariances(NamedTuple):
    """Inputs of the covariance estimate of every fit.

    means, shares : class means (n_fits, n_classes, n_features) and class shares (n_fits, n_classes)
    is_pooled : whether the covariance is about the class means or about the overall mean
    shrinkage : "oas", "ledoit_wolf" or a fraction, towards a multiple of the features' variances
    spread : standard deviations of the features over all samples, the units of all fits; None in the span of the
        samples, where features have been divided by them
    n_columns : number of features that are not constant, before a change to span coordinates
    """

    design: Design
    means: np.ndarray
    shares: np.ndarray
    is_pooled: bool
    shrinkage: str | float
    spread: np.ndarray | None
    n_columns: int

    def of_fit(self, fit, moment, usual_variance=1.0) -> _Estimate:
        """The estimate of one fit.

        moment : second moment of the fit's samples
        usual_variance : variance of a feature if the samples have none, as with one sample per class
        """
        design, means, shares = self.design, self.means[fit], self.shares[fit]
        mean = shares @ means
        spread = np.ones(len(moment)) if self.spread is None else self.spread
        inner_means = means if self.is_pooled else np.broadcast_to(mean, means.shape)
        matrix = (moment - (inner_means.T * shares) @ inner_means) / np.outer(spread, spread)
        if not np.trace(matrix) > SMALLEST_VARIANCE * self.n_columns:
            return _Estimate(moment, matrix, spread, 1.0, usual_variance)
        if self.shrinkage == "oas":
            amount = oas_share(np.sum(matrix**2), np.trace(matrix), design.total_weight[fit], self.n_columns)
        elif self.shrinkage == "ledoit_wolf":
            fourth = _fourth_moment(design, fit, inner_means, spread)
            size = np.sum(matrix**2), np.trace(matrix)
            amount = ledoit_wolf_share(*size, fourth, design.total_weight[fit], self.n_columns)
        else:
            amount = float(self.shrinkage)
        return _Estimate(moment, matrix, spread, amount, amount * np.trace(matrix) / self.n_columns)


class _Estimate(NamedTuple):
    """The covariance is `(1 - amount) matrix + ridge`, with features in units of `spread`; `moment` is the second
    moment in the features' original units.
    """

    moment: np.ndarray
    matrix: np.ndarray
    spread: np.ndarray
    amount: float
    ridge: float

    def mean_variance(self, n_columns) -> float:
        """Mean variance of a feature."""
        return self.ridge if self.amount == 1 else np.trace(self.matrix) / n_columns

    @property
    def is_shrunk(self) -> bool:
        """Whether shrinkage makes the covariance invertible; otherwise only a floor on its eigenvalues does."""
        return bool(self.ridge > SMALLEST_VARIANCE * max(1.0, np.trace(self.matrix)))

    @property
    def covariance(self) -> np.ndarray:
        """In units of `spread`."""
        covariance = (1 - self.amount) * self.matrix
        np.einsum("ii->i", covariance)[:] += self.ridge
        return covariance


def whitening_coordinates(covariances: Covariances, all_diagonal: bool) -> Coordinates | TurnedCoordinates:
    """Whitening coordinates of all fits.

    With `all_diagonal` they diagonalize the second moment of every fold too. This matters if a solver is stopped before
    it reaches the minimum, because the point that it reaches depends on it, especially if a fold's samples span less
    than all samples do.
    """
    design, moments = covariances.design, covariances.design.covariances()
    of_all = covariances.of_fit(0, moments[0])
    usual_variance = of_all.mean_variance(covariances.n_columns)

    def estimate_of(fit):
        return covariances.of_fit(fit, moments[fit], usual_variance)

    def diagonalized(fit):
        return _diagonalized(design, estimate_of(fit))

    if all_diagonal:
        maps = list(map_in_order(diagonalized, range(design.n_fits)))
        basis, inverse = np.stack([fit.basis for fit in maps]), np.stack([fit.inverse for fit in maps])
        return Coordinates(basis, inverse, np.stack([fit.spectrum for fit in maps]), per_fit=True)
    has_axes = covariances.spread is None and of_all.is_shrunk
    frame = _axes(of_all) if has_axes else _diagonalized(design, of_all)

    def turned(fit):
        if fit == 0 and not has_axes:
            return (np.eye(frame.rank),) * 2
        near = _turned_from(frame, estimate_of(fit))
        return near or _turned_to(frame, diagonalized(fit))

    turns, returns = map(np.stack, zip(*map_in_order(turned, range(design.n_fits)), strict=True))
    spectrum = frame.spectrum @ turns[0] ** 2
    return TurnedCoordinates(frame, turns, returns, np.broadcast_to(spectrum, (design.n_fits, frame.rank)))


def _diagonalized(design: Design, estimate: _Estimate) -> Coordinates:
    moment, matrix, scale, amount, ridge = estimate
    eigenvalues, vectors = design.eigh(matrix.copy())
    eigenvalues = (1 - amount) * eigenvalues + ridge
    spread = np.sqrt(np.maximum(eigenvalues, SMALLEST_VARIANCE * eigenvalues[-1]))
    whitener = vectors / spread / scale[:, None]
    spectrum, rotation = design.eigh(whitener.T @ moment @ whitener)
    inverse = (vectors * spread @ rotation) * scale[:, None]
    return Coordinates(whitener @ rotation, inverse, np.maximum(spectrum, 0))


def _axes(estimate: _Estimate) -> Coordinates:
    """The axes of the span, divided by the standard deviation along them."""
    spread = np.sqrt(np.diag(estimate.covariance))
    return Coordinates(1 / spread, spread, np.diag(estimate.moment) / spread**2)


def _turned_from(frame: Coordinates, estimate: _Estimate):
    """Turn and return from one Cholesky factor of the covariance in the frame; None if it is ill-conditioned."""
    if not estimate.is_shrunk:
        return None
    factor = _factor_in(frame.basis, estimate)
    if factor is None:
        return None
    inverse, _ = lapack.dtrtri(factor, lower=1)
    return inverse.T, factor


def _turned_to(frame: Coordinates, target: Coordinates):
    """Turn and return from the frame to coordinates that were computed independently of it."""
    basis, inverse = (part if part.ndim == 2 else np.diag(part) for part in (frame.basis, frame.inverse))
    return inverse.T @ target.basis, basis.T @ target.inverse


def _factor_in(basis, estimate: _Estimate):
    """The lower Cholesky factor of basis' covariance basis, or None. Triangular products cost half as much."""
    covariance = estimate.covariance
    if basis.ndim == 1:
        return _cholesky(covariance * np.outer(basis, basis))
    factor = _cholesky(covariance)
    if factor is None:
        return None
    half = blas.dtrmm(1.0, factor, basis * estimate.spread[:, None], lower=1, trans_a=1)
    return _cholesky(blas.dsyrk(1.0, half, trans=1, lower=1))


def _cholesky(matrix):
    """The lower Cholesky factor of a matrix, which may be overwritten, or None if there is none."""
    factor, has_failed = lapack.dpotrf(matrix, lower=1, overwrite_a=1)
    return None if has_failed else factor


def oas_share(square, trace, n_rows, n_columns) -> float:
    """Shrinkage from 0 to 1 by oracle approximating shrinkage (Chen, Wiesel, Eldar and Hero, 2010).

    square, trace : sum of the squared entries, and trace, of a covariance estimated from `n_rows` samples
    """
    mean_square, mean = square / n_columns**2, trace / n_columns
    excess = (n_rows + 1) * (mean_square - mean**2 / n_columns)
    return 1.0 if excess <= 0 else float(min(1.0, (mean_square + mean**2) / excess))


def variance_share(mean_square, mean, n_rows):
    """Shrinkage from 0 to 1 of variances towards their mean, that of least squared error if samples are Gaussian.

    mean_square, mean : of the variances, which are estimated from `n_rows` samples
    """
    excess = n_rows * (mean_square - mean**2)
    return np.minimum(np.divide(2 * mean_square, excess, out=np.ones_like(excess), where=excess > 0), 1)


def ledoit_wolf_share(square, trace, fourth, n_rows, n_columns) -> float:
    """Shrinkage from 0 to 1 by Ledoit and Wolf (2004); `fourth` is the mean fourth power of the samples' distances."""
    distance = square - trace**2 / n_columns
    return 1.0 if distance <= 0 else float(np.clip((fourth - square) / n_rows / distance, 0.0, 1.0))


def _fourth_moment(design, fit, means, scale) -> float:
    """Weighted mean of the fourth powers of the samples' distances to their class means, in units of `scale`."""
    inverse = 1 / scale
    norms = np.sum((means * inverse) ** 2, axis=1)

    def kernel(block):
        cross = block.product((means * inverse**2)[None])[np.arange(len(block.labels)), 0, block.labels]
        squares = block.row_squares(inverse) - 2 * cross + norms[block.labels]
        return (np.array([block.weight[:, fit] @ squares**2]),)

    (fourth,) = design.sum_rows(kernel)
    return fourth[0]
