"""How many prototypes, how much shrinkage, how much refinement: chosen on rows that a fit did not see.

A ladder of rounds grows prototypes on the training part of every fold; at each round the penalties of the refinement
are walked, strong to weak. The first two rounds choose the shrinkage; its ladder is climbed until rounds help no more,
and the best pair of round and penalty is kept. The refit on all rows climbs the same ladder to the same round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

import numpy as np
from scipy.special import entr
from sklearn.model_selection import StratifiedShuffleSplit

from annealed.objectives.posterior_scale import deviations, rescaled
from annealed.objectives.potts import LabelledRows, PottsState
from annealed.objectives.principal_rows import PrincipalRows
from annealed.prototype_ladder import Plan, along_axes, climb, reheated, subsample
from annealed.prototypes import NOBODY, CalibratedPosterior, Cooled, Watch, calibrated, cool, refinements
from annealed.selection import stratified_splits

TRIAL_ROUNDS = 2  # by which a shrinkage is judged: one prototype a class, and two
MOST_ROUNDS = 20
SEARCH_STARTS = 2  # of the several starts that the last fit tries
PATIENCE = 3  # rounds without gain before growth stops
LONG_PATIENCE = 6  # while hardly anything is learnt: spirals and the like need many prototypes before any helps
HARDLY_LEARNT = 0.8  # of the loss of who knows the classes' shares alone
PENALTY_PATIENCE = 2  # penalties that are tried in any case
HOPELESS = 1.15  # times the loss of the best round at the same penalty, the third or later: refinement stops
SEARCH_ROWS = 3000  # rows that the search looks at
MANY_NUMBERS = 60_000  # of X, beyond which a single part is held out
FIT_ROWS = 50_000  # rows that climb the ladder of the last fit
STRENGTHS = (300.0, 50.0, 8.0, 1.2, 0.2, 0.03)  # penalties, in rows: strength / number of rows
SHARPER = tuple(2.0 ** np.arange(0.5, 3.5, 0.5))  # factors on the metric, and their inverses, tried one after another


class Choice(NamedTuple):
    """What the search found.

    sharpness : factor on the annealed metric
    strength : of the refinement's penalty, in rows; None keeps the annealed solution
    log_scale : logarithm of the factor on the log posterior
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
    """A fold's ladder, climbed as far as it was asked for."""

    train: LabelledRows
    test: LabelledRows
    plan: Plan
    shrinkage: str | float
    rungs: list[PottsState] = field(default_factory=list)

    def __post_init__(self):
        self._climb = climb(self.train, self.plan, self.shrinkage)

    def rung(self, number) -> PottsState | None:
        """The prototypes of a round; None beyond the ladder's end."""
        while len(self.rungs) <= number:
            cooled = next(self._climb, None)
            if cooled is None:
                return None
            self.rungs.append(cooled.state)
        return self.rungs[number]


class _Found(NamedTuple):
    """A round and its best penalty, with what the held-out rows said; `walk` is the loss before and at each penalty."""

    loss: float
    number: int
    sharpness: float
    strength: float | None
    log_scale: float
    walk: tuple[float, ...] = ()


def search(rows: LabelledRows, plan: Plan, watch: Watch = NOBODY) -> Choice:
    """Choose on folds; where there is nothing to hold out, the first of everything; once stopped, the best so far."""
    rows = subsample(rows, SEARCH_ROWS, plan.seed).in_single_precision()  # twice as fast, and only to choose
    plan = replace(plan, n_init=min(plan.n_init, SEARCH_STARTS))
    splits = make_folds(rows, plan.seed)
    if not splits:
        return Choice(plan.shrinkages[0], 1, 1.0, None, 0.0, np.zeros(0))
    parts = [_parts(rows, train, test) for train, test in splits]
    ladders = [[_Fold(*part, plan, shrinkage) for part in parts] for shrinkage in plan.shrinkages]
    n_trials = TRIAL_ROUNDS if len(ladders) > 1 else 0
    chance = float(entr(rows.class_weight / rows.class_weight.sum()).sum())
    rounds: list[list[_Found]] = []
    rivals: list[_Found] = []
    for ladder in ladders:
        rounds.append(_extended(ladder, [], n_trials, plan, chance, watch, rivals))
        rivals = rivals + rounds[-1]
    best = min(range(len(ladders)), key=lambda own: min((found.loss for found in rounds[own]), default=np.inf))
    found = _extended(ladders[best], rounds[best], MOST_ROUNDS, plan, chance, watch, rivals)
    chosen = min(found, key=lambda own: own.loss)
    losses = np.array([own.loss for own in found])
    return Choice(plan.shrinkages[best], chosen.number + 1, chosen.sharpness, chosen.strength, chosen.log_scale, losses)


def _parts(rows, train, test) -> tuple[LabelledRows, LabelledRows]:
    """The rows of a fold to train and to test on, along the axes of the former."""
    own, held_out = along_axes(rows.take(train)), rows.take(test)
    if isinstance(own, PrincipalRows):
        held_out = LabelledRows(own.along(held_out.X), held_out.labels, held_out.weight, rows.n_classes)
    return own, held_out


def _extended(ladder, found, n_rounds, plan, chance, watch: Watch, rivals) -> list[_Found]:
    """More rounds, until they no longer help; a fold whose ladder ended keeps its last.

    `chance` is the loss of who knows the classes' shares alone; `rivals` are rounds of all ladders.
    """
    found = list(found)
    while len(found) < n_rounds and not watch.is_stopped and not _is_past_best(found, _patience(found, chance)):
        watch.begin()
        rungs = [fold.rung(len(found)) for fold in ladder]
        if all(rung is None for rung in rungs):
            watch.end()
            break
        reached = [rung or fold.rungs[-1] for rung, fold in zip(rungs, ladder, strict=True)]
        found.append(_refined(ladder, reached, len(found), plan.strengths, [*rivals, *found]))
        watch.end()
    return found


def _patience(found: list[_Found], chance) -> int:
    is_learnt = min((own.loss for own in found), default=np.inf) < HARDLY_LEARNT * chance
    return PATIENCE if is_learnt else LONG_PATIENCE


def _refined(ladder, states, number, strengths, rivals) -> _Found:
    """What the held-out rows say of a round, annealed and at every penalty until they no longer gain."""
    sharpness, start = _sharpened(ladder, states)
    loss, log_scale = _held_out(ladder, start)
    best = _Found(loss, number, sharpness, None, log_scale)
    walk, best_walk = [loss], min(rivals, key=lambda own: own.loss).walk if rivals else (np.inf,)
    walks = [_refinements(fold.train, state, strengths) for fold, state in zip(ladder, states, strict=True)]
    for strength in strengths:
        loss, log_scale = _held_out(ladder, [next(walk) for walk in walks])
        walk.append(loss)
        if loss < best.loss:
            best = _Found(loss, number, sharpness, strength, log_scale)
        if _is_over(walk, best_walk):
            break
    return best._replace(walk=tuple(walk))


def _is_over(walk, best_walk) -> bool:
    """Whether weaker penalties will not help: the last is worse than the one before, or none of two is better than no
    refinement, or the round is far behind the best.
    """
    n_penalties = len(walk) - 1
    if n_penalties < PENALTY_PATIENCE:
        return False
    if walk[-1] > walk[-2] or min(walk) == walk[0]:
        return True
    return n_penalties > PENALTY_PATIENCE and walk[-1] > HOPELESS * best_walk[min(n_penalties, len(best_walk) - 1)]


def _sharpened(ladder, states) -> tuple[float, list[CalibratedPosterior]]:
    """The sharpness at which held-out rows find the annealed prototypes best, and their posteriors."""

    def tried(sharpness):
        start = [calibrated(fold.train, state, sharpness) for fold, state in zip(ladder, states, strict=True)]
        return sum(_loss(own, fold.test) for own, fold in zip(start, ladder, strict=True)), sharpness, start

    best = tried(1.0)
    for factors in (SHARPER, [1 / factor for factor in SHARPER]):
        for found in map(tried, factors):
            if found[0] >= best[0]:
                break
            best = found
        if best[1] != 1.0:
            break
    return best[1:]


def _loss(posterior: CalibratedPosterior, rows: LabelledRows) -> float:
    return -float(rows.weight @ posterior.log_proba(rows.X)[np.arange(len(rows.X)), rows.labels])


def _is_past_best(found: list[_Found], patience) -> bool:
    return bool(found) and len(found) - 1 - int(np.argmin([own.loss for own in found])) >= patience


def _held_out(ladder, posteriors) -> tuple[float, float]:
    """(loss, log scale) of the held-out rows, at the scale that suits them best."""
    logits = np.concatenate([own.log_proba(fold.test.X) for own, fold in zip(posteriors, ladder, strict=True)])
    labels = np.concatenate([fold.test.labels for fold in ladder])
    weight = np.concatenate([fold.test.weight for fold in ladder])
    log_scale, losses = rescaled(deviations(logits, labels), weight)
    return float(weight @ losses / weight.sum()), float(log_scale)


def _refinements(rows, state: PottsState, strengths) -> Iterator[CalibratedPosterior]:
    """Refinements of the annealed prototypes, from the soft posterior of their own metric.

    A penalty's strength is counted in rows: the more rows there are, the less it weighs.
    """
    return refinements(rows, calibrated(rows, state, 1.0), [strength / rows.total for strength in strengths])


class Fitted(NamedTuple):
    """The rounds of the last fit, the posterior it ends with, the axes of both, None where columns are few, and the
    choice as it was carried out.
    """

    rounds: list[Cooled]
    posterior: CalibratedPosterior
    axes: np.ndarray | None
    choice: Choice


@dataclass
class _Reader:
    """A watch that is given, of what makes the cold end at a temperature, what makes that which would be fitted."""

    watch: Watch
    fitted_at: Callable[[Cooled], Fitted]

    @property
    def is_stopped(self):
        return self.watch.is_stopped

    def begin(self, temperature=None):
        self.watch.begin(temperature)

    def end(self, nodes=None):
        self.watch.end(lambda: self.fitted_at(nodes()))


def fit_prototypes(rows: LabelledRows, plan: Plan, choice: Choice, watch: Watch = NOBODY) -> Fitted:
    """Climb to the chosen round, then refine down to the chosen penalty; a stopped climb is not refined.

    Of very many rows a part climbs and refines; all of them take the last cooling. At every temperature the watch is
    given a function that makes what would be fitted there.
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
    """What the annealed prototypes say, refined as was chosen."""
    if choice.strength is None:
        return calibrated(rows, state, choice.sharpness)
    strengths = [own for own in plan.strengths if own >= choice.strength]
    return list(_refinements(rows, state, strengths))[-1]


# --- rows ---------------------------------------------------------------------------------------------------


def few_along_axes(rows: LabelledRows) -> LabelledRows:
    """Rows that all climb the last ladder, along their axes: their folds then have no more columns than rows."""
    return along_axes(rows) if rows.n_rows <= FIT_ROWS else rows


def make_folds(rows: LabelledRows, seed) -> list[tuple[np.ndarray, np.ndarray]]:
    """Five folds of few rows, three of more, one held-out quarter of many."""
    n_rows = len(rows.X)
    every_class_can_spare = np.bincount(rows.labels, minlength=rows.n_classes).min() > 1
    if n_rows > 2000 and rows.X.size > MANY_NUMBERS and every_class_can_spare:
        return list(StratifiedShuffleSplit(1, test_size=0.25, random_state=seed).split(rows.X, rows.labels))
    return stratified_splits(5 if n_rows <= 300 else 3, rows.labels, seed)
