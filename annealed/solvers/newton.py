"""Newton's method on a stack of fits, for problems small enough that the exact Hessian costs next to nothing.

One pass gives value, gradient and Hessian of every unfinished fit at its trial point; a fit whose value does not
fall tries half the step in the next pass. A solved fit takes one more step without a look: near the minimum it squares
the error. The same factor tells how the minimum moves with the temperature. Steps are sought by differences of scores,
from a point without a common shift of all scores.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import lapack

from annealed.solvers.base import ROUNDING, Solution, Solver, is_solved, largest_entry, unsolved

ARMIJO = 1e-4
SHORTEST_STEP = 1e-10
RIDGE = 1e-13


class Newton(Solver):
    """Damped Newton steps with the exact Hessian, for families that give one."""

    filled_together = 20
    fills_last = True

    def minimize(self, problem, start, temperature, *, tol, max_iter, memory=None, final_only=False):
        solution = unsolved(start)
        fits = np.arange(1 if final_only else problem.n_fits)
        tangent = _solve(problem, solution, fits, np.full(len(fits), float(temperature)), tol, max_iter)
        return replace(solution, tangent=tangent)

    def minimize_folds(self, problem, start, temperature, *, tol, max_iter, memory=None):
        """The last step squares what is left: a looser tolerance than others need leaves no more."""
        folds = np.arange(1, problem.n_fits)
        solution = unsolved(start[1:])
        _solve(problem, solution, folds, np.full(len(folds), float(temperature)), 10 * tol, max_iter)
        return Solution.joined([unsolved(start[:1]), solution])

    def fill(self, problem, starts, temperatures, *, tol, max_iter, memory=None):
        """All of them in one stack."""
        solution = unsolved(starts)
        _solve(problem, solution, np.zeros(len(starts), dtype=int), temperatures, tol, max_iter)
        return solution


def _solve(problem, solution, fits, temperatures, tol, max_iter):
    """Minimize at the first points of a solution, point i being of fit `fits[i]` at `temperatures[i]`; the tangents."""
    x, value, n_iter, converged = solution.parameters, solution.value, solution.n_iter, solution.converged
    active = np.arange(len(fits))
    direction, slope, length, tangent = np.zeros_like(x), np.zeros(len(x)), np.ones(len(x)), np.zeros_like(x)
    trial, gradient = problem.without_shift(x[active]), np.zeros_like(x)
    converged[active] = False
    for iteration in range(max_iter + 1):
        at = temperatures[active], fits[active]
        new_value, new_gradient, new_hessian = problem.objective_and_hessian(trial, *at)
        accepted, stalled = _judge(new_value, new_gradient, value, gradient, length, slope, active, iteration)
        good = active[accepted]
        length[active[~accepted]] /= 2
        x[good], value[good], gradient[good] = trial[accepted], new_value[accepted], new_gradient[accepted]
        strength, _ = problem.penalty(temperatures[good], fits[good])
        aims = np.stack([gradient[good], strength * x[good]])
        direction[good], tangent[good] = _aim(problem, aims, new_hessian[accepted])
        slope[good] = np.einsum("sp,sp->s", gradient[good], direction[good])
        length[good] = 1.0
        decrement = -0.5 * slope[active]
        solved = accepted & is_solved(problem, value[active], gradient[active], *at, tol, decrement)
        done = active[solved]
        converged[done] = True
        x[done] += direction[done]
        value[done] -= decrement[solved]
        active = active[~solved & ~stalled & (length[active] > SHORTEST_STEP)]
        if not len(active) or iteration == max_iter:
            break
        trial = x[active] + length[active, None] * direction[active]
        n_iter[active] += 1
    solution.gradient_norm[:] = largest_entry(gradient)
    return tangent


def _judge(new_value, new_gradient, value, gradient, length, slope, active, iteration):
    """Which trial points are accepted, and which fits have nothing left to gain."""
    if not iteration:
        return np.ones(len(active), dtype=bool), np.zeros(len(active), dtype=bool)
    slack = ROUNDING * np.abs(value[active])
    accepted = new_value <= value[active] + ARMIJO * length[active] * slope[active] + slack
    is_level = np.abs(new_value - value[active]) <= slack
    return accepted, is_level & (largest_entry(new_gradient) > 0.5 * largest_entry(gradient[active]))


def _aim(problem, vectors, hessian):
    """Minus the inverse Hessian times each of several stacks of vectors, (n, n_fits, n_parameters); it is balanced to a
    unit diagonal.
    """
    each = np.arange(hessian.shape[1])
    balance = 1 / np.sqrt(np.maximum(hessian[:, each, each], np.finfo(float).tiny))
    balanced = hessian * (balance[:, :, None] * balance[:, None, :])
    balanced[:, each, each] += RIDGE
    flat = problem.by_differences(vectors.reshape(-1, vectors.shape[2])).reshape(len(vectors), *balance.shape)
    solved = balance * _solved(balanced, balance * flat)
    return -problem.from_differences(solved.reshape(-1, balance.shape[1])).reshape(vectors.shape)


def _solved(matrices, vectors):
    """Each symmetric matrix's systems, by Cholesky's factor where rounding has left it one."""
    solved = np.empty_like(vectors)
    for own, matrix in enumerate(matrices):
        _, found, failed = lapack.dposv(matrix, vectors[:, own].T)
        solved[:, own] = (np.linalg.solve(matrix, vectors[:, own].T) if failed else found).T
    return solved
