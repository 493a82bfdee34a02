"""Moller's scaled conjugate gradient method as in Nabney's Netlab, the optimizer of the ADA paper.

There is no line search: a second gradient along the direction measures its curvature, to which a scale is added and
adapted until the quadratic model is trusted. All fits of a stack step together, each with its own state.

The method depends on the coordinates: a linear map of the parameters, or another unit of the objective, gives other
steps. By default it steps in the parameters of the problem, which are whitened and in units of logits. The paper steps
in the soft means of (10), in the units of the features, and minimizes Q rather than Q / T.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from annealed.problems.distance import DistanceProblem, SoftMeans
from annealed.solvers.base import Solver, is_solved, unsolved

SMALL_STEP = 1e-4
SMALLEST_SCALE, LARGEST_SCALE = 1e-15, 1e100
COORDINATES = ("problem", "paper")


class ScaledConjugateGradient(Solver):
    """Scaled conjugate gradient without preconditioner, as published.

    Parameters
    ----------
    coordinates : {"problem", "paper"}, default="problem"
        Where steps are taken. "problem": in the parameters of the problem, which are whitened. "paper": in the soft
        means, in the units of the features, as the gradient (12) is printed; for the distance family only. With a
        bounded number of iterations the two give different means.
    """

    def __init__(self, *, coordinates="problem") -> None:
        self.coordinates = coordinates

    def adapt(self, problem, tol):
        if self.coordinates not in COORDINATES:
            raise ValueError(f"coordinates must be one of {COORDINATES}. Got {self.coordinates!r}.")
        if self.coordinates == "paper" and not isinstance(problem, DistanceProblem):
            raise ValueError(
                'coordinates="paper" needs the distance family, whose parameters are soft means. '
                'Set coordinates="problem".'
            )
        return problem

    def minimize(self, problem, start, temperature, *, tol, max_iter, memory=None, final_only=False):
        solution = unsolved(start)
        n_iter, converged = solution.n_iter, solution.converged
        requested = np.arange(1 if final_only else problem.n_fits)
        frame = (_Means if self.coordinates == "paper" else _Parameters)(problem, temperature)
        x = frame.points(solution.parameters)
        now = _Evaluation.empty(x, solution.parameters)
        now.put(requested, frame.evaluate(x[requested], requested))
        converged[requested] = self._solved(problem, now, temperature, tol, requested)
        state = _State(now.gradient)
        for _ in range(max_iter):
            fits = np.flatnonzero(~converged & ~state.exhausted)
            if not len(fits):
                break
            n_iter[fits] += 1
            state.aim(frame, x, now.gradient, fits)
            step, slope = state.propose(fits)
            trial = x[fits] + step
            new = frame.evaluate(trial, fits)
            with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
                trust = 2 * (new.value - now.value[fits]) / slope
            trust = np.where(np.isfinite(trust), trust, -1.0)
            success = trust >= 0
            state.rescale(fits, trust, success)
            good = fits[success]
            if not len(good):
                continue
            old_gradient = now.gradient[good]
            x[good] = trial[success]
            now.put(good, new, success)
            state.turn(good, old_gradient, now.gradient[good])
            converged[good] = self._solved(problem, now, temperature, tol, good)
        solution.parameters[requested] = frame.parameters(x[requested], requested)
        solution.value[requested] = now.problem_value[requested]
        solution.note(problem, requested, now.problem_gradient[requested], temperature, requested)
        return solution

    def _solved(self, problem, now, temperature, tol, fits):
        """SCG has no Newton step to estimate the suboptimality of a fold; the certificate takes its place."""
        fit_gradient, fit_value = now.problem_gradient[fits], now.problem_value[fits]
        bound = problem.certificate(fit_gradient, fit_value, temperature, fits) * np.abs(fit_value)
        return is_solved(problem, fit_value, fit_gradient, temperature, fits, tol, bound)


class _Evaluation(NamedTuple):
    """Value and gradient at points: where steps are taken, and in the parameters of the problem."""

    value: np.ndarray
    gradient: np.ndarray
    problem_value: np.ndarray
    problem_gradient: np.ndarray

    @classmethod
    def empty(cls, points, parameters):
        unknown = np.full(len(points), np.nan)
        return cls(unknown, np.zeros_like(points), unknown.copy(), np.zeros_like(parameters))

    def put(self, fits, other: _Evaluation, chosen=slice(None)):
        for array, new in zip(self, other, strict=True):
            array[fits] = new[chosen]


class _Parameters:
    """Steps in the parameters of the problem, on Q / T."""

    def __init__(self, problem, temperature):
        self.problem, self.temperature = problem, temperature

    def points(self, parameters):
        return parameters.copy()

    def parameters(self, points, fits):
        return points

    def evaluate(self, points, fits) -> _Evaluation:
        value, gradient, _ = self.problem.objective(points, self.temperature, fits)
        return _Evaluation(value, gradient, value, gradient)


class _Means(_Parameters):
    """Steps in the soft means, in the units of the features, on Q: the gradient is (12)."""

    def points(self, parameters):
        return SoftMeans(self.problem, self.temperature).of(parameters)

    def parameters(self, points, fits):
        return SoftMeans(self.problem, self.temperature).parameters(points, fits)

    def evaluate(self, points, fits):
        value, gradient, _ = self.problem.objective(self.parameters(points, fits), self.temperature, fits)
        by_means = SoftMeans(self.problem, self.temperature).gradient(gradient, fits)
        return _Evaluation(self.temperature * value, by_means, value, gradient)


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

    def aim(self, frame, x, gradient, fits):
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
        ahead = frame.evaluate(x[fresh] + reach[:, None] * direction, fresh).gradient
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
