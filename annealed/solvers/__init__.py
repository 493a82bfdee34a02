"""One minimum at one temperature, one file a method."""

from annealed.objectives import Problem
from annealed.solvers.base import Solution, Solver
from annealed.solvers.lbfgs import LBFGS
from annealed.solvers.newton import Newton
from annealed.solvers.scaled_conjugate_gradient import ScaledConjugateGradient

SOLVERS = {"lbfgs": LBFGS, "newton": Newton, "scg": ScaledConjugateGradient}
MOST_NEWTON_PARAMETERS = 256
MOST_NEWTON_WORK = 3e8  # multiplications for the Hessians of one pass

__all__ = ["LBFGS", "SOLVERS", "Newton", "ScaledConjugateGradient", "Solution", "Solver", "make_solver"]


def make_solver(solver, problem: Problem) -> Solver:
    """A solver from its name, or the solver itself; "auto" is Newton where Hessians are cheap, else L-BFGS."""
    if isinstance(solver, Solver):
        return solver
    if solver == "auto":
        solver = "newton" if _has_cheap_hessian(problem) else "lbfgs"
    if solver not in SOLVERS:
        raise ValueError(f"solver must be one of {('auto', *SOLVERS)} or a Solver. Got {solver!r}.")
    if solver == "newton" and not problem.has_hessian:
        raise ValueError('solver="newton" needs a family with a Hessian, such as InnerProduct(). Use "lbfgs".')
    return SOLVERS[solver]()


def _has_cheap_hessian(problem):
    n_parameters = problem.n_parameters
    work = problem.n_fits * problem.design.n_rows * n_parameters**2
    return problem.has_hessian and n_parameters <= MOST_NEWTON_PARAMETERS and work <= MOST_NEWTON_WORK
