"""Growing prototypes in rounds: one per class, two per class (both by k-means++), then more at misclassified rows.

Each round anneals all prototypes. Of several starts, the one with the lowest final free energy is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from annealed.potts.cooling import NO_WATCH, Cooled, Cooling, Watch, cool, metric_prior, shrinkage_share
from annealed.potts.growth import grown
from annealed.potts.principal_rows import PrincipalRows, has_many_columns
from annealed.potts.problem import LabelledRows, Multilinear, PottsState
from annealed.potts.start import mean_start, plus_plus_starts

MOST_PROTOTYPES = 200  # growth stops before it would exceed this
FEWEST_ROWS_EACH = 3  # rows per prototype, below which growth stops
REHEATED = 1.0  # highest temperature of a round of growth: a higher one loses the solution of the round before


@dataclass(frozen=True)
class Plan:
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


def climb(rows: LabelledRows, plan: Plan, shrinkage, watch: Watch = NO_WATCH) -> Iterator[Cooled]:
    """Yield the result of each round: one prototype per class, two per class, then growth at misclassified rows."""
    generator = np.random.RandomState(plan.seed)
    cooling = replace(plan.cooling, shrinkage=shrinkage)
    if not plan.grows:
        yield _best_start(rows, plan.n_per_class, plan, cooling, generator, watch)
        return
    yield _best_start(rows, np.ones(rows.n_classes, dtype=int), replace(plan, n_init=1), cooling, generator, watch)
    cooled = _best_start(rows, np.full(rows.n_classes, 2), plan, cooling, generator, watch)
    from_reheated = reheated(cooling)
    most = min(MOST_PROTOTYPES, len(rows.X) // FEWEST_ROWS_EACH)
    while True:
        yield cooled
        state = grown(rows, cooled.state)
        if state is None or len(state) > most:
            return
        cooled = cool(rows, state, from_reheated, watch)


def reheated(cooling: Cooling) -> Cooling:
    """The schedule from temperature `REHEATED` down; its last temperature alone if all are higher."""
    temperatures = tuple(value for value in cooling.temperatures if value <= REHEATED) or cooling.temperatures[-1:]
    return replace(cooling, temperatures=temperatures)


def _best_start(rows, n_per_class, plan, cooling, generator, watch: Watch) -> Cooled:
    """Anneal from several starts and keep the one with the lowest final free energy.

    Free energies are compared with the same shrinkage for all: otherwise the one with the most shrinkage would win.
    """
    runs: list[Cooled] = []
    starts = _starts(rows, n_per_class, plan, cooling, generator)
    while len(runs) < plan.n_init and not watch.is_stopped:
        runs.append(cool(rows, next(starts), cooling, watch))
    coldest = min(run.steps[-1].temperature for run in runs)
    share = float(np.median([shrinkage_share(rows, run.state, cooling.shrinkage) for run in runs]))
    return min(runs, key=lambda run: _cold_value(rows, run.state, coldest, cooling.coupling, share))


def _starts(rows, n_per_class, plan, cooling, generator) -> Iterator[PottsState]:
    if n_per_class is not None:
        return plus_plus_starts(rows, n_per_class, cooling.shrinkage, generator)
    return (mean_start(rows, plan.n_total, cooling.shrinkage, generator) for _ in range(plan.n_init))


def _cold_value(rows, state, temperature, coupling, share) -> float:
    prior = metric_prior(rows, state, share)
    return Multilinear(rows, coupling).sweep(state, temperature, prior).free_energy


# --- rows ---------------------------------------------------------------------------------------------------


def along_axes(rows: LabelledRows) -> LabelledRows:
    """The rows in their principal axes if there are many columns: equivalent, and faster."""
    return PrincipalRows(rows) if has_many_columns(rows) and not isinstance(rows, PrincipalRows) else rows


def subsample(rows: LabelledRows, most, seed) -> LabelledRows:
    """A random subset of about `most` rows, which keeps at least one row of every class."""
    if rows.n_rows <= most:
        return rows
    generator = np.random.RandomState(seed)
    order = generator.permutation(rows.n_rows)
    first = np.unique(rows.labels[order], return_index=True)[1]
    kept = np.union1d(order[:most], order[first])
    return rows.take(kept)
