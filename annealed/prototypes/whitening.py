"""Whitening of a metric: coordinates `z = x R` with `R R' = metric`, in which the metric is the identity.

For a diagonal plus low-rank metric, diag(a) + F' C F, R has a closed form. With s = sqrt(a), and V, t the eigenvectors
and eigenvalues of diag(1/s) F' C F diag(1/s),

    R = diag(s) (I + V diag(sqrt(1 + t) - 1) V')

Shapes: metric and R (n_features, n_features), V (n_features, rank).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from annealed.objectives.diagonal_plus import DiagonalPlus
from annealed.objectives.potts import symmetric_eigen
from annealed.objectives.prototype_posterior import PrototypePosterior

SMALLEST = 1e-12  # floor on eigenvalues of a metric, relative to the largest


class DenseWhitening(NamedTuple):
    """The symmetric root R and its inverse."""

    root: np.ndarray
    inverse: np.ndarray

    def white(self, X):
        return X @ self.root.astype(X.dtype)

    def back(self, rows):
        return rows @ self.inverse

    def metric(self, point: PrototypePosterior):
        """The metric of a point in whitened coordinates, converted to the rows' coordinates."""
        rooted = self.root @ point.root
        return rooted @ rooted.T


class LowRankWhitening(NamedTuple):
    """`sizes` s, `axes` V and `growth` sqrt(1 + t) of the diagonal plus low-rank metric `whole`."""

    whole: DiagonalPlus
    sizes: np.ndarray
    axes: np.ndarray
    growth: np.ndarray

    def white(self, X):
        scaled = X * self.sizes.astype(X.dtype)
        axes = self.axes.astype(X.dtype)
        return scaled + (scaled @ axes * (self.growth - 1).astype(X.dtype)) @ axes.T

    def back(self, rows):
        return (rows + (rows @ self.axes * (1 / self.growth - 1)) @ self.axes.T) / self.sizes

    def metric(self, point: PrototypePosterior):
        rooted = point.basis + (self.axes * (self.growth - 1)) @ (self.axes.T @ point.basis)
        return self.whole.plus((rooted.T * self.sizes), point.root @ point.root.T - np.eye(len(point.root)))


def whitening(metric) -> DenseWhitening | LowRankWhitening:
    if isinstance(metric, DiagonalPlus):
        sizes = np.sqrt(metric.diagonal)
        scaled = metric.factors / sizes
        axes = orthonormal(scaled.T)
        within = axes.T @ scaled.T
        values, vectors = symmetric_eigen(within @ metric.core @ within.T)
        return LowRankWhitening(metric, sizes, axes @ vectors, np.sqrt(np.maximum(1 + values, SMALLEST)))
    values, vectors = symmetric_eigen(metric)
    values = np.sqrt(np.maximum(values, SMALLEST * max(values[-1], 1e-300)))
    return DenseWhitening((vectors * values) @ vectors.T, (vectors / values) @ vectors.T)


def orthonormal(columns):
    """An orthonormal basis of the span of the columns."""
    left, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    return left[:, sizes > 1e-10 * max(sizes.max(initial=0.0), 1e-300)]
