"""Coordinates in which the covariance of a fit's own rows is the identity.

Those of the final fit make the second moment diagonal, too: its entries tell a solver how curved the loss is. Seen in
them, the covariance of a fold is not far from the identity, and one Cholesky factor is all that is left to find.

Columns are divided by their spread first, so that shrinking respects their units (in the span of the rows that has been
done already). There the axes make the second moment diagonal, and few class means are all by which the covariance
differs from it: the final fit's is near the identity, too, once the axes are divided by its spread along them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import blas, lapack

from annealed.design.base import Design
from annealed.design.coordinates import Coordinates, TurnedCoordinates
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

    def of_fit(self, fit, moment, usual_variance=1.0) -> _Estimate:
        """`moment` is the second one of its rows; `usual_variance` is that of a column where the rows tell none, as of
        classes of one row each.
        """
        design, means, shares = self.design, self.means[fit], self.shares[fit]
        mean = shares @ means
        spread = np.ones(len(moment))
        if self.usual is not None:
            spread = _spread(np.diag(moment) - mean**2, np.diag(moment), design.n_rows, self.usual)
        inner_means = means if self.is_pooled else np.broadcast_to(mean, means.shape)
        matrix = (moment - (inner_means.T * shares) @ inner_means) / np.outer(spread, spread)
        if not np.trace(matrix) > SMALLEST_VARIANCE * self.n_columns:
            return _Estimate(moment, matrix, spread, 1.0, usual_variance)
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

    def mean_variance(self, n_columns) -> float:
        """Of a column."""
        return self.ridge if self.amount == 1 else np.trace(self.matrix) / n_columns

    @property
    def is_shrunk(self) -> bool:
        """Else only a floor under the eigenvalues of the covariance may make its directions bearable."""
        return bool(self.ridge > SMALLEST_VARIANCE * max(1.0, np.trace(self.matrix)))

    @property
    def covariance(self) -> np.ndarray:
        """In units of the columns' spread."""
        covariance = (1 - self.amount) * self.matrix
        np.einsum("ii->i", covariance)[:] += self.ridge
        return covariance


def whitening_coordinates(covariances: Covariances, all_diagonal: bool) -> Coordinates | TurnedCoordinates:
    """With `all_diagonal`, the second moment of every fold is diagonal too. Where minima are approached, not reached,
    what is reached depends on it, most of all where the rows of a fold span less than all rows do.
    """
    design, moments = covariances.design, covariances.design.covariances()
    of_all = covariances.of_fit(0, moments[0])
    usual_variance = of_all.mean_variance(covariances.n_columns)

    def own(fit):
        return covariances.of_fit(fit, moments[fit], usual_variance)

    def diagonalized(fit):
        return _diagonalized(design, own(fit))

    if all_diagonal:
        found = list(map_in_order(diagonalized, range(design.n_fits)))
        basis, inverse = np.stack([each.basis for each in found]), np.stack([each.inverse for each in found])
        return Coordinates(basis, inverse, np.stack([each.spectrum for each in found]), per_fit=True)
    has_axes = covariances.usual is None and of_all.is_shrunk
    frame = _axes(of_all) if has_axes else _diagonalized(design, of_all)

    def turned(fit):
        if fit == 0 and not has_axes:
            return (np.eye(frame.rank),) * 2
        near = _turned_from(frame, own(fit))
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
    """The axes of the span, divided by the spread along them."""
    spread = np.sqrt(np.diag(estimate.covariance))
    return Coordinates(1 / spread, spread, np.diag(estimate.moment) / spread**2)


def _turned_from(frame: Coordinates, estimate: _Estimate):
    """Turn and return by one Cholesky factor of the covariance as the frame sees it; None where it is not bearable."""
    if not estimate.is_shrunk:
        return None
    factor = _factor_seen_in(frame.basis, estimate)
    if factor is None:
        return None
    inverse, _ = lapack.dtrtri(factor, lower=1)
    return inverse.T, factor


def _turned_to(frame: Coordinates, own: Coordinates):
    """Turn and return to coordinates that were found by themselves."""
    basis, inverse = (part if part.ndim == 2 else np.diag(part) for part in (frame.basis, frame.inverse))
    return inverse.T @ own.basis, basis.T @ own.inverse


def _factor_seen_in(basis, estimate: _Estimate):
    """The lower Cholesky factor of basis' covariance basis, or None. Products with triangles take half the time."""
    covariance = estimate.covariance
    if basis.ndim == 1:
        return _cholesky(covariance * np.outer(basis, basis))
    own = _cholesky(covariance)
    if own is None:
        return None
    half = blas.dtrmm(1.0, own, basis * estimate.spread[:, None], lower=1, trans_a=1)
    return _cholesky(blas.dsyrk(1.0, half, trans=1, lower=1))


def _cholesky(matrix):
    """The lower factor of a matrix that may be overwritten, or None."""
    factor, has_failed = lapack.dpotrf(matrix, lower=1, overwrite_a=1)
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
