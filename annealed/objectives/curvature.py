"""A preconditioner learned from the Hessian of a sample of rows.

The Hessian of the final fit at its current parameters serves every fold and the next temperatures: they share most of
their rows, and the path is smooth. It is kept whole for the coordinates of the largest spectrum (how many, `level`
says: each holds twice as many parameters as the one before) and diagonal for the rest, and only its sum with the
penalty is factored anew when the temperature changes. It is by differences of scores
(`annealed/objectives/contrasts.py`).
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from annealed.design.threads import blas_threads, map_in_order

FEWEST_PARAMETERS, MOST_PARAMETERS = 1200, 2400  # of the part kept whole, at level 0 and at the last
ALL_LEVELS = 20  # a level at which everything that can be is learned
SAMPLE_PER_PARAMETER = 6
SMALLEST_SAMPLE = 5000
SAMPLE_WORK = 5e8  # multiplications for a Hessian, up to which the sample is larger than that: rare values count
DOUBLE_PARAMETERS = 200  # up to which the Hessian and its factor are in double precision
RIDGES = {np.float64: (1e-12, 1e-9, 1e-6, 1.0), np.float32: (1e-6, 1e-4, 1e-2, 1.0)}  # the first that gives a factor
SMALLEST_SPREAD = 1e-150  # whose square is a number still
STALE = 0.3  # change of the smallest entry of the factored diagonal that asks for a new factor


class SampledRows:
    """A stratified sample of rows in leading coordinates, with weights that stand for all rows of fit 0.

    points : (n_sampled, n_leading), divided by `spread`, the constant of the intercept last where there is one
    leading : positions of those coordinates among a class's parameters
    """

    def __init__(self, design, coordinates, fit_intercept, n_leading, contrasts):
        self.fit_intercept, self.n_leading, self.contrasts = fit_intercept, n_leading, contrasts
        self.rows, weight = _stratified(design, self.size(design, n_leading, contrasts))
        self.weight = weight
        self.leading = np.sort(np.argsort(coordinates.spectrum)[coordinates.rank - n_leading :])

        leading_points = coordinates.along(self.leading)
        parts = design.map_rows(lambda block: leading_points(block.rows_as_array()), self.rows)
        self.points = np.concatenate(list(parts))
        if fit_intercept:
            self.leading = np.append(self.leading, coordinates.rank)
            self.points = np.column_stack([self.points, np.ones(len(weight))])
        self.spread = np.maximum(np.sqrt(weight @ self.points**2), SMALLEST_SPREAD)
        self.dtype = np.float64 if contrasts.n_differences * self.points.shape[1] <= DOUBLE_PARAMETERS else np.float32
        self.points = (self.points / self.spread).astype(self.dtype)

    @staticmethod
    def count_leading(coordinates, contrasts, fit_intercept, level):
        most = min(FEWEST_PARAMETERS * 2**level, MOST_PARAMETERS)
        return max(0, min(coordinates.rank, most // contrasts.n_differences - fit_intercept))

    @staticmethod
    def size(design, n_leading, contrasts):
        n_parameters = contrasts.n_differences * max(1, n_leading)
        affordable = int(SAMPLE_WORK / n_parameters**2)
        return min(design.n_rows, max(SMALLEST_SAMPLE, SAMPLE_PER_PARAMETER * n_parameters, affordable))

    def hessian(self, posterior, reference):
        """Weighted mean over the sample of the scores' covariance kron z z', z in units of its spread.

        (n_differences * n_leading) square.
        """
        width, size = self.points.shape[1], self.contrasts.n_differences
        hessian = np.empty((size, width, size, width), self.dtype)
        scores = self.contrasts.others(reference)

        def fill(pair):
            left, right = pair
            covariance = self.contrasts.covariance(posterior, scores[left], scores[right]).reshape(-1)
            share = (self.weight * covariance).astype(self.dtype)
            hessian[left, :, right] = hessian[right, :, left] = np.dot((self.points * share[:, None]).T, self.points)

        list(map_in_order(fill, zip(*self.contrasts.pairs, strict=True)))
        return hessian.reshape(size * width, -1)


class LearnedCurvature:
    """The Hessian of the loss on leading coordinates; `improve` replaces that part of a diagonal solve."""

    def __init__(self, sample: SampledRows, posterior):
        self.sample = sample
        # Differences from the score of most curvature: the others' own curvatures then keep their digits.
        self.reference = int(np.argmax(sample.weight @ (posterior * (1 - posterior))))
        self.hessian = sample.hessian(posterior, self.reference)
        self._factored: tuple[float, tuple] | None = None

    def improve(self, solved, vectors, strength):
        """Overwrite the leading part of `solved`, vectors divided by a diagonal, by the full solve.

        solved, vectors : (n_fits, n_scores, width); strength : penalty on each coefficient
        """
        if self._factored is None or self._is_stale(self._factored[0], strength):
            self._factored = strength, self._factor(strength)
        balance, (factor, _) = self._factored[1]
        contrasts, leading = self.sample.contrasts, self.sample.leading
        pull = contrasts.by_differences(vectors[..., leading], self.reference).reshape(len(vectors), -1) * balance
        full = _solved(factor, pull.T.astype(self.sample.dtype)).T * balance
        solved[..., self.sample.leading] = self._from_differences(full)

    def improve_root(self, rooted, noise, strength):
        """As `improve`, with a root of the inverse instead: standard normal noise gets its covariance."""
        balance, (factor, _) = self._factor(strength)
        drawn = noise[:, : self.sample.contrasts.n_differences, self.sample.leading]
        flat = drawn.reshape(len(noise), -1).T.astype(self.sample.dtype)
        root = linalg.solve_triangular(factor, flat, trans=1, lower=True, check_finite=False).T * balance
        rooted[..., self.sample.leading] = self._from_differences(root)

    def _from_differences(self, flat):
        contrasts = self.sample.contrasts
        return contrasts.from_differences(flat.reshape(len(flat), contrasts.n_differences, -1), self.reference)

    def _is_stale(self, old, new):
        """Whether the penalty has changed by more than a share of the flattest direction's curvature."""
        curvature = np.diag(self.hessian) * np.tile(self.sample.spread, self.sample.contrasts.n_differences) ** 2
        return abs(new - old) > STALE * (old + curvature.min())

    def _factor(self, strength):
        """Factors of the sum with the penalty, balanced to a unit diagonal, and what balances."""
        spread, square = self.sample.spread, self.sample.contrasts.square
        penalty = strength / spread**2
        if self.sample.fit_intercept:
            penalty[-1] = 0
        diagonal = np.diag(self.hessian) + np.tile(penalty, len(square)) * square[0, 0]
        balance = 1 / np.sqrt(np.maximum(diagonal, np.finfo(float).tiny))
        for ridge in RIDGES[self.sample.dtype]:
            try:
                with blas_threads(len(balance)):
                    balanced = self._balanced(balance, penalty, 1 + ridge)
                    factor = linalg.cho_factor(balanced, lower=True, overwrite_a=True, check_finite=False)
                return balance / np.tile(spread, len(square)), factor
            except linalg.LinAlgError:  # rounding has made it indefinite
                continue
        raise AssertionError("a matrix of positive curvatures with a whole ridge has a factor")

    def _balanced(self, balance, penalty, diagonal):
        """The Hessian and its penalty between two `balance`, symmetric, in one copy that LAPACK can overwrite."""
        square, each = self.sample.contrasts.square, np.arange(len(penalty))
        balance = balance.astype(self.hessian.dtype)
        balanced = self.hessian * balance
        balanced *= balance[:, None]
        table = balance.reshape(len(square), -1).T  # (width, n_differences)
        own = (penalty[:, None, None] * square) * (table[:, :, None] * table[:, None, :])
        balanced.reshape(len(square), len(penalty), len(square), -1)[:, each, :, each] += own
        np.fill_diagonal(balanced, diagonal)
        return balanced.T


def _solved(factor, vectors):
    """(L L')^-1 vectors, from the lower factor; one vector is much faster by itself than as a matrix of one column."""
    if vectors.shape[1] > 1:
        return linalg.cho_solve((factor, True), vectors, check_finite=False)
    half = linalg.solve_triangular(factor, vectors[:, 0], lower=True, check_finite=False)
    return linalg.solve_triangular(factor, half, lower=True, trans=1, check_finite=False)[:, None]


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
