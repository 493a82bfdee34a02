"""Products of pairs of columns, `x_i x_j` with i >= j: the "squared" corpora of the paper."""

from __future__ import annotations

from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from annealed.estimators.mixins import forget_last_fit
from annealed.estimators.types import FloatArray
from annealed.estimators.validation import host_rows


class SecondOrderFeatures(TransformerMixin, BaseEstimator):
    """Products ``x_i x_j`` of all pairs of columns, i >= j, or of neighbouring pixels only.

    Sparse rows stay sparse. A linear model of these features has quadratic class boundaries.

    Parameters
    ----------
    neighborhood : float, default=None
        None multiplies every pair. A number takes the columns as pixels of an image, row by row, and multiplies those
        at most this far apart, in pixels; 0 gives squares alone.
    image_shape : (int, int), default=None
        Height and width of the image; None is a square one.

    Attributes
    ----------
    pairs_ : ndarray of shape (n_pairs, 2)
        Columns (i, j) of each product.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Examples
    --------
    >>> import numpy as np
    >>> from annealed import SecondOrderFeatures
    >>> SecondOrderFeatures().fit_transform(np.array([[2.0, 3.0]]))
    array([[4., 6., 9.]])
    """

    pairs_: NDArray[np.integer[Any]]
    n_features_in_: int
    feature_names_in_: NDArray[Any]

    def __init__(self, neighborhood: float | None = None, *, image_shape: tuple[int, int] | None = None) -> None:
        self.neighborhood = neighborhood
        self.image_shape = image_shape

    def fit(self, X, y=None) -> Self:
        """Find the pairs."""
        forget_last_fit(self)
        X = host_rows(self, X)
        self.pairs_ = _all_pairs(X.shape[1]) if self.neighborhood is None else self._near_pairs(X.shape[1])
        return self

    def _radius(self):
        if not isinstance(self.neighborhood, Real) or not float(self.neighborhood) >= 0:
            raise ValueError(f"neighborhood must be None or a number of at least 0. Got {self.neighborhood!r}.")
        return float(self.neighborhood)

    def _near_pairs(self, n_columns):
        """Pairs of neighbouring pixels, by the steps that lead from one to another: of a large image all are many."""
        height, width = self._checked_shape(n_columns)
        if height * width != n_columns:
            raise ValueError(
                f"image_shape must have as many pixels as X has columns, {n_columns}. Got {(height, width)}."
            )
        places, radius = np.arange(n_columns).reshape(height, width), self._radius() * (1 + 1e-12)
        of_steps = []
        for down, across in np.argwhere(_lengths(height, width) <= radius).tolist():
            for right in {across, -across} if down else {across}:
                later = places[down:, max(right, 0) : width + min(right, 0)].ravel()
                of_steps.append(np.column_stack([later, later - down * width - right]))
        pairs = np.concatenate(of_steps)
        return pairs[np.lexsort(pairs.T[::-1])]

    def _checked_shape(self, n_columns):
        if self.image_shape is None:
            return (round(np.sqrt(n_columns)),) * 2
        shape = np.asarray(self.image_shape)
        if shape.shape != (2,) or shape.dtype.kind not in "iu" or shape.min() < 1:
            raise ValueError(
                f"image_shape must be None or two positive integers, height and width. Got {self.image_shape!r}."
            )
        return tuple(shape.tolist())

    def __sklearn_is_fitted__(self):
        return hasattr(self, "pairs_")

    def transform(self, X) -> FloatArray:
        """Products of the pairs, (n_samples, n_pairs)."""
        check_is_fitted(self)
        X = host_rows(self, X, reset=False)
        if sparse.issparse(X):
            return self._sparse_products(X)
        first, second = self.pairs_.T
        return np.take(X, first, axis=1) * np.take(X, second, axis=1)  # row by row, as X[:, first] would not lie

    def _sparse_products(self, X):
        """Row by row, pairs of stored entries alone."""
        codes = self.pairs_[:, 0] * X.shape[1] + self.pairs_[:, 1]  # in ascending order
        X = X.copy()
        X.sum_duplicates()
        data, columns, lengths = [], [], []
        for start, stop in zip(X.indptr[:-1], X.indptr[1:], strict=True):
            own, values = X.indices[start:stop].astype(np.int64), X.data[start:stop]
            later, earlier = np.tril_indices(len(own))
            wanted = own[later] * X.shape[1] + own[earlier]
            place = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
            known = codes[place] == wanted
            columns.append(place[known])
            data.append((values[later] * values[earlier])[known])
            lengths.append(int(known.sum()))
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        index = sparse.get_index_dtype(maxval=max(int(indptr[-1]), len(self.pairs_)))  # scikit-learn wants 32 bits
        parts = (
            np.concatenate([np.empty(0, X.dtype), *data]),
            np.concatenate([np.empty(0, index), *(own.astype(index) for own in columns)]),
            indptr.astype(index),
        )
        made = sparse.csr_array if isinstance(X, sparse.sparray) else sparse.csr_matrix
        products = made(parts, shape=(X.shape[0], len(self.pairs_)))
        products.sort_indices()
        return products

    def get_feature_names_out(self, input_features=None):
        """Names such as "a b" and "a^2"."""
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        return np.array(
            [f"{names[i]}^2" if i == j else f"{names[j]} {names[i]}" for i, j in self.pairs_.tolist()], dtype=object
        )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _all_pairs(n_columns):
    """Columns (i, j), i >= j, in ascending order."""
    return np.column_stack(np.tril_indices(n_columns))


def _lengths(height, width):
    """Of the steps of so many pixels down, and so many to one side."""
    return np.hypot(np.arange(height)[:, None], np.arange(width))
