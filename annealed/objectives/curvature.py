"""A preconditioner learned from the Hessian of a sample of rows.

The Hessian of the final fit at its current parameters serves every fold and the next temperatures: they share most of
their rows, and the path is smooth. It is kept whole for the coordinates of the largest spectrum (how many, `level`
says: each holds twice as many parameters as the one before) and diagonal for the rest, and only its sum with the
penalty is factored anew when the temperature changes.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
from scipy import linalg

from annealed.design.threads import map_in_order

FEWEST_PARAMETERS, MOST_PARAMETERS = 1000, 2000  # of the part kept whole, at level 0 and at the last
SAMPLE_PER_PARAMETER = 5
SMALLEST_SAMPLE = 5000
RIDGE = 1e-10


class SampledRows:
    """A stratified sample of rows in leading coordinates, with weights that stand for all rows of fit 0.

    points : (n_sampled, n_leading), the constant of the intercept last where there is one
    leading : positions of those coordinates among a class's parameters
    """

    def __init__(self, design, coordinates, fit_intercept, n_leading):
        self.fit_intercept, self.n_leading = fit_intercept, n_leading
        self.n_classes = design.n_classes
        rows, weight = _stratified(design, self.size(design, n_leading))
        self.values = design.rows_of(rows)
        self.weight = weight
        self.leading = np.sort(np.argsort(coordinates.spectrum)[coordinates.rank - n_leading :])
        self.points = coordinates.from_features(self.values)[:, self.leading]
        if fit_intercept:
            self.leading = np.append(self.leading, coordinates.rank)
            self.points = np.column_stack([self.points, np.ones(len(rows))])

    @staticmethod
    def count_leading(coordinates, n_classes, fit_intercept, level):
        most = min(FEWEST_PARAMETERS * 2**level, MOST_PARAMETERS)
        return max(0, min(coordinates.rank, most // n_classes - fit_intercept))

    @staticmethod
    def size(design, n_leading):
        return min(design.n_rows, max(SMALLEST_SAMPLE, SAMPLE_PER_PARAMETER * design.n_classes * n_leading))

    def hessian(self, posterior):
        """Weighted mean of (diag(p) - p p') kron z z' over the sample, (n_classes * n_leading) square."""
        width = self.points.shape[1]
        hessian = np.empty((self.n_classes, width, self.n_classes, width))

        def fill(pair):
            left, right = pair
            share = self.weight * posterior[:, left] * ((left == right) - posterior[:, right])
            hessian[left, :, right] = hessian[right, :, left] = (self.points * share[:, None]).T @ self.points

        list(map_in_order(fill, combinations_with_replacement(range(self.n_classes), 2)))
        return hessian.reshape(self.n_classes * width, -1)


class LearnedCurvature:
    """The Hessian of the loss on leading coordinates; `improve` replaces that part of a diagonal solve."""

    def __init__(self, sample: SampledRows, posterior):
        self.sample = sample
        self.hessian = sample.hessian(posterior)
        self._factored: tuple[float, tuple] | None = None

    def improve(self, solved, vectors, strength):
        """Overwrite the leading part of `solved`, vectors divided by a diagonal, by the full solve.

        solved, vectors : (n_fits, n_classes, width); strength : penalty on each coefficient
        """
        if self._factored is None or self._factored[0] != strength:
            self._factored = strength, self._factor(strength)
        leading = self.sample.leading
        flat = vectors[..., leading].reshape(len(vectors), -1)
        full = linalg.cho_solve(self._factored[1], flat.T, check_finite=False).T
        solved[..., leading] = full.reshape(len(vectors), self.sample.n_classes, -1)

    def _factor(self, strength):
        penalty = np.full(self.sample.points.shape[1], strength)
        if self.sample.fit_intercept:
            penalty[-1] = 0
        system = self.hessian.copy()
        ridge = RIDGE * np.trace(system) / len(system)
        system[np.diag_indices(len(system))] += np.tile(penalty, self.sample.n_classes) + ridge
        return linalg.cho_factor(system, lower=True, overwrite_a=True, check_finite=False)


def _stratified(design, size):
    """Row numbers, rare classes whole, and weights (summing to one) that stand for all rows of fit 0."""
    generator = np.random.RandomState(0)
    quota = size if size >= design.n_rows else -(-size // design.n_classes)
    rows, weights = [], []
    for label in range(design.n_classes):
        own = np.flatnonzero(design.labels == label)
        if not len(own):
            continue
        picked = generator.permutation(own)[:quota]
        rows.append(picked)
        weights.append(design.weight[picked, 0] * len(own) / len(picked))
    weight = np.concatenate(weights)
    return np.concatenate(rows), weight / max(weight.sum(), np.finfo(float).tiny)
