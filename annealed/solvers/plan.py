"""The plan of a path: by which solver, in which coordinates and with which precision it is solved, and why."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from annealed.arrays import as_slice
from annealed.problems import Problem, RepresenterProblem
from annealed.problems.linear import LinearProblem
from annealed.problems.penalized_linear import PenalizedLinearProblem
from annealed.rows.coordinates import CONSTANT, WIDEST_EIGENPROBLEM
from annealed.rows.cost import STORED_BYTES, pass_time, row_length
from annealed.solvers.base import Accuracy, Points, Solution, Solver
from annealed.solvers.lbfgs import LBFGS
from annealed.solvers.newton import Newton
from annealed.solvers.scaled_conjugate_gradient import ScaledConjugateGradient
from annealed.solvers.span import MOST_STEPS
from annealed.solvers.subspace import Subspace

SOLVERS: dict[str, type[Solver]] = {
    "lbfgs": LBFGS,
    "newton": Newton,
    "scg": ScaledConjugateGradient,
    "subspace": Subspace,
}
BUDGET, FEWEST_BEFORE = 4, 25  # iterations of a temperature for each of all hotter ones, counted as at least so many
LOOSEST = float(np.sqrt(np.finfo(float).max))  # products with larger tolerances may overflow
PASSES_OF_HESSIAN = 2.5  # time of the Hessians of all fits, in passes, up to which Newton's method is faster
NEWTON_STEPS = 4  # Hessians of all fits that take as long as L-BFGS may take at a temperature, before Newton's method

MOST_NEWTON_ITERATIONS = 4 * NEWTON_STEPS  # at a temperature; every second one needs a Hessian


class Stalled(Exception):
    """Combinations of samples take too many steps: solve the path by `Plan.in_columns`."""


@dataclass
class Plan:
    """How the path of a problem is solved: by which solver, how accurately, and with what memory.

    is_given : whether the user has chosen the solver
    follow_up : Newton's method, from the first temperature at which L-BFGS has taken as long as some exact Hessians
        would: it solves what is left there, and all later temperatures, unless one takes it too many iterations
    may_follow : whether that has not happened yet
    n_converged, n_in_vain : iterations so far at temperatures that have converged, and at those that have not
    """

    problem: Problem
    solver: Solver
    tol: float
    max_iter: int
    memory: Any
    is_given: bool = False
    follow_up: Solver | None = None
    may_follow: bool = True
    n_converged: int = 0
    n_in_vain: int = 0

    @classmethod
    def of(cls, problem: Problem, solver: Solver, tol, max_iter, is_given=False) -> Plan:
        tol, max_iter = min(float(tol), LOOSEST), min(int(max_iter), sys.maxsize)
        problem = solver.adapt(problem, tol)
        return cls(problem, solver, tol, max_iter, solver.new_memory(problem), is_given)

    def solve(self, points: Points, certify=True, n_before: int | None = None) -> Solution:
        """Minimize at all points, within what iterations are left.

        n_before : iterations at all hotter temperatures, if a point that takes many times as many may be given up
        """
        left = max(self.max_iter, BUDGET * self.n_converged) - self.n_in_vain
        most = min(self.max_iter, max(left, FEWEST_BEFORE))
        if n_before is not None and not self.is_given:
            most = min(most, BUDGET * max(FEWEST_BEFORE, n_before))
        solution = self._solved(points, Accuracy(self.tol, most, certify))
        if solution.converged.all():
            self.n_converged += int(solution.n_iter.max())
        else:
            self.n_in_vain += int(solution.n_iter.max())
        is_replaceable = isinstance(self.problem, RepresenterProblem) and not self.is_given
        if is_replaceable and self.max_iter > MOST_STEPS and not solution.converged.all():
            raise Stalled
        return solution

    def _solved(self, points: Points, accuracy: Accuracy) -> Solution:
        """L-BFGS, then Newton's method for what is left; where that takes long too, L-BFGS from then on."""
        patience = np.inf if self.is_given or not self.may_follow else _iterations_before_newton(self)
        if patience >= accuracy.max_iter:
            return self.solver.solve(self.problem, points, accuracy, self.memory)
        first = int(patience)
        if self.follow_up is None:
            solution = self.solver.solve(self.problem, points, accuracy._replace(max_iter=first), self.memory)
            if solution.converged.all():
                return solution
            self.follow_up = Newton()
            self._continue(solution, points, self.follow_up, accuracy._replace(max_iter=MOST_NEWTON_ITERATIONS))
        else:
            few = accuracy._replace(max_iter=min(MOST_NEWTON_ITERATIONS, accuracy.max_iter))
            solution = self.follow_up.solve(self.problem, points, few, None)
        if not solution.converged.all():
            self.follow_up, self.may_follow = None, False
            self._continue(solution, points, self.solver, accuracy._replace(max_iter=accuracy.max_iter - first))
        return solution

    def _continue(self, solution: Solution, points: Points, solver: Solver, accuracy: Accuracy):
        """Solve the points that have not converged further."""
        left = np.flatnonzero(~solution.converged)
        rest = points.part(left)._replace(parameters=solution.parameters[as_slice(left)])
        solution.put(left, solver.solve(self.problem, rest, accuracy, self.memory))

    def in_columns(self) -> Plan:
        """The plan that replaces one in combinations of samples."""
        assert isinstance(self.problem, RepresenterProblem)
        return Plan.of(self.problem.primal, LBFGS(), self.tol, self.max_iter)

    def explain(self) -> str:
        """What was chosen, in one sentence, and why, in another."""
        problem, n_folds = self.problem, self.problem.n_fits - 1
        n_rows, n_features = problem.design.n_rows, problem.features.number
        shape = f"{n_rows} samples, {n_features} features and {problem.n_classes} classes"
        folds = f", the final fit and {n_folds} folds together" if n_folds else ""
        method = _method(self.solver)
        if self.follow_up is not None:
            method += f", then {_method(self.follow_up)},"
        return f"{method} in {_coordinates(problem)}. {shape}{folds}: {self._why()}."

    def _why(self) -> str:
        problem = self.problem
        if not problem.place.is_host:
            precision = getattr(problem.design, "matmul_precision", None)
            rounded = f", with products in {precision}" if precision else ""
            return f"the samples are on a device{rounded}"
        if isinstance(problem, RepresenterProblem):
            return "the features are too many for an eigenbasis"
        why = "the solver was given" if self.is_given else "the family has no exact Hessian"
        if not self.is_given and problem.hessians is not None:
            n_passes = problem.hessians.time / _pass_time(problem)
            why = f"exact Hessians of all fits take about as long as {_shown(n_passes)} passes over the samples"
        is_rounded = isinstance(problem, LinearProblem) and problem.scores.has_quick_rows
        return why + ", with steps in float32 and certificates in float64" * is_rounded


def _shown(number) -> str:
    return f"{number:.1g}" if number < 10 else f"{number:.0f}"


def _method(solver) -> str:
    names: dict[type[Solver], str] = {
        LBFGS: "L-BFGS",
        Newton: "Newton's method",
        Subspace: "Subspace minimization",
        ScaledConjugateGradient: "Scaled conjugate gradients",
    }
    return names.get(type(solver), type(solver).__name__)


def _coordinates(problem) -> str:
    if isinstance(problem, RepresenterProblem):
        return "combinations of samples"
    if problem.features.span is not None:
        return f"a basis of the span of the samples ({problem.features.span.rows.shape[1]} directions)"
    if not isinstance(problem, LinearProblem):
        return "the parameters of the family"
    coordinates = problem.scores.host_coordinates
    is_turned = np.ndim(coordinates.basis) != 1 + coordinates.per_fit
    return f"an eigenbasis of the features ({coordinates.rank} directions)" if is_turned else "scaled features"


def make_solver(solver, problem: Problem) -> Solver:
    """A solver from its name, or the given solver; "auto" chooses by the shape of the problem."""
    if not problem.place.is_host:
        if not isinstance(solver, str) or solver not in ("auto", "lbfgs"):
            raise ValueError(f'X on a device needs solver="auto" or "lbfgs". Got {solver!r}.')
        return LBFGS()
    if isinstance(solver, str) and solver == "auto":
        solver = _by_shape(problem)
    if not isinstance(solver, Solver) and not (isinstance(solver, str) and solver in SOLVERS):
        raise ValueError(f"solver must be one of {('auto', *SOLVERS)} or a Solver. Got {solver!r}.")
    chosen = solver if isinstance(solver, Solver) else SOLVERS[solver]()
    if isinstance(chosen, Newton) and problem.hessians is None:
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
    """Combinations of samples if an eigenbasis is out of reach, Newton if Hessians are cheap, else L-BFGS.

    With many more samples than features, L-BFGS has fewer coefficients to find, and Hessians for most of them.
    """
    design = problem.design
    if _has_row_form(problem) and design.n_features > max(WIDEST_EIGENPROBLEM, design.n_rows / 2):
        varies = problem.scores.coordinates.spectrum.max() > (CONSTANT * np.abs(problem.features.center).max()) ** 2
        if varies:
            return "subspace"
    if problem.hessians is None:
        return "lbfgs"
    return "newton" if problem.hessians.time <= PASSES_OF_HESSIAN * _pass_time(problem) else "lbfgs"


def _iterations_before_newton(plan: Plan) -> float:
    """Iterations of L-BFGS that take as long as NEWTON_STEPS Hessians; infinite where these need too much memory."""
    problem = plan.problem
    if not isinstance(plan.solver, LBFGS) or problem.hessians is None:
        return np.inf
    hessians = problem.hessians
    if 8 * problem.n_fits * hessians.size**2 > STORED_BYTES:
        return np.inf
    return max(1.0, NEWTON_STEPS * hessians.time / _pass_time(problem))


def _pass_time(problem):
    """Estimated time of a pass of all fits over the rows, in nanoseconds."""
    design = problem.design
    return pass_time(design.n_rows, row_length(design.X), problem.n_fits * problem.scores.table.n_scores)


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
