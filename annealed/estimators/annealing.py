"""From rows to a path: the part of a fit that cools, of whichever problem validates best."""

from __future__ import annotations

import time
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from annealed.callbacks import FitWatch
from annealed.design import make_design
from annealed.design.threads import threads_over_blocks
from annealed.estimators.on_device import device_design
from annealed.estimators.validation import Rows, ValidationMixin
from annealed.objectives.array_families import on_device
from annealed.schedules import UntilSchedule, make_schedule
from annealed.selection import NoValidation, choose, clearly_exceeds, fold_weights, judged, penalized_scores
from annealed.solvers import make_solver
from annealed.walk import Step, anneal


@dataclass(frozen=True)
class Walk:
    """One annealing: the problem as solved, who judged it, the steps, and the settings that were left open."""

    problem: Any
    judge: Any
    steps: list[Step]
    settings: dict[str, Any]
    solver: Any


class AnnealingMixin(ValidationMixin):
    """The walks of `AnnealedClassifier`, whose own are `_make_objective` and `_keep`."""

    schedule: Any
    solver: Any
    tol: Any
    precision: Any
    _make_objective: Any
    _keep: Any

    def _anneal(self, rows: Rows, selection, validation_set, routed, max_iter, watch: FitWatch) -> Walk:
        """The path of the family, or of whichever of its alternatives validates best."""
        if rows.device is not None and not self._make_objective().runs_on_devices:
            raise ValueError(
                "Rows on a device need the inner-product or the distance family. "
                f"Got {self._make_objective()!r}; move X to NumPy for it."
            )
        splits = [] if validation_set else self._splits(rows, selection, routed["split"])
        design = self._design(rows, splits)

        def walk(problem):
            judge = self._judge(rows, selection, splits, validation_set, routed["score"])
            return self._walk(problem, judge, max_iter, watch)

        with threads_over_blocks():
            problem = self._make_objective().prepare(design, check_random_state(self.random_state))
            if rows.device is not None:
                problem = on_device(problem, self.precision)
                problem.speaks_numpy = rows.device.speaks_numpy
            first = best = walk(problem)
            for other in problem.alternatives() if not isinstance(first.judge, NoValidation) else ():
                if watch.is_stopped:
                    break
                rival = walk(other)
                scores = self._fold_scores(rival)
                if scores.mean() > self._fold_scores(best).mean() and clearly_exceeds(scores, self._fold_scores(first)):
                    best = rival
        return best

    def _design(self, rows: Rows, splits):
        if rows.device is not None:
            return device_design(rows.device, splits, len(rows.classes))
        stack = fold_weights(splits, rows.weight)
        total = stack.sum(axis=0)
        if not (total > 0).all():
            raise ValueError(f"Fold {int(np.argmin(total))} of cv has no training row of positive weight.")
        stack /= total
        return make_design(rows.X, rows.labels, stack, total, len(rows.classes))

    def _walk(self, problem, judge, max_iter, watch: FitWatch) -> Walk:
        self._form = problem.form  # what a scorer of points needs
        solver, settings = make_solver(self.solver, problem), problem.chosen()
        problem = solver.adapt(problem, self.tol)

        dtype = watch.data["X"].dtype

        def fitted_so_far(nodes):  # does not know `watch`, so that both, and the rows, go when the fit has ended
            other = copy(self)
            other._keep(nodes, problem, judge, dtype)
            return other.__dict__

        watch.fitted_so_far = fitted_so_far
        steps = anneal(problem, self._schedule(), solver, judge, tol=self.tol, max_iter=max_iter, watch=watch)
        return Walk(problem, judge, steps, settings, solver)

    def _polished(self, walk: Walk, max_iter) -> Walk:
        """The chosen temperature solved on, with products in full precision, until its certificate says so."""
        chosen = self._choose(walk.steps, walk.judge)
        step, steps = walk.steps[chosen], list(walk.steps)
        start = time.perf_counter()
        solution = walk.solver.polish(
            walk.problem,
            step.parameters,
            step.temperature,
            tol=self.tol,
            max_iter=max_iter,
        )
        steps[chosen] = replace(
            step,
            parameters=solution.parameters,
            value=float(solution.value[0]),
            gradient_norm=float(solution.gradient_norm[0]),
            certificate=float(solution.certificate[0]),
            n_iter=step.n_iter + int(solution.n_iter[0]),
            converged=step.converged and bool(solution.converged[0]),
            seconds=step.seconds + time.perf_counter() - start,
        )
        return replace(walk, steps=steps)

    def _fold_scores(self, walk: Walk) -> np.ndarray:
        """Of each fold at the best temperature, less the posterior scale's prior where they are log-losses."""
        scores, scale = judged(walk.steps)
        penalized = penalized_scores(scores, scale, walk.judge.n_rows, self._is_log_loss())
        best = np.argmax(penalized)
        return scores[best] + (penalized[best] - scores[best].mean())

    def _schedule(self):
        schedule = make_schedule(self.schedule, self._make_objective().cooling_rate)
        return schedule if isinstance(self.selection, str) else UntilSchedule(schedule, self.selection)

    def _choose(self, steps, judge):
        if isinstance(judge, NoValidation):
            return len(steps) - 1
        scores, scale = judged(steps)
        if self.rule != "best" and scores.shape[1] < 2:
            raise ValueError(f'rule={self.rule!r} needs several folds to measure an error. Set selection="cv".')
        return choose(scores, scale, judge.n_rows, self.rule, self._is_log_loss())
