"""Coordinates in which a fit is solved: `z = (x - center) @ basis`, kept as factors beside X.

A solver sees coefficients of z; a design needs coefficients of x. Rotating the small parameters once a pass
does what rotating X would do, without the copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import linalg, sparse

from annealed.arrays import as_slice, to_host
from annealed.design.base import Design

WIDEST_EIGENPROBLEM = 1000  # beyond this many columns (or rows) a dense eigenbasis costs more than it saves
WIDEST_ROTATION = 5000  # and of dense rows that outnumber their columns: many passes over them pay for it
SMALLEST_EIGENVALUE = 1e-13  # relative: below it a direction is rounding noise of the Gram matrix
LEAST_ALIKE = 1e-10  # variance of a column beside the largest: less would be lost in the eigenbasis of both
EMPTY = 1e-26  # likewise of a direction with nothing in it, as where indicators of categories add up to one
EMPTY_EIGENVALUE = 1e-14  # and of one that is known by its eigenvalue alone, rounded as the largest is
LIGHTEST = 1e-7  # weight of a row beside the heaviest's, below which it gives a fit no direction
LEAST_WEIGHT = 1e-14  # beside the heaviest, that a row with any weight is taken for when a span is found
CONSTANT = 1e-13  # spread of a column beside its mean that is nothing but rounding


@dataclass(frozen=True)
class Coordinates:
    """A linear map of the features, one for all fits or one per fit.

    basis : (n_features,), (n_features, rank), or either with a leading axis of fits
    inverse : of the same form; maps a point z back to `x - center`
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
        own = fits if isinstance(fits, slice) else as_slice(np.asarray(fits))
        return Coordinates(self.basis[own], self.inverse[own], self.spectrum[own], True)

    @property
    def of_final(self) -> Coordinates:
        """The map of the final fit, as one for all."""
        return Coordinates(self.basis[0], self.inverse[0], self.spectrum[0]) if self.per_fit else self

    def _apply(self, vectors, factor, transposed):
        is_diagonal = factor.ndim == (2 if self.per_fit else 1)
        if is_diagonal:
            return vectors * (factor[:, None, :] if self.per_fit else factor)
        if self.per_fit:  # any axes between those of fits and of entries
            factor = factor.reshape(len(factor), *[1] * (vectors.ndim - 3), *factor.shape[1:])
        return vectors @ (np.swapaxes(factor, -1, -2) if transposed else factor)

    def to_features(self, coef):
        """Coefficients of x from coefficients of z."""
        return self._apply(coef, self.basis, transposed=True)

    def from_features(self, gradient):
        """Gradient in z-coefficients from the gradient in x-coefficients; also maps points x - center to z."""
        return self._apply(gradient, self.basis, transposed=False)

    def to_points(self, points):
        """`x - center` from z."""
        return self._apply(points, self.inverse, transposed=True)

    def along(self, kept) -> Callable:
        """A function from points `x - center` to some of their coordinates; for one map of all fits."""
        if self.basis.ndim == 1:
            return lambda points: points[:, kept] * self.basis[kept]
        basis = self.basis[:, kept]
        return lambda points: points @ basis

    def raised(self, power, empty=EMPTY) -> Coordinates:
        """Directions divided by their spectrum to a power: with 1/2 each has mean square one; empty ones are dropped.
        A penalty keeps coefficients there at zero, but divided by their spectrum they would count as others do.

        For one map of full matrices.
        """
        largest = self.spectrum.max()
        if largest == 0:  # every row is the same: directions of zeros keep the shapes
            return self
        keep = self.spectrum > (SMALLEST_EIGENVALUE if power else empty) * largest
        factor = self.spectrum[keep] ** power
        return Coordinates(
            self.basis[:, keep] / factor, self.inverse[:, keep] * factor, self.spectrum[keep] / factor**2
        )


@dataclass(frozen=True)
class TurnedCoordinates:
    """Coordinates of each fit, seen from a frame that all fits share: `z = frame coordinates @ turn`.

    turns, returns : (n_fits, rank, rank); a return takes a point back, `frame coordinates = z @ return.T`
    spectrum : as good a guess of the mean square of each coordinate as all fits have, (n_fits, rank)
    basis : frame and turn in one, (n_fits, n_features, rank), where these were `merged`
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
        """The same in one step where rows are seen as they lie, not from the frame."""
        return replace(self, basis=_times(self.frame.basis, self.turns))

    @property
    def inverse(self) -> np.ndarray:
        return _times(self.frame.inverse, self.returns)

    def of_fits(self, fits) -> TurnedCoordinates:
        own = fits if isinstance(fits, slice) else as_slice(np.asarray(fits))
        basis = None if self.basis is None else self.basis[own]
        return TurnedCoordinates(self.frame, self.turns[own], self.returns[own], self.spectrum[own], basis)

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
        """Coefficients of the frame's coordinates from those of z."""
        return coef @ np.swapaxes(self.turns, 1, 2)

    def from_frame(self, gradient):
        """Gradient in z-coefficients from the gradient in those of the frame."""
        return gradient @ self.turns


def _times(matrix, stack):
    return matrix[:, None] * stack if matrix.ndim == 1 else matrix @ stack


def diagonal_coordinates(scale, variance) -> Coordinates:
    return Coordinates(basis=1 / scale, inverse=scale, spectrum=variance / scale**2)


def principal_coordinates(design: Design, scale, power: float = 0.0) -> Coordinates:
    """Eigenbasis of the covariance of `(x - center) / scale`, each direction that is not empty divided by its variance
    to a power.

    With a power of 1/2 every direction has variance one. Too wide for that, or of sizes too unlike, the columns
    themselves are the coordinates.
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
        return rotated.raised(power, EMPTY_EIGENVALUE)
    return _with_drowned(design, rotated, is_constant).raised(power)


def _with_drowned(design: Design, rotated: Coordinates, is_constant) -> Coordinates:
    """Variances that are lost in rounding of the largest, where all columns or an outlying row lie far from the centre,
    found again from what rows have in their directions alone; constant columns have nothing there.
    """
    is_lost = rotated.spectrum <= LEAST_ALIKE * rotated.spectrum.max()
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
    """Whether rounding of the largest leaves the digits of all, in an eigenbasis of them."""
    return bool(variances[variances > 0].min(initial=np.inf) >= LEAST_ALIKE * variances.max())


def coordinates_of_fits(design: Design, power: float, is_centered: bool) -> Coordinates:
    """Each fit's own directions, divided by their variance in that fit to a power; those it has no rows in are zero.

    Rows that a fold leaves out must not tell how far they lie from the others: where columns outnumber rows, directions
    divided by a variance that a left-out row had a part in set it apart from all rows, and a fold knows nothing of it.
    All are turned as the final fit's, so that coordinates of different fits mean much the same.
    """
    moments = np.stack([(own.rows.T * own.weight) @ own.rows for own in rows_of_fits(design, is_centered)])
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
    """What a fit sees: which rows, all but those of next to no weight, these about the centre or their own mean, and
    their weights, whose sum is one.
    """

    is_seen: np.ndarray
    rows: np.ndarray
    weight: np.ndarray


def rows_of_fits(design: Design, is_centered: bool):
    """Of each fit in turn, for few rows: they come in double precision from wherever they are."""
    rows, weights = (to_host(own).astype(np.float64) for own in (design.X, design.weight))
    rows -= design.center
    for weight in weights.T:
        is_seen = weight > LIGHTEST * weight.max()
        own, weight = rows[is_seen], weight[is_seen] / weight[is_seen].sum()
        yield RowsOfFit(is_seen, own - weight @ own if is_centered else own, weight)


def has_affordable_rotation(design: Design) -> bool:
    """Whether the eigenbasis of the columns costs less than it saves."""
    is_tall = not sparse.issparse(design.X) and design.n_rows >= design.n_features
    return design.n_features <= (WIDEST_ROTATION if is_tall else WIDEST_EIGENPROBLEM)


@dataclass(frozen=True)
class RowSpan:
    """Rows written in an orthonormal basis of their own span: exact, and small when columns outnumber rows.

    rows : the rows in span coordinates, (n_rows, rank)
    row_weights : the basis as combinations of the scaled rows, (n_rows, rank)
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

    def _combine(self, vectors):
        flat = vectors.reshape(-1, vectors.shape[-1]) @ self.row_weights.T
        return self.original.combine_rows(flat).reshape(*vectors.shape[:-1], -1)


def row_span(design: Design, scale) -> RowSpan:
    """Span of the centred rows divided by `scale`, from the n_rows x n_rows Gram matrix, along their principal axes as
    the final fit weighs them. Rows of weight zero, which no other fit weighs either, are seen at the centre.
    """
    root = _roots_of_weights(to_host(design.weight[:, 0]))
    eigenvalues, vectors = linalg.eigh(design.row_gram(1 / scale) * np.outer(root, root))
    keep = eigenvalues > SMALLEST_EIGENVALUE * max(eigenvalues[-1], np.finfo(float).tiny)
    lengths = np.sqrt(eigenvalues[keep])
    vectors = vectors[:, keep]
    if not keep.any():  # every row is the same: one direction of zeros keeps the shapes
        vectors, lengths = np.zeros((design.n_rows, 1)), np.ones(1)
    rows = np.divide(vectors * lengths, root[:, None], out=np.zeros_like(vectors), where=root[:, None] > 0)
    return RowSpan(design, scale, root[:, None] * vectors / lengths, rows)


def _roots_of_weights(weight):
    """Square roots of weights beside the heaviest, none so small that it could not be divided by; zeros stay."""
    return np.where(weight > 0, np.sqrt(np.maximum(weight / weight.max(), LEAST_WEIGHT)), 0.0)
