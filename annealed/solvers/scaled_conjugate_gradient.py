"""Moller's scaled conjugate gradient method as in Nabney's Netlab, the optimizer of the ADA paper.

There is no line search: a second gradient along the direction measures its curvature, to which a scale is added and
adapted until the quadratic model is trusted. All fits of a stack step together, each with its own state.
"""

from __future__ import annotations

import numpy as np

from annealed.solvers.base import Solver, is_solved, unsolved

SMALL_STEP = 1e-4
SMALLEST_SCALE, LARGEST_SCALE = 1e-15, 1e100


class ScaledConjugateGradient(Solver):
    """Scaled conjugate gradient without preconditioner, as published."""

    def minimize(self, problem, start, temperature, *, tol, max_iter, memory=None, final_only=False):
        solution = unsolved(start)
        x, value, n_iter, converged = solution.parameters, solution.value, solution.n_iter, solution.converged
        requested = np.arange(1 if final_only else problem.n_fits)
        gradient = np.zeros_like(x)
        value[requested], gradient[requested], _ = problem.objective(x[requested], temperature, requested)
        converged[requested] = self._solved(problem, value, gradient, temperature, tol, requested)
        state = _State(gradient)
        for _ in range(max_iter):
            fits = np.flatnonzero(~converged & ~state.exhausted)
            if not len(fits):
                break
            n_iter[fits] += 1
            state.aim(problem, x, gradient, temperature, fits)
            step, slope = state.propose(fits)
            trial = x[fits] + step
            new_value, new_gradient, _ = problem.objective(trial, temperature, fits)
            with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
                trust = 2 * (new_value - value[fits]) / slope
            trust = np.where(np.isfinite(trust), trust, -1.0)
            success = trust >= 0
            state.rescale(fits, trust, success)
            good = fits[success]
            if not len(good):
                continue
            old_gradient = gradient[good]
            x[good], value[good], gradient[good] = trial[success], new_value[success], new_gradient[success]
            state.turn(good, old_gradient, gradient[good])
            converged[good] = self._solved(problem, value, gradient, temperature, tol, good)
        solution.note(problem, requested, gradient[requested], temperature, requested)
        return solution

    def _solved(self, problem, value, gradient, temperature, tol, fits):
        """SCG has no Newton step to estimate the suboptimality of a fold; the certificate takes its place."""
        fit_gradient, fit_value = gradient[fits], value[fits]
        bound = problem.certificate(fit_gradient, fit_value, temperature, fits) * np.abs(fit_value)
        return is_solved(problem, fit_value, fit_gradient, temperature, fits, tol, bound)


class _State:
    """Per fit: direction and its curvature, the scale, and whether the last step succeeded."""

    def __init__(self, gradient):
        n_fits = len(gradient)
        self.direction = -gradient
        self.scale = np.ones(n_fits)
        self.success = np.ones(n_fits, dtype=bool)
        self.n_success = np.zeros(n_fits, dtype=int)
        self.slope = np.zeros(n_fits)
        self.size = np.zeros(n_fits)
        self.curvature = np.zeros(n_fits)
        self.exhausted = np.zeros(n_fits, dtype=bool)

    def aim(self, problem, x, gradient, temperature, fits):
        """After a success, compute slope and curvature along the new direction from a second gradient."""
        fresh = fits[self.success[fits]]
        if not len(fresh):
            return
        slope = _dot(self.direction[fresh], gradient[fresh])
        uphill = fresh[slope >= 0]
        self.direction[uphill] = -gradient[uphill]
        direction = self.direction[fresh]
        self.slope[fresh] = _dot(direction, gradient[fresh])
        self.size[fresh] = np.maximum(_dot(direction, direction), np.finfo(float).tiny)
        reach = SMALL_STEP / np.sqrt(self.size[fresh])
        _, ahead, _ = problem.objective(x[fresh] + reach[:, None] * direction, temperature, fresh)
        self.curvature[fresh] = _dot(direction, ahead - gradient[fresh]) / reach

    def propose(self, fits):
        """The scaled Newton step along the direction, and its slope."""
        size, curvature = self.size[fits], self.curvature[fits]
        delta = curvature + self.scale[fits] * size
        negative = delta <= 0
        delta = np.where(negative, self.scale[fits] * size, delta)
        self.scale[fits] = np.where(negative, self.scale[fits] - curvature / size, self.scale[fits])
        length = -self.slope[fits] / delta
        return length[:, None] * self.direction[fits], length * self.slope[fits]

    def rescale(self, fits, trust, success):
        self.success[fits] = success
        self.n_success[fits] += success
        scale = np.where(trust < 0.25, np.minimum(4 * self.scale[fits], LARGEST_SCALE), self.scale[fits])
        self.scale[fits] = np.where(trust > 0.75, np.maximum(0.5 * scale, SMALLEST_SCALE), scale)
        self.exhausted[fits] = self.scale[fits] >= LARGEST_SCALE

    def turn(self, fits, old_gradient, gradient):
        """The next conjugate direction, reset to steepest descent after as many successes as parameters."""
        direction = self.direction[fits]
        weight = _dot(old_gradient - gradient, gradient) / self.slope[fits]
        restart = self.n_success[fits] >= direction.shape[1]
        weight = np.where(restart, 0, weight)
        self.n_success[fits] = np.where(restart, 0, self.n_success[fits])
        self.direction[fits] = weight[:, None] * direction - gradient


def _dot(left, right):
    return np.einsum("sp,sp->s", left, right)
