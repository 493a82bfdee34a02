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

from annealed.design.threads import blas_threads, map_in_order

FEWEST_PARAMETERS, MOST_PARAMETERS = 1200, 2400  # of the part kept whole, at level 0 and at the last
ALL_LEVELS = 20  # a level at which everything that can be is learned
SAMPLE_PER_PARAMETER = 6
SMALLEST_SAMPLE = 5000
DOUBLE_PARAMETERS = 200  # up to which the Hessian and its factor are in double precision
RIDGES = {np.float64: (1e-12, 1e-9, 1e-6, 1.0), np.float32: (1e-6, 1e-4, 1e-2, 1.0)}  # the first that gives a factor
SMALLEST_SPREAD = 1e-150  # whose square is a number still
STALE = 0.3  # change of the smallest entry of the factored diagonal that asks for a new factor


class SampledRows:
    """A stratified sample of rows in leading coordinates, with weights that stand for all rows of fit 0.

    points : (n_sampled, n_leading), divided by `spread`, the constant of the intercept last where there is one
    leading : positions of those coordinates among a class's parameters
    """

    def __init__(self, design, coordinates, fit_intercept, n_leading, n_scores):
        self.fit_intercept, self.n_leading = fit_intercept, n_leading
        self.n_scores = n_scores
        self.rows, weight = _stratified(design, self.size(design, n_leading, n_scores))
        self.weight = weight
        self.leading = np.sort(np.argsort(coordinates.spectrum)[coordinates.rank - n_leading :])

        leading_points = coordinates.along(self.leading)
        parts = design.map_rows(lambda block: leading_points(block.rows_as_array()), self.rows)
        self.points = np.concatenate(list(parts))
        if fit_intercept:
            self.leading = np.append(self.leading, coordinates.rank)
            self.points = np.column_stack([self.points, np.ones(len(weight))])
        self.spread = np.maximum(np.sqrt(weight @ self.points**2), SMALLEST_SPREAD)
        self.dtype = np.float64 if n_scores * self.points.shape[1] <= DOUBLE_PARAMETERS else np.float32
        self.points = (self.points / self.spread).astype(self.dtype)

    @staticmethod
    def count_leading(coordinates, n_scores, fit_intercept, level):
        most = min(FEWEST_PARAMETERS * 2**level, MOST_PARAMETERS)
        return max(0, min(coordinates.rank, most // n_scores - fit_intercept))

    @staticmethod
    def size(design, n_leading, n_scores):
        return min(design.n_rows, max(SMALLEST_SAMPLE, SAMPLE_PER_PARAMETER * n_scores * n_leading))

    def hessian(self, contrasts, posterior):
        """Weighted mean over the sample of the scores' covariance kron z z', z in units of its spread.

        (n_scores * n_leading) square.
        """
        width = self.points.shape[1]
        hessian = np.empty((self.n_scores, width, self.n_scores, width), self.dtype)

        def fill(pair):
            left, right = pair
            share = (self.weight * contrasts.covariance(posterior, left, right).reshape(-1)).astype(self.dtype)
            hessian[left, :, right] = hessian[right, :, left] = (self.points * share[:, None]).T @ self.points

        list(map_in_order(fill, combinations_with_replacement(range(self.n_scores), 2)))
        if self.n_scores > 1:  # a common shift of all classes moves nothing: any curvature will do there
            each, across = np.arange(width), np.arange(self.n_scores)
            hessian[:, each, :, each] += hessian[across, :, across][:, each, each].mean(axis=0)[:, None, None]
        return hessian.reshape(self.n_scores * width, -1)


class LearnedCurvature:
    """The Hessian of the loss on leading coordinates; `improve` replaces that part of a diagonal solve."""

    def __init__(self, sample: SampledRows, contrasts, posterior):
        self.sample = sample
        self.hessian = sample.hessian(contrasts, posterior)
        self._factored: tuple[float, tuple] | None = None

    def improve(self, solved, vectors, strength):
        """Overwrite the leading part of `solved`, vectors divided by a diagonal, by the full solve.

        solved, vectors : (n_fits, n_scores, width); strength : penalty on each coefficient
        """
        if self._factored is None or self._is_stale(self._factored[0], strength):
            self._factored = strength, self._factor(strength)
        leading = self.sample.leading
        balance, factor = self._factored[1]
        flat = vectors[..., leading].reshape(len(vectors), -1) * balance
        full = linalg.cho_solve(factor, flat.T.astype(self.sample.dtype), check_finite=False).T * balance
        solved[..., leading] = full.reshape(len(vectors), self.sample.n_scores, -1)

    def improve_root(self, rooted, noise, strength):
        """As `improve`, with a root of the inverse instead: standard normal noise gets its covariance."""
        balance, (factor, is_lower) = self._factor(strength)
        leading = self.sample.leading
        flat = noise[..., leading].reshape(len(noise), -1).T.astype(self.sample.dtype)
        solved = linalg.solve_triangular(factor, flat, trans=1, lower=is_lower, check_finite=False).T * balance
        rooted[..., leading] = solved.reshape(len(noise), self.sample.n_scores, -1)

    def _is_stale(self, old, new):
        """Whether the penalty has changed by more than a share of the flattest direction's curvature."""
        curvature = np.diag(self.hessian) * np.tile(self.sample.spread, self.sample.n_scores) ** 2
        return abs(new - old) > STALE * (old + curvature.min())

    def _factor(self, strength):
        """Factors of the sum with the penalty, balanced to a unit diagonal."""
        spread = self.sample.spread
        penalty = strength / spread**2
        if self.sample.fit_intercept:
            penalty[-1] = 0
        diagonal = np.diag(self.hessian) + np.tile(penalty, self.sample.n_scores)
        balance = 1 / np.sqrt(np.maximum(diagonal, np.finfo(float).tiny))
        for ridge in RIDGES[self.sample.dtype]:
            try:
                with blas_threads(len(balance)):
                    balanced = self._balanced(balance, 1 + ridge)
                    factor = linalg.cho_factor(balanced, lower=True, overwrite_a=True, check_finite=False)
                return balance / np.tile(spread, self.sample.n_scores), factor
            except linalg.LinAlgError:  # rounding has made it indefinite
                continue
        raise AssertionError("a matrix of positive curvatures with a whole ridge has a factor")

    def _balanced(self, balance, diagonal):
        """The Hessian between two `balance`, symmetric, in one copy that LAPACK can overwrite."""
        balance = balance.astype(self.hessian.dtype)
        balanced = self.hessian * balance
        balanced *= balance[:, None]
        np.fill_diagonal(balanced, diagonal)
        return balanced.T


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
