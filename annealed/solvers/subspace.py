"""Preconditioned subspace minimization in combinations of rows: one product with K = Z Z' an iteration.

An iteration aims by the row preconditioner, takes the new direction's image (the one pass over X), and minimizes the
objective exactly over the span of the current point, that direction, the last steps and the intercepts: a handful of
scalars whose logits are known, so the inner Newton steps touch no X. The first point at a new temperature is the
minimum over the span of earlier solutions, most often already good to a few parts in a million.

The final fit is solved to the tolerance and certified in double precision; folds, whose only use is the choice of the
temperature, to a relative suboptimality of FOLD_SUBOPTIMALITY. Fits run in threads, each by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from annealed.design.threads import map_in_order
from annealed.objectives import RepresenterProblem, RowPreconditioner, gibbs
from annealed.solvers.base import SUBOPTIMALITY_SHARE, Solution, Solver

FOLD_SUBOPTIMALITY = 1e-4
N_EARLIER = 4  # solutions whose span predicts the next
N_STEPS = 3  # last steps kept in the subspace
PRECONDITIONER_LIFE = 4  # iterations after which it is made anew at the current posterior
SINGLE_PRECISION_TOL = 1e-5  # tolerances down to this are served by products in single precision


class Subspace(Solver):
    """Subspace minimization in combinations of rows, for the inner-product family on wide or sparse X."""

    def adapt(self, problem, tol):
        dtype = np.float32 if tol >= SINGLE_PRECISION_TOL else np.float64
        return RepresenterProblem(problem, dtype)

    def new_memory(self, problem):
        return [_Earlier() for _ in range(problem.n_fits)]

    def minimize(self, problem, start, temperature, *, tol, max_iter, memory):
        images = problem.images(start)
        searches = [
            _Search(problem, fit, start[fit], images[fit], temperature, memory[fit]) for fit in range(problem.n_fits)
        ]
        certified, *folds = searches
        jobs = [partial(certified.solve_certified, tol, max_iter)]
        jobs += [partial(search.solve, FOLD_SUBOPTIMALITY, max_iter) for search in folds]
        list(map_in_order(lambda job: job(), jobs))
        parameters = np.stack([search.parameters() for search in searches])
        problem.remember(parameters, np.stack([search.image for search in searches]))
        return Solution(
            parameters,
            np.array([search.value for search in searches]),
            np.array([search.gradient_norm for search in searches]),
            np.array([search.n_iter for search in searches]),
            np.array([search.converged for search in searches]),
        )


@dataclass
class _Earlier:
    """Solutions at earlier temperatures with their images, newest last."""

    alphas: list = field(default_factory=list)
    images: list = field(default_factory=list)

    def add(self, alpha, image):
        self.alphas = [*self.alphas, alpha][-N_EARLIER:]
        self.images = [*self.images, image][-N_EARLIER:]


class _Search:
    """One fit at one temperature."""

    def __init__(self, problem, fit, start, image, temperature, earlier):
        self.problem, self.earlier = problem, earlier
        self.kappa = problem.l2_strength * temperature
        self.weight = problem.design.weight[:, fit]
        self.labels = problem.design.labels
        self.missing = problem.missing[fit]
        self.alpha, self.intercept = (part.copy() for part in problem.split(start))
        self.image = image
        self.n_iter, self.converged, self.gradient_norm = 0, False, np.nan
        self.precision = 1e-10
        self.steps: list = []

    def parameters(self):
        return np.concatenate([self.alpha.ravel(), self.intercept])

    def solve(self, suboptimality, max_iter):
        """Iterate until the decrement, an estimate of the relative suboptimality, is small."""
        self._predict()
        while self.n_iter < max_iter:
            decrement = self._iterate()
            if decrement <= suboptimality * self.value:
                self.converged = True
                break
        if self.n_iter:
            self.earlier.add(self.alpha, self.image)

    def solve_certified(self, tol, max_iter):
        """Iterate until the certificate of (17) holds in double precision; it is asked once the decrement is small."""
        self.precision = min(self.precision, (0.1 * tol) ** 2)
        self._predict()
        target = SUBOPTIMALITY_SHARE * tol
        while not self._is_certified(tol) and self.n_iter < max_iter:
            before = self.value
            while self.n_iter < max_iter and self._iterate() > 0.3 * target * self.value:
                pass
            target /= 4
            if before - self.value <= 1e-15 * before and target < 1e-3 * SUBOPTIMALITY_SHARE * tol:
                break
        if self.n_iter:
            self.earlier.add(self.alpha, self.image)

    def _is_certified(self, tol):
        gradient = self.problem.products.combine(self._residual())
        largest = max(np.abs(gradient).max(), np.abs(self._intercept_gradient()).max())
        certificate = np.sum(gradient**2) / (2 * self.kappa) / max(self.value, np.finfo(float).tiny)
        self.gradient_norm = largest
        self.converged = bool(largest <= tol and certificate <= SUBOPTIMALITY_SHARE * tol)
        return self.converged

    def _residual(self):
        """Kappa alpha - weight (targets - posterior): the optimum's condition, and minus the fall's direction."""
        residual = self.weight[:, None] * self.posterior
        residual[np.arange(len(self.labels)), self.labels] -= self.weight
        return residual + self.kappa * self.alpha

    def _intercept_gradient(self):
        if not self.problem.fit_intercept:
            return np.zeros(1)
        return self.weight @ self.posterior - np.bincount(self.labels, self.weight, len(self.intercept))

    def _iterate(self):
        """One direction, one image, one subspace; the decrement the direction promised."""
        if self.n_iter % PRECONDITIONER_LIFE == 0:
            self.preconditioner = RowPreconditioner(self.problem, self.posterior, self.weight, self.kappa)
        residual = self._residual()
        direction = -self.preconditioner.apply(residual)
        image = self.problem.products.image(direction)
        self.n_iter += 1
        decrement = -0.5 * np.sum(residual * image)
        self._minimize_over([direction, *(step for step, _ in self.steps)], [image, *(own for _, own in self.steps)])
        return abs(decrement)

    def _predict(self):
        """The minimum over earlier solutions; the current point is the newest of them."""
        earlier = zip(self.earlier.alphas, self.earlier.images, strict=True)
        differences = [(alpha - self.alpha, image - self.image) for alpha, image in earlier]
        differences = [pair for pair in differences if pair[0].any()]
        alphas = [self.alpha.copy(), *(pair[0] for pair in differences)] if self.alpha.any() else []
        images = [self.image.copy(), *(pair[1] for pair in differences)] if self.alpha.any() else []
        self._minimize_over(alphas, images, keep=False)

    def _minimize_over(self, alphas, images, keep=True):
        """Move to the minimum over the current point plus combinations of these directions, and the intercepts."""
        old_alpha, old_image = self.alpha, self.image
        span = _Span(self, alphas, images)
        scalars, self.intercept, self.value, self.posterior = span.minimize()
        if not alphas:
            return
        move = np.tensordot(scalars, span.alphas, axes=1)
        move_image = np.tensordot(scalars, span.images, axes=1)
        self.alpha, self.image = old_alpha + move, old_image + move_image
        if keep:
            self.steps = [(move, move_image), *self.steps][:N_STEPS]


class _Span:
    """The objective over a few directions and the intercepts, whose logits are all known."""

    def __init__(self, search, alphas, images):
        self.search = search
        shape = search.alpha.shape
        self.alphas = np.array(alphas).reshape(-1, *shape)
        self.images = np.array(images).reshape(-1, *shape)
        flat_shape = (len(alphas), search.alpha.size)
        flat_alphas, flat_images = self.alphas.reshape(flat_shape), self.images.reshape(flat_shape)
        self.flat = flat_images
        own = search.image.ravel()
        self.linear = flat_alphas @ own
        self.square = flat_alphas @ flat_images.T
        self.square = (self.square + self.square.T) / 2
        self.constant = search.alpha.ravel() @ own

    def minimize(self):
        scalars, intercept = np.zeros(len(self.flat)), self.search.intercept
        value, posterior = self._evaluate(scalars, intercept)
        for _ in range(20):
            step, decrement = self._newton(scalars, intercept, posterior)
            if decrement <= self.search.precision * value:
                break
            length = 1.0
            while True:
                moved = scalars + length * step[: len(scalars)], intercept + length * step[len(scalars) :]
                new_value, new_posterior = self._evaluate(*moved)
                if new_value <= value - 1e-4 * length * decrement or length < 1e-6:
                    break
                length /= 2
            if not new_value < value:
                break
            (scalars, intercept), value, posterior = moved, new_value, new_posterior
        return scalars, intercept, value, posterior

    def _evaluate(self, scalars, intercept):
        search = self.search
        logits = (scalars @ self.flat).reshape(search.image.shape) + search.image + intercept
        log_posterior = gibbs.log_posterior(logits)
        loss = -search.weight @ log_posterior[np.arange(len(search.labels)), search.labels]
        if search.missing.any():
            loss -= search.missing @ gibbs.log_posterior(intercept)
        size = self.constant + 2 * scalars @ self.linear + scalars @ self.square @ scalars
        return loss + search.kappa / 2 * size, np.exp(log_posterior, out=log_posterior)

    def _newton(self, scalars, intercept, posterior):
        """A Newton step in (scalars, intercept) and the fall it promises; balanced, since scales differ widely."""
        search = self.search
        weighted = search.weight[:, None] * posterior
        residual = weighted.copy()
        residual[np.arange(len(search.labels)), search.labels] -= search.weight
        gradient = self.flat @ residual.ravel() + search.kappa * (self.linear + self.square @ scalars)
        mean = np.einsum("nc,mnc->mn", posterior, self.images)
        curved = weighted * (self.images - mean[..., None])
        hessian = curved.reshape(self.flat.shape) @ self.flat.T + search.kappa * self.square
        if search.problem.fit_intercept:
            intercept_gradient, intercept_hessian = self._intercept_terms(intercept, residual, weighted, posterior)
            cross = curved.sum(axis=1)
            gradient = np.concatenate([gradient, intercept_gradient])
            hessian = np.block([[hessian, cross], [cross.T, intercept_hessian]])
        balance = 1 / np.sqrt(np.maximum(np.diag(hessian), np.finfo(float).tiny))
        balanced = hessian * balance * balance[:, None]
        step = -balance * np.linalg.lstsq(balanced, gradient * balance, rcond=1e-13)[0]
        decrement = -gradient @ step
        if not search.problem.fit_intercept:
            step = np.concatenate([step, np.zeros_like(intercept)])
        return step, decrement

    def _intercept_terms(self, intercept, residual, weighted, posterior):
        gradient = residual.sum(axis=0)
        hessian = np.diag(weighted.sum(axis=0)) - weighted.T @ posterior
        missing = self.search.missing
        if missing.any():
            p = gibbs.posterior(intercept)
            gradient = gradient + missing.sum() * p - missing
            hessian = hessian + missing.sum() * (np.diag(p) - np.outer(p, p))
        return gradient, hessian
