"""Mean-field annealing of Potts spins (Wu): soft k-means with class labels and one learned Mahalanobis metric.

Two kinds of Potts spins are replaced by their means: memberships D_ik of row i in prototype k, and soft labels Xi_km of
prototype k for class m. With one-hot classes q_i, beta = 1 / temperature, squared distances
d2_ik = (x_i - y_k)' A (x_i - y_k) and row weights w_i with sum N, the free energy is

    Psi = E1 + c E2 - (H(D) + H(Xi)) / beta
    E1  = N/2 [ tr(A W) + r tr(A P) - (1 + r) log det A ],    W = 1/N sum_ik w_i D_ik (x_i - y_k)(x_i - y_k)'
    E2  = sum_ik w_i D_ik (1 - q_i' Xi_k)

E2 is linear in each spin, so the mean-field value is the exact expectation, and each block of variables has a
closed-form minimizer given the others. The first line is the E-step of soft k-means, the third its M-step:

    D_i  = softmax(beta v_i),    v_ik = -d2_ik / 2 + c q_i' Xi_k
    Xi_k = softmax(beta u_k),    u_km = c n_km,    n_km = sum_i w_i D_ik q_im
    y_k  = sum_i w_i D_ik x_i / n_k
    A    = ((W + r P) / (1 + r))^-1,    W = S - sum_k (n_k / N) y_k y_k'    (S: second moment of the rows)

r P is a prior on the metric, with P a multiple of the identity: it shrinks W by r / (1 + r) towards P. At a fixed
temperature and prior a sweep over the four blocks (block coordinate descent) never increases Psi.

The relaxation of the slides has E2 = 1/2 sum_i w_i |q_i - sum_k D_ik Xi_k|^2. It is not linear in the spins, so
`softmax(beta v)` is not the minimizer of Psi but the target of a descent direction: it minimizes the entropy term plus
the energy linearized at the current spins. The slides take the full step, which does not converge. Here the step is
halved until Psi does not increase (sign of v as in `docs/theory.md`):

    v_i = -d2_i / 2 + c Xi (q_i - Xi' D_i)       u_k = c sum_i w_i D_ik (q_i - Xi' D_i)

Shapes: X (n_rows, n_features), prototypes y (K, n_features), labels Xi (K, n_classes), metric A (n_features,
n_features), memberships D (n_rows, K).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import entr

from annealed.potts.rows import LabelledRows
from annealed.potts.state import (
    SINGLE_ROUNDING,
    MetricPrior,
    PottsState,
    Sums,
    diagonal,
    directions_and_levels,
    inner,
    plus,
    shrunk_inverse,
)
from annealed.problems import gibbs

SHORTEST_STEP = SINGLE_ROUNDING**0.5  # share of the full step, below which the slides' spins stay as they are


class Swept(NamedTuple):
    """Result of a sweep: the new state, a free energy, the mean sum of squares of memberships, and n_k (K,).

    `Multilinear` reports Psi of the state before the sweep, at its optimal memberships.
    """

    state: PottsState
    free_energy: float
    membership_saturation: float
    counts: np.ndarray


# --- blocks: each the exact minimizer of the free energy, given the others -----------------------------------


def updated_labels(class_counts, beta, coupling):
    """The E-step for labels, Xi_k = softmax(beta c n_k)."""
    field = (beta * coupling) * class_counts
    weights = np.exp(field - field.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def moved(rows: LabelledRows, state: PottsState, labels, sums: Sums, prior: MetricPrior) -> PottsState:
    """The M-step: prototypes and metric at their minimizers, together with new labels.

    Prototypes are weighted means of the rows; one whose weight is rounding keeps its position.
    """
    counts, smallest = sums.class_counts.sum(axis=1), SINGLE_ROUNDING * rows.total / len(state)
    means = sums.rows / np.maximum(counts, smallest)[:, None]
    has_rows = counts > smallest
    prototypes = np.where(has_rows[:, None], means, state.prototypes)
    scatter = plus(rows.second_moment, prototypes, counts * has_rows / -rows.total)
    return with_scatter(rows, prototypes, labels, scatter, prior)


def with_scatter(rows: LabelledRows, prototypes, labels, scatter, prior: MetricPrior) -> PottsState:
    """The state with these prototypes and labels, and the metric at its minimizer for a scatter."""
    metric, log_det = shrunk_inverse(scatter, *prior, rows.smallest_variance)
    return PottsState(prototypes, labels, metric, log_det, scatter)


# --- energies --------------------------------------------------------------------------------------------------


def entropy(spins, weight=None) -> float:
    """Sum of the entropies of the rows of `spins`, weighted if weights are given."""
    terms = entr(spins)
    return float((terms if weight is None else weight @ terms).sum())


def metric_energy(rows: LabelledRows, state: PottsState, prior: MetricPrior) -> float:
    """E1 with the second moment of the rows in place of W."""
    prior_trace = prior.strength * prior.variance * diagonal(state.metric).sum()
    per_row = inner(state.metric, rows.second_moment) + prior_trace - (1 + prior.strength) * state.log_det
    return 0.5 * rows.total * float(per_row)


def least_free_energy(rows, state: PottsState, sums: Sums, temperature, coupling, prior) -> float:
    """Psi with memberships at their minimizer, from one pass: -1/beta sum_i w_i log sum_k exp(beta v_ik) + the rest."""
    least_error = rows.class_weight @ (1 - state.labels.max(axis=0))
    fixed = metric_energy(rows, state, prior) + coupling * float(least_error)
    return fixed - temperature * (sums.log_partition + entropy(state.labels))


def free_energy(rows, state: PottsState, memberships, temperature, prior, error) -> float:
    """Psi by its definition, at any memberships (n_rows, K), from c E2."""
    weighted = memberships * rows.weight[:, None]
    directions, levels = directions_and_levels(state.prototypes, state.metric)
    moved_energy = -levels @ weighted.sum(axis=0) - np.vdot(directions, weighted.T @ rows.X)
    energy = metric_energy(rows, state, prior) + moved_energy + error
    return energy - temperature * (entropy(memberships, rows.weight) + entropy(state.labels))


# --- sweeps ----------------------------------------------------------------------------------------------------


class Multilinear:
    """Sweeps for the E2 that is linear in each spin: closed forms, and no memberships are stored."""

    def __init__(self, rows: LabelledRows, coupling: float):
        self.rows, self.coupling = rows, coupling

    def sweep(self, state: PottsState, temperature: float, prior: MetricPrior) -> Swept:
        """Update memberships, labels, prototypes and metric, in this order."""
        rows = self.rows
        sums = rows.sums(state, 1 / temperature, self.coupling)
        value = least_free_energy(rows, state, sums, temperature, self.coupling, prior)
        labels = updated_labels(sums.class_counts, 1 / temperature, self.coupling)
        new = moved(rows, state, labels, sums, prior)
        return Swept(new, value, sums.squares / rows.total, sums.class_counts.sum(axis=1))


class Quadratic:
    """Damped sweeps for the E2 of the slides; memberships (n_rows, K) are kept from one sweep to the next."""

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
            return free_energy(rows, new, memberships, temperature, prior, self.error(memberships, labels))

        before = value(self.memberships, state.labels)
        goal = gibbs.posterior(self.membership_field(state, self.memberships) / temperature)
        self.memberships, before = _descend(lambda spins: value(spins, state.labels), self.memberships, goal, before)
        goal = gibbs.posterior(self.label_field(state, self.memberships) / temperature)
        labels, _ = _descend(lambda spins: value(self.memberships, spins), state.labels, goal, before)
        weighted = self.memberships * rows.weight[:, None]
        squares = float(rows.weight @ np.sum(self.memberships**2, axis=1))
        sums = Sums(weighted.T @ self.targets, weighted.T @ rows.X, squares, np.nan)
        new = moved(rows, state, labels, sums, prior)
        reached = free_energy(rows, new, self.memberships, temperature, prior, self.error(self.memberships, labels))
        return Swept(new, reached, squares / rows.total, weighted.sum(axis=0))

    def error(self, memberships, labels) -> float:
        """C E2."""
        residual = self.targets - memberships @ labels
        return 0.5 * self.coupling * float((self.rows.weight @ residual**2).sum())  # reducing rows first is faster

    def membership_field(self, state: PottsState, memberships):
        """The field v of the memberships, without the term -x_i' A x_i / 2, which is the same for all prototypes."""
        directions, levels = directions_and_levels(state.prototypes, state.metric)
        residual = self.targets - memberships @ state.labels
        return self.rows.X @ directions.T + levels + self.coupling * residual @ state.labels.T

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
