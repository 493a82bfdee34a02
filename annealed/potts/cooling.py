"""Cooling of given prototypes: sweeps at falling temperatures until the spins are nearly hard.

The scatter behind the metric is shrunk towards a sphere: oracle approximating shrinkage (OAS), Ledoit-Wolf shrinkage,
or a given share s, with W <- (1 - s) W + s mean(diag W) I.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from annealed.arrays import Place
from annealed.potts.rows import LabelledRows
from annealed.potts.state import (
    CONVERGED,
    SINGLE_ROUNDING,
    MetricPrior,
    PottsState,
    Symmetric,
    diagonal,
    directions_and_levels,
    inner,
)
from annealed.potts.sweep import Multilinear, Quadratic, with_scatter
from annealed.rows.whitening import ledoit_wolf_share, oas_share

RELAXATIONS = {"multilinear": Multilinear, "quadratic": Quadratic}
SHRINKAGES = ("oas", "ledoit_wolf")


@dataclass(frozen=True)
class Cooling:
    """Settings of one annealing run.

    temperatures : falling; the run stops early when the saturation of memberships and labels exceeds `saturation`
    coupling : weight c of the label term
    shrinkage : "oas", "ledoit_wolf" or a number from 0 to 1
    max_sweeps : most sweeps at one temperature
    perturbation : standard deviation of the noise added to the prototypes at every temperature, in units of the
        features' standard deviations
    seed : seed of this noise
    """

    temperatures: tuple[float, ...]
    coupling: float
    shrinkage: str | float
    relaxation: str = "multilinear"
    max_sweeps: int = 10
    saturation: float = 0.98
    perturbation: float = 0.0
    seed: int = 0


class Step(NamedTuple):
    """Record of one temperature: free energy, saturation of the spins (1 when hard), and counts."""

    temperature: float
    free_energy: float
    membership_saturation: float
    label_saturation: float
    n_prototypes: int
    n_sweeps: int


class Cooled(NamedTuple):
    """Result of one annealing run: the state without dead and duplicate prototypes, the steps, and both counts."""

    state: PottsState
    steps: list[Step]
    n_dead: int
    n_duplicate: int


class NoWatch:
    """Observer of the temperatures, which may stop the run; this one does neither.

    `end` receives a function that returns the `Cooled` of a run that ends at the present temperature.
    """

    is_stopped = False

    def begin(self, temperature=None):
        pass

    def end(self, nodes=None):
        pass


NO_WATCH = NoWatch()


def cool(rows: LabelledRows, state: PottsState, cooling: Cooling, watch=NO_WATCH) -> Cooled:
    """Run through the temperatures from a given state, each with a warm start from the one before."""
    sweeper = RELAXATIONS[cooling.relaxation](rows, cooling.coupling)
    steps: list[Step] = []
    counts = np.zeros(len(state))
    generator = np.random.RandomState(cooling.seed)
    for temperature in cooling.temperatures:
        watch.begin(temperature)
        if cooling.perturbation:  # equal prototypes of one label have equal updates, so they would never split
            spread = np.sqrt(np.maximum(diagonal(rows.second_moment), 0))
            noise = cooling.perturbation * spread * generator.normal(size=state.prototypes.shape)
            state = replace(state, prototypes=state.prototypes + noise)
        prior = metric_prior(rows, state, cooling.shrinkage)
        state, counts, step = _settle(sweeper, state, temperature, prior, cooling.max_sweeps)
        steps.append(step)
        watch.end(partial(_pruned, state, counts, list(steps)))
        if watch.is_stopped or min(step.membership_saturation, step.label_saturation) > cooling.saturation:
            break
    return _pruned(state, counts, steps)


def _settle(sweeper, state, temperature, prior, max_sweeps):
    """Sweep at one temperature until the free energy has converged."""
    total, value, n_sweeps = sweeper.rows.total, np.inf, 0
    while n_sweeps < max_sweeps:
        swept = sweeper.sweep(state, temperature, prior)
        state, n_sweeps = swept.state, n_sweeps + 1
        if value - swept.free_energy <= CONVERGED * total:
            break
        value = swept.free_energy
    label_saturation = float(np.vdot(state.labels, state.labels)) / len(state)
    saturation = swept.membership_saturation
    step = Step(temperature, swept.free_energy, saturation, label_saturation, len(state), n_sweeps)
    return state, swept.counts, step


def _pruned(state, counts, steps) -> Cooled:
    """Remove prototypes whose weight is rounding, and duplicates of an earlier prototype of the same label.

    At least one is kept.
    """
    is_dead = counts <= SINGLE_ROUNDING * counts.sum()
    is_dead[np.argmax(counts)] = False
    alive = state.take(~is_dead)
    is_duplicate = _lies_on_another(alive)
    return Cooled(alive.take(~is_duplicate), steps, int(is_dead.sum()), int(is_duplicate.sum()))


def _lies_on_another(state: PottsState):
    """Whether each prototype coincides, up to rounding, with an earlier one of the same label, (K,)."""
    centred = state.prototypes - state.prototypes.mean(axis=0)
    products = centred @ state.metric @ centred.T
    distances = np.diag(products)[:, None] + np.diag(products) - products - products.T
    labels = state.labels.argmax(axis=1)
    return np.any(np.tril((distances < SINGLE_ROUNDING) & (labels[:, None] == labels), -1), axis=1)


# --- shrinkage -------------------------------------------------------------------------------------------------


def start_state(rows: LabelledRows, prototypes, labels, scatter: Symmetric, shrinkage) -> PottsState:
    """A state from prototypes, labels and a scatter, with the metric shrunk in the same way as during cooling."""
    unshrunk = PottsState(prototypes, labels, np.eye(len(scatter)), 0.0, scatter)
    return with_scatter(rows, prototypes, labels, scatter, metric_prior(rows, unshrunk, shrinkage))


def metric_prior(rows: LabelledRows, state: PottsState, shrinkage) -> MetricPrior:
    """The spherical prior of a shrinkage; it stays fixed during the sweeps at one temperature."""
    share = min(shrinkage_share(rows, state, shrinkage), 1 - 1e-6)
    return MetricPrior(share / (1 - share), diagonal(state.scatter).mean())


def shrinkage_share(rows: LabelledRows, state: PottsState, shrinkage) -> float:
    """The shrinkage of a state's scatter, from 0 to 1."""
    scatter = state.scatter
    if shrinkage == "oas":
        return oas_share(inner(scatter, scatter), diagonal(scatter).sum(), rows.total, len(scatter))
    return _ledoit_wolf(rows, state) if shrinkage == "ledoit_wolf" else float(shrinkage)


def _ledoit_wolf(rows: LabelledRows, state: PottsState) -> float:
    """From the scatter of rows about their nearest prototypes."""
    residuals = rows.X - state.prototypes[nearest(rows.X, state)]
    weight = rows.weight / rows.total
    scatter = (residuals.T * weight) @ residuals
    fourth = weight @ np.sum(residuals**2, axis=1) ** 2
    return ledoit_wolf_share(np.sum(scatter**2), np.trace(scatter), fourth, rows.total, len(scatter))


# --- nearest prototypes ----------------------------------------------------------------------------------------


def scores_of(X, prototypes, metric):
    """-d2 / 2 plus x' A x / 2, which is equal for all prototypes of a row, (n_rows, K)."""
    directions, levels = directions_and_levels(prototypes, metric)
    place = Place.of(X)
    return X @ place.row(directions).T + place.row(levels)


def nearest(X, state: PottsState):
    """Index of the nearest prototype in the metric, (n_rows,)."""
    return np.argmax(scores_of(X, state.prototypes, state.metric), axis=1)
