"""Features of a kernel: rows of any number become points whose inner products are the kernel of two rows.

    phi(x) = W' k(landmarks, x),    W W' = inverse of the kernel of the landmarks

If every row is a landmark, phi(x)'phi(z) = k(x, z) for all rows. With fewer it is Nystroem's approximation: phi(x) is
the part of x in the space of the kernel that lies in the span of the landmarks.
Shapes: rows (n_rows, n_features), landmarks (n_landmarks, n_features), W (n_landmarks, rank).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import linalg, sparse
from sklearn.metrics.pairwise import euclidean_distances, manhattan_distances

from annealed.arrays import HOST, Place, is_foreign, to_host
from annealed.problems.quadratic import FARTHEST
from annealed.rows.array_api import DEVICE_BLOCK_BYTES
from annealed.rows.base import even_slices
from annealed.rows.cost import BLOCK_BYTES

LEAST_EIGENVALUE = 1e-10  # relative: directions of the landmarks with less are rounding errors of the others
LARGEST_EIGENPROBLEM = 3000  # landmarks for which eigenvectors are computed; a Cholesky factor takes a tenth of it


@dataclass(frozen=True)
class Kernel:
    """A kernel of rows whose columns are centred and divided by their scales.

    name : "rbf", "laplacian", "polynomial", "precomputed" or a function of two arrays of scaled rows
    """

    name: str | Callable
    gamma: float = 1.0
    degree: int = 3

    def __call__(self, place: Place, rows, others):
        """The kernel of each row and each of the others, (n_rows, n_others), in float64."""
        if callable(self.name):
            return checked_kernel(self.name(rows, others), (rows.shape[0], others.shape[0]))
        if self.name == "polynomial":
            with np.errstate(over="ignore", invalid="ignore"):
                base, most = 1 + self.gamma * _product(rows, others), np.finfo(float).max ** (0.5 / self.degree)
                return (base if not place.is_host else np.clip(np.nan_to_num(base), -most, most)) ** self.degree
        distance = (_manhattan if self.name == "laplacian" else _squared)(place, rows, others)
        distance *= -self.gamma
        return np.exp(distance, out=distance) if place.is_host else place.xp.exp(distance)

    @property
    def is_bounded(self) -> bool:
        """Whether no entry is larger than one."""
        return self.name in ("rbf", "laplacian")

    def derivatives(self, rows, others, coef):
        """Derivatives of `self(rows, others) @ coef.T` by the scaled columns, (n_scores, n_rows, n_features)."""
        table, found = self(HOST, rows, others), []
        if self.name == "polynomial":
            table = self.gamma * self.degree * (1 + self.gamma * rows @ others.T) ** (self.degree - 1)
            return np.stack([(table * weights) @ others for weights in coef])
        for weights in coef:
            pulls = table * weights
            if self.name == "rbf":
                found.append(2 * self.gamma * (pulls @ others - pulls.sum(axis=1, keepdims=True) * rows))
                continue
            signs = (np.sign(rows[:, [column]] - others[:, column]) for column in range(rows.shape[1]))
            found.append(-self.gamma * np.stack([(pulls * sign).sum(axis=1) for sign in signs], axis=1))
        return np.stack(found)


def place_of(X) -> Place:
    return Place.of(X) if is_foreign(X) else HOST


def on_host(array):
    return to_host(array) if is_foreign(array) else array


def checked_kernel(table, shape):
    """The values of a user's kernel, if they are finite numbers of the right shape."""
    table = np.array(table, dtype=np.float64)
    if table.shape != shape:
        raise ValueError(f"kernel must return one number for each pair of rows, {shape}. Got {table.shape}.")
    if not np.isfinite(table).all():
        raise ValueError("kernel must return finite numbers. Got NaN or infinity.")
    return table


def as_dense(table):
    """A NumPy array of a table in any library, or of sparse rows."""
    return table.toarray() if sparse.issparse(table) else on_host(table)


def _product(rows, others):
    table = rows @ others.T
    return table.toarray() if sparse.issparse(table) else table


def _squared(place, rows, others):
    if place.is_host:
        return euclidean_distances(rows, others, squared=True)
    xp = place.xp
    products = rows @ others.T
    found = xp.sum(rows * rows, axis=1)[:, None] + xp.sum(others * others, axis=1)[None, :] - 2 * products
    return xp.where(found > 0, found, xp.zeros_like(found))


def _manhattan(place, rows, others):
    if place.is_host:
        return manhattan_distances(rows, others)
    found = place.zeros((rows.shape[0], others.shape[0]))
    for column in range(rows.shape[1]):
        found += place.xp.abs(rows[:, column][:, None] - others[:, column][None, :])
    return found


@dataclass(frozen=True)
class KernelFeatures:
    """The map from rows to features.

    center, scale : of the columns
    landmarks : scaled; None for a precomputed kernel
    indices : of the landmarks among the rows of the fit
    whitening : W
    """

    kernel: Kernel
    center: Any
    scale: Any
    landmarks: Any
    indices: np.ndarray
    whitening: Any

    @classmethod
    def of(cls, kernel: Kernel, X, center, scale, indices) -> KernelFeatures:
        """The map with these rows of X as landmarks."""
        found, place = cls(kernel, center, scale, None, indices, None), place_of(X)
        if kernel.name == "precomputed":
            among = to_host(X[np.ix_(indices, indices)]).astype(np.float64)
        else:
            rows = place.xp.take(X, place.whole(indices), axis=0) if is_foreign(X) else X[indices]
            found = replace(found, landmarks=found.scaled(rows))
            among = kernel(place, found.landmarks, found.landmarks)
        return replace(found, whitening=_whitening(among, kernel, place))

    @property
    def n_landmarks(self) -> int:
        return len(self.indices)

    def on_host(self) -> KernelFeatures:
        """The same map for NumPy arrays."""
        return replace(self, landmarks=on_host(self.landmarks), whitening=on_host(self.whitening))

    def scaled(self, X):
        """Centred rows in units of the scales, in float64. Sparse rows are not centred: distances stay the same."""
        if is_foreign(X):
            place = place_of(X)
            return (place.wide(X) - place.wide(self.center)) / place.wide(self.scale)
        if sparse.issparse(X):
            places = X.indices.astype(np.int32), X.indptr.astype(np.int32)  # scikit-learn takes no longer ones
            values = np.clip(X.data / self.scale[X.indices], -FARTHEST, FARTHEST)
            return sparse.csr_array((values, *places), shape=X.shape)
        with np.errstate(over="ignore"):
            rows = (np.asarray(X, dtype=np.float64) - self.center) / self.scale
        return np.clip(rows, -FARTHEST, FARTHEST, out=rows)

    def against(self, X, chosen=None):
        """The kernel of rows X and of the landmarks, or of those chosen."""
        if self.kernel.name == "precomputed":
            return to_host(X)[:, self.indices if chosen is None else self.indices[chosen]].astype(np.float64)
        landmarks = self.landmarks if chosen is None else self.landmarks[chosen]
        return self.kernel(place_of(X), self.scaled(X), landmarks)

    def slices(self, n_rows, n_bytes=BLOCK_BYTES) -> list[slice]:
        """Slices of rows whose kernels take so many bytes."""
        return even_slices(0, n_rows, max(256, n_bytes // (8 * self.n_landmarks)))

    def of_rows(self, X, dtype):
        """Features of rows X, (n_rows, rank)."""
        if is_foreign(X):
            place, parts = place_of(X), self.slices(X.shape[0], DEVICE_BLOCK_BYTES)
            return place.xp.concat([place.row(self.against(X[rows, :]) @ self.whitening) for rows in parts])
        features = np.empty((X.shape[0], self.whitening.shape[1]), dtype)
        for rows in self.slices(X.shape[0]):
            features[rows] = self.against(X[rows]) @ self.whitening
        return features

    def combinations(self, coef):
        """Coefficients of the landmarks' kernels, (..., n_landmarks), from those of the features."""
        return coef @ self.whitening.T

    def lost(self, X, diagonal=None) -> float:
        """Share of the kernel of a row and itself that its features lack, on average over rows X.

        diagonal : the kernel of each row and itself, if it is precomputed
        """
        features = to_host(self.of_rows(X, np.float64))
        kept, whole = np.sum(features**2, axis=1), np.ones(len(features)) if diagonal is None else diagonal
        if diagonal is None and not self.kernel.is_bounded:
            rows = self.scaled(X)
            pairs = (rows[number : number + 1] for number in range(len(kept)))
            whole = np.array([float(self.kernel(place_of(X), row, row)[0, 0]) for row in pairs])
        return float(np.mean(np.maximum(1 - kept / np.maximum(whole, np.finfo(float).tiny), 0)))


def _whitening(among, kernel, place):
    """W, from the kernel of the landmarks."""
    is_large = among.shape[0] > LARGEST_EIGENPROBLEM and kernel.is_bounded
    if not place.is_host:
        xp = place.xp
        if is_large:
            ridge = LEAST_EIGENVALUE * among.shape[0] * xp.eye(among.shape[0], dtype=among.dtype, device=place.device)
            return xp.matrix_transpose(xp.linalg.inv(xp.linalg.cholesky(among + ridge)))
        values, vectors = xp.linalg.eigh(among)
        kept = np.flatnonzero(to_host(values) > LEAST_EIGENVALUE * float(to_host(values)[-1]))
        return vectors[:, int(kept[0]) :] / xp.sqrt(values[int(kept[0]) :])
    if is_large:
        among[np.diag_indices_from(among)] += LEAST_EIGENVALUE * len(among)
        lower = linalg.cholesky(among, lower=True, overwrite_a=True, check_finite=False)
        inverse, _ = linalg.lapack.dtrtri(lower, lower=1, overwrite_c=1)
        return inverse.T
    values, vectors = linalg.eigh(among, check_finite=False)
    largest = max(values[-1], np.finfo(float).tiny)
    if values[0] < -np.sqrt(LEAST_EIGENVALUE) * largest:
        raise ValueError(
            f"The kernel must be positive semi-definite. Got {kernel.name!r}, whose matrix has the eigenvalue "
            f"{values[0]:.3g} beside the largest, {largest:.3g}. Give a kernel that is an inner product."
        )
    is_kept = values > LEAST_EIGENVALUE * largest
    is_kept[-1] = True
    return vectors[:, is_kept] / np.sqrt(np.maximum(values[is_kept], np.finfo(float).tiny))
