"""Cooling a number of prototypes: sweeps at falling temperatures until the spins are all but hard."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from annealed.arrays import Place, is_foreign
from annealed.objectives.diagonal_plus import diagonal, inner
from annealed.objectives.potts import (
    LabelledRows,
    MetricPrior,
    Multilinear,
    PottsState,
    metric_of,
)
from annealed.objectives.potts_quadratic import Quadratic

RELAXATIONS = {"multilinear": Multilinear, "quadratic": Quadratic}
SHRINKAGES = ("oas", "ledoit_wolf")
SMALLEST_CHANGE = 1e-5  # of the free energy per row, below which a temperature is done
DEAD = 0.5  # rows; a prototype that holds fewer is dead
DUPLICATE = 1e-6  # squared distance in the metric below which two prototypes are one


@dataclass(frozen=True)
class Cooling:
    """How prototypes are cooled.

    temperatures : falling; the walk ends early when both spins pass `saturation`
    shrinkage : "oas", "ledoit_wolf" or a number from 0 to 1
    """

    temperatures: tuple[float, ...]
    coupling: float
    shrinkage: str | float
    relaxation: str = "multilinear"
    max_sweeps: int = 10
    saturation: float = 0.98


class Step(NamedTuple):
    """One temperature of the walk: what it left, and how hard the spins were."""

    temperature: float
    free_energy: float
    membership_saturation: float
    label_saturation: float
    n_prototypes: int
    n_sweeps: int


class Cooled(NamedTuple):
    """The cold end: the state without prototypes that died or doubled, how many did, and the steps that led there."""

    state: PottsState
    steps: list[Step]
    n_dead: int
    n_duplicate: int


class Watch(Protocol):
    """Is told of every temperature, with what makes the cold end as if it came there, and may stop the walk."""

    @property
    def is_stopped(self) -> bool: ...

    def begin(self, temperature=None): ...

    def end(self, nodes=None): ...


class NobodyWatches:
    is_stopped = False

    def begin(self, temperature=None):
        pass

    def end(self, nodes=None):
        pass


NOBODY = NobodyWatches()


def cool(rows: LabelledRows, state: PottsState, cooling: Cooling, watch: Watch = NOBODY) -> Cooled:
    """Walk the temperatures from a state, warm from one to the next."""
    sweeper = RELAXATIONS[cooling.relaxation](rows, cooling.coupling)
    steps: list[Step] = []
    counts = np.zeros(len(state))
    for temperature in cooling.temperatures:
        watch.begin(temperature)
        prior = metric_prior(rows, state, cooling.shrinkage)
        state, counts, step = _settle(sweeper, state, temperature, prior, cooling.max_sweeps)
        steps.append(step)
        watch.end(partial(_pruned, state, counts, list(steps)))
        if watch.is_stopped or min(step.membership_saturation, step.label_saturation) > cooling.saturation:
            break
    return _pruned(state, counts, steps)


def _pruned(state, counts, steps) -> Cooled:
    """Without prototypes that hold no rows, or lie where an earlier one of the same label does; one at least stays."""
    is_dead = counts < DEAD
    is_dead[np.argmax(counts)] = False
    alive = state.take(~is_dead)
    is_duplicate = _lies_on_another(alive)
    return Cooled(alive.take(~is_duplicate), steps, int(is_dead.sum()), int(is_duplicate.sum()))


def _settle(sweeper, state, temperature, prior, max_sweeps):
    """Sweep at one temperature until the free energy stands."""
    total, value, n_sweeps = sweeper.rows.total, np.inf, 0
    while n_sweeps < max_sweeps:
        swept = sweeper.sweep(state, temperature, prior)
        state, n_sweeps = swept.state, n_sweeps + 1
        if value - swept.free_energy <= SMALLEST_CHANGE * total:
            break
        value = swept.free_energy
    label_saturation = float(np.vdot(state.labels, state.labels)) / len(state)
    saturation = swept.membership_saturation
    step = Step(temperature, swept.free_energy, saturation, label_saturation, len(state), n_sweeps)
    return state, swept.counts, step


# --- the metric --------------------------------------------------------------------------------------------


def start_state(rows: LabelledRows, prototypes, labels, scatter, shrinkage) -> PottsState:
    """A state from prototypes, labels and a scatter, its metric shrunk as it will be while cooling."""
    round_one = PottsState(prototypes, labels, np.eye(len(scatter)), 0.0, scatter)
    metric, log_det = metric_of(scatter, metric_prior(rows, round_one, shrinkage), rows.smallest_variance)
    return PottsState(prototypes, labels, metric, log_det, scatter)


def metric_prior(rows: LabelledRows, state: PottsState, shrinkage) -> MetricPrior:
    """A spherical prior as strong as the shrinkage asks; fixed while a temperature is swept."""
    return spherical_prior(state.scatter, shrinkage_share(rows, state, shrinkage))


def shrinkage_share(rows: LabelledRows, state: PottsState, shrinkage) -> float:
    """How far the scatter of a state is shrunk, from 0 to 1."""
    if shrinkage == "oas":
        return oas(state.scatter, rows.total)
    return _ledoit_wolf(rows, state) if shrinkage == "ledoit_wolf" else float(shrinkage)


def spherical_prior(scatter, share) -> MetricPrior:
    """A sphere of the scatter's mean variance, which takes `share` of the whole."""
    share = min(share, 1 - 1e-6)
    return MetricPrior(share / (1 - share), np.full(len(scatter), diagonal(scatter).mean()))


def oas(scatter, n_rows) -> float:
    """Chen and others' oracle approximating shrinkage of a scatter."""
    mean_square, mean = inner(scatter, scatter) / len(scatter) ** 2, diagonal(scatter).mean()
    excess = (n_rows + 1) * (mean_square - mean**2 / len(scatter))
    return 1.0 if excess <= 0 else float(min(1.0, (mean_square + mean**2) / excess))


def _ledoit_wolf(rows: LabelledRows, state: PottsState) -> float:
    """Ledoit and Wolf's shrinkage of the scatter of rows about their nearest prototypes."""
    residuals = rows.X - state.prototypes[nearest(rows.X, state)]
    share = rows.weight / rows.total
    scatter = (residuals.T * share) @ residuals
    n_features, mean = len(scatter), np.trace(scatter) / len(scatter)
    spread = np.sum(scatter**2) - n_features * mean**2
    noise = (share @ np.sum(residuals**2, axis=1) ** 2 - np.sum(scatter**2)) / rows.total
    return 1.0 if spread <= 0 else float(np.clip(noise / spread, 0.0, 1.0))


# --- reading a state ---------------------------------------------------------------------------------------


def scores_of(X, prototypes, metric):
    """-d2 / 2 of rows and prototypes less the rows' own share, which no comparison needs, (n_rows, K)."""
    directions = prototypes @ metric
    level = -0.5 * np.sum(directions * prototypes, axis=1)
    if is_foreign(X):
        place = Place.of(X)
        return X @ place.row(directions).T + place.row(level)
    return X @ directions.T.astype(X.dtype) + level.astype(X.dtype)


def nearest(X, state: PottsState):
    """Number of the nearest prototype in the metric, (n_rows,)."""
    return np.argmax(scores_of(X, state.prototypes, state.metric), axis=1)


def _lies_on_another(state: PottsState):
    """Whether a prototype lies where an earlier one of the same label does."""
    centred = state.prototypes - state.prototypes.mean(axis=0)
    products = centred @ state.metric @ centred.T
    distances = np.diag(products)[:, None] + np.diag(products) - products - products.T
    labels = state.labels.argmax(axis=1)
    return np.any(np.tril((distances < DUPLICATE) & (labels[:, None] == labels), -1), axis=1)
