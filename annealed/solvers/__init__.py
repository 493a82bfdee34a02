"""One minimum at one temperature, one file a method."""

from annealed.solvers.base import Solution, Solver
from annealed.solvers.lbfgs import LBFGS
from annealed.solvers.scaled_conjugate_gradient import ScaledConjugateGradient

SOLVERS = {"lbfgs": LBFGS, "scg": ScaledConjugateGradient}

__all__ = ["LBFGS", "SOLVERS", "ScaledConjugateGradient", "Solution", "Solver", "make_solver"]


def make_solver(solver) -> Solver:
    """A solver from its name, or the solver itself."""
    if isinstance(solver, Solver):
        return solver
    if solver not in SOLVERS:
        raise ValueError(f"solver must be one of {tuple(SOLVERS)} or a Solver. Got {solver!r}.")
    return SOLVERS[solver]()
