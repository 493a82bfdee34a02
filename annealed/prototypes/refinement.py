"""Discriminative refinement: minimizes the log-loss over prototypes, metric and labels, near the annealed solution.

    loss(y, L, a) + penalty / 2 ( |y - y0|^2 + |L - I|^2 + |a - a0|^2 )

The loss is that of `annealed/objectives/prototype_posterior.py`, in coordinates where the annealed metric is the
identity; (y0, I, a0) is the annealed solution. The penalty decreases in steps with warm starts, and the search chooses
one by held-out loss. Refinement starts from the soft posterior at temperature one: a sharp posterior fits the training
rows almost perfectly, so its gradients are nearly zero.

With many columns, L has n_features squared entries, so it may differ from I only in the span of the prototypes and of
the gradient of the loss in them. Little is lost: at a minimum, penalty (L - I) = -M L, where M has rank at most 2 K and
acts in such a span; and with more columns than prototypes, every posterior that a metric gives can also be reached by
moving the prototypes.

Shapes: prototypes y (K, n_features), root of the metric L (n_features, n_features), label logits a (K, n_classes).
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

SMOOTHING = 0.5  # pseudo-rows per class and prototype, in proportion to class frequencies (additive smoothing)
SMALLEST_LABEL = 1e-12  # floor of a label before its logarithm


class CalibratedPosterior(NamedTuple):
    """A posterior in the rows' coordinates: prototypes, metric times sharpness, and logits of the labels."""

    prototypes: np.ndarray
    metric: Symmetric
    label_logits: np.ndarray

    def dense(self) -> CalibratedPosterior:
        return self._replace(metric=dense(self.metric))

    def log_proba(self, X):
        return log_posterior(X, *self)


def calibrated(rows: LabelledRows, state: PottsState, sharpness: float) -> CalibratedPosterior:
    """The annealed solution as a posterior, with its metric multiplied by `sharpness`, an inverse temperature.

    The label of a prototype is the smoothed class distribution of its rows.
    """
    metric = sharpness * state.metric
    weighted = memberships(rows.X, state.prototypes, metric)
    weighted *= rows.weight.astype(weighted.dtype)
    counts = np.zeros(state.labels.shape)
    counts[:, rows.whole.labels] = rows.whole.class_sums(weighted)
    smoothed = counts + SMOOTHING * rows.n_classes * rows.class_weight / rows.total
    labels = np.maximum(smoothed / smoothed.sum(axis=1, keepdims=True), SMALLEST_LABEL)
    return CalibratedPosterior(state.prototypes, metric, np.log(labels))


def refinements(rows: LabelledRows, start: CalibratedPosterior, penalties) -> Iterator[CalibratedPosterior]:
    """The minimizer at each penalty, from strong to weak, with warm starts."""
    whitener = whitening(start.metric)
    white = LabelledRows(whitener.white(rows.X), rows.labels, rows.weight, rows.n_classes)
    anchor = _anchor(white, whitener, start)

    def loss(flat):
        value, gradient = loss_and_gradient(white, anchor.like(flat))
        return value, gradient.flat()

    descent = PulledDescent(loss, anchor.flat())
    for penalty in penalties:
        point = anchor.like(descent.minimize(penalty))
        yield CalibratedPosterior(whitener.back(point.prototypes), whitener.metric(point), point.label_logits)


def _anchor(white, turn, start: CalibratedPosterior) -> PrototypePosterior:
    """The annealed solution in whitened coordinates, with a basis for the root if there are many columns."""
    prototypes = turn.white(start.prototypes)
    anchor = PrototypePosterior(prototypes, np.eye(prototypes.shape[1]), start.label_logits)
    if not isinstance(start.metric, DiagonalPlus):
        return anchor
    identity = PrototypePosterior(prototypes, np.zeros((0, 0)), start.label_logits, np.zeros((prototypes.shape[1], 0)))
    gradient = loss_and_gradient(white, identity)[1].prototypes
    basis = orthonormal(np.vstack([prototypes, gradient]).T)
    return anchor._replace(root=np.eye(basis.shape[1]), basis=basis)
