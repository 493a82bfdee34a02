"""Newton's method on a stack of points, for problems small enough that exact Hessians are cheap.

Evaluations with and without a Hessian alternate: every second step reuses the Cholesky factor of the step before with a
new gradient (Shamanskii's method), and most points need no more. If the value of a point does not decrease, it tries
half the step at the next evaluation. A solved point takes one more step without an evaluation, if that is short: near
the minimum, it squares the error. The same factor gives the tangent, the derivative of the minimum with respect to log
temperature. Systems are solved in differences of scores, starting from points without a common shift of all scores.

If final fits need not be certified, they are solved only as accurately as the folds; that is left for one stack of all
temperatures.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import lapack

from annealed.arrays import as_slice
from annealed.problems.hessian import factored
from annealed.rows.cost import BLOCK_BYTES, CALL, pass_time
from annealed.solvers.base import (
    ARMIJO,
    ROUNDING,
    SHORTEST_STEP,
    STEP_SHARE,
    Accuracy,
    Points,
    Solution,
    Solver,
    is_far,
    is_solved,
    largest_entry,
)

FURTHEST_MOVE = 5.0  # largest change of a sample's score by a step without evaluation: more may harm outlying samples
GROUP_SIZE = 6  # nodes of a path that are solved together if that takes less than the overhead of a pass


class Newton(Solver):
    """Damped Newton steps with the exact Hessian, for families that provide one."""

    gaps_together = 20
    gaps_last = True

    def adapt(self, problem, tol):
        """For tiny problems the cost is call overhead: several temperatures then cost as much as one."""
        n_scores = problem.n_fits * problem.scores.table.n_scores
        of_rows = pass_time(problem.design.n_rows, problem.scores.coordinates.rank, n_scores) - CALL
        self.nodes_together = GROUP_SIZE if GROUP_SIZE * (of_rows + problem.hessians.time) <= CALL else 1
        return problem

    def solve(self, problem, points: Points, accuracy: Accuracy, memory=None) -> Solution:
        """All points in one stack; the final fit at many temperatures in a few, if Hessians are large."""
        solution = replace(Solution.unsolved(points.parameters), tangent=np.zeros_like(points.parameters))
        rest, size = np.arange(len(points.fits)), len(points.fits)
        if size > 1 and not points.fits.any():
            size = max(1, BLOCK_BYTES // (8 * problem.hessians.size**2))
            if accuracy.certify:  # most interpolated starts are solved: that needs no Hessian
                solution.was_far[:] = is_far(_evaluate(problem, solution, points, accuracy.tol), accuracy.tol)
                rest = np.flatnonzero(~solution.converged)
        for first in range(0, len(rest), size):
            places = rest[first : first + size]
            search = _Search(problem, points.part(places), accuracy)
            solution.tangent[places] = search.run(accuracy.max_iter)
            solution.put(places, search.solution)
        ended = np.flatnonzero(~solution.converged & np.isnan(solution.certificate) & (points.fits == 0))
        if len(ended):
            _evaluate(problem, solution, points, accuracy.tol, ended)
        return solution


def _evaluate(problem, solution: Solution, points: Points, tol, places=slice(None)):
    """Certify points where they are, mark those that are solved there, and return their certificates."""
    fits, temperatures, x = points.fits[places], points.temperatures[places], solution.parameters[places]
    value, gradient, _ = problem.objective(x, temperatures, fits)
    largest, bound = largest_entry(gradient), problem.certificate(gradient, value, temperatures, fits)
    solution.value[places] = value
    solution.converged[places] = is_solved(problem, value, largest, bound, fits, tol, np.full(len(fits), np.inf))
    solution.is_certified[places] = solution.converged[places]
    solution.note(problem, places, gradient, largest, bound, temperatures, fits)
    return bound


class _Search:
    """The state of a stack of Newton iterations: point i belongs to fit `fits[i]` at `temperatures[i]`."""

    def __init__(self, problem, points: Points, accuracy: Accuracy):
        fits, temperatures, parameters, hotter = points
        self.problem, self.fits, self.temperatures = problem, fits, temperatures
        self.hessians = problem.hessians
        self.tol, self.certify, self.noise = accuracy.tol, accuracy.certify, problem.gradient_noise()
        self.solution = Solution.unsolved(self.hessians.without_shift(parameters))
        self.x, self.value = self.solution.parameters, self.solution.value  # NaN until the first evaluation
        self.strength, _ = problem.penalty(temperatures, fits)
        self.direction, self.tangent = np.zeros_like(self.x), np.zeros_like(self.x)
        self.slope, self.length = np.zeros(len(self.x)), np.ones(len(self.x))
        self.balance = np.ones((len(fits), self.hessians.size))
        self.factors: list = [None] * len(fits)
        self.is_fresh = np.zeros(len(fits), dtype=bool)  # whether the factor was computed at the current point
        if hotter is not None:  # the start is a step from there, which may be refused
            origin, self.value[:] = self.hessians.without_shift(hotter[0])[fits], hotter[1][fits]
            self.direction, self.x[:] = self.x - origin, origin
        self.active = np.arange(len(fits))

    def run(self, max_iter):
        """Solve the stack, and return the derivatives of the minima with respect to log temperature."""
        for iteration in range(max_iter + 1):
            active = as_slice(self.active)
            is_whole_step = self.is_fresh[active] & (self.length[active] == 1)
            (self._evaluate_values if is_whole_step.all() else self._evaluate_hessians)(active)
            if not len(self.active) or iteration == max_iter:
                break
            self.solution.n_iter[self.active] += 1
        return self.tangent

    def _evaluate_hessians(self, active):
        """Evaluate the trial points of the active fits and temperatures, with Hessians."""
        trial = self.x[active] + self.length[active, None] * self.direction[active]
        terms = self.hessians.terms(trial, self.temperatures[active], self.fits[active])
        good, (gradient, hessian), outcome = self._accepted(active, trial, *terms)
        self._factor(good, hessian)
        self.is_fresh[good] = True
        self.direction[good], self.tangent[good] = self._aim(good, gradient, self.strength[good] * self.x[good])
        self._retire(good, gradient, outcome, self._predicted_decrease(good, gradient))

    def _evaluate_values(self, active):
        """Evaluate full steps from the points where the factors were computed, without Hessians."""
        trial = self.x[active] + self.direction[active]
        terms = self.hessians.along(trial, self.tangent[active], self.temperatures[active], self.fits[active])
        good, (gradient, product), outcome = self._accepted(active, trial, *terms)
        self.is_fresh[good] = False
        self.direction[good], turn = self._aim(good, gradient, product + self.strength[good] * self.x[good])
        self.tangent[good] += turn
        self._retire(good, gradient, outcome, self._predicted_decrease(good, gradient))

    def _accepted(self, active, trial, value, *terms):
        """Accepted points, the terms evaluated there, and for all points (accepted, stalled)."""
        old, length = self.value[active], self.length[active]
        slack = ROUNDING * np.abs(old)
        is_good = (value <= old + ARMIJO * length * self.slope[active] + slack) | np.isnan(old) | (length == 0)
        is_level = (np.abs(value - old) <= slack) & (length > 0)
        if is_level.any():
            is_level &= largest_entry(terms[0]) > 0.5 * self.solution.gradient_norm[active]
        outcome = is_good, is_level
        if is_good.all():
            self.x[active], self.value[active] = trial, value
            return active, terms, outcome
        good, shorter = self.active[is_good], self.active[~is_good]
        self.length[shorter] *= 0.5 * self.is_fresh[shorter]  # no step with an old factor: a new one is computed first
        self.x[good], self.value[good] = trial[is_good], value[is_good]
        return good, [part[is_good] for part in terms], outcome

    def _predicted_decrease(self, good, gradient):
        """The decrease of the value that the next step of these points predicts."""
        slope = self.slope[good] = np.einsum("sp,sp->s", gradient, self.direction[good])
        self.length[good] = 1.0
        self.solution.gradient_norm[good] = largest_entry(gradient)
        return -0.5 * slope

    def _retire(self, good, gradient, outcome, predicted):
        """Drop solved points, after a last step if that is short, and stalled points."""
        accepted, stalled = outcome
        is_short = solved = predicted <= STEP_SHARE * self.tol * np.abs(self.value[good])
        is_final = self.fits[good] == 0
        asks_finals = self.certify and is_final.any()
        if asks_finals or solved.any():
            is_short = self.hessians.furthest_moves(self.direction[good]) <= FURTHEST_MOVE
            solved = solved & is_short
        if asks_finals:
            value, largest = self.value[good], self.solution.gradient_norm[good]
            bound = self.problem.certificate(gradient, value, self.temperatures[good], self.fits[good])
            certified = is_solved(self.problem, value, largest, bound, self.fits[good], self.tol, predicted)
            solved = np.where(is_final, certified, solved)
            self.solution.certificate[good] = np.where(is_final, bound, np.nan)  # a last step only lowers the value
            if not self.solution.n_iter[good].any():
                self.solution.was_far[good] = is_far(bound, self.tol)
        stays = ~stalled & ((self.length[self.active] > SHORTEST_STEP**2) | ~self.is_fresh[self.active])
        is_done = solved | (self.solution.gradient_norm[good] <= self.noise)
        stays[accepted] &= ~is_done
        done = self.active[accepted][is_done]
        self.solution.converged[done], self.solution.is_certified[done] = True, self.certify
        moved = self.active[accepted][solved & is_short]
        self.x[moved] += self.direction[moved]
        self.value[moved] += 0.5 * self.slope[moved]
        self.active = self.active[stays]

    def _factor(self, points, hessians):
        """Cholesky factors of the Hessians, which are overwritten, balanced to unit diagonal."""
        diagonals = np.einsum("sii->si", hessians)
        balance = 1 / np.sqrt(np.maximum(diagonals, np.finfo(float).tiny))
        hessians *= balance[:, :, None]
        hessians *= balance[:, None, :]
        self.balance[points] = balance
        for number, matrix in zip(self._numbers(points), hessians, strict=True):
            self.factors[number] = factored(matrix)

    def _aim(self, points, *vectors):
        """Minus the inverse Hessian times each of several stacks of vectors, (n_points, n_parameters)."""
        balance, shape = self.balance[points], (len(vectors), *vectors[0].shape)
        pulls = self.hessians.by_differences(np.concatenate(vectors)).reshape(len(vectors), *balance.shape)
        pulls = np.multiply(pulls.swapaxes(0, 1), balance[:, None], order="C")
        for number, pull in zip(self._numbers(points), pulls, strict=True):
            lapack.dpotrs(self.factors[number], pull.T, lower=1, overwrite_b=1)  # Fortran order: solved in place
        pulls *= -balance[:, None]
        return self.hessians.from_differences(pulls.swapaxes(0, 1).reshape(-1, balance.shape[1])).reshape(shape)

    def _numbers(self, points):
        return np.arange(len(self.factors))[points].tolist()
