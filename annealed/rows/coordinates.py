"""Coordinates in which a fit is solved, `z = (x - center) @ basis`, stored as factors beside X.

A solver works with coefficients of z, a design with coefficients of x. Transforming the small coefficient arrays once
per pass is equivalent to rotating X, without a copy of X.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import linalg, sparse

from annealed.arrays import ROUNDING, Place, as_slice, namespace_of, take, to_host
from annealed.rows.base import Design

WIDEST_EIGENPROBLEM = 1000  # features (or samples) beyond which a dense eigendecomposition costs more than it saves
WIDEST_ROTATION = 5000  # the same for dense X with more samples than features, where many passes repay it
SMALLEST_ROOT = float(np.sqrt(np.finfo(float).tiny / np.finfo(float).eps))  # squares of less lose digits, or underflow
SMALLEST_VARIANCE = 1e-10  # relative: rounding of an eigenbasis destroys features of less variance
SMALLEST_EIGENVALUE = ROUNDING  # relative: a direction below it is rounding noise of the Gram matrix
EMPTY = ROUNDING**2  # relative variance of an empty direction, e.g. of one-hot features, which sum to one
LIGHTEST = np.sqrt(ROUNDING)  # relative sample weight below which a sample adds no direction to a fit
CONSTANT = ROUNDING  # standard deviation relative to the mean that is rounding error: the feature is constant


@dataclass(frozen=True)
class Coordinates:
    """A linear map of the features, shared by all fits or one per fit.

    basis : (n_features,), (n_features, rank), or either with a leading axis of fits
    inverse : same shape; maps a point z back to `x - center`
    spectrum : mean square of each coordinate, (rank,) or (n_fits, rank)
    """

    basis: np.ndarray
    inverse: np.ndarray
    spectrum: np.ndarray
    per_fit: bool = False

    @property
    def rank(self) -> int:
        return self.spectrum.shape[-1]

    def of_fits(self, fits) -> Coordinates:
        if not self.per_fit:
            return self
        selected = fits if isinstance(fits, slice) else as_slice(np.asarray(fits))
        basis, inverse, spectrum = (take(part, selected) for part in (self.basis, self.inverse, self.spectrum))
        return Coordinates(basis, inverse, spectrum, per_fit=True)

    def on(self, place: Place) -> Coordinates:
        """The same map with its arrays on a device."""
        if place.is_host:
            return self
        basis, inverse, spectrum = (place.wide(part) for part in (self.basis, self.inverse, self.spectrum))
        return Coordinates(basis, inverse, spectrum, self.per_fit)

    @property
    def of_final(self) -> Coordinates:
        """The map of the final fit, as a single map."""
        return Coordinates(self.basis[0], self.inverse[0], self.spectrum[0]) if self.per_fit else self

    def _apply(self, vectors, factor, transposed):
        is_diagonal = factor.ndim == (2 if self.per_fit else 1)
        if is_diagonal:
            return vectors * (factor[:, None, :] if self.per_fit else factor)
        xp = namespace_of(factor)
        if self.per_fit and vectors.ndim > 3:  # there are axes between the fits and the entries
            factor = xp.reshape(factor, (factor.shape[0], *[1] * (vectors.ndim - 3), *factor.shape[1:]))
        return vectors @ (xp.matrix_transpose(factor) if transposed else factor)

    def to_features(self, coef):
        """Coefficients of x from coefficients of z."""
        return self._apply(coef, self.basis, transposed=True)

    def from_features(self, gradient):
        """Gradient in coefficients of z from the gradient in coefficients of x; also maps points x - center to z."""
        return self._apply(gradient, self.basis, transposed=False)

    def to_points(self, points):
        """`x - center` from z."""
        return self._apply(points, self.inverse, transposed=True)

    def along(self, kept) -> Callable:
        """A function from points `x - center` to a subset of their coordinates; for a single map only."""
        if self.basis.ndim == 1:
            return lambda points: points[:, kept] * self.basis[kept]
        basis = self.basis[:, kept]
        return lambda points: points @ basis

    def raised(self, power, empty=EMPTY) -> Coordinates:
        """Directions divided by their spectrum to a power (1/2 is whitening), without the empty ones.

        A penalty keeps coefficients along empty directions at zero, but once divided by their spectrum they would
        count as much as the others. For a single map with a full basis only.
        """
        largest = self.spectrum.max()
        if largest == 0:  # all samples are equal: zero directions keep the shapes
            return self
        keep = self.spectrum > (SMALLEST_EIGENVALUE if power else empty) * largest
        factor = self.spectrum[keep] ** power
        return Coordinates(
            self.basis[:, keep] / factor, self.inverse[:, keep] * factor, self.spectrum[keep] / factor**2
        )


@dataclass(frozen=True)
class TurnedCoordinates:
    """Coordinates per fit, factored into a frame that all fits share and a turn: `z = frame coordinates @ turn`.

    turns, returns : (n_fits, rank, rank), a turn and its transposed inverse: `frame coordinates = z @ return.T`
    spectrum : estimated mean square of each coordinate, the same for all fits, (n_fits, rank)
    basis : product of frame and turn, (n_fits, n_features, rank), once `merged`
    """

    frame: Coordinates
    turns: np.ndarray
    returns: np.ndarray
    spectrum: np.ndarray
    basis: np.ndarray | None = None
    per_fit = True

    @property
    def rank(self) -> int:
        return self.spectrum.shape[-1]

    def merged(self) -> TurnedCoordinates:
        """The same map as one matrix per fit, for samples stored in features rather than in frame coordinates."""
        return replace(self, basis=_times(self.frame.basis, self.turns))

    def on(self, place: Place) -> Coordinates | TurnedCoordinates:
        """On the host the same map; on a device one matrix per fit."""
        if place.is_host:
            return self
        return Coordinates(_times(self.frame.basis, self.turns), self.inverse, self.spectrum, per_fit=True).on(place)

    @property
    def inverse(self) -> np.ndarray:
        return _times(self.frame.inverse, self.returns)

    def of_fits(self, fits) -> TurnedCoordinates:
        selected = fits if isinstance(fits, slice) else as_slice(np.asarray(fits))
        basis = None if self.basis is None else self.basis[selected]
        return TurnedCoordinates(
            self.frame, self.turns[selected], self.returns[selected], self.spectrum[selected], basis
        )

    def to_features(self, coef):
        if self.basis is not None:
            return coef @ np.swapaxes(self.basis, 1, 2)
        return self.frame.to_features(self.to_frame(coef))

    def from_features(self, gradient):
        if self.basis is not None:
            return gradient @ self.basis
        return self.from_frame(self.frame.from_features(gradient))

    def to_points(self, points):
        return self.frame.to_points(points @ np.swapaxes(self.returns, 1, 2))

    def to_frame(self, coef):
        """Coefficients of the frame coordinates from coefficients of z."""
        return coef @ np.swapaxes(self.turns, 1, 2)

    def from_frame(self, gradient):
        """Gradient in coefficients of z from the gradient in coefficients of the frame coordinates."""
        return gradient @ self.turns


def _times(matrix, stack):
    return matrix[:, None] * stack if matrix.ndim == 1 else matrix @ stack


def diagonal_coordinates(scale, variance) -> Coordinates:
    return Coordinates(basis=1 / scale, inverse=scale, spectrum=variance / scale**2)


def principal_coordinates(design: Design, scale, power: float = 0.0) -> Coordinates:
    """Eigenbasis of the covariance of `(x - center) / scale`, each direction divided by its variance to a power.

    A power of 1/2 whitens. Empty directions are dropped. With power 0, the scaled features themselves are the
    coordinates if they are too many for an eigendecomposition or if their variances differ too widely.
    """
    if power == 0 and not has_affordable_rotation(design):
        return diagonal_coordinates(scale, design.column_variance())
    covariance = design.covariance() / np.outer(scale, scale)
    is_constant = np.sqrt(np.diag(covariance)) * scale <= CONSTANT * np.abs(design.center)
    covariance[is_constant] = covariance[:, is_constant] = 0.0
    if power == 0 and not _are_alike(np.diag(covariance)):
        return diagonal_coordinates(scale, design.column_variance())
    eigenvalues, vectors = design.eigh(covariance)
    rotated = Coordinates(vectors / scale[:, None], vectors * scale[:, None], np.maximum(eigenvalues, 0))
    if power or not design.multiplies_in_double:
        return rotated.raised(power, SMALLEST_EIGENVALUE)
    return _with_recomputed_variances(design, rotated, is_constant).raised(power)


def _with_recomputed_variances(design: Design, rotated: Coordinates, is_constant) -> Coordinates:
    """Recompute the variances that were lost to rounding, from the samples projected onto their directions.

    Rounding errors of the largest variance exceed a small one if all features, or an outlying sample, are far from the
    centre. Constant features contribute zero.
    """
    is_lost = rotated.spectrum <= SMALLEST_VARIANCE * rotated.spectrum.max()
    if not is_lost.any():
        return rotated
    lost = np.where(is_constant[:, None], 0.0, rotated.basis[:, is_lost])

    def kernel(block):
        rows = block.product(lost.T[None])[:, 0, :]
        return ((rows.T * block.weight[:, 0]) @ rows,)

    (moment,) = design.sum_rows(kernel, slice(0, 1))
    variances, turn = np.linalg.eigh(moment)
    basis, inverse, spectrum = rotated.basis.copy(), rotated.inverse.copy(), rotated.spectrum.copy()
    basis[:, is_lost], inverse[:, is_lost] = lost @ turn, inverse[:, is_lost] @ turn
    spectrum[is_lost] = np.maximum(variances, 0)
    return Coordinates(basis, inverse, spectrum)


def _are_alike(variances) -> bool:
    """Whether an eigenbasis of features with these variances keeps digits of the smallest."""
    return bool(variances[variances > 0].min(initial=np.inf) >= SMALLEST_VARIANCE * variances.max())


def coordinates_of_fits(design: Design, power: float, is_centered: bool) -> Coordinates:
    """Principal coordinates of each fit, divided by their variance in that fit to a power; zero where it has none.

    The variances of a fold must not use its held-out samples. If features outnumber samples, dividing by variances to
    which a held-out sample contributed would move that sample away from all others, so that the fold could not
    predict it. All fits are rotated back to the axes of the final fit, so that their coordinates are comparable.
    """
    moments = np.stack([(fit.rows.T * fit.weight) @ fit.rows for fit in rows_of_fits(design, is_centered)])
    _, frame = design.eigh(moments[0].copy())
    variances, vectors = np.linalg.eigh(frame.T @ moments @ frame)
    is_kept = variances > SMALLEST_EIGENVALUE * variances[:, -1:]
    raised = np.where(is_kept, np.where(is_kept, variances, 1.0) ** power, 0.0)
    lowered = np.divide(1, raised, out=np.zeros_like(raised), where=is_kept)
    turned = frame @ vectors
    back = np.swapaxes(vectors, 1, 2)
    spectrum = np.einsum("fij,fj->fi", vectors**2, variances * lowered**2)
    return Coordinates((turned * lowered[:, None]) @ back, (turned * raised[:, None]) @ back, spectrum, per_fit=True)


class RowsOfFit(NamedTuple):
    """Samples of one fit: the mask of those with more than negligible weight, these samples relative to the centre or
    to their own mean, and their weights, normalized to sum to one.
    """

    is_seen: np.ndarray
    rows: np.ndarray
    weight: np.ndarray


def rows_of_fits(design: Design, is_centered: bool):
    """Yield `RowsOfFit` of each fit, in float64 on the host; for few samples."""
    rows, weights = (to_host(array).astype(np.float64) for array in (design.X, design.weight))
    rows -= design.center
    for weight in weights.T:
        is_seen = weight > LIGHTEST * weight.max()
        kept, weight = rows[is_seen], weight[is_seen] / weight[is_seen].sum()
        yield RowsOfFit(is_seen, kept - weight @ kept if is_centered else kept, weight)


def has_affordable_rotation(design: Design) -> bool:
    """Whether the eigendecomposition of the features' covariance costs less than it saves."""
    is_tall = not sparse.issparse(design.X) and design.n_rows >= design.n_features
    return design.n_features <= (WIDEST_ROTATION if is_tall else WIDEST_EIGENPROBLEM)


@dataclass(frozen=True)
class RowSpan:
    """Samples expressed in an orthonormal basis of their span: exact, and small if features outnumber samples.

    rows : the samples in span coordinates, (n_rows, rank)
    row_weights : the basis as combinations of the scaled samples, (n_rows, rank)
    """

    original: Design
    scale: np.ndarray
    row_weights: np.ndarray
    rows: np.ndarray

    def expand_coef(self, coef):
        """Coefficients of `x - center` from coefficients in the span, (..., rank) -> (..., n_features)."""
        combined = self._combine(coef)
        combined /= self.scale**2
        return combined

    def expand_points(self, points):
        """Points `x - center` from span coordinates."""
        return self._combine(points)

    def project(self, offset):
        """Span coordinates of the point `x - center = offset`."""
        return self.original.product((offset / self.scale**2)[None, None])[:, 0, 0] @ self.row_weights

    def project_stack(self, points):
        """Span coordinates of points `x - center`, (n_fits, n_classes, n_features) -> (n_fits, n_classes, rank)."""
        return np.einsum("nsc,nr->scr", self.original.product(points / self.scale**2), self.row_weights)

    def _combine(self, vectors):
        vectors = to_host(vectors)
        flat = vectors.reshape(-1, vectors.shape[-1]) @ self.row_weights.T
        return self.original.combine_rows(flat).reshape(*vectors.shape[:-1], -1)


def row_span(design: Design, scale) -> RowSpan:
    """Span of the centred samples divided by `scale`, from their n_rows x n_rows Gram matrix.

    The basis consists of the principal axes under the final fit's weights. Samples without weight there, and hence in
    every other fit, get the coordinates of the centre, zero.
    """
    root = _roots_of_weights(to_host(design.weight[:, 0]))
    eigenvalues, vectors = linalg.eigh(design.row_gram(1 / scale) * np.outer(root, root))
    keep = eigenvalues > SMALLEST_EIGENVALUE * max(eigenvalues[-1], np.finfo(float).tiny)
    lengths = np.sqrt(eigenvalues[keep])
    vectors = vectors[:, keep]
    if not keep.any():  # all samples are equal: one zero direction keeps the shapes
        vectors, lengths = np.zeros((design.n_rows, 1)), np.ones(1)
    rows = np.divide(vectors * lengths, root[:, None], out=np.zeros_like(vectors), where=root[:, None] > 0)
    return RowSpan(design, scale, root[:, None] * vectors / lengths, rows)


def _roots_of_weights(weight):
    """Square roots of relative weights, bounded below so that one can divide by them; zeros stay zero."""
    return np.where(weight > 0, np.sqrt(np.maximum(weight / weight.max(), ROUNDING)), 0.0)
