"""Diagonal plus low-rank symmetric matrices: scatter and metric when there are many columns.

    M = diag(a) + F' C F,    a (n,), F (r, n), C (r, r) symmetric, r much less than n

Along the principal axes of the rows their second moment is diagonal, and K prototypes change it by a matrix of rank at
most 2 K. A product of M with a vector costs O(n r), and by the Woodbury identity the inverse has the same form:

    M^-1 = diag(1/a) - diag(1/a) F' (I + C G)^-1 C F diag(1/a),    G = F diag(1/a) F'
    log det M = sum log a + log det (I + C G)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Symmetric = Any  # an array (n, n), or DiagonalPlus


@dataclass(frozen=True)
class DiagonalPlus:
    """diag(`diagonal`) + `factors`' `core` `factors`."""

    diagonal: np.ndarray
    factors: np.ndarray
    core: np.ndarray

    __array_ufunc__ = None  # so that NumPy defers `rows @ matrix` and `number * matrix` to this class

    @classmethod
    def of_diagonal(cls, diagonal) -> DiagonalPlus:
        return cls(diagonal, np.zeros((0, len(diagonal))), np.zeros((0, 0)))

    def __len__(self):
        return len(self.diagonal)

    def __rmatmul__(self, rows):
        return rows * self.diagonal + (rows @ self.factors.T) @ self.core @ self.factors

    def __rmul__(self, number):
        return replace(self, diagonal=number * self.diagonal, core=number * self.core)

    def plus(self, factors, core) -> DiagonalPlus:
        """The matrix plus factors' core factors."""
        rank, new_rank = len(self.core), len(self.core) + len(core)
        new_core = np.zeros((new_rank, new_rank))
        new_core[:rank, :rank], new_core[rank:, rank:] = self.core, core
        return replace(self, factors=np.vstack([self.factors, factors]), core=new_core)

    def with_diagonal(self, more) -> DiagonalPlus:
        """The matrix plus diag(more)."""
        return replace(self, diagonal=self.diagonal + more)

    def dense(self):
        return np.diag(self.diagonal) + self.factors.T @ self.core @ self.factors

    def dense_diagonal(self):
        """The diagonal of the whole matrix, low-rank part included."""
        return self.diagonal + (self.factors * (self.core @ self.factors)).sum(axis=0)

    def inner(self, other: DiagonalPlus) -> float:
        """Frobenius inner product, the trace of the product."""
        crossed = self.factors @ other.factors.T
        low_rank = np.sum((self.core @ crossed) * (crossed @ other.core))
        mixed = (self.dense_diagonal() - self.diagonal) @ other.diagonal
        return float(low_rank + mixed + self.diagonal @ other.dense_diagonal())

    def inverse(self) -> tuple[DiagonalPlus, float]:
        """The inverse and its log det, by the Woodbury identity; the matrix must be positive definite."""
        scaled = self.factors / self.diagonal
        capacity = np.eye(len(self.core)) + self.core @ (scaled @ self.factors.T)
        core = -np.linalg.solve(capacity, self.core)
        log_det = np.log(self.diagonal).sum() + np.linalg.slogdet(capacity)[1]
        return DiagonalPlus(1 / self.diagonal, scaled, (core + core.T) / 2), -float(log_det)


def inner(first, second) -> float:
    """Frobenius inner product of two symmetric matrices, each an array or a `DiagonalPlus`."""
    if isinstance(first, DiagonalPlus) and isinstance(second, DiagonalPlus):
        return first.inner(second)
    return float(np.vdot(dense(first), dense(second)))


def dense(matrix):
    return matrix.dense() if isinstance(matrix, DiagonalPlus) else matrix


def diagonal(matrix):
    return matrix.dense_diagonal() if isinstance(matrix, DiagonalPlus) else matrix.diagonal()
