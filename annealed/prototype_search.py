"""How many prototypes, how much shrinkage, how much refinement: chosen on rows that a fit did not see.

A ladder of rounds grows prototypes on the training part of every fold. The shrinkage whose ladder has the round of the
least held-out loss is taken; then the refinement's penalties are walked at its rounds, and the best pair of round and
penalty is kept. The refit on all rows climbs the same ladder to the same round.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from sklearn.model_selection import StratifiedShuffleSplit

from annealed.objectives.potts import LabelledRows, Multilinear, PottsState
from annealed.prototypes import (
    Cooled,
    Cooling,
    Spoken,
    cool,
    grown,
    mean_start,
    metric_prior,
    plus_plus_start,
    refinements,
    spoken,
)
from annealed.selection import posterior_log_scale, stratified_splits

TRIAL_ROUNDS = 3  # by which a shrinkage is judged: one prototype a class, two, and the first that grew
MOST_ROUNDS = 20
SEARCH_STARTS = 2  # of the several starts that the last fit tries
PATIENCE = 3  # rounds, or penalties, without gain before the search stops
SEARCH_ROWS = 4000  # rows that the search looks at
MOST_PROTOTYPES = 200
FEWEST_ROWS_EACH = 3  # rows for a prototype, below which growth stops
STRENGTHS = (300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)  # penalties, in rows: strength / number of rows
REHEATED = 1.0  # the temperature to which growth goes back; hotter loses what was learnt


@dataclass(frozen=True)
class Plan:
    """What the user asked for.

    n_per_class : prototypes of each class, None where they grow
    n_total : prototypes of the slides' start, which deals them to no class
    shrinkages, strengths : candidates of the search
    """

    cooling: Cooling
    n_per_class: np.ndarray | None
    n_total: int | None
    n_init: int
    shrinkages: tuple
    strengths: tuple
    seed: int

    @property
    def grows(self):
        return self.n_per_class is None and self.n_total is None


class Choice(NamedTuple):
    """What the search found.

    strength : of the refinement's penalty, in rows; None keeps the annealed solution
    log_scale : logarithm of the factor on the log posterior
    validation_loss : held-out loss of each round, the annealed solutions
    """

    shrinkage: str | float
    n_rounds: int
    strength: float | None
    log_scale: float
    validation_loss: np.ndarray


def climb(rows: LabelledRows, plan: Plan, shrinkage) -> Iterator[Cooled]:
    """Round after round of prototypes: one a class, two a class, then those grown from wrong rows."""
    generator = np.random.RandomState(plan.seed)
    cooling = replace(plan.cooling, shrinkage=shrinkage)
    if not plan.grows:
        yield _best_start(rows, plan.n_per_class, plan, cooling, generator)
        return
    yield _best_start(rows, np.ones(rows.n_classes, dtype=int), replace(plan, n_init=1), cooling, generator)
    cooled = _best_start(rows, np.full(rows.n_classes, 2), plan, cooling, generator)
    reheated = replace(cooling, temperatures=tuple(t for t in cooling.temperatures if t <= REHEATED))
    most = min(MOST_PROTOTYPES, len(rows.X) // FEWEST_ROWS_EACH)
    while True:
        yield cooled
        state = grown(rows, cooled.state)
        if state is None or len(state) > most:
            return
        cooled = cool(rows, state, reheated)


def _best_start(rows, n_per_class, plan, cooling, generator) -> Cooled:
    """Of several starts, the one that ends at the least free energy."""
    runs = [cool(rows, _start(rows, n_per_class, plan, cooling, generator), cooling) for _ in range(plan.n_init)]
    coldest = min(run.steps[-1].temperature for run in runs)
    return min(runs, key=lambda run: _cold_value(rows, run.state, coldest, cooling))


def _start(rows, n_per_class, plan, cooling, generator) -> PottsState:
    if n_per_class is None:
        return mean_start(rows, plan.n_total, cooling.shrinkage, generator)
    return plus_plus_start(rows, n_per_class, cooling.shrinkage, generator)


def _cold_value(rows, state, temperature, cooling) -> float:
    prior = metric_prior(rows, state, cooling.shrinkage)
    return Multilinear(rows, cooling.coupling).sweep(state, temperature, prior).free_energy


# --- the search --------------------------------------------------------------------------------------------


@dataclass
class _Fold:
    """A fold's ladder, climbed as far as it was asked for."""

    train: LabelledRows
    test: LabelledRows
    plan: Plan
    shrinkage: str | float
    rungs: list[Spoken] = field(default_factory=list)

    def __post_init__(self):
        self._climb = climb(self.train, self.plan, self.shrinkage)

    def rung(self, number) -> Spoken | None:
        """The posterior of a round; None beyond the ladder's end."""
        while len(self.rungs) <= number:
            cooled = next(self._climb, None)
            if cooled is None:
                return None
            self.rungs.append(spoken(self.train, cooled.state))
        return self.rungs[number]


def search(rows: LabelledRows, plan: Plan) -> Choice:
    """Choose on folds; where there is nothing to hold out, the first of everything."""
    rows = subsample(rows, SEARCH_ROWS, plan.seed)
    plan = replace(plan, n_init=min(plan.n_init, SEARCH_STARTS))
    splits = make_folds(rows, plan.seed)
    if not splits:
        return Choice(plan.shrinkages[0], 1, None, 0.0, np.zeros(0))
    ladders = [_ladder(rows, splits, plan, shrinkage) for shrinkage in plan.shrinkages]
    losses = [_extended(ladder, [], TRIAL_ROUNDS) for ladder in ladders]
    best = int(np.argmin([min(own) for own in losses]))
    ladder, validation_loss = ladders[best], _extended(ladders[best], losses[best], MOST_ROUNDS)
    n_rounds, strength, log_scale = _refined(ladder, validation_loss, plan)
    return Choice(plan.shrinkages[best], n_rounds, strength, log_scale, np.array(validation_loss))


def _ladder(rows, splits, plan, shrinkage):
    return [_Fold(rows.take(train), rows.take(test), plan, shrinkage) for train, test in splits]


def _extended(ladder, losses, n_rounds) -> list[float]:
    """Held-out losses of more rounds, until they no longer help; a fold whose ladder ended keeps its last."""
    losses = list(losses)
    while len(losses) < n_rounds and not _is_past_best(losses):
        rungs = [fold.rung(len(losses)) for fold in ladder]
        if all(rung is None for rung in rungs):
            break
        reached = [rung or fold.rungs[-1] for rung, fold in zip(rungs, ladder, strict=True)]
        losses.append(_held_out(ladder, reached)[0])
    return losses


def _is_past_best(losses):
    return len(losses) > PATIENCE and len(losses) - 1 - int(np.argmin(losses)) >= PATIENCE


def _held_out(ladder, posteriors) -> tuple[float, float]:
    """(loss, log scale) of the held-out rows, at the scale that suits them best."""
    logits = np.concatenate([own.log_proba(fold.test.X) for own, fold in zip(posteriors, ladder, strict=True)])
    labels = np.concatenate([fold.test.labels for fold in ladder])
    weight = np.concatenate([fold.test.weight for fold in ladder])
    log_scale = posterior_log_scale(logits, labels, weight)
    scaled = np.exp(log_scale) * logits
    losses = np.logaddexp.reduce(scaled, axis=1) - scaled[np.arange(len(labels)), labels]
    return float(weight @ losses / weight.sum()), log_scale


def _refined(ladder, losses, plan) -> tuple[int, float | None, float]:
    """The round and penalty of least held-out loss: (rounds to climb, strength, log scale)."""
    last = int(np.argmin(losses))
    found = []
    for number in range(last + 1):
        start = [fold.rungs[min(number, len(fold.rungs) - 1)] for fold in ladder]
        loss, scale = _held_out(ladder, start)
        found.append((loss, number, None, scale))
        walks = [_refinements(fold.train, own, plan.strengths) for fold, own in zip(ladder, start, strict=True)]
        tried = [loss]
        for strength in plan.strengths:
            loss, scale = _held_out(ladder, [next(walk) for walk in walks])
            found.append((loss, number, strength, scale))
            tried.append(loss)
            if _is_past_best(tried):
                break
    _, number, strength, log_scale = min(found, key=lambda own: own[0])
    return number + 1, strength, log_scale


def _refinements(rows, start: Spoken, strengths) -> Iterator[Spoken]:
    """A penalty's strength is counted in rows: the more rows there are, the less it weighs."""
    return refinements(rows, start, [strength / rows.total for strength in strengths])


def fit_prototypes(rows: LabelledRows, plan: Plan, choice: Choice) -> tuple[list[Cooled], Spoken]:
    """Climb to the chosen round on all rows, then refine down to the chosen penalty."""
    rungs = []
    for cooled in climb(rows, plan, choice.shrinkage):
        rungs.append(cooled)
        if len(rungs) == choice.n_rounds:
            break
    walk = [spoken(rows, rungs[-1].state)]
    if choice.strength is not None:
        strengths = [own for own in plan.strengths if own >= choice.strength]
        walk += _refinements(rows, walk[0], strengths)
    return rungs, walk[-1]


# --- rows ---------------------------------------------------------------------------------------------------


def subsample(rows: LabelledRows, most, seed) -> LabelledRows:
    """At most so many rows, the classes in their shares; every class keeps a row at least."""
    if len(rows.X) <= most:
        return rows
    generator = np.random.RandomState(seed)
    order = generator.permutation(len(rows.X))
    first = np.unique(rows.labels[order], return_index=True)[1]
    kept = np.union1d(order[:most], order[first])
    return rows.take(kept)


def make_folds(rows: LabelledRows, seed) -> list[tuple[np.ndarray, np.ndarray]]:
    """Five folds of few rows, three of more, one held-out quarter of many."""
    n_rows = len(rows.X)
    if n_rows > 2000 and np.bincount(rows.labels, minlength=rows.n_classes).min() > 1:
        return list(StratifiedShuffleSplit(1, test_size=0.25, random_state=seed).split(rows.X, rows.labels))
    with warnings.catch_warnings():  # classes rarer than the folds are never held out, which is no trouble here
        warnings.simplefilter("ignore", UserWarning)
        return stratified_splits(5 if n_rows <= 600 else 3, rows.labels, np.arange(rows.n_classes), seed)
