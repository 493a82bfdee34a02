"""Discriminative refinement: the log-loss over prototypes, metric and labels, pulled to the annealed solution.

    loss(y, L, a) + penalty / 2 ( |y - y0|^2 + |L - I|^2 + |a - a0|^2 )

in coordinates where the annealed metric is the identity. The penalty falls step by step, each minimum the start of the
next; rows that were held out say where to stop. The start is soft: from a sharp posterior, which all but fits the rows
already, little is learnt.

Where columns are many, L may differ from I only in the span of the prototypes and of the loss's slopes in them. At a
minimum penalty (L - I) = -M L with M of rank 2 K in such a span, and with more columns than prototypes a metric adds no
posterior that prototypes alone cannot give; the full L has n_features squared numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from annealed.objectives.diagonal_plus import DiagonalPlus, Symmetric, dense
from annealed.objectives.potts import LabelledRows, PottsState
from annealed.objectives.prototype_posterior import (
    PrototypePosterior,
    log_posterior,
    loss_and_gradient,
    memberships,
)
from annealed.prototypes.descent import PulledDescent
from annealed.prototypes.whitening import orthonormal, whitening

SMOOTHING = 0.5  # rows of every class that each prototype is granted
SMALLEST_LABEL = 1e-12


class CalibratedPosterior(NamedTuple):
    """A posterior in the coordinates of the rows: prototypes, metric with the sharpness in it, logits of the labels."""

    prototypes: np.ndarray
    metric: Symmetric
    label_logits: np.ndarray

    def dense(self) -> CalibratedPosterior:
        return self._replace(metric=dense(self.metric))

    def log_proba(self, X):
        return log_posterior(X, *self)


def calibrated(rows: LabelledRows, state: PottsState, sharpness: float) -> CalibratedPosterior:
    """The annealed solution as a posterior, its metric times the sharpness.

    Labels are the shares of the classes among a prototype's rows, smoothed.
    """
    metric = sharpness * state.metric
    shares = memberships(rows.X, state.prototypes, metric)
    shares *= rows.weight.astype(shares.dtype)
    counts = np.zeros(state.labels.shape)
    counts[:, rows.whole.labels] = rows.whole.class_sums(shares)
    smoothed = counts + SMOOTHING * rows.n_classes * rows.class_weight / rows.total
    labels = np.maximum(smoothed / smoothed.sum(axis=1, keepdims=True), SMALLEST_LABEL)
    return CalibratedPosterior(state.prototypes, metric, np.log(labels))


def refinements(rows: LabelledRows, start: CalibratedPosterior, penalties) -> Iterator[CalibratedPosterior]:
    """The minimum at each penalty, strong to weak, warm from one to the next."""
    turn = whitening(start.metric)
    white = LabelledRows(turn.white(rows.X), rows.labels, rows.weight, rows.n_classes)
    anchor = _anchor(white, turn, start)

    def loss(flat):
        value, slope = loss_and_gradient(white, anchor.like(flat))
        return value, slope.flat()

    descent = PulledDescent(loss, anchor.flat())
    for penalty in penalties:
        found = anchor.like(descent.minimize(penalty))
        yield CalibratedPosterior(turn.back(found.prototypes), turn.metric(found), found.label_logits)


def _anchor(white, turn, start: CalibratedPosterior) -> PrototypePosterior:
    """The annealed solution in white coordinates."""
    prototypes = turn.white(start.prototypes)
    anchor = PrototypePosterior(prototypes, np.eye(prototypes.shape[1]), start.label_logits)
    if not isinstance(start.metric, DiagonalPlus):
        return anchor
    still = PrototypePosterior(prototypes, np.zeros((0, 0)), start.label_logits, np.zeros((prototypes.shape[1], 0)))
    slope = loss_and_gradient(white, still)[1].prototypes
    basis = orthonormal(np.vstack([prototypes, slope]).T)
    return anchor._replace(root=np.eye(basis.shape[1]), basis=basis)
