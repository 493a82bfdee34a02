"""Products with the Gram matrix of the samples, K = Z Z' with Z = (X - center) / scale.

A product is `Z @ (Z' @ V)`. For sparse X, both X and its transpose are stored as CSR with the columns sorted by how
many rows use them, which keeps the frequently used part of `Z' @ V` in cache. K itself is formed only for few dense
samples with more features than samples, when it is smaller than X.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, eigsh

from annealed.rows.base import Design

MOST_FORMED_ROWS = 2000  # dense samples, fewer than features, for which K is formed


class RowProducts:
    """K of a design's samples. `image(V)` is K @ V; `combine(V)` is Z' @ V, (n_features, n_columns)."""

    def __init__(self, design: Design, scale):
        self.design, self.scale, self.n_rows = design, scale, design.n_rows
        self._formed = self._rows = None
        if sparse.issparse(design.X):
            shift = design.center / scale
            self._columns = self._by_use(design.X).T.tocsr()
            self._rows = self._columns.T.tocsr()  # transposing twice sorts the indices
            self._center_basis = np.column_stack([design.X @ (shift / scale), np.ones(self.n_rows)])
            self._center_form = np.array([[0.0, 1.0], [1.0, -shift @ shift]])
        elif self.n_rows <= min(MOST_FORMED_ROWS, design.n_features):
            self._formed = design.row_gram(1 / scale)

    def _by_use(self, X):
        """Scaled rows without centring; the columns that most rows use come first."""
        n_uses = np.bincount(X.indices, minlength=X.shape[1])
        new_index = np.empty(X.shape[1], dtype=X.indices.dtype)
        new_index[np.argsort(-n_uses, kind="stable")] = np.arange(X.shape[1])
        return sparse.csr_array((X.data / self.scale[X.indices], new_index[X.indices], X.indptr), shape=X.shape)

    def image(self, vectors):
        if self._formed is not None:
            return self._formed @ vectors
        if self._rows is None:
            return self.design.product((self.combine(vectors).T / self.scale)[None])[:, 0]
        product = self._rows @ (self._columns @ vectors)
        # Centring is a correction of rank two by vectors with one entry per sample.
        return product - self._center_basis @ (self._center_form @ (self._center_basis.T @ vectors))

    def combine(self, vectors):
        return self.design.combine_rows(vectors.T).T / self.scale[:, None]

    def diagonal(self):
        """Squared norm of each row of Z."""
        return np.concatenate(list(self.design.map_blocks(lambda block: block.row_squares(1 / self.scale))))

    def leading(self, n_vectors):
        """Approximate leading eigenvalues of K with eigenvectors (n_rows, n_vectors), at most as many as its rank."""
        operator = LinearOperator(
            (self.n_rows, self.n_rows), lambda vector: self.image(vector.reshape(-1, 1))[:, 0], dtype=np.float64
        )
        start = np.random.RandomState(0).standard_normal(self.n_rows)
        eigenvalues, eigenvectors = eigsh(operator, k=n_vectors, tol=1e-2, v0=start)
        is_real = eigenvalues > np.sqrt(np.finfo(float).eps) * eigenvalues[-1]  # smaller ones may be rounding errors
        return eigenvalues[is_real], eigenvectors[:, is_real]
