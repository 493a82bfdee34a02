"""The relaxation of the slides: E2 is half the squared distance |q_i - sum_k D_ik Xi_k|^2 at the mean spins.

This energy is not linear in the spins, so `softmax(beta v)` is not the minimizer of Psi but the target of a descent
direction: it minimizes the entropy term plus the energy linearized at the current spins. The slides take the full step,
which does not converge. Here the step is halved until Psi does not increase (sign of v as in `docs/theory.md`):

    v_i = -d2_i / 2 + c Xi (q_i - Xi' D_i)       u_k = c sum_i w_i D_ik (q_i - Xi' D_i)

Shapes: memberships D (n_rows, K), labels Xi (K, n_classes), targets q (n_rows, n_classes).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annealed.potts.problem import (
    LabelledRows,
    MetricPrior,
    PottsState,
    Sums,
    Swept,
    free_energy,
    moved,
    quadratic_error,
)
from annealed.problems import gibbs

SHORTEST_STEP = 1e-3  # share of the full step below which the spins stay as they are


class Quadratic:
    """Damped sweeps; memberships (n_rows, K) are kept from one sweep to the next."""

    def __init__(self, rows: LabelledRows, coupling: float):
        self.rows, self.coupling = rows, coupling
        self.targets = np.eye(rows.n_classes)[rows.labels]
        self.memberships: np.ndarray | None = None

    def sweep(self, state: PottsState, temperature: float, prior: MetricPrior) -> Swept:
        """Update memberships (at first all equal), labels, prototypes and metric, in this order."""
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
        """The field v of the memberships, without the term -x_i' A x_i / 2, which is the same for all prototypes."""
        directions = state.prototypes @ state.metric
        level = -0.5 * np.sum(directions * state.prototypes, axis=1)
        residual = self.targets - memberships @ state.labels
        return self.rows.X @ directions.T + level + self.coupling * residual @ state.labels.T

    def label_field(self, state: PottsState, memberships):
        """The field u of the labels."""
        residual = self.targets - memberships @ state.labels
        return self.coupling * (memberships * self.rows.weight[:, None]).T @ residual


def _descend(value, spins, goal, before):
    """Step towards the goal, halved until the value does not increase; returns the spins and their value."""
    step = 1.0
    while step > SHORTEST_STEP:
        moved_spins = spins + step * (goal - spins)
        if (reached := value(moved_spins)) <= before:
            return moved_spins, reached
        step /= 2
    return spins, before
