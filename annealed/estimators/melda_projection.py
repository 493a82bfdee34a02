"""The projection of MELDA: its coordinates, and the posterior in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral
from typing import NamedTuple

import numpy as np
from scipy import linalg

from annealed.arrays import ROUNDING, Place, is_foreign
from annealed.estimators.discriminant_axes import Directions, class_weights_of, directions_of, score_moments
from annealed.estimators.predictions import finite_in, logits_of_classes
from annealed.problems.linear import scores_of_rows

COORDINATES = ("whitened", "paper", "orthonormal")
SMALLEST_SHIFT = float(np.sqrt(ROUNDING))  # relative spread of the means, below which a shift changes no prior


class GaussianModel(NamedTuple):
    """Gaussian classes with a shared covariance and a log-linear posterior (eq. 4), in the projected coordinates.

    Attributes
    ----------
    log_prior : ndarray of shape (n_classes,)
        Logarithms of the priors.
    means : ndarray of shape (n_classes, n_components)
    covariance : ndarray of shape (n_components, n_components)
    """

    log_prior: np.ndarray
    means: np.ndarray
    covariance: np.ndarray

    @property
    def prior(self) -> np.ndarray:
        """Prior of each class; zero if it underflows."""
        return np.exp(self.log_prior)


@dataclass(frozen=True)
class Projection:
    """The kept directions, y = X @ scalings - offset, and the posterior in them, logits = bias + loadings @ y.

    center : mean of the projected samples
    log_share : logarithms of the class frequencies
    information : of each kept direction; None in the paper's coordinates
    total_information : of all directions
    to_whitened : whitened coordinates from these
    whitened : scalings and offset of the kept directions in whitened coordinates; None if all directions are kept
    """

    scalings: np.ndarray
    offset: np.ndarray
    loadings: np.ndarray
    bias: np.ndarray
    center: np.ndarray
    log_share: np.ndarray
    information: np.ndarray | None = None
    total_information: float = 0.0
    to_whitened: np.ndarray | None = None
    whitened: tuple[np.ndarray, np.ndarray] | None = None

    @classmethod
    def of(cls, classifier, X, labels, weight, coordinates, n_components, reference) -> Projection:
        """The projection of a log-linear classifier; labels are codes."""
        coef, intercept = class_weights_of(classifier)
        moments = score_moments(X, labels, weight, coef)
        directions, total = directions_of(moments, min(len(coef) - 1, X.shape[1])), moments.counts.sum()
        log_share = np.log(np.maximum(moments.counts / total, 0.5 / max(total, X.shape[0])))
        if coordinates == "paper":
            return cls._as_printed(coef, intercept, directions, log_share, reference)
        n_components = min(n_components, len(directions.information))
        return cls._ordered(coef, intercept, directions, log_share, n_components, coordinates == "orthonormal")

    @classmethod
    def _as_printed(cls, coef, intercept, directions: Directions, log_share, reference) -> Projection:
        """The differences lambda_k - lambda_reference of the paper; loadings are unit vectors and a zero vector."""
        n_classes, mean = len(coef), directions.score_mean
        return cls(
            scalings=np.delete(coef - coef[reference], reference, axis=0).T,
            offset=np.zeros(n_classes - 1),
            loadings=np.delete(np.eye(n_classes), reference, axis=1),
            bias=intercept,
            center=np.delete(mean - mean[reference], reference),
            log_share=log_share,
        )

    @classmethod
    def _ordered(cls, coef, intercept, directions: Directions, log_share, n_components, is_orthonormal) -> Projection:
        """The leading whitened directions, or orthonormal ones with the same spans."""
        of_scores = directions.of_scores[:n_components]
        whitened = scalings, offset = (of_scores @ coef).T, of_scores @ directions.score_mean
        to_whitened = np.eye(n_components)
        if is_orthonormal and scalings.any():
            basis, triangle = linalg.qr(scalings, mode="economic")
            sign = np.sign(np.diag(triangle)) + (np.diag(triangle) == 0)
            scalings, to_whitened = basis * sign, (triangle * sign[:, None]).T
            offset = linalg.solve_triangular(to_whitened, offset, lower=True)
        return cls(
            scalings=scalings,
            offset=offset,
            loadings=directions.loadings[:, :n_components] @ to_whitened,
            bias=intercept + directions.score_mean,
            center=np.zeros(n_components),
            log_share=log_share,
            information=directions.information[:n_components],
            total_information=float(directions.information.sum()),
            to_whitened=to_whitened,
            whitened=whitened if n_components < len(directions.information) else None,
        )

    def with_posterior_of(self, classifier) -> Projection:
        """The same directions with the posterior of a classifier of the whitened ones."""
        loadings, bias = class_weights_of(classifier)
        return replace(self, loadings=loadings @ self.to_whitened, bias=bias)

    def weights_of(self, classifier):
        """Coefficients and intercepts in the features, of a classifier of the whitened directions."""
        scalings, offset = self.whitened or (self.scalings, self.offset)
        loadings, bias = class_weights_of(classifier)
        coef, intercept = logits_of_classes(loadings @ scalings.T, bias - loadings @ offset)
        return _finite_like(classifier.coef_, classifier.temperature_, coef=coef, intercept=intercept).values()

    def check_range(self, X, temperature):
        """Refuse directions that the dtype of X cannot hold."""
        for scalings, offset in filter(None, [(self.scalings, self.offset), self.whitened]):
            _finite_like(X, temperature, scalings=scalings, offset=offset)

    def logits(self, projected):
        """Logits of the posterior at projected points (..., n_components).

        The displays use them rather than `gaussian_model`, which may lose precision.
        """
        return projected @ self.loadings.T + self.bias

    def inverse(self) -> np.ndarray:
        """Pseudo-inverse of the directions, (n_components, n_features), accurate for features in any units.

        QR with pivoting, of the rows in descending order, has rounding errors relative to each row. Those of a singular
        value decomposition are relative to the largest row; it is for the paper's directions, which may be dependent.
        """
        if self.information is None or not self.scalings.any():
            return np.linalg.pinv(self.scalings)
        order = np.argsort(-np.abs(self.scalings).max(axis=1), kind="stable")
        basis, triangle, pivots = linalg.qr(self.scalings[order], mode="economic", pivoting=True)
        inverse = np.empty(self.scalings.T.shape)
        inverse[np.ix_(pivots, order)] = linalg.solve_triangular(triangle, basis.T)
        return inverse

    def gaussian_model(self) -> GaussianModel:
        """The posterior as that of Gaussian classes."""
        about = self.loadings - self.loadings.mean(axis=0)
        means = about + self.center
        missing = self.log_share - self.bias - 0.5 * np.sum(means**2, axis=1)
        means = means + np.linalg.lstsq(about, missing - missing.mean(), rcond=SMALLEST_SHIFT)[0]
        log_prior = self.bias + 0.5 * np.sum(means**2, axis=1)
        return GaussianModel(log_prior - np.logaddexp.reduce(log_prior), means, np.eye(means.shape[1]))


def _finite_like(array, temperature, **arrays):
    """NumPy arrays in the library and the dtype of another array, which must hold their numbers."""
    if is_foreign(array):
        arrays = {name: Place.of(array).row(values) for name, values in arrays.items()}
    return finite_in(array.dtype, temperature, **arrays)


def project(X, scalings, offset):
    """`X @ scalings - offset`, in the library and the dtype of X."""
    if is_foreign(X):
        place = Place.of(X)
        return X @ place.row(scalings) - place.row(offset)
    return scores_of_rows(X, scalings.astype(X.dtype, copy=False), -offset.astype(X.dtype, copy=False))


def checked_coordinates(model, classes, n_features) -> tuple[int, int]:
    """The number of components, and the position of the reference class, that the parameters of a `MELDA` mean."""
    n_components, reference = model.n_components, model.reference_class
    most = len(classes) - 1 if model.coordinates == "paper" else min(len(classes) - 1, n_features)
    if n_components is None:
        n_components = most
    if not isinstance(n_components, Integral) or not 1 <= int(n_components) <= most:
        raise ValueError(
            f"n_components must be an integer from 1 to min(n_classes - 1, n_features) = {most}. Got {n_components!r}."
        )
    if model.coordinates == "paper" and n_components < most:
        raise ValueError(
            f'n_components must be None or {most} with coordinates="paper", whose directions are not ordered. '
            f'Got {n_components!r}. Set coordinates="whitened" or "orthonormal".'
        )
    is_scalar = np.ndim(reference) == 0  # a list would be compared element by element
    found = [0] if reference is None else np.flatnonzero(is_scalar and classes == reference)
    if not len(found):
        raise ValueError(f"reference_class must be a class of y. Got {reference!r}, known: {classes[:20].tolist()}.")
    return int(n_components), int(found[0])
