"""Newton's method on a stack of fits, for problems small enough that the exact Hessian costs next to nothing.

One pass gives value, gradient and Hessian of every unfinished fit at its trial point; a fit whose value does not
fall tries half the step in the next pass.
"""

from __future__ import annotations

import numpy as np

from annealed.solvers.base import ROUNDING, Solution, Solver, is_solved, largest_entry

ARMIJO = 1e-4
SHORTEST_STEP = 1e-10
RIDGE = 1e-13
TIGHTENING = 0.01  # of the tolerance: near the minimum one more step squares the error


class Newton(Solver):
    """Damped Newton steps with the exact Hessian, for families that give one."""

    def minimize(self, problem, start, temperature, *, tol, max_iter, memory=None):
        x = start.copy()
        value, gradient, hessian = problem.objective_and_hessian(x, temperature, slice(None))
        direction, slope = _aim(gradient, hessian)
        n_iter, length = np.zeros(len(x), dtype=int), np.ones(len(x))
        solved = is_solved(problem, value, gradient, temperature, TIGHTENING * tol, slice(None))
        active = np.flatnonzero(~solved)
        for _ in range(max_iter):
            if not len(active):
                break
            trial = x[active] + length[active, None] * direction[active]
            new_value, new_gradient, new_hessian = problem.objective_and_hessian(trial, temperature, active)
            n_iter[active] += 1
            slack = ROUNDING * np.abs(value[active])
            accepted = new_value <= value[active] + ARMIJO * length[active] * slope[active] + slack
            is_level = np.abs(new_value - value[active]) <= slack
            stalled = is_level & (largest_entry(new_gradient) > 0.5 * largest_entry(gradient[active]))
            good = active[accepted]
            length[active[~accepted]] /= 2
            x[good], value[good], gradient[good] = trial[accepted], new_value[accepted], new_gradient[accepted]
            direction[good], slope[good] = _aim(gradient[good], new_hessian[accepted])
            length[good] = 1.0
            solved = is_solved(problem, value[active], gradient[active], temperature, TIGHTENING * tol, active)
            active = active[~solved & ~stalled & (length[active] > SHORTEST_STEP)]
        converged = is_solved(problem, value, gradient, temperature, tol, slice(None))
        return Solution(x, value, largest_entry(gradient), n_iter, converged)


def _aim(gradient, hessian):
    """Newton directions and their slopes, from the Hessian balanced to a unit diagonal.

    The ridge keeps a flat direction, such as a common shift of all intercepts, solvable.
    """
    balance = 1 / np.sqrt(np.maximum(np.diagonal(hessian, axis1=1, axis2=2), np.finfo(float).tiny))
    balanced = hessian * balance[:, :, None] * balance[:, None, :] + RIDGE * np.eye(hessian.shape[1])
    direction = -balance * np.linalg.solve(balanced, (balance * gradient)[..., None])[..., 0]
    return direction, np.einsum("sp,sp->s", gradient, direction)
