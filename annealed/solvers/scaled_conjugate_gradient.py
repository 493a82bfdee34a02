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
from annealed.solvers.base import Accuracy, Points, Solution, Solver, is_solved, largest_entry

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

    def solve(self, problem, points: Points, accuracy: Accuracy, memory=None) -> Solution:
        """One temperature after the other."""
        each = ((few, float(few.temperatures[0])) for few in points.by_temperature())
        return Solution.joined([self._at(problem, few, temperature, accuracy) for few, temperature in each])

    def _at(self, problem, points: Points, temperature, accuracy: Accuracy) -> Solution:
        solution, tol = Solution.unsolved(points.parameters), accuracy.tol
        n_iter, converged = solution.n_iter, solution.converged
        frame = (_Means if self.coordinates == "paper" else _Parameters)(problem, temperature, points.fits)
        x, each = frame.points(solution.parameters), np.arange(len(points.fits))
        now = frame.evaluate(x, each)
        converged[:] = self._solved(frame, now, tol, each)
        state = _State(now.gradient)
        for _ in range(accuracy.max_iter):
            chosen = np.flatnonzero(~converged & ~state.exhausted)
            if not len(chosen):
                break
            n_iter[chosen] += 1
            state.aim(frame, x, now.gradient, chosen)
            step, slope = state.propose(chosen)
            trial = x[chosen] + step
            new = frame.evaluate(trial, chosen)
            with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
                trust = 2 * (new.value - now.value[chosen]) / slope
            trust = np.where(np.isfinite(trust), trust, -1.0)
            success = trust >= 0
            state.rescale(chosen, trust, success)
            good = chosen[success]
            if not len(good):
                continue
            old_gradient = now.gradient[good]
            x[good] = trial[success]
            now.put(good, new, success)
            state.turn(good, old_gradient, now.gradient[good])
            converged[good] = self._solved(frame, now, tol, good)
        solution.parameters[:] = frame.parameters(x, each)
        solution.value[:] = now.problem_value
        solution.is_certified[:] = converged
        gradient, at = now.problem_gradient, (temperature, points.fits)
        bound = problem.certificate(gradient, solution.value, *at)
        solution.note(problem, slice(None), gradient, largest_entry(gradient), bound, *at)
        return solution

    def _solved(self, frame, now, tol, chosen):
        """SCG has no Newton step to estimate the suboptimality of a fold; the certificate takes its place."""
        problem, gradient, value = frame.problem, now.problem_gradient[chosen], now.problem_value[chosen]
        at = frame.temperature, frame.fits[chosen]
        bound = problem.certificate(gradient, value, *at)
        return is_solved(problem, value, largest_entry(gradient), bound, at[1], tol, bound * np.abs(value))


class _Evaluation(NamedTuple):
    """Value and gradient at points: where steps are taken, and in the parameters of the problem."""

    value: np.ndarray
    gradient: np.ndarray
    problem_value: np.ndarray
    problem_gradient: np.ndarray

    def put(self, places, other: _Evaluation, chosen):
        for array, new in zip(self, other, strict=True):
            array[places] = new[chosen]


class _Parameters:
    """Steps in the parameters of the problem, on Q / T. `chosen` are positions of points."""

    def __init__(self, problem, temperature, fits):
        self.problem, self.temperature, self.fits = problem, temperature, fits

    def points(self, parameters):
        return parameters.copy()

    def parameters(self, points, chosen):
        return points

    def evaluate(self, points, chosen) -> _Evaluation:
        value, gradient, _ = self.problem.objective(points, self.temperature, self.fits[chosen])
        return _Evaluation(value, gradient, value.copy(), gradient.copy())


class _Means(_Parameters):
    """Steps in the soft means, in the units of the features, on Q: the gradient is (12)."""

    def points(self, parameters):
        return SoftMeans(self.problem, self.temperature).of(parameters, self.fits)

    def parameters(self, points, chosen):
        return SoftMeans(self.problem, self.temperature).parameters(points, self.fits[chosen])

    def evaluate(self, points, chosen):
        fits = self.fits[chosen]
        value, gradient, _ = self.problem.objective(self.parameters(points, chosen), self.temperature, fits)
        by_means = SoftMeans(self.problem, self.temperature).gradient(gradient, fits)
        return _Evaluation(self.temperature * value, by_means, value, gradient)


class _State:
    """Per fit: direction and its curvature, the scale, and whether the last step succeeded.

    Numbers are Netlab's: `sigma0`, the length of the step that measures a curvature, and bounds and rules of the scale.
    """

    sigma0, least_scale, largest_scale = 1e-4, 1e-15, 1e100

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
        reach = self.sigma0 / np.sqrt(self.size[fresh])
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
        scale = np.where(trust < 0.25, np.minimum(4 * self.scale[fits], self.largest_scale), self.scale[fits])
        self.scale[fits] = np.where(trust > 0.75, np.maximum(0.5 * scale, self.least_scale), scale)
        self.exhausted[fits] = self.scale[fits] >= self.largest_scale

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
