"""The inner-product family in terms of rows: `coef_j = sum_i alpha_ij z_i`, for wide and sparse X.

By the representer theorem the minimizer of (17) is a combination of the rows z = (x - center) / scale, so a fit is
n_rows x n_classes numbers whatever the number of columns, and its logits are linear in them:

    logits = K alpha + intercept,   K_il = z_i'z_l,
    Q_new / T = sum_i weight_i [ log_partition_i - logit of the true class ] + (l2_strength T / 2) <alpha, K alpha>

At the optimum `residual = kappa alpha - weight (targets - posterior)` vanishes, kappa = l2_strength T; the gradient
of (18) is Z' residual. Points carry their image K alpha along, so that everything but a new direction's image is
free of passes over X. Shapes: alpha, image (n_rows, n_classes); parameters flat, alpha then intercept.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from annealed.design.row_products import RowProducts
from annealed.objectives import gibbs
from annealed.objectives.base import Inspection, Problem
from annealed.objectives.linear import PenalizedLinearProblem

N_LEADING = 6  # eigenvectors of K in the preconditioner


class RepresenterProblem(Problem):
    """A penalized linear problem, solved in combinations of its rows."""

    temperature_free = True
    extrapolates = False  # the solver predicts in the span of earlier solutions, whose images it knows

    def __init__(self, primal: PenalizedLinearProblem, dtype):
        super().__init__(primal.design)
        self.primal, self.form = primal, primal.form
        self.l2_strength, self.fit_intercept = primal.l2_strength, primal.fit_intercept
        self.missing = primal.missing
        self.products = RowProducts(primal.design, primal.scale, dtype)
        n_leading = min(N_LEADING, primal.design.n_rows - 1)
        self.eigenvalues, self.eigenvectors = self.products.leading(n_leading)
        captured = self.eigenvectors**2 @ self.eigenvalues
        self.remainder = max(float(np.mean(self.products.diagonal() - captured)), 1e-12 * self.eigenvalues[-1])
        self._images: np.ndarray | None = None
        self._imaged: np.ndarray | None = None

    def split(self, parameters):
        """Alpha (n_rows, n_classes) and intercept (n_classes,) of one fit."""
        return parameters[: -self.n_classes].reshape(-1, self.n_classes), parameters[-self.n_classes :]

    def start(self, temperature):
        intercept = self.primal.start_intercept()
        return np.concatenate([np.zeros((self.n_fits, self.design.n_rows * self.n_classes)), intercept], axis=1)

    def remember(self, parameters, images):
        """Keep the images (n_fits, n_rows, n_classes) that belong to these parameters."""
        self._imaged, self._images = parameters, images

    def images(self, parameters):
        if parameters is not self._imaged:
            self.remember(parameters, np.stack([self.products.image(self.split(own)[0]) for own in parameters]))
        return self._images

    def _logits(self, parameters, fit):
        return self.images(parameters)[fit] + self.split(parameters[fit])[1]

    def held_out_logits(self, parameters, temperature):
        picked = np.empty((len(self.picks.rows), self.n_classes))
        for fit in np.unique(self.picks.fits):
            own = self.picks.fits == fit
            picked[own] = self._logits(parameters, fit)[self.picks.rows[own]]
        return picked

    def inspect(self, parameters, temperature, scale):
        logits, weight, labels = self._logits(parameters, 0), self.design.weight[:, 0], self.design.labels
        return Inspection(
            loss=float(weight @ gibbs.negative_log_likelihood(logits, labels)),
            spoken_loss=float(weight @ gibbs.negative_log_likelihood(scale * logits, labels)),
            entropy=float(weight @ gibbs.entropy(logits)),
        )

    def report(self, parameters, temperature, fits=slice(None)):
        reports = []
        for own in parameters:
            alpha, intercept = self.split(own)
            coef = (self.products.combine(alpha - alpha.mean(axis=1, keepdims=True)) / self.primal.scale[:, None]).T
            reports.append(self.primal.report_linear(coef, intercept - intercept.mean()))
        return {name: np.stack([own[name] for own in reports]) for name in reports[0]}

    def hot_temperature(self):
        return self.primal.hot_temperature()


class RowPreconditioner:
    """Approximate inverse of the Newton system `kappa I + weight D K` of one fit, D_i = diag(p_i) - p_i p_i'.

    K is taken as `remainder I + U diag(eigenvalues) U'`; the intercept is one more column of U, of ones and infinite
    eigenvalue. Row blocks are inverted in closed form, the low-rank part by Woodbury's identity.
    """

    def __init__(self, problem: RepresenterProblem, posterior, weight, kappa):
        self.kappa, self.remainder = kappa, problem.remainder
        load = weight * problem.remainder
        self.spread = kappa + load[:, None] * posterior
        self.ratio = posterior / self.spread
        self.factor = load / (1 - load * np.sum(posterior * self.ratio, axis=1))
        self.vectors, inverse_eigenvalues = problem.eigenvectors, 1 / problem.eigenvalues
        if problem.fit_intercept:
            self.vectors = np.column_stack([self.vectors, np.ones(len(weight))])
            inverse_eigenvalues = np.append(inverse_eigenvalues, 0.0)
        self.solve_small = self._factor_small(inverse_eigenvalues)

    def _factor_small(self, inverse_eigenvalues):
        """Woodbury's small system, (n_vectors * n_classes) square; a ridge settles the common shift of classes."""
        n_vectors, n_classes = self.vectors.shape[1], self.ratio.shape[1]
        weighted = self.ratio * np.sqrt(self.factor)[:, None]
        wide = (self.vectors[:, :, None] * weighted[:, None, :]).reshape(len(weighted), -1)
        small = -self.kappa * (wide.T @ wide).reshape(n_vectors, n_classes, n_vectors, n_classes)
        each = np.arange(n_classes)
        pairs = (self.vectors[:, :, None] * self.vectors[:, None, :]).reshape(len(weighted), -1)
        inverse_spread = (pairs.T @ (1 / self.spread)).reshape(n_vectors, n_vectors, n_classes)
        overlap = (self.vectors.T @ self.vectors)[:, :, None] - self.kappa * inverse_spread
        small[:, each, :, each] += np.moveaxis(overlap, 2, 0)
        small /= self.remainder
        small[:, each, :, each] += np.diag(inverse_eigenvalues)
        small = small.reshape(n_vectors * n_classes, -1)
        small += 1e-12 * np.trace(small) / len(small) * np.eye(len(small))
        factored = linalg.lu_factor(small)
        return lambda vector: linalg.lu_solve(factored, vector.ravel()).reshape(n_vectors, n_classes)

    def _solve_rows(self, vectors):
        """(kappa I + weight remainder D)^-1 by Sherman and Morrison's formula, row by row."""
        along = self.factor * np.sum(self.ratio * vectors, axis=1)
        return vectors / self.spread + along[:, None] * self.ratio

    def apply(self, residual):
        rows = self._solve_rows(residual)
        shared = self.vectors @ self.solve_small(self.vectors.T @ rows)
        return rows - (shared - self.kappa * self._solve_rows(shared)) / self.remainder
