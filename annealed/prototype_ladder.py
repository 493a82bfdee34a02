"""The ladder that prototypes climb: one a class, two a class, then those grown from wrong rows, round after round."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from annealed.objectives.potts import LabelledRows, Multilinear, PottsState
from annealed.objectives.principal_rows import PrincipalRows, has_many_columns
from annealed.prototypes import (
    NOBODY,
    Cooled,
    Cooling,
    Watch,
    cool,
    grown,
    mean_start,
    metric_prior,
    plus_plus_starts,
    shrinkage_share,
)

MOST_PROTOTYPES = 200
FEWEST_ROWS_EACH = 3  # rows for a prototype, below which growth stops
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


def climb(rows: LabelledRows, plan: Plan, shrinkage, watch: Watch = NOBODY) -> Iterator[Cooled]:
    """Round after round of prototypes: one a class, two a class, then those grown from wrong rows."""
    generator = np.random.RandomState(plan.seed)
    cooling = replace(plan.cooling, shrinkage=shrinkage)
    if not plan.grows:
        yield _best_start(rows, plan.n_per_class, plan, cooling, generator, watch)
        return
    yield _best_start(rows, np.ones(rows.n_classes, dtype=int), replace(plan, n_init=1), cooling, generator, watch)
    cooled = _best_start(rows, np.full(rows.n_classes, 2), plan, cooling, generator, watch)
    again = reheated(cooling)
    most = min(MOST_PROTOTYPES, len(rows.X) // FEWEST_ROWS_EACH)
    while True:
        yield cooled
        state = grown(rows, cooled.state)
        if state is None or len(state) > most:
            return
        cooled = cool(rows, state, again, watch)


def reheated(cooling: Cooling) -> Cooling:
    """The schedule from where growth begins again; its coldest temperature where it never was so hot."""
    temperatures = tuple(own for own in cooling.temperatures if own <= REHEATED) or cooling.temperatures[-1:]
    return replace(cooling, temperatures=temperatures)


def _best_start(rows, n_per_class, plan, cooling, generator, watch: Watch) -> Cooled:
    """Of several starts, the one that ends at the least free energy, under priors of one strength: the strongest would
    win by itself.
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
    """The rows along their principal axes where columns are many, which is the same and faster."""
    return PrincipalRows(rows) if has_many_columns(rows) and not isinstance(rows, PrincipalRows) else rows


def subsample(rows: LabelledRows, most, seed) -> LabelledRows:
    """At most so many rows, the classes in their shares; every class keeps a row at least."""
    if rows.n_rows <= most:
        return rows
    generator = np.random.RandomState(seed)
    order = generator.permutation(rows.n_rows)
    first = np.unique(rows.labels[order], return_index=True)[1]
    kept = np.union1d(order[:most], order[first])
    return rows.take(kept)
