"""The state of the annealing, and its symmetric matrices: dense, or diagonal plus low-rank if there are many columns.

    M = diag(a) + F' C F,    a (n,), F (r, n), C (r, r) symmetric, r much less than n

Along the principal axes of the rows their second moment is diagonal, and K prototypes change it by a matrix of rank
at most K. A product of M with a vector costs O(n r), and by the Woodbury identity the inverse has the same form:

    M^-1 = diag(1/a) - diag(1/a) F' (I + C G)^-1 C F diag(1/a),    G = F diag(1/a) F'
    log det M = sum log a + log det (I + C G)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg
from scipy.linalg import lapack

CONVERGED = 1e-5  # decrease of the free energy or loss per row by a step, below which it has converged
SINGLE_ROUNDING = float(np.finfo(np.float32).eps)  # relative: what is smaller is rounding, if the search is in float32

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


def inner(first: Symmetric, second: Symmetric) -> float:
    """Frobenius inner product of two matrices."""
    if isinstance(first, DiagonalPlus) and isinstance(second, DiagonalPlus):
        return first.inner(second)
    return float(np.vdot(dense(first), dense(second)))


def dense(matrix: Symmetric):
    return matrix.dense() if isinstance(matrix, DiagonalPlus) else matrix


def diagonal(matrix: Symmetric):
    return matrix.dense_diagonal() if isinstance(matrix, DiagonalPlus) else matrix.diagonal()


def plus(matrix: Symmetric, factors, weights) -> Symmetric:
    """The matrix plus sum_k weights_k factors_k factors_k'."""
    if isinstance(matrix, DiagonalPlus):
        return matrix.plus(factors, np.diag(weights))
    return matrix + (factors.T * weights) @ factors


def shrunk_inverse(matrix: Symmetric, strength, variance, smallest) -> tuple[Symmetric, float]:
    """Inverse and log det of `(matrix + strength variance I) / (1 + strength)`, eigenvalues floored."""
    is_bounded = strength / (1 + strength) * variance > smallest  # the identity alone keeps them above the floor
    if isinstance(matrix, DiagonalPlus) and is_bounded:
        raised = replace(matrix, diagonal=matrix.diagonal + strength * variance)
        return (1 / (1 + strength) * raised).inverse()
    shrunk = (dense(matrix) + strength * variance * np.eye(len(matrix))) / (1 + strength)
    shrunk = (shrunk + shrunk.T) / 2
    if is_bounded and (inverse_and_log_det := _inverse(shrunk, smallest)) is not None:
        return inverse_and_log_det
    values, vectors = symmetric_eigen(shrunk)
    values = np.maximum(values, smallest)
    return (vectors / values) @ vectors.T, -float(np.log(values).sum())


def _inverse(matrix, smallest):
    """The inverse and its log det by Cholesky; None if rounding may have put an eigenvalue below `smallest`.

    Every eigenvalue is at least 1 / trace(inverse), which is cheaper to check than the eigenvalues themselves.
    """
    root, failure = lapack.dpotrf(matrix, lower=1)
    if failure:
        return None
    inverse_root, _ = lapack.dtrtri(root, lower=1)
    inverse = inverse_root.T @ inverse_root
    if smallest * inverse.trace() > 1:
        return None
    return inverse, -2 * float(np.log(root.diagonal()).sum())


def symmetric_eigen(matrix):
    """Ascending eigenvalues, and eigenvectors; by the slower QR iteration if divide and conquer fails.

    LAPACK's divide and conquer, which NumPy calls, does not converge on some singular matrices, such as scatters of
    one-hot columns.
    """
    try:
        return np.linalg.eigh(matrix)
    except np.linalg.LinAlgError:
        return linalg.eigh(matrix, driver="ev")


# --- the state -----------------------------------------------------------------------------------------------


class MetricPrior(NamedTuple):
    """Shrinkage of W towards P = `variance` I; `strength` r is its weight in pseudo-rows per row."""

    strength: float
    variance: float


@dataclass(frozen=True)
class PottsState:
    """Prototypes, their soft labels, the metric, its log determinant, and the scatter W it was computed from."""

    prototypes: np.ndarray
    labels: np.ndarray
    metric: Symmetric
    log_det: float
    scatter: Symmetric

    def __len__(self):
        return len(self.prototypes)

    def take(self, kept) -> PottsState:
        return replace(self, prototypes=self.prototypes[kept], labels=self.labels[kept])


class Sums(NamedTuple):
    """Sums over the rows in one pass.

    class_counts : n_km, (K, n_classes)
    rows : sum of w_i D_ik x_i, (K, n_features)
    squares : sum of w_i D_ik^2
    log_partition : sum of w_i log sum_k exp(beta v_ik), with v_ik shifted by terms that are equal for all prototypes:
        without x_i' A x_i / 2, and with `label_leads` in place of the labels
    """

    class_counts: np.ndarray
    rows: np.ndarray
    squares: float
    log_partition: float


def directions_and_levels(prototypes, metric):
    """A y_k, (K, n_features), and -y_k' A y_k / 2, (K,): scores linear in x, which are -d2 / 2 plus x' A x / 2."""
    directions = prototypes @ metric
    return directions, -0.5 * (directions * prototypes).sum(axis=1)


def label_leads(labels):
    """Xi_km minus its largest value over prototypes: D is unchanged, and a strong coupling does not swamp distances."""
    return labels - labels.max(axis=0)
