"""Model selection for prototypes: number of rounds of growth, shrinkage and refinement penalty, by held-out log-loss.

In every fold, prototypes grow in rounds on the training rows. After each round the path of refinement penalties is
computed from strong to weak, and every point of it is scored on the held-out rows. The first two rounds choose the
shrinkage. With that shrinkage rounds go on until they no longer improve, and the best pair of round and penalty is
chosen. The final fit repeats the same rounds on all rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import StratifiedShuffleSplit

from annealed.potts.cooling import NO_WATCH, Cooled, cool
from annealed.potts.growth import SearchSettings, climb, reheated
from annealed.potts.refinement import CalibratedPosterior, calibrated, refinements
from annealed.potts.rows import LabelledRows, along_axes, subsample
from annealed.potts.state import SINGLE_ROUNDING, PottsState
from annealed.validation.calibration import deviations, rescaled
from annealed.validation.selection import stratified_splits

PATIENCE = 4  # rounds without improvement before growth stops
SEARCH_ROWS = 3000  # most rows in the search
MANY_NUMBERS = 60_000  # entries of X, above which one held-out part replaces folds
FIT_ROWS = 50_000  # most rows for growth and refinement in the final fit
STRENGTHS = (300.0, 50.0, 8.0, 1.2, 0.2, 0.03)  # refinement penalties, in rows: the penalty is strength / n_rows
SHARPER = tuple(2.0 ** np.arange(0.5, 3.5, 0.5))  # factors on the metric; these are tried first, then their inverses


class Choice(NamedTuple):
    """A round at its best penalty.

    n_rounds : number of rounds of growth
    sharpness : factor on the annealed metric
    strength : refinement penalty, in rows; None for no refinement
    log_scale : logarithm of the calibration factor on the log posterior
    loss : held-out loss
    validation_loss : held-out loss of every round with this shrinkage
    """

    shrinkage: str | float
    n_rounds: int
    sharpness: float
    strength: float | None
    log_scale: float
    loss: float = np.inf
    validation_loss: tuple[float, ...] = ()


# --- the search --------------------------------------------------------------------------------------------


@dataclass
class Fold:
    """A fold and the rounds of growth on its training rows, computed on demand."""

    train: LabelledRows
    test: LabelledRows
    climb: Iterator[Cooled]
    states: list[PottsState] = field(default_factory=list)

    def grows_to(self, number) -> bool:
        """Whether growth reaches a round."""
        self.states += [cooled.state for cooled in islice(self.climb, number + 1 - len(self.states))]
        return len(self.states) > number


def search(rows: LabelledRows, settings: SearchSettings, watch=NO_WATCH) -> Choice:
    """Select on folds; the first candidates if no row can be held out, the best so far if the watch stops it."""
    rows = subsample(rows, SEARCH_ROWS, settings.seed)
    if settings.cooling.temperatures[-1] >= SINGLE_ROUNDING:
        rows = rows.in_single_precision()  # precise enough for a choice
    settings = replace(settings, n_init=1)
    parts = [_parts(rows, *split) for split in make_folds(rows, settings.seed)]
    if not parts:
        return Choice(settings.shrinkages[0], 1, settings.sharpness or 1.0, None, 0.0)
    rounds: dict[Any, list[Choice]] = {shrinkage: [] for shrinkage in settings.shrinkages}
    folds = {s: [Fold(*part, climb(part[0], settings, s)) for part in parts] for s in settings.shrinkages}

    def extend(shrinkage, n_rounds):
        """Add rounds until they no longer improve."""
        found = rounds[shrinkage]
        while len(found) < n_rounds and not watch.is_stopped and not _is_over([own.loss for own in found]):
            watch.begin()
            grows = [fold.grows_to(len(found)) for fold in folds[shrinkage]]
            if any(grows):  # a fold in which growth has ended keeps its last round
                found.append(_refined(folds[shrinkage], shrinkage, len(found) + 1, settings))
            watch.end()
            if not any(grows):
                break

    if len(rounds) > 1:
        for shrinkage in rounds:
            extend(shrinkage, 2)  # before growth
    best = min(rounds, key=lambda shrinkage: min([choice.loss for choice in rounds[shrinkage]], default=np.inf))
    extend(best, np.inf)
    validation_loss = tuple(choice.loss for choice in rounds[best])
    return min(rounds[best], key=lambda choice: choice.loss)._replace(validation_loss=validation_loss)


def _parts(rows, train, test) -> tuple[LabelledRows, LabelledRows]:
    """Training and held-out rows of a fold, in the principal axes of the former if there are many columns."""
    training = along_axes(rows.take(train))
    return training, rows.take(test).turned(training.axes)


def _is_over(losses) -> bool:
    """Whether growth stops."""
    return len(losses) > 0 and len(losses) - 1 - int(np.argmin(losses)) >= PATIENCE


def _refined(folds: list[Fold], shrinkage, n_rounds, settings: SearchSettings) -> Choice:
    """The best penalty of a round, with its held-out loss.

    The path of penalties stops, after the second at the earliest, where the loss rises or none is better than no
    refinement.
    """
    starts = [(fold.train, fold.states[min(n_rounds, len(fold.states)) - 1]) for fold in folds]
    sharpness, posteriors = _sharpened(folds, starts, settings.sharpness)
    paths = [_refinements(*start, settings.strengths, settings) for start in starts]
    losses: list[float] = []
    scales: list[float] = []
    for strength in (None, *settings.strengths):
        posteriors = posteriors if strength is None else [next(path) for path in paths]
        loss, log_scale = _held_out(folds, posteriors, settings.sharpness is None)
        losses.append(loss)
        scales.append(log_scale)
        if len(losses) > 2 and (losses[-1] > losses[-2] or min(losses) == losses[0]):
            break
    best = int(np.argmin(losses))
    return Choice(shrinkage, n_rounds, sharpness, (None, *settings.strengths)[best], scales[best], losses[best])


def _sharpened(folds, starts, given=None) -> tuple[float, list[CalibratedPosterior]]:
    """The sharpness with the lowest held-out loss of the annealed prototypes, and their posteriors at it."""

    def trial(sharpness):
        posteriors = [calibrated(train, state, sharpness) for train, state in starts]
        return sum(_loss(own, fold.test) for own, fold in zip(posteriors, folds, strict=True)), sharpness, posteriors

    if given is not None:
        return trial(given)[1:]
    best = trial(1.0)
    for factors in (SHARPER, [1 / factor for factor in SHARPER]):
        for candidate in map(trial, factors):
            if candidate[0] >= best[0]:
                break
            best = candidate
        if best[1] != 1.0:
            break
    return best[1:]


def _loss(posterior: CalibratedPosterior, rows: LabelledRows) -> float:
    return -float(rows.weight @ posterior.log_proba(rows.X)[np.arange(len(rows.X)), rows.labels])


def _held_out(folds, posteriors, is_calibrated) -> tuple[float, float]:
    """Held-out log-loss after calibration by one factor on the log posterior, and the logarithm of that factor.

    If the temperature is given, the posterior is not calibrated: the factor is one.
    """
    tests = [fold.test for fold in folds]
    if not is_calibrated:
        total = sum(_loss(own, test) for own, test in zip(posteriors, tests, strict=True))
        return total / sum(test.total for test in tests), 0.0
    logits = np.concatenate([own.log_proba(test.X) for own, test in zip(posteriors, tests, strict=True)])
    labels, weight = (np.concatenate([getattr(test, name) for test in tests]) for name in ("labels", "weight"))
    log_scale, losses = rescaled(deviations(logits, labels), weight)
    return float(weight @ losses / weight.sum()), float(log_scale)


def _refinements(rows, state: PottsState, strengths, settings: SearchSettings) -> Iterator[CalibratedPosterior]:
    """Refinements from the posterior in the annealed metric: at the given temperature, or else at temperature one.

    The strength of a penalty is in rows: the more rows there are, the less it weighs.
    """
    start = calibrated(rows, state, settings.sharpness or 1.0)
    return refinements(rows, start, [strength / rows.total for strength in strengths])


def make_folds(rows: LabelledRows, seed) -> list[tuple[np.ndarray, np.ndarray]]:
    """Five folds for up to 300 rows, three for more, a single held-out quarter for large X."""
    has_two_of_each_class = np.bincount(rows.labels, minlength=rows.n_classes).min() > 1
    if rows.n_rows > 2000 and rows.X.size > MANY_NUMBERS and has_two_of_each_class:
        return list(StratifiedShuffleSplit(1, test_size=0.25, random_state=seed).split(rows.X, rows.labels))
    return stratified_splits(5 if rows.n_rows <= 300 else 3, rows.labels, seed)


# --- the final fit -----------------------------------------------------------------------------------------


class Fitted(NamedTuple):
    """Result of the final fit: its rounds, its posterior, the axes of both (None if columns are few), and the choice.

    `choice` is the one that was carried out; a fit that was stopped has no refinement.
    """

    rounds: list[Cooled]
    posterior: CalibratedPosterior
    axes: np.ndarray | None
    choice: Choice


def fit_prototypes(
    rows: LabelledRows, settings: SearchSettings, choice: Choice, watch=NO_WATCH, attributes_of=None
) -> Fitted:
    """Fit up to the chosen round, then refine down to the chosen penalty; a stopped fit is not refined.

    Beyond `FIT_ROWS` rows, growth and refinement use a subset, and a last annealing run uses all rows.

    attributes_of : function of the `Fitted` of a run that ends at the present temperature, for the watch
    """
    part = subsample(rows, FIT_ROWS, settings.seed)
    is_whole, part = part is rows, along_axes(part)
    rounds: list[Cooled] = []
    unrefined = choice if choice.strength is None else choice._replace(strength=None, log_scale=0.0)

    def fitted_at(cooled):
        return Fitted([*rounds, cooled], calibrated(part, cooled.state, choice.sharpness), part.axes, unrefined)

    if attributes_of is not None:
        watch.fitted_so_far = lambda make: attributes_of(fitted_at(make()))
    for cooled in islice(climb(part, settings, choice.shrinkage, watch), choice.n_rounds):
        if watch.is_stopped:
            return fitted_at(cooled)
        rounds.append(cooled)
    if not is_whole:
        cooling = reheated(replace(settings.cooling, shrinkage=choice.shrinkage))
        rounds.append(cool(rows.turned(part.axes), rounds[-1].state, cooling))
    state = rounds[-1].state
    if choice.strength is None:
        return Fitted(rounds, calibrated(part, state, choice.sharpness), part.axes, choice)
    strengths = [strength for strength in settings.strengths if strength >= choice.strength]
    return Fitted(rounds, list(_refinements(part, state, strengths, settings))[-1], part.axes, choice)


def few_along_axes(rows: LabelledRows) -> LabelledRows:
    """The rows in principal axes unless the final fit uses a subset; folds then have no more columns than rows."""
    return along_axes(rows) if rows.n_rows <= FIT_ROWS else rows
