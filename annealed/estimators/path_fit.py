"""From samples to a path: folds, the path of each penalty scaling, the best of these, and its temperature."""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import numpy as np
from scipy.special import xlogy
from sklearn.metrics import check_scoring

from annealed.callbacks import FitWatch
from annealed.estimators.kernel_search import KernelSearch
from annealed.estimators.parameters import generator_of, is_log_loss, score_name, takes_weight
from annealed.estimators.predictions import finite_in, logits_of_classes, out_of_range
from annealed.estimators.samples import Samples
from annealed.path import (
    AdaptiveSchedule,
    AnnealingPath,
    Step,
    UntilSchedule,
    anneal,
    concluded,
    is_auto,
    make_schedule,
)
from annealed.problems import NOTHING_HELD_OUT, Objective, Predictor
from annealed.problems.kernel import KernelProblem
from annealed.problems.leave_one_out import NotTrusted
from annealed.problems.penalty_scaling import ScalingChoices
from annealed.rows import ArrayDesign, make_design
from annealed.rows.threads import threads_over_blocks
from annealed.solvers import Accuracy, Plan, Points, Stalled, make_solver
from annealed.validation.on_device import DeviceValidator
from annealed.validation.point_scorer import Part, PointScorer
from annealed.validation.selection import (
    DEFAULT_FOLDS,
    LEAST_GAIN,
    HeldOutValidator,
    LeaveOneOut,
    NoValidation,
    best_of,
    choose,
    clearly_exceeds,
    compared,
    deals_rows,
    fold_weights,
    held_out_by_fold,
    improves_significantly,
    is_number_of_folds,
    make_splits,
    score_groups,
    stratified_splits,
)


@dataclass(frozen=True)
class Point:
    """The fitted model at one temperature. Its arrays have the dtype of X.

    scale : calibration factor of the posterior
    unit_C : the C of temperature one, None if C is not defined
    """

    predictor: Predictor
    arrays: dict[str, Any]
    temperature: float
    scale: float
    unit_C: float | None
    dtype: Any

    def moved(self, arrays, temperature, scale) -> Point:
        """Another point of the path, whose parameters are in full precision."""
        arrays = finite_in(self.dtype, temperature, **arrays)
        return replace(self, arrays=arrays, temperature=float(temperature), scale=scale)

    def weights(self, name="coef"):
        """Coefficients and intercepts of the logits, calibrated."""
        with np.errstate(over="ignore", invalid="ignore"):
            coef, intercept = logits_of_classes(*(self.scale * self.arrays[each] for each in (name, "intercept")))
        return finite_in(self.dtype, self.temperature, **{name: coef, "intercept": intercept}).values()


@dataclass(frozen=True)
class SolvedPath:
    """A solved path: the plan that solved it, its validator, the steps, and the settings that were chosen."""

    plan: Plan
    validator: Any
    steps: list[Step]
    settings: dict[str, Any]

    @property
    def is_validated(self) -> bool:
        return not isinstance(self.validator, NoValidation)

    @property
    def scores(self) -> np.ndarray:
        """Compared score of each temperature and fold."""
        return compared(self.steps)

    @property
    def fold_scores(self) -> np.ndarray:
        """Compared score of each fold at the best temperature."""
        return self.scores[best_of(self.scores)]

    @property
    def best_step(self) -> Step:
        return self.steps[best_of(self.scores)]


@dataclass(frozen=True)
class PathFit:
    """What one call of `fit` does after its checks.

    model : an `AnnealedClassifier`, whose parameters are read and whose copies are scored and shown to callbacks
    max_iter : largest number of iterations at one temperature
    metadata : for the splitter and the scorer
    """

    model: Any
    family: Objective
    samples: Samples
    validation_set: Samples | None
    metadata: dict[str, dict]
    max_iter: int
    watch: FitWatch

    def solve(self) -> SolvedPath:
        """The path of the family, or that of another penalty scaling with clearly better validation scores."""
        if not self.samples.place.is_host and not self.family.runs_on_devices:
            raise ValueError(
                f"Rows on a device need the inner-product or the distance family. Got {self.family!r}; move X to NumPy "
                "for it."
            )
        selection = self.model.selection if is_auto(self.model.temperature) else "last"
        try:
            return self._solve(selection)
        except NotTrusted as reason:
            warnings.warn(f"{reason} Folds are used instead.", UserWarning, stacklevel=4)
            return self._solve("cv")

    def _solve(self, selection) -> SolvedPath:
        splits = [] if self.validation_set else self._splits(selection)
        if self.validation_set or len(splits) == 1:
            self._check_rule(1)
        with threads_over_blocks():
            random_state = generator_of(self.model.random_state)
            problem, score_point = self.family.prepare(self._design(splits), random_state), self._point_scorer(splits)

            def solve(problem):
                return self._solve_path(problem, self._validator(selection, splits, score_point))

            if isinstance(problem, KernelProblem):
                best = KernelSearch(problem, solve, lambda: self.watch.is_stopped).run()
            else:
                best = self._best_scaling(problem, solve, len(splits))
            certified = slice(None)
            if not self.samples.place.is_host:  # only the chosen one: full precision takes several times as long
                chosen = self._choose(best)
                certified = slice(chosen, chosen + 1)
            return replace(best, steps=concluded(best.plan, best.steps, certified))

    def record(self, path: SolvedPath) -> tuple[AnnealingPath, Point]:
        """The record of a path, and the model at its chosen temperature."""
        is_scored = not is_log_loss(self.model.scoring) and path.is_validated
        recorded = AnnealingPath.from_steps(
            path.steps,
            path.plan,
            best_index=self._choose(path),
            score_name=score_name(self.model.scoring) if is_scored else "neg_log_loss",
            rule=self.model.rule,
            unit_C=self._unit_C,
        )
        bounds = recorded.certificate
        if bounds is not None and not np.isfinite(bounds).all():
            raise out_of_range("certificate", recorded.temperatures[np.argmin(np.isfinite(bounds))])
        temperature = recorded.temperatures[recorded.best_index]
        arrays, scale = recorded.at(temperature)
        return recorded, self._point(path.plan.problem, arrays, temperature, scale)

    # -- one path ----------------------------------------------------------------------------------------------

    @property
    def _unit_C(self) -> float | None:
        return self.family.unit_C(self.samples.total_weight, len(self.samples.classes))

    def _schedule(self):
        settings = {"cooling_rate": self.family.cooling_rate, "learns_late": self.family.learns_late}
        schedule = make_schedule(self.model.schedule, self._unit_C, **settings)
        given = self.model.temperature
        if is_auto(given):
            return schedule
        if self._unit_C is not None and not np.finfo(float).tiny <= self._unit_C / float(given) < np.inf:
            raise ValueError(
                f"temperature times l2_strength is out of range: C would be {self._unit_C / float(given):.3g}. Got "
                f"temperature={given!r}. Give both nearer to 1."
            )
        return UntilSchedule(schedule, given)

    def _design(self, splits):
        samples, place = self.samples, self.samples.place
        weight = fold_weights(splits, place.wide(samples.weight), place)
        (total,) = place.host(place.xp.sum(weight, axis=0))
        if not (total > 0).all():
            raise ValueError(f"Fold {int(np.argmin(total))} of cv has no training sample of positive weight.")
        weight, labels = place.row(weight / place.wide(total)), place.whole(samples.labels)
        design = make_design(samples.X, labels, weight, total, len(samples.classes), place)
        if isinstance(design, ArrayDesign):
            design.matmul_precision = self.model.matmul_precision
        return design

    def _solve_path(self, problem, validator) -> SolvedPath:
        model, settings = self.model, {} if self.family.keeps_rows else ScalingChoices(problem).chosen()
        if not is_auto(model.temperature):
            problem.start(model.temperature)  # raises an error, before any fit, if nothing can be computed there
        solver = make_solver(model.solver, problem)
        plan = Plan.of(problem, solver, model.tol, self.max_iter, is_given=not is_auto(model.solver))

        def fitted_so_far(nodes):
            other = copy(model)
            other._keep(self, SolvedPath(plan, validator, nodes, settings))
            return other.__dict__

        self.watch.fitted_so_far = fitted_so_far
        try:
            steps = anneal(plan, self._schedule(), validator, self.watch)
        except Stalled:
            plan = plan.in_columns()
            steps = anneal(plan, self._schedule(), validator, self.watch)
        for step in steps:
            if not np.isfinite([step.temperature * step.value, step.gradient_norm]).all():
                raise out_of_range("free energy and gradient", step.temperature)
        return SolvedPath(plan, validator, steps, settings)

    def _choose(self, path: SolvedPath) -> int:
        if not path.is_validated:
            return len(path.steps) - 1
        scores = compared(path.steps)
        self._check_rule(scores.shape[1])  # a scorer may have left out folds
        return choose(scores, self.model.rule)

    def _check_rule(self, n_folds):
        if self.model.rule != "best" and n_folds < 2:
            raise ValueError(
                f"rule={self.model.rule!r} needs several folds, for a standard error. Got {n_folds}. "
                'Set selection="cv" and let cv give several splits, or set rule="best".'
            )

    # -- other kernels and penalty scalings --------------------------------------------------------------------

    def _best_scaling(self, problem, solve, n_folds) -> SolvedPath:
        """The path of the problem, or that of another penalty scaling with clearly better validation scores."""
        choices = ScalingChoices(problem)
        if n_folds > 1 and self._leaves_scaling_open and deals_rows(self.model.cv):
            choices = choices.initial()
        first = best = solve(choices.problem)
        for other in map(solve, self._alternatives(choices, first)):
            scores = other.fold_scores
            if scores.mean() > best.fold_scores.mean() and clearly_exceeds(scores, first.fold_scores):
                best = other
        return best

    def _alternatives(self, choices: ScalingChoices, first: SolvedPath):
        """Problems that may validate better than the first path.

        With `penalty_scaling="cv"` these are all that the family offers, with "auto" one that a small perturbation of
        the scaling supports.
        """
        if not first.is_validated:
            return
        scores = first.fold_scores
        if is_log_loss(self.model.scoring) and scores.mean() >= -LEAST_GAIN:  # no other can be better by that much
            return
        yield from takewhile(lambda _: not self.watch.is_stopped, choices.others())
        if self.watch.is_stopped or not self._leaves_scaling_open or len(scores) < 2 or not choices.is_open:
            return
        shares = first.plan.problem.class_shares[0]
        has_learned = improves_significantly(scores, np.full(len(scores), np.sum(xlogy(shares, shares))))
        if choices.tries_alternative(has_learned) or _prefers_alternative(choices, first):
            yield choices.alternative()

    @property
    def _leaves_scaling_open(self) -> bool:
        """Whether the scaling may be chosen: only if the schedule finds its range, because given temperatures refer to
        one scaling.
        """
        return isinstance(self._schedule(), AdaptiveSchedule) and is_log_loss(self.model.scoring)

    # -- validation --------------------------------------------------------------------------------------------

    def _splits(self, selection):
        samples, model, metadata = self.samples, self.model, self.metadata["split"]
        is_splitter_asked = selection == "cv" and not is_number_of_folds(model.cv)
        if "groups" in metadata and selection != "last" and not is_splitter_asked:
            warnings.warn(
                'groups are ignored: they are for a splitter of selection="cv", such as cv=GroupKFold(5). Samples of '
                f"one group may be on both sides of a split. Got selection={selection!r}, cv={model.cv!r}.",
                UserWarning,
                stacklevel=6,
            )
        if selection not in ("cv", "holdout"):
            return []
        weight = samples.weight
        if selection == "cv":
            y = samples.classes[samples.labels]
            splits = make_splits(model.cv, samples.shown.X, y, samples.labels, weight, model.random_state, metadata)
        else:
            splits = stratified_splits(DEFAULT_FOLDS, samples.labels, model.random_state, weight)[:1]
        weighty = [split for split in splits if weight[split[1]].sum() > 0]  # the others validate nothing
        if splits and not weighty:
            raise ValueError("No held-out sample has a positive weight. Check cv and sample_weight.")
        if not splits:
            warnings.warn(
                "Every class has a single sample of positive weight, so nothing can be held out: the last temperature "
                "is chosen. Weights that are negligible beside the largest count as zero.",
                UserWarning,
                stacklevel=6,
            )
        return weighty

    def _validator(self, selection, splits, score_point):
        """The validator of the temperatures of one path."""
        samples, calibrate = self.validation_set or self.samples, self.model.calibrate
        labels, weight, place = samples.labels, samples.weight, samples.place
        if self.validation_set:
            arguments = (labels, weight, np.zeros(len(labels), dtype=int), NOTHING_HELD_OUT, calibrate, samples.X)
        elif selection == "loo":
            return LeaveOneOut(labels, weight, score_groups(weight), calibrate=calibrate)
        elif splits:
            held_out = held_out_by_fold(splits)
            rows = held_out.rows
            arguments = (labels[rows], weight[rows], held_out.fits - 1, held_out, calibrate, None)
        else:
            return NoValidation()
        if place.is_host:
            return HeldOutValidator(*arguments, score_point)
        return DeviceValidator(*arguments, score_point, place, place.wide(weight))

    def _point_scorer(self, splits) -> PointScorer | None:
        """The user's scorer on held-out samples; None for the log-loss, which needs none."""
        if is_log_loss(self.model.scoring):
            return None
        scorer, metadata = check_scoring(self.model, scoring=self.model.scoring), self.metadata["score"]
        training = Part(0, *self.samples.shown.in_one_library(), metadata)
        if self.validation_set is None:
            tests = enumerate([test for _, test in splits], start=1)
            parts = [training._replace(fit=fit, rows=test) for fit, test in tests]
        else:
            weight = self.validation_set.given_weight
            is_weighed = weight is not None and takes_weight(scorer)
            metadata = {"sample_weight": weight} if is_weighed else {}
            parts = [Part(0, *self.validation_set.shown.in_one_library(), metadata)]
        return PointScorer(scorer, self._model_at, training, parts)

    def _model_at(self, problem, arrays, temperature, scale):
        """A fitted model, as a scorer needs it before the path is complete."""
        other = copy(self.model)
        other._set_point(self._point(problem, arrays, temperature, scale))
        return other

    def _point(self, problem, arrays, temperature, scale) -> Point:
        dtype, place = self.samples.dtype, self.samples.place
        if problem.predictor.needs_digits:
            dtype = np.dtype(float) if place.is_host or place.returns_numpy else place.wide_dtype
        return Point(problem.predictor, {}, 1.0, 1.0, self._unit_C, dtype).moved(arrays, temperature, scale)


def _prefers_alternative(choices: ScalingChoices, path: SolvedPath) -> bool:
    """Whether validation scores clearly improve with a small step towards another scaling.

    The folds are solved again with a slightly perturbed scaling, at the best of the last nodes, the only ones that
    keep their folds. First they are solved on with the scaling as it is, so that the effect of further steps is not
    attributed to the scaling.
    """
    nodes = [step for step in path.steps if step.is_node and step.parameters.shape[0] > 1]
    if not nodes:
        return False
    node = nodes[best_of(compared(nodes))]
    perturbed = choices.perturbed(node.parameters[:1, ...], node.temperature, node.value)
    if perturbed is None:
        return False
    plan, folds = path.plan, np.arange(1, node.parameters.shape[0])
    accuracy = Accuracy(plan.tol, plan.max_iter)

    def scores_of(problem, parameters):
        points = Points(folds, np.full(len(folds), node.temperature), parameters[1:])
        solution = plan.solver.solve(problem, points, accuracy, plan.memory)
        parameters = np.concatenate([parameters[:1], solution.parameters])
        return path.validator.validate(problem, parameters, node.temperature).compared, parameters

    reference, parameters = scores_of(plan.problem, node.parameters)
    return improves_significantly(scores_of(perturbed, parameters)[0], reference)
