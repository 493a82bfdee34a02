"""From samples to a path: the part of a fit that solves the path of each penalty scaling and keeps the best one."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from annealed.callbacks import FitWatch
from annealed.estimators.on_device import device_design
from annealed.estimators.validation import Rows, ValidationMixin
from annealed.path import AdaptiveSchedule, Step, UntilSchedule, anneal, concluded, is_auto, make_schedule
from annealed.problems.penalty_scaling import ScalingChoices
from annealed.rows import make_design
from annealed.rows.threads import threads_over_blocks
from annealed.solvers import Accuracy, Plan, Points, make_solver
from annealed.validation.selection import (
    LEAST_GAIN,
    NoValidation,
    best_of,
    choose,
    clearly_exceeds,
    compared,
    deals_rows,
    fold_weights,
    improves_significantly,
)

PERTURBED_TOL = 1e-2  # tolerance of folds with a perturbed scaling: one or two steps show if the alternative is better


@dataclass(frozen=True)
class SolvedPath:
    """A solved path: the plan that solved it, its validator, the steps, and the settings that were chosen."""

    plan: Plan
    validator: Any
    steps: list[Step]
    settings: dict[str, Any]

    @property
    def problem(self):
        return self.plan.problem


class AnnealingMixin(ValidationMixin):
    """The paths of `AnnealedClassifier`, which defines `_make_objective` and `_keep`."""

    cv: Any
    temperature: Any
    schedule: Any
    solver: Any
    tol: Any
    matmul_precision: Any
    _make_objective: Any
    _keep: Any
    _unit_C: float | None  # the C of temperature one, where C is defined

    def _anneal(self, rows: Rows, selection, validation_set, routed, max_iter, watch: FitWatch) -> SolvedPath:
        """The path of the family, or that of its alternative with the best validation scores."""
        if rows.device is not None and not self._make_objective().runs_on_devices:
            raise ValueError(
                "Rows on a device need the inner-product or the distance family. "
                f"Got {self._make_objective()!r}; move X to NumPy for it."
            )
        splits = [] if validation_set else self._splits(rows, selection, routed["split"])
        if validation_set or len(splits) == 1:
            self._check_rule(1)
        design = self._design(rows, splits)

        score_point = self._point_scorer(rows, splits, validation_set, routed["score"])

        def solved(problem):
            validator = self._validator(rows, selection, splits, validation_set, score_point)
            return self._solve_path(problem, validator, max_iter, watch)

        with threads_over_blocks():
            problem = self._make_objective().prepare(design, check_random_state(self.random_state))
            choices = ScalingChoices(problem)
            if len(splits) > 1 and self._leaves_setting_open() and deals_rows(self.cv):
                choices = choices.initial()
            first = best = solved(choices.problem)
            for other in self._alternatives(choices, first, watch):
                alternative = solved(other)
                scores = self._fold_scores(alternative)
                if scores.mean() > self._fold_scores(best).mean() and clearly_exceeds(scores, self._fold_scores(first)):
                    best = alternative
            certified = slice(None)
            if rows.device is not None:  # only the chosen temperature: full precision takes several times as long
                chosen = self._choose(best.steps, best.validator)
                certified = slice(chosen, chosen + 1)
            return replace(best, steps=concluded(best.plan, best.steps, certified))

    def _alternatives(self, choices: ScalingChoices, first: SolvedPath, watch: FitWatch):
        """Problems that may validate better than the first path.

        With `penalty_scaling="cv"` these are all that the family offers, with "auto" one that a small perturbation of
        the scaling supports.
        """
        if isinstance(first.validator, NoValidation):
            return
        scores = self._fold_scores(first)
        if self._is_log_loss() and scores.mean() >= -LEAST_GAIN:  # no other can be better by that much
            return
        yield from takewhile(lambda _: not watch.is_stopped, choices.others())
        if watch.is_stopped or not self._leaves_setting_open():
            return
        if len(scores) > 1 and (choices.tries_alternative(scores.mean()) or self._prefers_alternative(choices, first)):
            yield choices.alternative()

    def _leaves_setting_open(self) -> bool:
        """Whether the scaling may be chosen: only if the schedule finds its range, because given temperatures refer to
        one scaling.
        """
        return isinstance(self._schedule(), AdaptiveSchedule) and self._is_log_loss()

    def _prefers_alternative(self, choices: ScalingChoices, path: SolvedPath) -> bool:
        """Whether validation scores clearly improve with a small step towards another scaling.

        The folds are solved again with a slightly perturbed scaling, at the best of the last nodes, the only ones that
        keep their folds. First they are solved on with the scaling as it is, so that the effect of further steps is not
        attributed to the scaling.
        """
        nodes = [step for step in path.steps if step.is_node and step.parameters.shape[0] > 1]
        if not nodes:
            return False
        scores = compared(nodes)
        best = best_of(scores)
        node = nodes[best]
        perturbed = choices.perturbed(node.parameters[:1, ...], node.temperature, node.value)
        if perturbed is None:
            return False
        tol = max(self.tol, PERTURBED_TOL)
        folds = np.arange(1, node.parameters.shape[0])

        def scores_of(problem, parameters):
            points = Points(folds, np.full(len(folds), node.temperature), parameters[1:])
            solution = path.plan.solver.solve(problem, points, Accuracy(tol, path.plan.max_iter), path.plan.memory)
            parameters = np.concatenate([parameters[:1], solution.parameters])
            return path.validator.validate(problem, parameters, node.temperature).compared, parameters

        reference, parameters = scores_of(path.problem, node.parameters)
        return improves_significantly(scores_of(perturbed, parameters)[0], reference)

    def _design(self, rows: Rows, splits):
        if rows.device is not None:
            design = device_design(rows.device, splits, len(rows.classes))
            design.matmul_precision = self.matmul_precision
            return design
        stack = fold_weights(splits, rows.weight)
        total = stack.sum(axis=0)
        if not (total > 0).all():
            raise ValueError(f"Fold {int(np.argmin(total))} of cv has no training sample of positive weight.")
        stack /= total
        return make_design(rows.X, rows.labels, stack, total, len(rows.classes))

    def _solve_path(self, problem, validator, max_iter, watch: FitWatch) -> SolvedPath:
        self._predictor = problem.predictor  # which scorers need
        solver, settings = make_solver(self.solver, problem), ScalingChoices(problem).chosen()
        plan = Plan.of(problem, solver, self.tol, max_iter, is_given=not is_auto(self.solver))

        def fitted_so_far(nodes):  # no reference to `watch`, so that it and the samples are freed after the fit
            other = copy(self)
            other._keep(nodes, plan, validator)
            return other.__dict__

        watch.fitted_so_far = fitted_so_far
        steps = anneal(plan, self._schedule(), validator, watch)
        return SolvedPath(plan, validator, steps, settings)

    def _fold_scores(self, path: SolvedPath) -> np.ndarray:
        """Compared score of each fold at the best temperature."""
        scores = compared(path.steps)
        return scores[best_of(scores)]

    def _schedule(self):
        family = self._make_objective()
        settings = {"cooling_rate": family.cooling_rate, "learns_late": family.learns_late}
        schedule = make_schedule(self.schedule, self._unit_C, **settings)
        return schedule if is_auto(self.temperature) else UntilSchedule(schedule, self.temperature)

    def _choose(self, steps, validator):
        if isinstance(validator, NoValidation):
            return len(steps) - 1
        scores = compared(steps)
        self._check_rule(scores.shape[1])  # a scorer may have left out folds
        return choose(scores, self.rule)

    def _check_rule(self, n_folds):
        if self.rule != "best" and n_folds < 2:
            raise ValueError(
                f"rule={self.rule!r} needs several folds, for a standard error. Got {n_folds}. "
                'Set selection="cv" and let cv give several splits, or set rule="best".'
            )
