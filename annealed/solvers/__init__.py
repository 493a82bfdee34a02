"""Solvers: `solve` minimizes at any mixture of fits and temperatures. One file per method, and the plan."""

from annealed.solvers.base import Accuracy, Points, Solution, Solver
from annealed.solvers.lbfgs import LBFGS
from annealed.solvers.newton import Newton
from annealed.solvers.plan import SOLVERS, Plan, Stalled, make_solver
from annealed.solvers.scaled_conjugate_gradient import ScaledConjugateGradient
from annealed.solvers.subspace import Subspace

__all__ = [
    "SOLVERS",
    "Accuracy",
    "LBFGS",
    "Newton",
    "Plan",
    "Points",
    "ScaledConjugateGradient",
    "Solution",
    "Solver",
    "Stalled",
    "Subspace",
    "make_solver",
]
