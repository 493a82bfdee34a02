"""One minimum at one temperature, one file a method."""

import numpy as np
from scipy import sparse

from annealed.design.coordinates import CONSTANT, WIDEST_EIGENPROBLEM
from annealed.objectives import Problem
from annealed.objectives.array_linear import ArrayProblem
from annealed.objectives.penalized_linear import PenalizedLinearProblem
from annealed.solvers.array_lbfgs import ArrayLBFGS
from annealed.solvers.base import Solution, Solver
from annealed.solvers.lbfgs import LBFGS
from annealed.solvers.newton import BEARABLE_WORK, CHEAP_WORK, Newton, has_hessian
from annealed.solvers.scaled_conjugate_gradient import ScaledConjugateGradient
from annealed.solvers.subspace import Subspace

SOLVERS = {"lbfgs": LBFGS, "newton": Newton, "scg": ScaledConjugateGradient, "subspace": Subspace}

__all__ = [
    "ArrayLBFGS",
    "LBFGS",
    "Newton",
    "SOLVERS",
    "ScaledConjugateGradient",
    "Solution",
    "Solver",
    "Subspace",
    "make_solver",
]


def make_solver(solver, problem: Problem) -> Solver:
    """A solver from its name, or the solver itself; "auto" goes by the problem's shape."""
    if isinstance(problem, ArrayProblem):
        if solver not in ("auto", "lbfgs"):
            raise ValueError(f'Rows on a device are solved by solver="lbfgs" (also "auto"). Got {solver!r}.')
        return ArrayLBFGS()
    if solver == "auto":
        solver = _by_shape(problem)
        if solver == "lbfgs":
            return LBFGS(successor=Newton() if has_hessian(problem, BEARABLE_WORK) else None)
    if not isinstance(solver, Solver) and not (isinstance(solver, str) and solver in SOLVERS):
        raise ValueError(f"solver must be one of {('auto', *SOLVERS)} or a Solver. Got {solver!r}.")
    made = solver if isinstance(solver, Solver) else SOLVERS[solver]()
    if isinstance(made, Newton) and not has_hessian(problem, np.inf):
        raise ValueError('solver="newton" needs a family with a Hessian, such as InnerProduct(). Use "lbfgs".')
    if isinstance(made, Subspace) and not _has_row_form(problem):
        raise ValueError(
            'solver="subspace" is for the inner-product family where columns are so many that no eigenbasis is made of '
            'them. Use "auto", which takes it there, or "lbfgs".'
        )
    if isinstance(made, Subspace) and _is_constant(problem):
        raise ValueError(
            'solver="subspace" needs rows that differ. Got X with equal ones alone. Use "auto", which takes them too.'
        )
    return made


def _by_shape(problem):
    """Combinations of rows where an eigenbasis is out of reach, Newton where Hessians are cheap, else L-BFGS."""
    if _has_row_form(problem) and problem.design.n_features > WIDEST_EIGENPROBLEM and problem.varies:
        if sparse.issparse(problem.design.X) or problem.design.n_rows < problem.design.n_features:
            return "subspace"
    return "newton" if has_hessian(problem, CHEAP_WORK) else "lbfgs"


def _has_row_form(problem):
    """Whether the penalty is |coef|^2 in scaled columns, so that combinations of rows hold the optimum."""
    return isinstance(problem, PenalizedLinearProblem) and problem.span is None and problem.coordinates.basis.ndim == 1


def _is_constant(problem) -> bool:
    """Whether what every column does about the centre is rounding, so that no combination of rows tells anything."""
    coordinates = problem.coordinates  # `problem.varies` asks beside the farthest column, for what auto may lose there
    spread = np.sqrt(coordinates.spectrum) * coordinates.inverse
    return bool((spread <= CONSTANT * np.abs(problem.design.center)).all())
