"""Products of pairs of features, `x_i x_j` with i >= j, which make the "squared" corpora of the MELDA paper."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from annealed.estimators.parameters import forget_last_fit
from annealed.estimators.samples import checked_on_host
from annealed.estimators.types import FloatArray
from annealed.problems.base import number_of


class SecondOrderFeatures(TransformerMixin, BaseEstimator):
    """Products ``x_i x_j`` of all pairs of features, i >= j, or of the pairs of neighbouring pixels.

    A linear classifier of these features has quadratic class boundaries. Sparse input gives sparse output.

    Parameters
    ----------
    neighborhood : float, default=None
        None multiplies all pairs. With a number, features are the pixels of an image, stored row by row, and pairs of
        pixels at most this far apart are multiplied. With 0 there are only squares.
    image_shape : (int, int), default=None
        Height and width of the image. None is a square image.

    Attributes
    ----------
    pairs_ : ndarray of shape (n_pairs, 2)
        Indices (i, j) of the features of each product.
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
        """Find the pairs of features to multiply.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : None
            Ignored.

        Returns
        -------
        self : object
        """
        forget_last_fit(self)
        X = checked_on_host(self, X)
        self.pairs_ = _all_pairs(X.shape[1]) if self.neighborhood is None else self._near_pairs(X.shape[1])
        return self

    def _radius(self):
        if not number_of(self.neighborhood) >= 0:
            raise ValueError(f"neighborhood must be None or a number of at least 0. Got {self.neighborhood!r}.")
        return number_of(self.neighborhood)

    def _near_pairs(self, n_columns):
        """Pairs of neighbouring pixels, found step by step, as all pairs of a large image would be too many."""
        height, width = self._checked_shape(n_columns)
        if height * width != n_columns:
            raise ValueError(
                f"image_shape must have as many pixels as X has features, {n_columns}. Got {(height, width)}."
            )
        pixels, radius = np.arange(n_columns).reshape(height, width), self._radius() * (1 + 1e-12)
        pairs_of_steps = []
        for down, across in np.argwhere(_lengths(height, width) <= radius).tolist():
            for right in {across, -across} if down else {across}:
                later = pixels[down:, max(right, 0) : width + min(right, 0)].ravel()
                pairs_of_steps.append(np.column_stack([later, later - down * width - right]))
        pairs = np.concatenate(pairs_of_steps)
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
        """Compute the products of the pairs.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        products : {ndarray, sparse matrix} of shape (n_samples, n_pairs)
        """
        check_is_fitted(self)
        X = checked_on_host(self, X, reset=False)
        with np.errstate(over="ignore", invalid="ignore"):
            products = self._sparse_products(X) if sparse.issparse(X) else self._dense_products(X)
            values = products.data if sparse.issparse(X) else products
            is_finite = np.isfinite(values.sum()) or np.isfinite(values).all()  # a sum of finite numbers may overflow
        if not is_finite:
            largest = np.abs(X.data if sparse.issparse(X) else X).max()
            raise ValueError(
                f"Products of features of X are infinite in {X.dtype}. Its largest absolute value is {largest:.3g}. "
                "Divide the features by their standard deviations, or convert X to float64."
            )
        return products

    def _dense_products(self, X):
        first, second = self.pairs_.T
        return np.take(X, first, axis=1) * np.take(X, second, axis=1)  # C-contiguous, unlike X[:, first]

    def _sparse_products(self, X):
        """Products of the stored entries of each row."""
        codes = self.pairs_[:, 0] * X.shape[1] + self.pairs_[:, 1]  # ascending
        X = X.copy()
        X.sum_duplicates()
        data, columns, lengths = [], [], []
        for start, stop in zip(X.indptr[:-1], X.indptr[1:], strict=True):
            stored, values = X.indices[start:stop].astype(np.int64), X.data[start:stop]
            later, earlier = np.tril_indices(len(stored))
            wanted = stored[later] * X.shape[1] + stored[earlier]
            position = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
            is_pair = codes[position] == wanted
            columns.append(position[is_pair])
            data.append((values[later] * values[earlier])[is_pair])
            lengths.append(int(is_pair.sum()))
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        index = sparse.get_index_dtype(
            maxval=max(int(indptr[-1]), len(self.pairs_))
        )  # scikit-learn needs 32 bits where they suffice
        parts = (
            np.concatenate([np.empty(0, X.dtype), *data]),
            np.concatenate([np.empty(0, index), *(part.astype(index) for part in columns)]),
            indptr.astype(index),
        )
        made = sparse.csr_array if isinstance(X, sparse.sparray) else sparse.csr_matrix
        products = made(parts, shape=(X.shape[0], len(self.pairs_)))
        products.sort_indices()
        return products

    def get_feature_names_out(self, input_features=None):
        """Get the names of the products, such as "a b" and "a^2".

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the features; None takes those seen in `fit`, or x0, x1, ...

        Returns
        -------
        names : ndarray of str
        """
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
    """All pairs (i, j) with i >= j, in ascending order."""
    return np.column_stack(np.tril_indices(n_columns))


def _lengths(height, width):
    """Lengths of all steps by so many pixels down and so many to one side, (height, width)."""
    return np.hypot(np.arange(height)[:, None], np.arange(width))
