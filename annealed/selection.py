"""Choose a point of the path (table 1, steps 5 and 7): folds, a held-out part, a validation set, or none.

Two temperatures: the one that fits best and the one at which the posterior is honest need not be the same. At
every temperature the held-out logits are rescaled by one factor exp(s) (`annealed/objectives/posterior_scale.py`), and
the best pair is taken.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
from sklearn.model_selection import (
    KFold,
    RepeatedKFold,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
    check_cv,
)
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import get_routing_for_object

from annealed.interpolation import lagrange
from annealed.objectives import NOTHING_HELD_OUT, HeldOut
from annealed.objectives.leave_one_out import NotTrusted
from annealed.objectives.posterior_scale import deviations, doubt, mean_margin, penalty, rescaled, scaled_moments
from annealed.walk import Validation

DEFAULT_FOLDS = 5
LOGITS_TOGETHER = 1_000_000  # of several temperatures, made in one product
VALIDATED_TOGETHER = 100_000  # likewise, judged in one go
WIDEST_GUESS = 0.5  # beyond the logarithms of scales found at other temperatures, where a next search may begin
HIGH_LEVERAGE = 0.5  # of a row on its own scores, above which one Newton step does not stand for leaving it out
MOST_HIGH_LEVERAGE = 0.05  # share of such rows up to which leave-one-out is trusted
LEAST_GAIN = 1e-4  # of a mean score, below which another metric is not worth taking: folds are not solved further
RISE_ERRORS = 2.5  # standard errors by which a small change must raise the mean score, and the share of it
SMALLEST_RISE = 4e-3  # by which it must, for the whole change to be tried: five times that is about to be gained
STRATIFY = "Use stratified folds: a number, such as cv=5, or StratifiedKFold(shuffle=True) or StratifiedGroupKFold."
RULES = ("best", "one_standard_error")
DEALERS = (KFold, StratifiedKFold, RepeatedKFold, RepeatedStratifiedKFold, ShuffleSplit, StratifiedShuffleSplit)


class NoValidation:
    """Nothing is held out: the path alone."""

    held_out = NOTHING_HELD_OUT
    sees_final = False

    def validate(self, problem, parameters, temperature):
        return Validation()

    def validate_all(self, problem, points, temperatures):
        return [Validation() for _ in points]


@dataclass
class HeldOutValidator:
    """Rows that a fit did not see, with the fold each belongs to.

    labels, weight, folds : of every validated row, in the order of the logits judged
    calibrate : whether the posterior speaks at its own scale
    score_point : scores (fold scores, train score) of a path point by the user's scorer; None is log-loss
    """

    labels: np.ndarray
    weight: np.ndarray
    folds: np.ndarray
    held_out: HeldOut = NOTHING_HELD_OUT
    calibrate: bool = True
    X: object = None
    score_point: Callable | None = None
    _log_scales: dict[float, float] = field(default_factory=dict, init=False)  # found so far, by log temperature

    @property
    def sees_final(self) -> bool:
        return self.X is not None or self.score_point is not None

    def validate(self, problem, parameters, temperature):
        logits = self._logits(problem, parameters, temperature)
        return self._validate_logits(problem, logits[None], [parameters], [temperature])[0]

    def validate_all(self, problem, points, temperatures):
        """Logits of several in one product, and what comes after in one go too, where they are few."""
        if self.X is not None or len(points) == 1:
            return self._validate_each(problem, points, temperatures)
        validated, n_values = [], len(self.labels) * problem.n_classes
        for part in _parts(len(points), LOGITS_TOGETHER // n_values):
            some, own = points[part], temperatures[part]
            logits = problem.held_out_logits_of(some, own)
            for few in _parts(len(some), VALIDATED_TOGETHER // n_values):
                validated += self._validate_logits(problem, logits[few], some[few], own[few])
        return validated

    def _validate_each(self, problem, points, temperatures):
        return [self.validate(problem, *point) for point in zip(points, temperatures, strict=True)]

    def _validate_logits(self, problem, logits, points, temperatures):
        deviation = deviations(logits, self.labels)
        log_scales, losses = np.zeros(len(points)), None
        margin = mean_margin(deviation, self.labels, self.weight) if doubt(self.n_rows) else np.zeros(len(points))
        if self.calibrate:
            places = [float(np.log(temperature)) for temperature in temperatures]
            log_scales, losses = rescaled(
                deviation, self.weight, [self._likely_log_scale(own) for own in places], margin
            )
            self._log_scales.update(zip(places, log_scales.tolist(), strict=True))
        scales = np.exp(log_scales)
        if self.score_point is not None:
            validated = zip(points, temperatures, scales.tolist(), strict=True)
            return [self._by_scorer(self.score_point, problem, *point) for point in validated]
        if losses is None:
            losses, _, _ = scaled_moments(scales, deviation)
        owed = penalty(log_scales, losses @ self.weight / self.n_rows, margin, self.n_rows)
        return [
            Validation(-self._fold_means(own), scale, penalty=extra)
            for own, scale, extra in zip(losses, scales.tolist(), owed.tolist(), strict=True)
        ]

    @staticmethod
    def _by_scorer(score_point, problem, parameters, temperature, scale):
        scores, train_score = score_point(problem, parameters, temperature, scale)
        return Validation(np.asarray(scores, dtype=float), scale, train_score)

    def _likely_log_scale(self, place):
        """By the parabola through the nearest temperatures judged, held to the range around theirs."""
        known = sorted(self._log_scales, key=lambda other: abs(other - place))[:3]
        if place in known or not known:
            return self._log_scales.get(place, 0.0)
        near = [self._log_scales[other] for other in known]
        guess = float(lagrange(known, place) @ near)
        return min(max(guess, min(near) - WIDEST_GUESS), max(near) + WIDEST_GUESS)

    def _logits(self, problem, parameters, temperature):
        """Those of the picked rows, or of a validation set under the final fit."""
        if self.X is None:
            return problem.held_out_logits(parameters, temperature)
        arrays = {name: array[0] for name, array in problem.report(parameters[:1], temperature, slice(0, 1)).items()}
        return problem.predictor.logits(self.X, arrays, temperature)

    def _fold_means(self, losses):
        return np.bincount(self.folds, self.weight * losses) / self._fold_weight

    @cached_property
    def _fold_weight(self):
        total = np.bincount(self.folds, self.weight)
        return np.where(total > 0, total, 1)

    @cached_property
    def n_rows(self) -> float:
        return float(self.weight.sum())


@dataclass
class LeaveOneOut(HeldOutValidator):
    """Every row judged by the final fit without it, approximately; `folds` only group the scores."""

    sees_final = True
    validate_all = HeldOutValidator._validate_each

    def _logits(self, problem, parameters, temperature):
        logits, leverage = problem.leave_one_out(parameters, temperature)
        share = np.mean(leverage[self.weight > 0] > HIGH_LEVERAGE)
        if share > MOST_HIGH_LEVERAGE:
            raise NotTrusted(
                f"Leave-one-out is not to be trusted at temperature {temperature:.3g}: {share:.0%} of the rows all but "
                "decide their own fit, as near separability."
            )
        return logits


def _parts(number, size) -> list[slice]:
    """So many things, at most `size` at a time, one at least."""
    size = max(1, size)
    return [slice(first, first + size) for first in range(0, number, size)]


def compared(steps) -> np.ndarray:
    """Fold scores (n_temperatures, n_folds) of validated steps, by which temperatures and whole paths are compared."""
    return np.stack([step.validation.compared for step in steps])


def best_of(scores: np.ndarray) -> int:
    """Index of the best mean of fold scores, the first of equals; one that is no number is the worst."""
    mean = scores.mean(axis=1)
    return int(np.argmax(np.where(np.isnan(mean), -np.inf, mean)))


def clearly_exceeds(scores: np.ndarray, reference: np.ndarray) -> bool:
    """Whether fold scores are better than others of the same folds by more than one standard error of the difference.

    A path more is a chance more to look good by luck; without the error the worst of 41 tables lost 190 %, not 20.
    """
    difference = scores - reference
    error = difference.std(ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else 0.0
    return bool(difference.mean() > max(error, LEAST_GAIN))


def improves_significantly(scores: np.ndarray, reference: np.ndarray) -> bool:
    """Whether a small change of a setting has raised fold scores by so much, beside its standard error over the folds,
    that all of the change is worth trying. The folds share all but the change, so that the error is small.
    """
    difference = scores - reference
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return bool(difference.mean() > max(RISE_ERRORS * error, SMALLEST_RISE * abs(reference.mean())))


def choose(scores: np.ndarray, rule: str) -> int:
    """Index of the chosen temperature from fold scores (n_temperatures, n_folds).

    "best" takes the best mean, the hottest of equals; "one_standard_error" the hottest whose mean is within one
    standard error of it.
    """
    mean = scores.mean(axis=1)
    if np.isnan(mean).all():
        raise ValueError(
            f"scoring gives no number on some held-out part at each of {len(mean)} temperatures, the last time "
            f"{scores[-1].tolist()}. Take a scorer that always gives one, such as by zero_division=0 of precision."
        )
    best = best_of(scores)
    if rule == "best":
        return best
    with np.errstate(invalid="ignore"):  # infinite scores have no error: the best alone is near
        error = scores[best].std(ddof=1) / np.sqrt(scores.shape[1])
    is_near = mean >= mean[best] - error
    return int(np.argmax(is_near)) if is_near.any() else best


def make_splits(cv, X, y, labels, weight, random_state, split_params) -> list[tuple[np.ndarray, np.ndarray]]:
    """(train rows, test rows) of every fold; a number of folds is stratified and copes with rare classes."""
    if is_number_of_folds(cv):
        n_folds = DEFAULT_FOLDS if cv is None else int(cv)
        splits = stratified_splits(n_folds, labels, random_state, weight)
        n_made = len(splits)
        if 0 < n_made < n_folds:
            warnings.warn(
                f"The largest class has {n_made} rows, fewer than the {n_folds} folds: {n_made} folds are used.",
                UserWarning,
                stacklevel=6,
            )
        return splits
    splitter = check_cv(cv, y, classifier=True)
    if split_params.get("groups") is None and get_routing_for_object(splitter).consumes("split", ["groups"]):
        raise ValueError(
            f"cv={cv!r} needs groups: give them to fit, as fit(X, y, groups=groups). Inside a search or cross_validate "
            "they arrive with scikit-learn's metadata routing enabled."
        )
    every_row = np.arange(len(labels))
    splits = [
        (_row_numbers(train, every_row), _row_numbers(test, every_row))
        for train, test in splitter.split(X, y, **split_params)
    ]
    if not splits:
        raise ValueError(f"cv gave no split of the rows. Got cv={cv!r}.")
    _check_training_classes([train for train, _ in splits], y, labels, weight)
    return splits


def is_number_of_folds(cv) -> bool:
    return cv is None or isinstance(cv, (int, np.integer))


def deals_rows(cv) -> bool:
    """Whether folds are of rows dealt at random, each by itself. A user's own, folds in the order of the rows too, may
    keep rows together that belong to one another.
    """
    return is_number_of_folds(cv) or (type(cv) in DEALERS and getattr(cv, "shuffle", True))


def _check_training_classes(parts, y, labels, weight):
    """Splits of the user's may train without a class, as those of sorted rows do: its held-out rows mislead then."""
    known = np.bincount(labels, weight) > 0
    n_lacking, lacked = 0, 0
    for fold, train in enumerate(parts, start=1):
        weighted = np.bincount(labels[train], weight[train], len(known)) > 0
        if weighted.sum() == 1 < known.sum():
            only = y[labels == np.argmax(weighted)][0]
            raise ValueError(f"Fold {fold} of cv trains on rows of a single class, {only}. {STRATIFY}")
        if weighted.any() and (known & ~weighted).any():
            n_lacking, lacked = n_lacking + 1, int(np.argmax(known & ~weighted))
    if n_lacking:
        warnings.warn(
            f"{n_lacking} of the {len(parts)} folds of cv train without any row of a class, such as "
            f"{y[labels == lacked][0]}, and know nothing of it. {STRATIFY}",
            UserWarning,
            stacklevel=7,
        )


def _row_numbers(rows, every_row):
    """Of rows given by numbers, or by a flag for each."""
    rows = np.asarray(rows)
    if rows.ndim > 1:
        raise ValueError(f"cv must give rows by a list of numbers, or of a flag for each. Got shape {rows.shape}.")
    try:
        return every_row[rows if rows.size else rows.astype(int)]
    except IndexError as error:
        raise ValueError(
            f"cv must give rows by their numbers, from 0 to {every_row[-1]}, or by a flag for each: {error}."
        ) from error


def stratified_splits(n_folds, labels, random_state, weight=None):
    """Shuffled stratified folds whose training parts have every class: a class of one row is never held out, and so
    not seen by validation. There are no more folds than rows of the largest class. Rows without weight are in none, as
    if they were not there.

    Shuffled, because tables often come sorted; `random_state=None` shuffles the same way every time.
    """
    if n_folds < 2:
        raise ValueError(f"cv must be at least 2 folds. Got {n_folds}.")
    weighty = np.arange(len(labels)) if weight is None else np.flatnonzero(weight)
    labels = labels[weighty]
    counts = np.bincount(labels)
    alone = counts[labels] == 1
    shared = np.flatnonzero(~alone)
    most = counts.max()
    if most < 2:
        return []
    n_folds = min(n_folds, int(most))
    seed = 0 if random_state is None else random_state
    few_bytes = labels[shared].astype(np.min_scalar_type(len(counts)))  # are sorted fast
    fold_of_row = _dealt(n_folds, few_bytes, check_random_state(seed))
    alone, shared = weighty[alone], weighty[shared]
    return [
        (np.concatenate([shared[fold_of_row != fold], alone]), shared[fold_of_row == fold]) for fold in range(n_folds)
    ]


def _dealt(n_folds, labels, generator):
    """The fold of each row, dealt as scikit-learn's `StratifiedKFold(shuffle=True)` does, in a fraction of its time.

    Classes come in the order in which they first occur; along all rows in that order, folds take turns.
    """
    order, ends = np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))
    runs = [order[first:last] for first, last in pairwise([0, *ends]) if first < last]
    fold_of_row, done = np.empty(len(labels), dtype=np.int16), 0
    for rows in sorted(runs, key=lambda own: own[0]):
        turns = np.sort(np.arange(done, done + len(rows)) % n_folds)
        generator.shuffle(turns)
        fold_of_row[rows] = turns
        done += len(rows)
    return fold_of_row


def fold_weights(splits, sample_weight):
    """Weight per row and fit, rows innermost: the final fit on all rows first, then each fold on its training part."""
    weight = np.zeros((len(sample_weight), 1 + len(splits)), order="F")
    weight[:, 0] = sample_weight
    for fit, (train, _) in enumerate(splits, start=1):
        weight[:, fit] = sample_weight * times_drawn(train, len(sample_weight))
    return weight


def times_drawn(train, n_rows) -> np.ndarray:
    """How often each row is in a training part: a bootstrap sample holds some of them several times."""
    return np.bincount(train, minlength=n_rows)


def score_groups(weight):
    """A group for each row, so that scores of single rows have an error as those of folds do; of those that have any
    weight, each group has about as many.
    """
    groups, weighty = np.zeros(len(weight), dtype=int), np.flatnonzero(weight)
    groups[weighty] = np.random.RandomState(0).permutation(len(weighty)) % min(DEFAULT_FOLDS, len(weighty))
    return groups


def held_out_by_fold(splits) -> tuple[HeldOut, np.ndarray]:
    """Picks of every held-out row by the fit of its fold, fold by fold, and the fold of each."""
    rows = np.concatenate([test for _, test in splits])
    folds = np.concatenate([np.full(len(test), fold) for fold, (_, test) in enumerate(splits)])
    return HeldOut(rows, folds + 1), folds
