"""Model selection for prototypes: number of rounds of growth, shrinkage and refinement penalty, by held-out log-loss.

In every fold, prototypes grow in rounds on the training rows. After each round the path of refinement penalties is
computed from strong to weak, and every point of it is scored on the held-out rows. The first two rounds choose the
shrinkage. With that shrinkage rounds go on until they no longer improve, and the best pair of round and penalty is
chosen. The final fit repeats the same rounds on all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

import numpy as np
from scipy.special import entr
from sklearn.model_selection import StratifiedShuffleSplit

from annealed.potts.cooling import NO_WATCH, Cooled, Watch, cool
from annealed.potts.ladder import Plan, along_axes, climb, reheated, subsample
from annealed.potts.principal_rows import PrincipalRows
from annealed.potts.problem import LabelledRows, PottsState
from annealed.potts.refinement import CalibratedPosterior, calibrated, refinements
from annealed.validation.calibration import deviations, rescaled
from annealed.validation.selection import stratified_splits

TRIAL_ROUNDS = 2  # rounds for the choice of the shrinkage: one prototype per class, and two
PATIENCE = 3  # rounds without improvement before growth stops
HARDLY_LEARNT = 0.8  # share of the log-loss of the class frequencies, above which patience is doubled: see `_patience`
PENALTY_PATIENCE = 2  # penalties tried before the path may stop
HOPELESS = 1.15  # loss relative to the best round at the same penalty, above which a path stops, from the third on
SEARCH_ROWS = 3000  # most rows in the search
MANY_NUMBERS = 60_000  # entries of X, above which one held-out part replaces folds
FIT_ROWS = 50_000  # most rows for growth and refinement in the final fit
STRENGTHS = (300.0, 50.0, 8.0, 1.2, 0.2, 0.03)  # refinement penalties, in rows: the penalty is strength / n_rows
SHARPER = tuple(2.0 ** np.arange(0.5, 3.5, 0.5))  # factors on the metric; these are tried first, then their inverses


class Choice(NamedTuple):
    """Result of the search.

    n_rounds : number of rounds of growth
    sharpness : factor on the annealed metric
    strength : refinement penalty, in rows; None for no refinement
    log_scale : logarithm of the calibration factor on the log posterior
    validation_loss : held-out loss of each round at its best penalty
    """

    shrinkage: str | float
    n_rounds: int
    sharpness: float
    strength: float | None
    log_scale: float
    validation_loss: np.ndarray


# --- the search --------------------------------------------------------------------------------------------


@dataclass
class _Fold:
    """A fold and the rounds of growth on its training rows, computed on demand."""

    train: LabelledRows
    test: LabelledRows
    plan: Plan
    shrinkage: str | float
    rungs: list[PottsState] = field(default_factory=list)

    def __post_init__(self):
        self._climb = climb(self.train, self.plan, self.shrinkage)

    def rung(self, number) -> PottsState | None:
        """The prototypes of a round; None if growth ended earlier."""
        while len(self.rungs) <= number:
            cooled = next(self._climb, None)
            if cooled is None:
                return None
            self.rungs.append(cooled.state)
        return self.rungs[number]


class _Found(NamedTuple):
    """A round at its best penalty, with its held-out loss; `walk` holds the losses before and at each penalty."""

    loss: float
    number: int
    sharpness: float
    strength: float | None
    log_scale: float
    walk: tuple[float, ...] = ()


def search(rows: LabelledRows, plan: Plan, watch: Watch = NO_WATCH) -> Choice:
    """Select on folds; the first candidates if no row can be held out, the best so far if the watch stops it."""
    rows = subsample(rows, SEARCH_ROWS, plan.seed).in_single_precision()  # twice as fast, precise enough for a choice
    plan = replace(plan, n_init=1)  # the best of several starts improves no choice
    splits = make_folds(rows, plan.seed)
    if not splits:
        return Choice(plan.shrinkages[0], 1, plan.sharpness or 1.0, None, 0.0, np.zeros(0))
    parts = [_parts(rows, train, test) for train, test in splits]
    ladders = [[_Fold(*part, plan, shrinkage) for part in parts] for shrinkage in plan.shrinkages]
    n_trials = TRIAL_ROUNDS if len(ladders) > 1 else 0
    chance = float(entr(rows.class_weight / rows.class_weight.sum()).sum())
    rounds: list[list[_Found]] = []
    rivals: list[_Found] = []
    for ladder in ladders:
        rounds.append(_extended(ladder, [], n_trials, plan, chance, watch, rivals))
        rivals = rivals + rounds[-1]
    best = min(range(len(ladders)), key=lambda index: min((found.loss for found in rounds[index]), default=np.inf))
    found = _extended(ladders[best], rounds[best], np.inf, plan, chance, watch, rivals)
    chosen = min(found, key=lambda result: result.loss)
    losses = np.array([result.loss for result in found])
    return Choice(plan.shrinkages[best], chosen.number + 1, chosen.sharpness, chosen.strength, chosen.log_scale, losses)


def _parts(rows, train, test) -> tuple[LabelledRows, LabelledRows]:
    """Training and held-out rows of a fold, in the principal axes of the former if there are many columns."""
    training, held_out = along_axes(rows.take(train)), rows.take(test)
    if isinstance(training, PrincipalRows):
        held_out = LabelledRows(training.along(held_out.X), held_out.labels, held_out.weight, rows.n_classes)
    return training, held_out


def _extended(ladder, found, n_rounds, plan, chance, watch: Watch, rivals) -> list[_Found]:
    """Add rounds until they no longer improve; a fold in which growth has ended keeps its last round.

    `chance` is the log-loss of the class frequencies; `rivals` are the rounds of all shrinkages so far.
    """
    found = list(found)
    while len(found) < n_rounds and not watch.is_stopped and not _is_past_best(found, _patience(found, chance)):
        watch.begin()
        rungs = [fold.rung(len(found)) for fold in ladder]
        if all(rung is None for rung in rungs):
            watch.end()
            break
        reached = [rung or fold.rungs[-1] for rung, fold in zip(rungs, ladder, strict=True)]
        found.append(_refined(ladder, reached, len(found), plan, [*rivals, *found]))
        watch.end()
    return found


def _patience(found: list[_Found], chance) -> int:
    """Twice as long where the loss is high: on data such as spirals the first prototypes explain nothing."""
    is_learnt = min((result.loss for result in found), default=np.inf) < HARDLY_LEARNT * chance
    return PATIENCE if is_learnt else 2 * PATIENCE


def _refined(ladder, states, number, plan: Plan, rivals) -> _Found:
    """Held-out loss of a round without refinement and at each penalty, until weaker penalties cannot help."""
    sharpness, start = _sharpened(ladder, states) if plan.sharpness is None else _at(plan.sharpness, ladder, states)
    is_calibrated = plan.sharpness is None
    loss, log_scale = _held_out(ladder, start, is_calibrated)
    best = _Found(loss, number, sharpness, None, log_scale)
    losses, best_losses = [loss], min(rivals, key=lambda rival: rival.loss).walk if rivals else (np.inf,)
    refined = [
        _refinements(fold.train, state, plan.strengths, plan) for fold, state in zip(ladder, states, strict=True)
    ]
    for strength in plan.strengths:
        loss, log_scale = _held_out(ladder, [next(path) for path in refined], is_calibrated)
        losses.append(loss)
        if loss < best.loss:
            best = _Found(loss, number, sharpness, strength, log_scale)
        if _is_over(losses, best_losses):
            break
    return best._replace(walk=tuple(losses))


def _is_over(walk, best_walk) -> bool:
    """Whether a path of penalties should stop.

    It stops if the last loss is above the one before, if no penalty improves on no refinement, or if the round is far
    behind the best one.
    """
    n_penalties = len(walk) - 1
    if n_penalties < PENALTY_PATIENCE:
        return False
    if walk[-1] > walk[-2] or min(walk) == walk[0]:
        return True
    return n_penalties > PENALTY_PATIENCE and walk[-1] > HOPELESS * best_walk[min(n_penalties, len(best_walk) - 1)]


def _sharpened(ladder, states) -> tuple[float, list[CalibratedPosterior]]:
    """The sharpness with the lowest held-out loss of the annealed prototypes, and their posteriors at it."""

    def trial(sharpness):
        _, start = _at(sharpness, ladder, states)
        return sum(_loss(posterior, fold.test) for posterior, fold in zip(start, ladder, strict=True)), sharpness, start

    best = trial(1.0)
    for factors in (SHARPER, [1 / factor for factor in SHARPER]):
        for candidate in map(trial, factors):
            if candidate[0] >= best[0]:
                break
            best = candidate
        if best[1] != 1.0:
            break
    return best[1:]


def _at(sharpness, ladder, states) -> tuple[float, list[CalibratedPosterior]]:
    """A sharpness, and the posteriors of the annealed prototypes at it."""
    return sharpness, [calibrated(fold.train, state, sharpness) for fold, state in zip(ladder, states, strict=True)]


def _loss(posterior: CalibratedPosterior, rows: LabelledRows) -> float:
    return -float(rows.weight @ posterior.log_proba(rows.X)[np.arange(len(rows.X)), rows.labels])


def _is_past_best(found: list[_Found], patience) -> bool:
    return bool(found) and len(found) - 1 - int(np.argmin([result.loss for result in found])) >= patience


def _held_out(ladder, posteriors, is_calibrated) -> tuple[float, float]:
    """Held-out log-loss after calibration by one factor on the log posterior, and the logarithm of that factor.

    If the temperature is given, the posterior is not calibrated: the factor is one.
    """
    logits = np.concatenate(
        [posterior.log_proba(fold.test.X) for posterior, fold in zip(posteriors, ladder, strict=True)]
    )
    labels = np.concatenate([fold.test.labels for fold in ladder])
    weight = np.concatenate([fold.test.weight for fold in ladder])
    if not is_calibrated:
        return -float(weight @ logits[np.arange(len(labels)), labels] / weight.sum()), 0.0
    log_scale, losses = rescaled(deviations(logits, labels), weight)
    return float(weight @ losses / weight.sum()), float(log_scale)


def _refinements(rows, state: PottsState, strengths, plan: Plan) -> Iterator[CalibratedPosterior]:
    """Refinements of the annealed prototypes, starting from the posterior in the annealed metric: at the given
    temperature, or else from the soft one at temperature one.

    The strength of a penalty is in rows: the more rows there are, the less it weighs.
    """
    start = calibrated(rows, state, plan.sharpness or 1.0)
    return refinements(rows, start, [strength / rows.total for strength in strengths])


class Fitted(NamedTuple):
    """Result of the final fit: its rounds, its posterior, the axes of both (None if columns are few), and the choice.

    `choice` is the one that was carried out; a fit that was stopped has no refinement.
    """

    rounds: list[Cooled]
    posterior: CalibratedPosterior
    axes: np.ndarray | None
    choice: Choice


@dataclass
class _Reader:
    """Adapter of a watch: converts functions that return a `Cooled` to functions that return the `Fitted` from it."""

    watch: Watch
    fitted_at: Callable[[Cooled], Fitted]

    @property
    def is_stopped(self):
        return self.watch.is_stopped

    def begin(self, temperature=None):
        self.watch.begin(temperature)

    def end(self, nodes=None):
        self.watch.end(lambda: self.fitted_at(nodes()))


def fit_prototypes(rows: LabelledRows, plan: Plan, choice: Choice, watch: Watch = NO_WATCH) -> Fitted:
    """Fit up to the chosen round, then refine down to the chosen penalty; a stopped fit is not refined.

    Beyond `FIT_ROWS` rows, growth and refinement use a subset, and a last annealing run uses all rows. At every
    temperature the watch receives a function that returns the fit as if it ended there.
    """
    part = subsample(rows, FIT_ROWS, plan.seed)
    is_whole, part = part is rows, along_axes(part)
    axes = getattr(part, "axes", None)
    rounds: list[Cooled] = []
    unrefined = choice if choice.strength is None else choice._replace(strength=None, log_scale=0.0)

    def fitted_at(cooled):
        return Fitted([*rounds, cooled], calibrated(part, cooled.state, choice.sharpness), axes, unrefined)

    for cooled in islice(climb(part, plan, choice.shrinkage, _Reader(watch, fitted_at)), choice.n_rounds):
        if watch.is_stopped:
            return fitted_at(cooled)
        rounds.append(cooled)
    if not is_whole:
        if isinstance(part, PrincipalRows):
            rows = rows.turned(part.axes)
        rounds.append(cool(rows, rounds[-1].state, reheated(replace(plan.cooling, shrinkage=choice.shrinkage))))
    return Fitted(rounds, _posterior(part, rounds[-1].state, plan, choice), axes, choice)


def _posterior(rows, state: PottsState, plan: Plan, choice: Choice) -> CalibratedPosterior:
    """The posterior of the annealed prototypes, with the chosen refinement."""
    if choice.strength is None:
        return calibrated(rows, state, choice.sharpness)
    strengths = [strength for strength in plan.strengths if strength >= choice.strength]
    return list(_refinements(rows, state, strengths, plan))[-1]


# --- rows ---------------------------------------------------------------------------------------------------


def few_along_axes(rows: LabelledRows) -> LabelledRows:
    """The rows in principal axes unless the final fit uses a subset; folds then have no more columns than rows."""
    return along_axes(rows) if rows.n_rows <= FIT_ROWS else rows


def make_folds(rows: LabelledRows, seed) -> list[tuple[np.ndarray, np.ndarray]]:
    """Five folds for up to 300 rows, three for more, a single held-out quarter for large X."""
    n_rows = len(rows.X)
    has_two_of_each_class = np.bincount(rows.labels, minlength=rows.n_classes).min() > 1
    if n_rows > 2000 and rows.X.size > MANY_NUMBERS and has_two_of_each_class:
        return list(StratifiedShuffleSplit(1, test_size=0.25, random_state=seed).split(rows.X, rows.labels))
    return stratified_splits(5 if n_rows <= 300 else 3, rows.labels, seed)
