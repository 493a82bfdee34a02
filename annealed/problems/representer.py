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
from functools import cached_property

import numpy as np

from annealed.problems.base import Problem, TrainingSummary
from annealed.problems.penalized_linear import PenalizedLinearProblem
from annealed.problems.smooth import calibrated_loss_and_entropy
from annealed.rows.row_products import RowProducts

MANY_LEADING = 20  # eigenvectors of K that the preconditioner starts with, if scores of a fit are few
FEW_LEADING = 6  # the same if they are many, where each eigenvector costs more
MOST_VALUES_FOR_MANY = 50_000  # rows times scores that count as few
LEADING_SCORES, LEAST_LEADING = 80, 4  # with few: largest product of eigenvectors and scores, but at least 4 vectors
GROWTH = 4  # factor on the number of eigenvectors when a solve takes many steps
MOST_ROUNDING = 1e-4  # rounding error of a float32 image, as a share of `mean_left`: with more, products are in float64
ROW_LENGTHS, EVEN_LENGTHS = (0.1, 10.0), (0.5, 2.0)  # bounds on `left_over`, as multiples of its mean
MOST_UNEVEN = 2.0  # standard deviation over mean of `left_over`: with more, ROW_LENGTHS can give ascent directions
LARGEST_SYSTEM = 1200  # unknowns of the small system, (eigenvectors + intercept) x scores, which limits eigenvectors


class GramModel:
    """K in the preconditioner: some leading eigenvectors, and a diagonal.

    vectors, inverse_eigenvalues : the intercept is one more eigenvector, with infinite eigenvalue
    left_over : diagonal of K minus its part in the leading eigenvectors; `mean_left` is its mean
    remainder : `left_over` within bounds, the diagonal part
    """

    def __init__(self, products: RowProducts, squares, n_leading, fit_intercept):
        self.eigenvalues, eigenvectors = products.leading(n_leading)
        self.vectors, self.inverse_eigenvalues = eigenvectors, 1 / self.eigenvalues
        if fit_intercept:
            self.vectors = np.column_stack([eigenvectors, np.ones(len(squares))])
            self.inverse_eigenvalues = np.append(self.inverse_eigenvalues, 0.0)
        self.left_over = squares - eigenvectors**2 @ self.eigenvalues
        self.mean_left = max(float(np.mean(self.left_over)), 1e-12 * self.eigenvalues[-1])
        bounds = ROW_LENGTHS if np.std(self.left_over) <= MOST_UNEVEN * self.mean_left else EVEN_LENGTHS
        self.remainder = np.clip(self.left_over, *(share * self.mean_left for share in bounds))[:, None]


class RepresenterProblem(Problem):
    """A penalized linear problem, solved in combinations of its rows; `squares` is the diagonal of K."""

    temperature_free = True
    interpolates = True
    extrapolates = False  # the solver predicts in the span of earlier solutions, whose images it has

    def __init__(self, primal: PenalizedLinearProblem, dtype):
        super().__init__(primal.design, primal.features)
        self.primal, self.predictor = primal, primal.predictor
        self.l2_strength, self.fit_intercept = primal.l2_strength, primal.scores.table.fit_intercept
        self.contrasts, self.missing = primal.scores.table.contrasts, primal.missing.weight
        spectrum = primal.scores.coordinates.spectrum
        self.gradient_unit = max(1.0, float(np.sqrt(spectrum.max())))  # of the widest column
        self._multiply_in(dtype)
        if self.products.is_rounded and self.products.rounding() > MOST_ROUNDING * self.model.mean_left:
            self._multiply_in(np.float64)

    def _multiply_in(self, dtype):
        """Set the dtype of products with K, and recompute the preconditioner's eigenvectors."""
        self.products = RowProducts(self.design, self.features.scale, dtype)
        self.squares = self.products.diagonal()
        self.row_length = float(np.sqrt(np.mean(self.squares)))
        n_leading = self._affordable(min(self._first_leading(), self.design.n_rows // 10))
        self.model = GramModel(self.products, self.squares, n_leading, self.fit_intercept)

    def _first_leading(self) -> int:
        """More eigenvectors where they cost little: few rows, and few classes (each has its own unknowns)."""
        n_scores = self.contrasts.n_scores
        if self.design.n_rows * n_scores > MOST_VALUES_FOR_MANY:
            return FEW_LEADING
        return min(MANY_LEADING, max(LEAST_LEADING, LEADING_SCORES // n_scores))

    def in_double(self) -> RepresenterProblem:
        """The same problem with products in float64."""
        other = copy(self)
        other._multiply_in(np.float64)
        return other

    def add_eigenvectors(self) -> bool:
        """Add eigenvectors of K to the preconditioner; returns False if it cannot take more."""
        before = len(self.model.eigenvalues)
        n_leading = self._affordable(min(GROWTH * before, self.design.n_rows // 3))
        if n_leading > before:
            self.model = GramModel(self.products, self.squares, n_leading, self.fit_intercept)
        return n_leading > before

    def _affordable(self, n_leading) -> int:
        return max(1, min(n_leading, LARGEST_SYSTEM // self.contrasts.n_scores - self.fit_intercept))

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
        """K times each of a stack (n_fits, n_rows, n_columns) of row combinations, in one product."""
        return self._side_by_side(self.products.image, vectors)

    def with_exact_images(self, parameters):
        """Points with their images recomputed in float64, without the rounding errors of many float32 steps."""
        alpha, _, intercept = self.split(parameters)
        return self.join(alpha, self._side_by_side(self.products.exact_image, alpha), intercept)

    def _side_by_side(self, product, vectors):
        wide = vectors.swapaxes(0, 1).reshape(vectors.shape[1], -1)
        image = product(wide)
        return image.reshape(len(image), len(vectors), -1).swapaxes(0, 1)

    def combine(self, vectors):
        """Z' times each of a stack of row combinations, (n_features, n_fits, n_columns)."""
        wide = vectors.swapaxes(0, 1).reshape(vectors.shape[1], -1)
        return self.products.combine(wide).reshape(-1, len(vectors), vectors.shape[2])

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
    """Approximate inverses of the Newton systems `kappa I + weight D K` of a stack of fits, one kappa per fit.

    D_i = diag(a_i) - b_i b_i' is the Hessian of a row's loss by its scores; with a single score b_i is zero. K is
    approximated by `diag(remainder) + U diag(eigenvalues) U'`; the intercept adds a column of ones to U. The blocks of
    rows are inverted in closed form, the low-rank part by Woodbury's identity. Shapes: posterior (n_fits, n_rows,
    n_classes), weight (n_fits, n_rows).
    """

    def __init__(self, problem: RepresenterProblem, posterior, weight, kappa):
        self.kappa = np.broadcast_to(kappa, len(weight))[:, None, None]
        self.remainder, self.vectors = problem.model.remainder, problem.model.vectors
        load = weight * problem.model.remainder[:, 0]
        along, across = problem.contrasts.row_hessian(posterior)
        self.spread = self.kappa + load[..., None] * along
        self.has_across = across.shape[-1] > 1
        if self.has_across:
            self.ratio = across / self.spread
            self.factor = load / (1 - load * np.sum(across * self.ratio, axis=-1))
        self.small_inverse = self._invert_small(problem.model.inverse_eigenvalues)

    def part(self, few) -> RowPreconditioner:
        """The preconditioner of some of the fits."""
        other = copy(self)
        for name in ("kappa", "spread", "small_inverse", *(("ratio", "factor") if self.has_across else ())):
            setattr(other, name, getattr(self, name)[few])
        return other

    def _invert_small(self, inverse_eigenvalues):
        """Inverse of Woodbury's small systems, (n_fits, n_vectors * n_scores, n_vectors * n_scores)."""
        n_fits, n_rows, n_scores = self.spread.shape
        n_vectors = self.vectors.shape[1]
        small = np.zeros((n_fits, n_vectors, n_scores, n_vectors, n_scores))
        each = np.arange(n_scores)
        if self.has_across:
            weighted = self.ratio * np.sqrt(self.factor[..., None] / self.remainder)
            wide = (self.vectors[None, :, :, None] * weighted[:, :, None, :]).reshape(n_fits, n_rows, -1)
            small -= (self.kappa * (np.swapaxes(wide, 1, 2) @ wide)).reshape(small.shape)
        inverse_spread = (1 / self.spread).transpose(2, 0, 1)
        taken = (1 - self.kappa[:, 0] * inverse_spread) / self.remainder[:, 0]
        small[:, :, each, :, each] += (self.vectors.T * taken[:, :, None]) @ self.vectors
        small[:, :, each, :, each] += np.diag(inverse_eigenvalues)
        if self.has_across and not inverse_eigenvalues[-1]:  # a common shift of all intercepts needs some curvature
            curvature = np.trace(small[:, -1, :, -1], axis1=1, axis2=2) / n_scores
            small[:, -1, :, -1] += curvature[:, None, None]
        return np.linalg.inv(small.reshape(n_fits, n_vectors * n_scores, -1))

    def _solve_rows(self, vectors):
        """(kappa I + weight remainder D)^-1 by Sherman and Morrison's formula, row by row."""
        solved = vectors / self.spread
        if self.has_across:
            solved += (self.factor * np.sum(self.ratio * vectors, axis=-1))[..., None] * self.ratio
        return solved

    def apply(self, residual):
        rows = self._solve_rows(residual)
        inner = (self.vectors.T @ rows).reshape(len(rows), -1, 1)
        shared = self.vectors @ (self.small_inverse @ inner).reshape(len(rows), self.vectors.shape[1], -1)
        solved = rows - (shared - self.kappa * self._solve_rows(shared)) / self.remainder
        if self.has_across:  # a common shift of all classes leaves the posterior unchanged: only the penalty acts
            solved += np.mean(residual / self.kappa - solved, axis=-1, keepdims=True)
        return solved
