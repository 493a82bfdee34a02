"""Growth of prototypes in rounds: one per class, two per class (both by k-means++), then more at misclassified rows.

Each round anneals all prototypes. Of several starts, the one with the lowest final free energy is kept. The start of
the slides, all prototypes near the mean of the rows, is here too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from annealed.potts.cooling import (
    NO_WATCH,
    Cooled,
    Cooling,
    cool,
    metric_prior,
    nearest,
    shrinkage_share,
    start_state,
)
from annealed.potts.rows import LabelledRows
from annealed.potts.state import DiagonalPlus, PottsState, diagonal, plus, symmetric_eigen
from annealed.potts.sweep import Multilinear

MOST_NEW = 0.6  # new prototypes per round, as a share of the present number
MOST_PROTOTYPES = 200  # growth stops before it would exceed this
REHEATED = 1.0  # highest temperature of a round of growth: a higher one loses the solution of the round before


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a fit, from the estimator's parameters.

    n_per_class : number of prototypes of each class; None if they grow, or if `n_total` is given
    n_total : number of prototypes for the slides' start, which assigns them to no class
    n_init : number of starts
    sharpness : inverse of a given temperature of the posterior; None if the search chooses it
    shrinkages, strengths : candidates of the search
    """

    cooling: Cooling
    n_per_class: np.ndarray | None
    n_total: int | None
    n_init: int
    shrinkages: tuple
    strengths: tuple
    seed: int
    sharpness: float | None = None

    @property
    def grows(self):
        return self.n_per_class is None and self.n_total is None


def climb(rows: LabelledRows, settings: SearchSettings, shrinkage, watch=NO_WATCH) -> Iterator[Cooled]:
    """Yield the result of each round: one prototype per class, two per class, then growth at misclassified rows."""
    generator = np.random.RandomState(settings.seed)
    cooling = replace(settings.cooling, shrinkage=shrinkage)
    if not settings.grows:
        yield _best_start(rows, settings.n_per_class, settings, cooling, generator, watch)
        return
    yield _best_start(rows, np.ones(rows.n_classes, dtype=int), replace(settings, n_init=1), cooling, generator, watch)
    cooled = _best_start(rows, np.full(rows.n_classes, 2), settings, cooling, generator, watch)
    from_reheated = reheated(cooling)
    while True:
        yield cooled
        state = grown(rows, cooled.state)
        if state is None or len(state) > MOST_PROTOTYPES:
            return
        cooled = cool(rows, state, from_reheated, watch)


def reheated(cooling: Cooling) -> Cooling:
    """The schedule from temperature `REHEATED` down; its last temperature alone if all are higher."""
    temperatures = tuple(value for value in cooling.temperatures if value <= REHEATED) or cooling.temperatures[-1:]
    return replace(cooling, temperatures=temperatures)


def _best_start(rows, n_per_class, settings, cooling, generator, watch) -> Cooled:
    """Anneal from several starts and keep the one with the lowest final free energy.

    Free energies are compared with the same shrinkage for all: otherwise the one with the most shrinkage would win.
    """
    starts = mean_starts(rows, settings.n_total, cooling.shrinkage, generator)
    if n_per_class is not None:
        starts = plus_plus_starts(rows, n_per_class, cooling.shrinkage, generator)
    runs: list[Cooled] = []
    while len(runs) < settings.n_init and not watch.is_stopped:
        runs.append(cool(rows, next(starts), cooling, watch))
    if len(runs) == 1:
        return runs[0]
    coldest = min(run.steps[-1].temperature for run in runs)
    share = float(np.median([shrinkage_share(rows, run.state, cooling.shrinkage) for run in runs]))
    sweeper = Multilinear(rows, cooling.coupling)
    return min(
        runs,
        key=lambda run: sweeper.sweep(run.state, coldest, metric_prior(rows, run.state, share)).free_energy,
    )


# --- new prototypes --------------------------------------------------------------------------------------------


def grown(rows: LabelledRows, state: PottsState) -> PottsState | None:
    """Add a prototype for each group of misclassified rows, the heaviest groups first; None if no row is wrong.

    A group holds the rows of one class whose nearest prototype belongs to another class. Its prototype starts at its
    mean and with its class as a hard label.
    """
    cell = nearest(rows.X, state)
    is_wrong = state.labels.argmax(axis=1)[cell] != rows.labels
    group = np.where(is_wrong, cell * rows.n_classes + rows.labels, -1)
    mass = np.bincount(group[is_wrong], rows.weight[is_wrong], len(state) * rows.n_classes)
    heaviest = np.argsort(-mass, kind="stable")[: max(1, int(MOST_NEW * len(state)))]
    heaviest = heaviest[mass[heaviest] > 0]
    if not len(heaviest):
        return None
    return replace(
        state,
        prototypes=np.vstack([state.prototypes, [_mean(rows, group == heavy) for heavy in heaviest]]),
        labels=np.vstack([state.labels, np.eye(rows.n_classes)[heaviest % rows.n_classes]]),
    )


def _mean(rows, is_member):
    return rows.weight[is_member] @ rows.X[is_member] / rows.weight[is_member].sum()


# --- starts ----------------------------------------------------------------------------------------------------


def plus_plus_starts(rows: LabelledRows, n_per_class, shrinkage, generator) -> Iterator[PottsState]:
    """Yield initial states without end: k-means++ in each class, in the metric of the scatter within classes.

    The label of a prototype is its class. A class with a single prototype has it at its mean.
    """
    scatter, means = within_class_scatter(rows)
    white = _white(rows, scatter)
    classes = [np.flatnonzero(rows.labels == label) for label in range(rows.n_classes)]
    while True:
        places = [
            plus_plus(white, members, rows.weight, wanted, generator)
            for members, wanted in zip(classes, n_per_class, strict=True)
        ]
        owners = np.repeat(np.arange(rows.n_classes), [len(place) for place in places])
        prototypes = rows.X[np.concatenate(places)].astype(np.float64)
        is_single = (np.bincount(owners, minlength=rows.n_classes) == 1)[owners]
        prototypes[is_single] = means[owners[is_single]]
        yield start_state(rows, prototypes, np.eye(rows.n_classes)[owners], scatter, shrinkage)


def within_class_scatter(rows: LabelledRows):
    """Scatter of the rows about their class means, and these."""
    sums = np.zeros((rows.n_classes, rows.X.shape[1]))
    sums[rows.whole.labels] = rows.whole.class_sums(rows.X.T * rows.weight).T
    means = sums / np.maximum(rows.class_weight, np.finfo(float).tiny)[:, None]
    return plus(rows.second_moment, means, -rows.class_weight / rows.total), means


def _white(rows: LabelledRows, scatter):
    """Rows in coordinates in which the scatter is the identity; nearly so, and shrunk by half, along principal axes."""
    if isinstance(scatter, DiagonalPlus):
        variances = diagonal(scatter)
        shrunk = (variances + variances.mean()) / 2
        return rows.X / np.sqrt(np.maximum(shrunk, rows.smallest_variance)).astype(rows.X.dtype)
    values, vectors = symmetric_eigen(scatter)
    return rows.X @ (vectors / np.sqrt(np.maximum(values, rows.smallest_variance))).astype(rows.X.dtype)


def plus_plus(white, members, weight, wanted, generator):
    """Indices of at most `wanted` different rows among `members`.

    The probability of a row is proportional to its weight times its squared distance to the nearest row drawn before,
    at first to the mean. The cumulated probabilities are in the order of distances, so that the result does not depend
    on the order of the rows, nor on a linear map of the columns.
    """
    if not wanted or not len(members):
        return members[:0]
    points, mass = white[members], weight[members]
    distance = _squares(points, mass @ points / mass.sum())
    chosen: list[int] = []
    for _ in range(min(wanted, len(members))):
        order = np.argsort(distance, kind="stable")
        reach = np.cumsum(mass[order] * distance[order])
        if not reach[-1] > 0:
            break
        drawn = order[min(np.searchsorted(reach, generator.uniform() * reach[-1], side="right"), len(order) - 1)]
        nearer = _squares(points, points[drawn])
        distance = np.minimum(distance, nearer) if chosen else nearer
        chosen.append(int(drawn))
    return members[chosen or [0]]


def _squares(points, place):
    return np.sum((points - place) ** 2, axis=1, dtype=np.float64)


def mean_starts(rows: LabelledRows, n_prototypes, shrinkage, generator) -> Iterator[PottsState]:
    """Initial states of the slides: prototypes near the mean, nearly uniform labels, the metric of all rows."""
    mean = rows.weight @ rows.X / rows.total
    scatter = plus(rows.second_moment, mean[None], -np.ones(1))
    spread = np.sqrt(np.maximum(diagonal(scatter), 0))
    near = 0.01  # in units of the rows' standard deviation
    while True:
        prototypes = mean + near * generator.normal(size=(n_prototypes, len(mean))) * spread
        tilt = 1 + near * generator.uniform(-1, 1, size=(n_prototypes, rows.n_classes))
        yield start_state(rows, prototypes, tilt / tilt.sum(axis=1, keepdims=True), scatter, shrinkage)
