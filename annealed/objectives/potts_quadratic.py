"""The slides' relaxation: half the squared distance |q_i - sum_k D_ik Xi_k|^2, with the means put in.

It is not linear in the spins, so `softmax(beta v)` is no minimum but a direction of descent: at v the energy's tangent
plus the entropy is least there. The slides jump all the way, which does not converge; here a step goes as far as Psi
falls (the sign of v as in `docs/theory.md`):

    v_i = -d2_i / 2 + c Xi (q_i - Xi' D_i)       u_k = c sum_i w_i D_ik (q_i - Xi' D_i)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annealed.objectives import gibbs
from annealed.objectives.potts import (
    LabelledRows,
    MetricPrior,
    PottsState,
    Sums,
    Swept,
    free_energy,
    moved,
    quadratic_error,
)

SHORTEST_STEP = 1e-3


class Quadratic:
    """Damped sweeps; memberships (n_rows, K) are kept from one to the next."""

    def __init__(self, rows: LabelledRows, coupling: float):
        self.rows, self.coupling = rows, coupling
        self.targets = np.eye(rows.n_classes)[rows.labels]
        self.memberships: np.ndarray | None = None

    def sweep(self, state: PottsState, temperature: float, prior: MetricPrior) -> Swept:
        """Memberships, labels, prototypes, metric, in this order; the first sweep starts at equal memberships."""
        rows = self.rows
        if self.memberships is None:
            self.memberships = np.full((len(rows.X), len(state)), 1 / len(state))

        def value(memberships, labels):
            new = replace(state, labels=labels)
            return free_energy(rows, new, memberships, temperature, self.coupling, prior, quadratic_error)

        before = value(self.memberships, state.labels)
        goal = gibbs.posterior(self.membership_field(state, self.memberships) / temperature)
        self.memberships, before = _descend(lambda spins: value(spins, state.labels), self.memberships, goal, before)
        goal = gibbs.posterior(self.label_field(state, self.memberships) / temperature)
        labels, _ = _descend(lambda spins: value(self.memberships, spins), state.labels, goal, before)
        weighted = self.memberships * rows.weight[:, None]
        squares = float(rows.weight @ np.sum(self.memberships**2, axis=1))
        sums = Sums(weighted.T @ self.targets, weighted.T @ rows.X, squares, np.nan)
        new = moved(rows, state, labels, sums, prior)
        reached = free_energy(rows, new, self.memberships, temperature, self.coupling, prior, quadratic_error)
        return Swept(new, reached, squares / rows.total, weighted.sum(axis=0))

    def membership_field(self, state: PottsState, memberships):
        """The field v of the memberships, less the rows' own squares."""
        directions = state.prototypes @ state.metric
        level = -0.5 * np.sum(directions * state.prototypes, axis=1)
        missed = self.targets - memberships @ state.labels
        return self.rows.X @ directions.T + level + self.coupling * missed @ state.labels.T

    def label_field(self, state: PottsState, memberships):
        """The field u of the labels."""
        missed = self.targets - memberships @ state.labels
        return self.coupling * (memberships * self.rows.weight[:, None]).T @ missed


def _descend(value, spins, goal, before):
    """As far towards the goal as halving finds a value that does not rise above the one before, and that value."""
    step = 1.0
    while step > SHORTEST_STEP:
        moved_spins = spins + step * (goal - spins)
        if (reached := value(moved_spins)) <= before:
            return moved_spins, reached
        step /= 2
    return spins, before
