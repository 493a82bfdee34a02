"""Incremental growth: new prototypes at the means of misclassified training rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annealed.potts.cooling import nearest
from annealed.potts.problem import LabelledRows, PottsState

MOST_NEW = 0.6  # new prototypes per round, as a share of the present number


def grown(rows: LabelledRows, state: PottsState) -> PottsState | None:
    """Add a prototype for each group of misclassified rows, the heaviest groups first; None if no row is wrong.

    A group holds the rows of one class whose nearest prototype belongs to another class. Its prototype starts at its
    mean and with its class as a hard label.
    """
    cell = nearest(rows.X, state)
    is_wrong = state.labels.argmax(axis=1)[cell] != rows.labels
    group = (cell * rows.n_classes + rows.labels)[is_wrong]
    mass = np.bincount(group, rows.weight[is_wrong], len(state) * rows.n_classes)
    heaviest = np.argsort(-mass, kind="stable")[: max(1, int(MOST_NEW * len(state)))]
    heaviest = heaviest[mass[heaviest] > 0]
    if not len(heaviest):
        return None
    means = [_mean(rows, np.flatnonzero(is_wrong)[group == heavy]) for heavy in heaviest]
    return replace(
        state,
        prototypes=np.vstack([state.prototypes, means]),
        labels=np.vstack([state.labels, np.eye(rows.n_classes)[heaviest % rows.n_classes]]),
    )


def _mean(rows, members):
    return rows.weight[members] @ rows.X[members] / rows.weight[members].sum()
