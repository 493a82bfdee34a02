"""The projection of MELDA: its coordinates, and the posterior in them."""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from annealed.arrays import Place, is_dispatched, is_foreign, to_host
from annealed.estimators.discriminant_axes import Directions, class_weights_of, inverse_of
from annealed.estimators.on_device import check_foreign, check_same_library
from annealed.estimators.types import FloatArray
from annealed.estimators.validation import DTYPES, checked_rows
from annealed.problems.linear import scores_of_rows

COORDINATES = ("whitened", "paper", "orthonormal")
SMALLEST_SHIFT = 1e-8  # relative spread of the means along an axis, below which a shift along it changes no prior


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


class MELDAProjectionMixin(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """The kept directions of MELDA, in the coordinates that were asked for."""

    n_components: int | None
    coordinates: str
    reference_class: Any
    scalings_: FloatArray
    offset_: FloatArray
    explained_information_: FloatArray
    explained_information_ratio_: FloatArray

    def _checked_components(self, n_classes, n_features):
        most = n_classes - 1 if self.coordinates == "paper" else min(n_classes - 1, n_features)
        if self.n_components is None:
            return most
        if not isinstance(self.n_components, Integral) or not 1 <= int(self.n_components) <= most:
            raise ValueError(
                f"n_components must be an integer from 1 to min(n_classes - 1, n_features) = {most}. "
                f"Got {self.n_components!r}."
            )
        if self.coordinates == "paper" and self.n_components < n_classes - 1:
            raise ValueError(
                f'n_components must be None or {most} with coordinates="paper", whose directions are not ordered. '
                f'Got {self.n_components!r}. Set coordinates="whitened" or "orthonormal".'
            )
        return int(self.n_components)

    def _set_paper(self, coef, intercept, directions: Directions, reference):
        """Set the differences lambda_k - lambda_reference, as printed; loadings are unit vectors and a zero vector."""
        n_classes = len(coef)
        self.scalings_ = np.delete(coef - coef[reference], reference, axis=0).T
        self.offset_ = np.zeros(n_classes - 1)
        self._loadings, self._bias = np.delete(np.eye(n_classes), reference, axis=1), intercept
        self._center = np.delete(directions.score_mean - directions.score_mean[reference], reference)

    def _reference(self, classes):
        if self.reference_class is None:
            return 0
        is_scalar = np.ndim(self.reference_class) == 0  # a list would be compared element by element
        found = np.flatnonzero(is_scalar and classes == self.reference_class)
        if not len(found):
            raise ValueError(
                f"reference_class must be a class of y. Got {self.reference_class!r}, known: {classes[:20].tolist()}."
            )
        return int(found[0])

    def _set_ordered(self, coef, intercept, directions: Directions, n_components):
        """Set the leading whitened directions, or orthonormal ones with the same spans."""
        scalings, offset = leading_scalings(coef, directions, n_components)
        self._from_reported = np.eye(n_components)  # whitened coordinates from the reported ones
        if self.coordinates == "orthonormal" and scalings.any():
            basis, triangle = linalg.qr(scalings, mode="economic")
            sign = np.sign(np.diag(triangle)) + (np.diag(triangle) == 0)
            scalings, self._from_reported = basis * sign, (triangle * sign[:, None]).T
            offset = linalg.solve_triangular(self._from_reported, offset, lower=True)
        self.scalings_, self.offset_ = scalings, offset
        self._loadings = directions.loadings[:, :n_components] @ self._from_reported
        self._bias = intercept + directions.score_mean
        self._center = np.zeros(n_components)
        total = directions.information.sum()
        self.explained_information_ = directions.information[:n_components]
        self.explained_information_ratio_ = self.explained_information_ / (total if total > 0 else 1.0)

    def _set_reduced(self, classifier):
        """Set the logits to those of the kept directions."""
        loadings, bias = class_weights_of(classifier)
        self._loadings, self._bias = loadings @ self._from_reported, bias

    def transform(self, X) -> FloatArray:
        """Project samples to the kept directions.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        projected : ndarray of shape (n_samples, n_components)
        """
        check_is_fitted(self)
        return project(self._checked(X, "transform"), self.scalings_, self.offset_)

    def _checked(self, X, method):
        X = self._validated(X)
        check_same_library(X, self.scalings_, self, method)
        return X

    def _validated(self, X):
        if is_dispatched(X):
            return check_foreign(self, X, reset=False)
        return checked_rows(self, X, reset=False)

    def inverse_transform(self, X) -> FloatArray:
        """Find the samples of smallest norm with the given projections.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Projected samples.

        Returns
        -------
        samples : ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        X = check_array(X, dtype=Place.of(X).float_dtypes if is_dispatched(X) else DTYPES)
        if X.shape[1] != self._n_features_out:
            raise ValueError(f"X must have {self._n_features_out} columns, one for each component. Got {X.shape[1]}.")
        scalings = to_host(self.scalings_)
        is_independent = hasattr(self, "explained_information_") and scalings.any()  # the paper's may be dependent
        back = inverse_of(scalings) if is_independent else np.linalg.pinv(scalings)
        if is_foreign(X):
            place = Place.of(X)
            return (place.wide(X) + self.offset_) @ place.wide(back)
        return (X + self.offset_) @ back

    @property
    def _n_features_out(self):
        return self.scalings_.shape[1]

    def gaussian_model(self) -> GaussianModel:
        """Express the posterior as that of Gaussian classes with the identity as covariance (eq. 4 and 8).

        The posterior determines the means up to a common shift, which changes the priors. The shift is chosen such
        that the priors are as near as possible to the class frequencies; with ``n_classes - 1`` directions they are
        equal. In whitened coordinates the identity is also the covariance of the samples within classes. If the units
        of the coordinates differ by many orders of magnitude, the means are so far apart that precision is lost.

        Returns
        -------
        model : GaussianModel
        """
        check_is_fitted(self)
        loadings, bias, center = to_host(self._loadings), to_host(self._bias), to_host(self._center)
        about = loadings - loadings.mean(axis=0)
        means = about + center
        missing = to_host(self._log_share) - bias - 0.5 * np.sum(means**2, axis=1)
        means = means + np.linalg.lstsq(about, missing - missing.mean(), rcond=SMALLEST_SHIFT)[0]
        log_prior = bias + 0.5 * np.sum(means**2, axis=1)
        return GaussianModel(log_prior - np.logaddexp.reduce(log_prior), means, np.eye(means.shape[1]))

    def _logits_of(self, projected):
        """Logits of the posterior at projected points (..., n_components).

        The displays use them rather than `gaussian_model`, which may lose precision.
        """
        return projected @ to_host(self._loadings).T + to_host(self._bias)


def leading_scalings(coef, directions: Directions, n_components) -> tuple:
    """Scalings and offset of the leading directions, in whitened coordinates."""
    of_scores = directions.of_scores[:n_components]
    return (of_scores @ coef).T, of_scores @ directions.score_mean


def project(X, scalings, offset):
    if is_foreign(X):
        place = Place.of(X)
        return X @ place.row(scalings) - place.row(offset)
    return scores_of_rows(X, scalings.astype(X.dtype, copy=False), -offset.astype(X.dtype, copy=False))


def weights_in_features(classifier, scalings, offset):
    """Coefficients and intercepts in the features, of a classifier of the projection `X @ scalings - offset`."""
    coef, intercept, scalings, offset = (
        np.asarray(to_host(array), dtype=np.float64)
        for array in (classifier.coef_, classifier.intercept_, scalings, offset)
    )
    coef, intercept = coef @ scalings.T, intercept - coef @ offset
    if is_foreign(classifier.coef_):
        place = Place.of(classifier.coef_)
        return place.row(coef), place.row(intercept)
    dtype = classifier.coef_.dtype
    return coef.astype(dtype, copy=False), intercept.astype(dtype, copy=False)
