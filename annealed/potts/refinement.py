"""Discriminative refinement: minimizes the log-loss over prototypes, metric and labels, near the annealed solution.

    loss(y, L, a) + penalty / 2 ( |y - y0|^2 + |L - I|^2 + |a - a0|^2 )

The loss is that of `annealed/potts/posterior.py`, in coordinates where the annealed metric is the
identity; (y0, I, a0) is the annealed solution. The penalty decreases in steps with warm starts, and the search chooses
one by held-out loss. Refinement starts from the soft posterior at temperature one: a sharp posterior fits the training
rows almost perfectly, so its gradients are nearly zero.

With many columns, all of this happens in the span of the prototypes and of the gradient of the loss in them, which has
at most 2 K dimensions; outside it the annealed metric is kept. Little is lost, because the first step from the annealed
solution lies in it, and its metric has rank K beside a diagonal one.

Shapes: prototypes y (K, n_features), root of the metric L (n_features, n_features), label logits a (K, n_classes).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from annealed.potts.descent import PulledDescent
from annealed.potts.diagonal_plus import DiagonalPlus, Symmetric, dense
from annealed.potts.posterior import PrototypePosterior, log_posterior, loss_and_gradient, memberships, slopes
from annealed.potts.problem import LabelledRows, PottsState, symmetric_eigen

SMOOTHING = 0.5  # pseudo-rows per class and prototype, in proportion to class frequencies (additive smoothing)


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
    labels = np.maximum(smoothed / smoothed.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)
    return CalibratedPosterior(state.prototypes, metric, np.log(labels))


def refinements(rows: LabelledRows, start: CalibratedPosterior, penalties) -> Iterator[CalibratedPosterior]:
    """The minimizer at each penalty, from strong to weak, with warm starts."""
    frame = _frame(rows, start)
    white = LabelledRows(rows.X @ frame.there.astype(rows.X.dtype), rows.labels, rows.weight, rows.n_classes)
    anchor = PrototypePosterior(start.prototypes @ frame.there, np.eye(len(frame.back)), start.label_logits)

    def loss(flat):
        value, gradient = loss_and_gradient(white, anchor.like(flat))
        return value, gradient.flat()

    descent = PulledDescent(loss, anchor.flat())
    for penalty in penalties:
        point = anchor.like(descent.minimize(penalty))
        yield CalibratedPosterior(
            point.prototypes @ frame.back, frame.metric(start.metric, point.root), point.label_logits
        )


class _Frame(NamedTuple):
    """Coordinates `u = x there` in which the annealed metric is the identity; `x = u back` in their span."""

    there: np.ndarray
    back: np.ndarray

    def metric(self, annealed: Symmetric, root) -> Symmetric:
        """The annealed metric with `root` root' in place of the identity."""
        change = root @ root.T - np.eye(len(root))
        if isinstance(annealed, DiagonalPlus):
            return annealed.plus(self.there.T, change)
        return annealed + self.there @ change @ self.there.T


def _frame(rows, start: CalibratedPosterior) -> _Frame:
    """Coordinates of all columns or, if there are many, of the span of the prototypes and the gradient in them."""
    basis = np.eye(start.prototypes.shape[1])
    if isinstance(start.metric, DiagonalPlus):
        directions = start.prototypes @ start.metric
        basis = np.vstack([start.prototypes, slopes(rows, start.prototypes, directions, start.label_logits)[1]])
    images = basis @ start.metric
    squares, axes = symmetric_eigen(images @ basis.T)
    kept = squares > len(squares) * np.finfo(float).eps * squares[-1]
    axes = axes[:, kept] / np.sqrt(squares[kept])
    return _Frame(images.T @ axes, axes.T @ basis)
