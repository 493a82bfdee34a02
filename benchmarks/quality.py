"""Suboptimality of a point of the path, computed independently of the library and always in float64.

With kappa = l2_strength T and `spread`, the unit in which the penalty scaling measures each column, (17) / T is

    f(coef, intercept) = sum_i share_i [ log_partition_i - logit of the true class ] + kappa / 2 |coef * spread|^2

with share_i = 1/N, or the weight of sample i divided by all weights.

The best intercept for given coef is found exactly. There f is kappa-strongly convex in coef * spread, hence

    f(coef, intercept) - min f  <=  f(coef, intercept) - f(coef, best) + |gradient(coef, best) / spread|^2 / (2 kappa)

For the scalings "half-whiten" and "whiten", `coef * spread` is rotated to the principal directions of the standardized
columns and multiplied by the power POWERS of their variances, and the gradient is divided by it. Both vanish outside
these directions. The bound holds for the answer of any solver. A reference optimum is our own solution at
REFERENCE_TOL, certified by the same inequality. Shapes: coef (n_classes, n_features), intercept (n_classes,).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from annealed import AnnealedLogisticRegression
from benchmarks.contract import Anchor, Table
from benchmarks.measure import quietly

REFERENCE_TOL = 1e-6  # `tol` of the reference; its certified relative suboptimality is about a hundredth of this
LOOSE_REFERENCE = 1e-6  # certified relative suboptimality from which a reference is noted as loose
MOST_INTERCEPT_STEPS = 100
POWERS = {"half-whiten": 0.25, "whiten": 0.5}  # power of the variance of a principal direction
SMALLEST_SIZE = 3e-7  # relative to the largest singular value; smaller ones are rounding errors


@dataclass(frozen=True)
class Gap:
    """Value of f, and a bound on its excess over the minimum."""

    value: float
    bound: float

    @property
    def relative(self) -> float:
        """Bound on f / min f - 1; infinite if the bound is no smaller than the value."""
        least = self.value - self.bound
        return self.bound / least if least > 0 else inf


class PenalizedLikelihood:
    """f of one table, with the penalty scalings of `AnnealedLogisticRegression`."""

    def __init__(self, X, y, penalty_scaling="auto", l2_strength=1.0, sample_weight=None):
        self.X, self.l2_strength = X, l2_strength
        weight = np.ones(X.shape[0]) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        self.share = weight / weight.sum()
        self.mean = self.share @ X
        _, self.labels = np.unique(y, return_inverse=True)
        self.rows = np.arange(len(self.labels))
        is_dense = isinstance(X, np.ndarray)
        self.penalty_scaling = ("standardize" if is_dense else "none") if penalty_scaling == "auto" else penalty_scaling
        self.spread = np.ones(X.shape[1]) if self.penalty_scaling == "none" else spread_of_columns(X, self.share)
        self.directions: np.ndarray | None = None
        if self.penalty_scaling in POWERS:
            root = np.sqrt(self.share)[:, None]
            _, size, across = np.linalg.svd((X - self.mean) / self.spread * root, full_matrices=False)
            is_kept = size > SMALLEST_SIZE * size[0]
            self.directions, self.raised = across[is_kept].T, size[is_kept] ** (2 * POWERS[self.penalty_scaling])

    def value(self, coef, intercept, temperature) -> float:
        losses, _ = self._losses(self._logits(coef, intercept))
        return self.share @ losses + self._penalty(coef, temperature)

    def gap(self, coef, intercept, temperature) -> Gap:
        logits = self._logits(coef, intercept)
        value = self.share @ self._losses(logits)[0]
        best_value, residual = self._at_best_intercept(logits)
        weighted = self.share[:, None] * residual
        gradient = np.asarray(self.X.T @ weighted).T - np.outer(weighted.sum(axis=0), self.mean)  # the sum is rounding
        gradient = gradient / self.spread
        if self.directions is not None:
            gradient = gradient @ self.directions / self.raised
        kappa = self.l2_strength * temperature
        gradient = gradient + kappa * self._measured(coef)
        bound = max(value - best_value, 0.0) + np.sum(gradient**2) / (2 * kappa)
        return Gap(value + self._penalty(coef, temperature), bound)

    def _logits(self, coef, intercept):
        return np.asarray(self.X @ np.asarray(coef, dtype=np.float64).T) + intercept

    def _penalty(self, coef, temperature):
        return self.l2_strength * temperature / 2 * np.sum(self._measured(coef) ** 2)

    def _measured(self, coef):
        """Coefficients in the units of the penalty scaling."""
        measured = coef * self.spread
        return measured if self.directions is None else measured @ self.directions * self.raised

    def _losses(self, logits):
        """Loss of each row and `posterior - targets`, both computed from the other classes to avoid cancellation."""
        others = logits - logits[self.rows, self.labels][:, None]
        others[self.rows, self.labels] = -np.inf
        losses = np.logaddexp(0, np.logaddexp.reduce(others, axis=1))
        residual = np.exp(others - losses[:, None])
        residual[self.rows, self.labels] = -residual.sum(axis=1)
        return losses, residual

    def _at_best_intercept(self, logits):
        """Mean loss and residual at the best intercept, found by Newton's method on a shift of the logits."""
        losses, residual = self._losses(logits)
        shift = np.zeros(logits.shape[1])
        for _ in range(MOST_INTERCEPT_STEPS):
            gradient = self.share @ residual
            step = -np.linalg.lstsq(self._intercept_hessian(residual), gradient, rcond=1e-12)[0]
            if -gradient @ step <= 1e-16 * (self.share @ losses):
                break
            while True:
                new_losses, new_residual = self._losses(logits + shift + step)
                if self.share @ new_losses <= self.share @ losses or np.abs(step).max() < 1e-14:
                    break
                step /= 2
            shift, losses, residual = shift + step, new_losses, new_residual
        return self.share @ losses, residual

    def _intercept_hessian(self, residual):
        posterior = residual.copy()
        posterior[self.rows, self.labels] += 1
        return np.diag(self.share @ posterior) - (posterior.T * self.share) @ posterior


def spread_of_columns(X, share):
    """Standard deviation of each column under weights that add up to one; one for constant columns."""
    mean = share @ X
    if isinstance(X, np.ndarray):
        spread = np.sqrt(share @ (X - mean) ** 2)
    else:
        spread = np.sqrt(np.maximum(share @ X.multiply(X).tocsr() - mean**2, 0.0))
    return np.where(spread <= 1e-13 * np.abs(mean), 1.0, spread)


class Yardstick:
    """Suboptimality of any solution for one table; expensive parts are computed once."""

    def __init__(self, table: Table, has_reference=True):
        self.table, self.has_reference = table, has_reference
        self._likelihoods: dict[str, PenalizedLikelihood] = {}
        self._references: dict[tuple[str, float], Gap] = {}

    def likelihood(self, penalty_scaling="auto") -> PenalizedLikelihood:
        if penalty_scaling not in self._likelihoods:
            self._likelihoods[penalty_scaling] = PenalizedLikelihood(self.table.X, self.table.y, penalty_scaling)
        return self._likelihoods[penalty_scaling]

    def reference(self, temperature, penalty_scaling="auto") -> Gap:
        """The optimum at a temperature to about eight digits, with its certificate."""
        key = (penalty_scaling, float(temperature))
        if key not in self._references:
            tight = AnnealedLogisticRegression(
                schedule=[temperature], selection="last", tol=REFERENCE_TOL, penalty_scaling=penalty_scaling
            )
            model, _ = quietly(lambda: tight.fit(self.table.X, self.table.y))
            path = model.path_
            self._references[key] = self.likelihood(penalty_scaling).gap(path.coef[0], path.intercept[0], temperature)
        return self._references[key]

    def evaluate(self, coef, intercept, temperature, penalty_scaling="auto") -> dict:
        """Columns of the results for one point: the certified bound and the excess over the reference."""
        gap = self.likelihood(penalty_scaling).gap(coef, intercept, temperature)
        columns = {"temperature": temperature, "suboptimality": gap.relative}
        if self.has_reference:
            reference = self.reference(temperature, penalty_scaling)
            columns["reference_suboptimality"] = gap.value / reference.value - 1
            if reference.relative > LOOSE_REFERENCE:
                columns["note"] = f"its reference is only certified to {reference.relative:.0e}"
        return columns

    def evaluate_path(self, path, penalty_scaling="auto") -> dict:
        """Worst certified bound over the temperatures of the path, and over the geometric means of neighbours."""
        middles = np.sqrt(path.temperatures[1:] * path.temperatures[:-1])
        between = [self._bound(path.at(middle)[0], middle, penalty_scaling) for middle in middles]
        visited = [
            self._bound({"coef": coef, "intercept": intercept}, temperature, penalty_scaling)
            for coef, intercept, temperature in zip(path.coef, path.intercept, path.temperatures, strict=True)
        ]
        return {"suboptimality": max(visited), "suboptimality_between": max(between, default=0.0)}

    def excess_at(self, path, anchor: Anchor) -> float:
        """Worst excess over a reference optimum, at both ends of the path and at the chosen temperature."""
        excesses = []
        for temperature in {anchor.hot, anchor.chosen, anchor.cold}:
            arrays, _ = path.at(temperature)
            value = self.likelihood(anchor.penalty_scaling).value(arrays["coef"], arrays["intercept"], temperature)
            excesses.append(value / self.reference(temperature, anchor.penalty_scaling).value - 1)
        return max(excesses)

    def _bound(self, arrays, temperature, penalty_scaling) -> float:
        return self.likelihood(penalty_scaling).gap(arrays["coef"], arrays["intercept"], temperature).relative
