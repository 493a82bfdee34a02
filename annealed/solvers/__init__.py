"""Solvers of one minimum at one temperature, one file per method, and the choice among them."""

import numpy as np
from scipy import sparse

from annealed.problems import Problem
from annealed.problems.array_linear import ArrayProblem
from annealed.problems.penalized_linear import PenalizedLinearProblem
from annealed.rows.coordinates import CONSTANT, WIDEST_EIGENPROBLEM
from annealed.solvers.array_lbfgs import ArrayLBFGS
from annealed.solvers.base import Accuracy, Plan, Points, Solution, Solver
from annealed.solvers.lbfgs import LBFGS
from annealed.solvers.newton import BEARABLE_WORK, CHEAP_WORK, Newton, has_hessian
from annealed.solvers.scaled_conjugate_gradient import ScaledConjugateGradient
from annealed.solvers.subspace import Subspace

SOLVERS = {"lbfgs": LBFGS, "newton": Newton, "scg": ScaledConjugateGradient, "subspace": Subspace}

__all__ = [
    "Accuracy",
    "ArrayLBFGS",
    "LBFGS",
    "Newton",
    "Plan",
    "Points",
    "SOLVERS",
    "ScaledConjugateGradient",
    "Solution",
    "Solver",
    "Subspace",
    "make_solver",
]


def make_solver(solver, problem: Problem) -> Solver:
    """A solver from its name, or the given solver; "auto" chooses by the shape of the problem."""
    if isinstance(problem, ArrayProblem):
        if solver not in ("auto", "lbfgs"):
            raise ValueError(f'X on a device needs solver="auto" or "lbfgs". Got {solver!r}.')
        return ArrayLBFGS()
    if solver == "auto":
        solver = _by_shape(problem)
        if solver == "lbfgs":
            return LBFGS(successor=Newton() if has_hessian(problem, BEARABLE_WORK) else None)
    if not isinstance(solver, Solver) and not (isinstance(solver, str) and solver in SOLVERS):
        raise ValueError(f"solver must be one of {('auto', *SOLVERS)} or a Solver. Got {solver!r}.")
    chosen = solver if isinstance(solver, Solver) else SOLVERS[solver]()
    if isinstance(chosen, Newton) and not has_hessian(problem, np.inf):
        raise ValueError('solver="newton" needs a family with a Hessian, such as InnerProduct(). Use "lbfgs".')
    if isinstance(chosen, Subspace) and not _has_row_form(problem):
        raise ValueError(
            'solver="subspace" needs the inner-product family, with more features than an eigenbasis is computed for. '
            'Use "auto", which selects it there, or "lbfgs".'
        )
    if isinstance(chosen, Subspace) and _is_constant(problem):
        raise ValueError(
            'solver="subspace" needs samples that differ. Got equal samples only. Use "auto", which accepts them too.'
        )
    return chosen


def _by_shape(problem):
    """Combinations of samples if an eigenbasis is out of reach, Newton if Hessians are cheap, else L-BFGS."""
    design = problem.design
    if _has_row_form(problem) and design.n_features > WIDEST_EIGENPROBLEM:
        varies = problem.scores.coordinates.spectrum.max() > (CONSTANT * np.abs(problem.features.center).max()) ** 2
        if varies and (sparse.issparse(design.X) or design.n_rows < design.n_features):
            return "subspace"
    return "newton" if has_hessian(problem, CHEAP_WORK) else "lbfgs"


def _has_row_form(problem):
    """Whether the penalty is |coef|^2 in scaled features, so that the optimum is a combination of samples."""
    return isinstance(problem, PenalizedLinearProblem) and (
        problem.features.span is None and problem.scores.coordinates.basis.ndim == 1
    )


def _is_constant(problem) -> bool:
    """Whether every feature is constant up to rounding, so that combinations of samples carry no information."""
    coordinates = problem.scores.coordinates  # stricter than "auto", which compares with the largest centre
    spread = np.sqrt(coordinates.spectrum) * coordinates.inverse
    return bool((spread <= CONSTANT * np.abs(problem.design.center)).all())
