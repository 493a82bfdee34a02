"""Discriminative refinement: the log-loss over prototypes, metric and labels, pulled to the annealed solution.

    loss(y, L, a) + penalty / 2 ( |y - y0|^2 + |L - I|^2 + |a - a0|^2 )

in coordinates where the annealed metric is the identity. The penalty falls step by step, each minimum the start of the
next; rows that were held out say where to stop. The start is soft: from a sharp posterior, which all but fits the rows
already, little is learnt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import optimize

from annealed.objectives import gibbs
from annealed.objectives.potts import LabelledRows, PottsState, symmetric_eigen
from annealed.objectives.prototype_posterior import PrototypePosterior, log_posterior, loss_and_gradient
from annealed.prototypes.base import scores_of

SMOOTHING = 0.5  # rows of every class that each prototype is granted
SMALLEST_LABEL = 1e-12
L_BFGS = {"maxiter": 20, "ftol": 1e-5}  # at each penalty: validation looks at the path, not at the minimum


class Spoken(NamedTuple):
    """A posterior in the coordinates of the rows: prototypes, metric with the sharpness in it, logits of the labels."""

    prototypes: np.ndarray
    metric: np.ndarray
    label_logits: np.ndarray

    def log_proba(self, X):
        return log_posterior(X, *self)


def spoken(rows: LabelledRows, state: PottsState, sharpness: float) -> Spoken:
    """The annealed solution as a posterior, its metric times the sharpness.

    Labels are the shares of the classes among a prototype's rows, smoothed.
    """
    memberships = gibbs.posterior(sharpness * scores_of(rows.X, state.prototypes, state.metric))
    counts = memberships.T @ (np.eye(rows.n_classes)[rows.labels] * rows.weight[:, None])
    smoothed = counts + SMOOTHING * rows.n_classes * rows.class_weight / rows.total
    labels = np.maximum(smoothed / smoothed.sum(axis=1, keepdims=True), SMALLEST_LABEL)
    return Spoken(state.prototypes, sharpness * state.metric, np.log(labels))


def root_of(metric):
    """The symmetric root of a metric and its inverse."""
    values, vectors = symmetric_eigen(metric)
    values = np.sqrt(np.maximum(values, 1e-12 * max(values[-1], 1e-300)))
    return (vectors * values) @ vectors.T, (vectors / values) @ vectors.T


def refinements(rows: LabelledRows, start: Spoken, penalties) -> Iterator[Spoken]:
    """The minimum at each penalty, strong to weak, warm from one to the next."""
    root, inverse = root_of(start.metric)
    white = LabelledRows(rows.X @ root.astype(rows.X.dtype), rows.labels, rows.weight, rows.n_classes)
    anchor = PrototypePosterior(start.prototypes @ root, np.eye(len(root)), start.label_logits)
    origin = anchor.flat()
    point = origin
    for penalty in penalties:

        def value(flat, penalty=penalty):
            loss, gradient = loss_and_gradient(white, anchor.like(flat))
            pull = flat - origin
            return loss + 0.5 * penalty * (pull @ pull), gradient.flat() + penalty * pull

        point = optimize.minimize(value, point, jac=True, method="L-BFGS-B", options=L_BFGS).x
        found = anchor.like(point)
        yield Spoken(found.prototypes @ inverse, root @ found.metric @ root, found.label_logits)
