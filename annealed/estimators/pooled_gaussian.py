"""One Gaussian for each class, with a pooled diagonal covariance: the classifier SG of the MELDA paper."""

from __future__ import annotations

from reprlib import repr as shown
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.sparsefuncs import mean_variance_axis
from sklearn.utils.validation import check_is_fitted

from annealed.estimators.parameters import forget_last_fit
from annealed.estimators.predictions import LogitsMixin, logits_of_classes
from annealed.estimators.samples import DTYPES, check_weight, checked_on_host, coded, weighted_classes
from annealed.estimators.types import FloatArray
from annealed.problems.base import number_of
from annealed.problems.linear import check_spread, scores_of_rows
from annealed.rows.base import even_slices
from annealed.rows.cost import BLOCK_BYTES

READ_IN_BLOCKS = (*DTYPES, np.float16, np.bool_, *map(np.dtype, "bBhHiIqQ"))  # X of other types is copied


class PooledGaussian(LogitsMixin, BaseEstimator):
    """Gaussian classes with a pooled diagonal covariance.

    Each class is a Gaussian with its own mean; all classes share the variance of each feature about the class means,
    and features are independent within a class. Class boundaries are therefore linear, and no matrix is inverted. It
    is LDA with a diagonal covariance, or Gaussian naive Bayes with pooled variances.

    Parameters
    ----------
    priors : {"equal", "empirical"} or array-like of shape (n_classes,), default="empirical"
        Prior of each class. "empirical" takes the class frequencies. A class whose samples all have weight 0 gets the
        prior 0, also with "equal".
    var_smoothing : float, default=1e-9
        Share of the largest variance of a feature that is added to all variances, as in
        :class:`sklearn.naive_bayes.GaussianNB`.

    Attributes
    ----------
    means_ : ndarray of shape (n_classes, n_features)
        Mean of each class.
    variance_ : ndarray of shape (n_features,)
        Pooled variance of each feature within classes, with the smoothing.
    class_prior_ : ndarray of shape (n_classes,)
        Prior of each class.
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Coefficients of the logits: ``decision_function(X)`` is ``X @ coef_.T + intercept_``.
    intercept_ : ndarray of shape (n_classes,) or (1,)
        Intercepts of the logits.
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from annealed import PooledGaussian
    >>> X, y = load_iris(return_X_y=True)
    >>> PooledGaussian().fit(X, y).predict(X[:2])
    array([0, 0])
    """

    classes_: NDArray[Any]
    means_: FloatArray
    variance_: FloatArray
    class_prior_: FloatArray
    coef_: FloatArray
    intercept_: FloatArray
    n_features_in_: int
    feature_names_in_: NDArray[Any]

    def __init__(
        self, *, priors: Literal["equal", "empirical"] | ArrayLike = "empirical", var_smoothing: float = 1e-9
    ) -> None:
        self.priors = priors
        self.var_smoothing = var_smoothing

    def fit(self, X, y, sample_weight=None) -> Self:
        """Estimate the class means and the variances of the features about them.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        self : object
        """
        smoothing = self._checked_smoothing()
        forget_last_fit(self)
        X, y = checked_on_host(self, X, y, dtypes=READ_IN_BLOCKS)
        classes, labels = coded(y)
        weight = check_weight(sample_weight, len(labels))
        weight = weight / weight.max()  # so that the sum of large ones is finite
        share = weight / weight.sum()
        counts = np.bincount(labels, share, len(classes))
        weighted_classes(counts, classes)  # raises if fewer than two classes have weight
        prior = self._checked_prior(counts, classes)
        membership = sparse.csc_array((share, (labels, np.arange(len(labels)))), shape=(len(counts), len(labels)))
        with np.errstate(over="ignore", invalid="ignore"):
            center, sums, squares = _moments(X, share, membership)
            means = sums / np.where(counts > 0, counts, 1)[:, None]
            variance = np.maximum(squares - counts @ means**2, 0)
            about_all = np.maximum(squares - (counts @ means) ** 2, 0)
        check_spread(np.sqrt(about_all), counts @ means + center)
        widest = np.max(about_all, initial=0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            variance = variance + (smoothing * widest if widest > 0 else 1.0)
            coef, _, log_prior = _scores(means, variance, prior)
            terms = coef * (0.5 * means + center)
            level = terms.sum(axis=1)
        is_finite = np.isfinite(terms).all(axis=0) & np.isfinite(variance)
        if not is_finite.all() or not np.isfinite(level).all():
            worst = int(np.argmax(np.where(is_finite, np.abs(terms).max(axis=0), np.inf)))
            raise ValueError(
                f"var_smoothing must be such that variances within classes are neither zero nor infinite. Got "
                f"{self.var_smoothing!r}, with which that of column {worst} of X is {variance[worst]:.3g}. Give a "
                "number nearer to 1e-9."
            )
        self.variance_, self.means_, self._center = variance, means + center, center
        self.classes_, self.class_prior_ = classes, prior
        self.coef_, self.intercept_ = logits_of_classes(coef, log_prior - level)
        return self

    def _checked_smoothing(self):
        if not 0 <= number_of(self.var_smoothing) < np.inf:
            raise ValueError(f"var_smoothing must be a finite number of at least 0. Got {self.var_smoothing!r}.")
        return float(self.var_smoothing)

    def _checked_prior(self, counts, classes):
        has_rows = counts > 0
        if isinstance(self.priors, str):
            if self.priors not in ("equal", "empirical"):
                raise ValueError(
                    f'priors must be "equal", "empirical" or one number for each class. Got {self.priors!r}.'
                )
            return counts if self.priors == "empirical" else has_rows / has_rows.sum()
        try:
            prior = np.asarray(self.priors, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f'priors must be "equal", "empirical" or one number for each class. Got {shown(self.priors)}.'
            ) from error
        if prior.shape != counts.shape or not (np.isfinite(prior) & (prior >= 0)).all() or not prior.any():
            raise ValueError(
                f"priors must hold one finite number of at least 0 for each of {len(counts)} classes, not 0 for all. "
                f"Got {prior!r}."
            )
        if (prior[~has_rows] > 0).any():
            empty = np.argmax(~has_rows & (prior > 0))
            raise ValueError(
                f"priors must be 0 for a class whose samples all have weight 0. Got {float(prior[empty])!r} for class "
                f"{classes.tolist()[empty]!r}. Give its samples a weight, or leave them out."
            )
        prior = prior / prior.max()  # so that the sum of large ones is finite
        return prior / prior.sum()

    def __sklearn_is_fitted__(self):
        return hasattr(self, "means_")

    def _logits(self, X, method):
        """Logits of the posterior, (n_samples, n_classes)."""
        check_is_fitted(self)
        X = checked_on_host(self, X, reset=False, dtypes=READ_IN_BLOCKS)
        coef, bias, log_prior = _scores(self.means_ - self._center, self.variance_, self.class_prior_)
        if sparse.issparse(X):
            return scores_of_rows(X, coef.T, bias - coef @ self._center) + log_prior
        # About the mean, to avoid cancellation.
        logits = np.empty((X.shape[0], len(coef)))
        for rows in _blocks(X):
            logits[rows] = scores_of_rows(X[rows] - self._center, coef.T, bias) + log_prior
        return logits

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _scores(means, variance, prior):
    """Coefficients and intercepts of the logits, given means about some point; the latter without log priors; these."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        coef = means / variance
        return coef, -0.5 * np.sum(coef * means, axis=1), np.log(prior)


def _blocks(X):
    """Consecutive rows of X whose copies stay small, because X may be a memory map."""
    return even_slices(0, X.shape[0], max(1, BLOCK_BYTES // (8 * X.shape[1])))


def _moments(X, share, membership):
    """Mean of all rows, and about it the weighted sums of the rows of each class and the mean squares of all rows."""
    if not sparse.issparse(X):
        center = np.zeros(X.shape[1])
        for rows in _blocks(X):
            center += share[rows] @ X[rows]
        sums, squares = np.zeros((membership.shape[0], X.shape[1])), np.zeros(X.shape[1])
        for rows in _blocks(X):
            near = X[rows] - center
            sums += membership[:, rows] @ near
            squares += share[rows] @ np.square(near, out=near)
        return center, sums, squares
    rows = X.astype(np.float64)
    rows.sum_duplicates()
    center, squares = mean_variance_axis(rows, axis=0, weights=share)
    return center, (membership @ rows).toarray() - membership.sum(axis=1)[:, None] * center, squares
