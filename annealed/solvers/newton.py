"""Newton's method on a stack of fits, for problems small enough that the exact Hessian costs next to nothing.

One pass gives value, gradient and Hessian of every unfinished fit at its trial point; a fit whose value does not
fall tries half the step in the next pass.
"""

from __future__ import annotations

import numpy as np

from annealed.solvers.base import ROUNDING, Solution, Solver, is_solved, largest_entry

ARMIJO = 1e-4
SHORTEST_STEP = 1e-10
TIGHTENING = 0.01  # of the tolerance: near the minimum one more step squares the error


class Newton(Solver):
    """Damped Newton steps with the exact Hessian, for families that give one."""

    def minimize(self, problem, start, temperature, *, tol, max_iter, memory=None):
        tol = TIGHTENING * tol
        x = start.copy()
        value, gradient, hessian = problem.objective_and_hessian(x, temperature, slice(None))
        n_iter = np.zeros(len(x), dtype=int)
        converged = is_solved(problem, value, gradient, temperature, tol, slice(None))
        active = np.flatnonzero(~converged)
        direction, slope = np.zeros_like(x), np.zeros(len(x))
        length = np.ones(len(x))
        direction[active], slope[active] = _aim(gradient[active], hessian[active])
        for _ in range(max_iter):
            if not len(active):
                break
            trial = x[active] + length[active, None] * direction[active]
            new_value, new_gradient, new_hessian = problem.objective_and_hessian(trial, temperature, active)
            n_iter[active] += 1
            bound = value[active] + ARMIJO * length[active] * slope[active] + ROUNDING * np.abs(value[active])
            accepted = new_value <= bound
            good = active[accepted]
            length[active[~accepted]] /= 2
            x[good], value[good], gradient[good] = trial[accepted], new_value[accepted], new_gradient[accepted]
            direction[good], slope[good] = _aim(gradient[good], new_hessian[accepted])
            length[good] = 1.0
            converged[good] = is_solved(problem, value[good], gradient[good], temperature, tol, good)
            active = active[~converged[active] & (length[active] > SHORTEST_STEP)]
        return Solution(x, value, largest_entry(gradient), n_iter, converged)


def _aim(gradient, hessian):
    """Newton directions and their slopes; a tiny ridge keeps a flat direction (a common shift) solvable."""
    ridge = 1e-14 * np.trace(hessian, axis1=1, axis2=2)[:, None, None] * np.eye(hessian.shape[1])
    direction = -np.linalg.solve(hessian + ridge, gradient[..., None])[..., 0]
    return direction, np.einsum("sp,sp->s", gradient, direction)
