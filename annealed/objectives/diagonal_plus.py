"""Symmetric matrices that are diagonal but for a few factors: scatters and metrics of many columns.

    M = diag(a) + F' C F,    a (n,), F (r, n), C (r, r) symmetric, r much less than n

Along the principal axes of the rows their second moment is diagonal, and K prototypes take at most 2 K factors from it.
Products with M cost n r, and its inverse is of the same form (Woodbury):

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

    __array_ufunc__ = None  # `rows @ matrix` and `number * matrix` are ours

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
        """More factors."""
        n_own, n_all = len(self.core), len(self.core) + len(core)
        whole = np.zeros((n_all, n_all))
        whole[:n_own, :n_own], whole[n_own:, n_own:] = self.core, core
        return replace(self, factors=np.vstack([self.factors, factors]), core=whole)

    def with_diagonal(self, more) -> DiagonalPlus:
        """The matrix plus diag(more)."""
        return replace(self, diagonal=self.diagonal + more)

    def dense(self):
        return np.diag(self.diagonal) + self.factors.T @ self.core @ self.factors

    def dense_diagonal(self):
        """The entries on the diagonal."""
        return self.diagonal + (self.factors * (self.core @ self.factors)).sum(axis=0)

    def inner(self, other: DiagonalPlus) -> float:
        """Sum of the products of entries, the trace of the product."""
        crossed = self.factors @ other.factors.T
        low = np.sum((self.core @ crossed) * (crossed @ other.core))
        mixed = (self.dense_diagonal() - self.diagonal) @ other.diagonal
        return float(low + mixed + self.diagonal @ other.dense_diagonal())

    def inverse(self) -> tuple[DiagonalPlus, float]:
        """The inverse and its log det; the matrix must be positive definite."""
        scaled = self.factors / self.diagonal
        capacity = np.eye(len(self.core)) + self.core @ (scaled @ self.factors.T)
        core = -np.linalg.solve(capacity, self.core)
        log_det = np.log(self.diagonal).sum() + np.linalg.slogdet(capacity)[1]
        return DiagonalPlus(1 / self.diagonal, scaled, (core + core.T) / 2), -float(log_det)


def inner(first, second) -> float:
    """Sum of the products of entries of two symmetric matrices of any form."""
    if isinstance(first, DiagonalPlus) and isinstance(second, DiagonalPlus):
        return first.inner(second)
    return float(np.vdot(dense(first), dense(second)))


def dense(matrix):
    return matrix.dense() if isinstance(matrix, DiagonalPlus) else matrix


def diagonal(matrix):
    return matrix.dense_diagonal() if isinstance(matrix, DiagonalPlus) else matrix.diagonal()
