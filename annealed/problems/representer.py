"""The inner-product family in combinations of rows, `coef_j = sum_i alpha_ij z_i`, for wide and sparse X.

By the representer theorem the minimizer of (17) is a combination of the rows z = (x - center) / scale. A fit then has
n_rows x n_scores parameters whatever the number of columns, and its scores are linear in them:

    scores = K alpha + intercept,   K_il = z_i'z_l,
    Q_new / T = sum_i weight_i [ log_partition_i - logit of the true class ] + (l2_strength T / 2) <alpha, K alpha>

With kappa = l2_strength T, `residual = kappa alpha - weight (targets - posterior)` vanishes at the optimum; the
gradient (18) is Z' residual. Every point stores its image K alpha, so only images of new directions need passes over X.
Shapes: alpha and image (n_fits, n_rows, n_scores); parameters are flat: alpha, image, intercept.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from annealed.lazy import cached_property
from annealed.problems.base import Problem, TrainingSummary
from annealed.problems.penalized_linear import PenalizedLinearProblem
from annealed.problems.smooth import ROUNDING, calibrated_loss_and_entropy
from annealed.rows.row_products import RowProducts

MOST_LEADING = 20  # leading eigenvectors of K in the preconditioner of a single score
GROWTH = 8  # factor on their number where a solve does not end in time


class GramModel:
    """K in the preconditioner: some leading eigenvectors, and a diagonal.

    vectors, inverse_eigenvalues : the intercept is one more eigenvector, with infinite eigenvalue
    remainder : diagonal of K minus its part in the leading eigenvectors
    """

    def __init__(self, products: RowProducts, squares, n_leading, fit_intercept):
        self.eigenvalues, eigenvectors = products.leading(n_leading)
        self.vectors, self.inverse_eigenvalues = eigenvectors, 1 / self.eigenvalues
        if fit_intercept:
            self.vectors = np.column_stack([eigenvectors, np.ones(len(squares))])
            self.inverse_eigenvalues = np.append(self.inverse_eigenvalues, 0.0)
        self.remainder = np.maximum(squares - eigenvectors**2 @ self.eigenvalues, 0.0)[:, None]


class RepresenterProblem(Problem):
    """A penalized linear problem, solved in combinations of its rows."""

    temperature_free = True
    interpolates = True

    def __init__(self, primal: PenalizedLinearProblem):
        super().__init__(primal.design, primal.features)
        self.primal, self.predictor = primal, primal.predictor
        self.l2_strength, self.fit_intercept = primal.l2_strength, primal.scores.table.fit_intercept
        self.contrasts, self.missing = primal.scores.table.contrasts, primal.missing.weight
        spectrum = primal.scores.coordinates.spectrum
        self.gradient_unit = max(1.0, float(np.sqrt(spectrum.max())))  # of the widest column
        self.products = RowProducts(self.design, self.features.scale)
        self.squares, self.has_grown = self.products.diagonal(), False
        self.row_length = float(np.sqrt(np.mean(self.squares)))
        # So many that sums over rows for the small systems of the preconditioner cost about as much for every score.
        self.model = self._model(MOST_LEADING / np.sqrt(self.contrasts.n_scores))

    def _model(self, n_leading) -> GramModel:
        n_leading = max(1, min(int(n_leading), self.design.n_rows // 10))
        return GramModel(self.products, self.squares, n_leading, self.fit_intercept)

    def grow(self) -> bool:
        """Take more eigenvectors into the preconditioner; False if that was done before."""
        if self.has_grown:
            return False
        self.has_grown, self.model = True, self._model(GROWTH * len(self.model.eigenvalues))
        return True

    def split(self, parameters):
        """Alpha and image (n_fits, n_rows, n_scores), and intercept (n_fits, n_scores)."""
        shape = len(parameters), self.design.n_rows, self.contrasts.n_scores
        size = shape[1] * shape[2]
        alpha, image = parameters[:, :size].reshape(shape), parameters[:, size : 2 * size].reshape(shape)
        return alpha, image, parameters[:, 2 * size :]

    def join(self, alpha, image, intercept):
        n_fits = len(alpha)
        return np.concatenate([alpha.reshape(n_fits, -1), image.reshape(n_fits, -1), intercept], axis=1)

    def start(self, temperature):
        zeros = np.zeros((self.n_fits, self.design.n_rows, self.contrasts.n_scores))
        return self.join(zeros, zeros, self.primal.start_intercept())

    def image(self, vectors):
        """K times each of a stack (n_points, n_rows, n_columns) of row combinations, in one product."""
        return self._side_by_side(self.products.image, vectors).swapaxes(0, 1)

    def _side_by_side(self, product, vectors):
        found = product(vectors.swapaxes(0, 1).reshape(vectors.shape[1], -1))
        return found.reshape(len(found), len(vectors), -1)

    def certificate(self, alpha, row_residual, posterior, weight, value, kappa):
        """Largest entry of the gradient of each point, and the bound on its relative suboptimality.

        As in `PenalizedLinearProblem.certificate`: at the best intercept, the gradient of the coefficients differs by
        about `row_length` times that of the intercept, and the value is lower.
        """
        gradient = self._side_by_side(self.products.combine, row_residual + kappa[:, None, None] * alpha)
        largest = np.abs(gradient).max(axis=(0, 2)) / self.gradient_unit
        length, gain = np.sqrt(np.einsum("pfs,pfs->f", gradient, gradient)), 0.0
        if self.fit_intercept:
            by_intercept = row_residual.sum(axis=1)
            largest = np.maximum(largest, np.abs(by_intercept).max(axis=1))
            length += self.row_length * np.linalg.norm(by_intercept, axis=1)
            along, across = self.contrasts.row_hessian(posterior)
            curvature = np.einsum("fn,fns->fs", weight, along - across**2)
            gain = np.sum(by_intercept**2 / np.maximum(2 * curvature, ROUNDING), axis=1)
        return largest, (length**2 / (2 * kappa) + gain) / np.maximum(value, np.finfo(float).tiny)

    def logits_of(self, rows, parameters, temperature, fits):
        _, image, intercept = self.split(parameters)
        scores = image[:, rows].transpose(0, 2, 1) + intercept[..., None]
        return self.contrasts.logits(scores.transpose(2, 0, 1))

    def summarize(self, points, entropy=None, value=None):
        weight, labels = self.design.weight[:, 0], self.design.labels
        logits = (self.logits_of(slice(None), point[None], temperature, None)[:, 0] for point, temperature, _ in points)
        pairs = zip(logits, points, strict=True)
        means = [calibrated_loss_and_entropy(each, labels, weight, scale) for each, (_, _, scale) in pairs]
        return [TrainingSummary(*map(float, pair)) for pair in means]

    def report(self, parameters, temperature, fits=slice(None)):
        alpha, _, intercept = self.split(parameters)
        scores = np.empty((len(alpha), self.contrasts.n_scores, self.design.n_features))
        for weights, score in zip(alpha, scores, strict=True):
            np.divide(self.products.combine(weights).T, self.features.scale, out=score)
        return self.primal.report_scores(scores, intercept)

    def hot_temperature(self):
        return self.primal.hot_temperature()

    @cached_property
    def gram(self):
        """K in float64."""
        return self.design.row_gram(1 / self.features.scale)


class RowPreconditioner:
    """Approximate inverses of the Newton systems `kappa I + weight D K` of a stack of points, each with its kappa.

    D_i is the Hessian of a row's loss by its scores: a number, or diag(p) - p p'. K is approximated by
    `diag(remainder) + U diag(eigenvalues) U'`; the intercept adds a column of ones to U. The blocks of rows are
    inverted in closed form, S_i = (kappa + weight_i remainder_i D_i)^-1, the low-rank part by Woodbury's identity.
    Every term is positive, so that nothing cancels however small kappa is. Shapes: posterior (n_points, n_rows,
    n_classes), weight (n_points, n_rows).
    """

    def __init__(self, problem: RepresenterProblem, posterior, weight, kappa):
        self.contrasts, self.vectors = problem.contrasts, problem.model.vectors
        self.posterior, self.weight = posterior, weight[..., None]
        kappa, load = kappa[:, None, None], self.weight * problem.model.remainder
        along, _ = self.contrasts.row_hessian(posterior)
        self.spread = kappa + load * along
        self.ratio = along / self.spread
        total = self.ratio.sum(axis=-1, keepdims=True)
        self.factor = load / (kappa * total)
        self.small_inverse = self._invert_small(problem.model.inverse_eigenvalues, total)

    def part(self, chosen) -> RowPreconditioner:
        """The preconditioner of some of the points."""
        other = copy(self)
        for name in ("posterior", "weight", "spread", "ratio", "factor", "small_inverse"):
            setattr(other, name, getattr(self, name)[chosen])
        return other

    def _invert_small(self, inverse_eigenvalues, total):
        """Inverse of Woodbury's small systems, (n_points, n_vectors * n_scores, n_vectors * n_scores)."""
        (n_points, n_rows, n_scores), n_vectors = self.spread.shape, self.vectors.shape[1]
        small = np.zeros((n_points, n_vectors, n_scores, n_vectors, n_scores))
        if n_scores > 1:
            wide = self.vectors[:, :, None] * (self.ratio * np.sqrt(self.weight / total))[:, :, None]
            wide = wide.reshape(n_points, n_rows, -1)
            small -= (np.swapaxes(wide, 1, 2) @ wide).reshape(small.shape)
        each, taken = np.arange(n_scores), (self.weight * self.ratio).transpose(2, 0, 1)
        small[:, :, each, :, each] += (self.vectors.T * taken[:, :, None]) @ self.vectors
        small[:, :, each, :, each] += np.diag(inverse_eigenvalues)
        if n_scores > 1 and not inverse_eigenvalues[-1]:  # a common shift of all intercepts needs some curvature
            curvature = np.trace(small[:, -1, :, -1], axis1=1, axis2=2) / n_scores
            small[:, -1, :, -1] += curvature[:, None, None]
        return np.linalg.inv(small.reshape(n_points, n_vectors * n_scores, -1))

    def _solve_rows(self, vectors):
        """S times vectors, by Sherman and Morrison's formula."""
        solved = vectors / self.spread
        if vectors.shape[-1] > 1:
            solved += self.factor * np.sum(self.ratio * vectors, axis=-1, keepdims=True) * self.ratio
        return solved

    def apply(self, residual):
        inner = (self.vectors.T @ self._solve_rows(residual)).reshape(len(residual), -1, 1)
        shared = self.vectors @ (self.small_inverse @ inner).reshape(len(residual), self.vectors.shape[1], -1)
        return self._solve_rows(residual - self.weight * self.contrasts.curved(self.posterior, shared))
