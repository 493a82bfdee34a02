"""The posterior that labelled prototypes give, and its log-loss with the derivatives in every parameter.

    s_ik = -(x_i - y_k)' A (x_i - y_k) / 2,    A = L L',    Xi_k = softmax(a_k)
    p_im = sum_k softmax(s_i)_k Xi_km,    loss = - sum_i w_i log p_i,c(i) / sum_i w_i

A row's own square cancels, so s is linear in x: directions q_k = A y_k and levels h_k = y_k' q_k / 2. The derivative of
a row's loss in s_ik is g_ik = P(k | x_i) - P(k | x_i, c(i)), and the rest follows from sums of it over rows:

    d loss / d q_k = sum_i w_i g_ik x_i,    d loss / d h_k = - sum_i w_i g_ik
Shapes: prototypes y, directions q (K, n_features), root L (n_features, n_features), label_logits a (K, n_classes).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from annealed.design.threads import map_in_order
from annealed.objectives import gibbs
from annealed.objectives.potts import LabelledRows


class PrototypePosterior(NamedTuple):
    """Prototypes, a root of the metric, and logits of the labels."""

    prototypes: np.ndarray
    root: np.ndarray
    label_logits: np.ndarray

    @property
    def metric(self):
        return self.root @ self.root.T

    def flat(self):
        return np.concatenate([part.ravel() for part in self])

    def like(self, flat) -> PrototypePosterior:
        """Another point of the same shapes, from a vector."""
        parts, first = [], 0
        for part in self:
            parts.append(flat[first : first + part.size].reshape(part.shape))
            first += part.size
        return PrototypePosterior(*parts)


def linear_scores(prototypes, metric):
    """Directions q and levels h."""
    directions = prototypes @ metric
    return directions, 0.5 * np.sum(directions * prototypes, axis=1)


def log_posterior(X, prototypes, metric, label_logits):
    """Logarithm of the posterior of rows, (n_rows, n_classes)."""
    directions, levels = linear_scores(prototypes, metric)
    memberships = gibbs.posterior(X @ directions.T - levels)
    return np.log(np.maximum(memberships @ gibbs.posterior(label_logits), np.finfo(np.float64).tiny))


def loss_and_gradient(rows: LabelledRows, point: PrototypePosterior) -> tuple[float, PrototypePosterior]:
    """Mean log-loss of the rows and its derivatives, by blocks of rows."""
    directions, levels = linear_scores(point.prototypes, point.metric)
    labels = gibbs.posterior(point.label_logits)
    cast, level, narrow_labels = (part.astype(rows.X.dtype) for part in (directions, levels, labels))

    def block_terms(block):
        X, weight = rows.X[block.rows], rows.weight[block.rows] / rows.total
        scores = cast @ X.T - level[:, None]
        scores -= scores.max(axis=0)
        np.exp(scores, out=scores)
        total, agreed = scores.sum(axis=0), np.empty(len(X), dtype=scores.dtype)
        for own, label in block.runs:
            agreed[own] = narrow_labels[:, label] @ scores[:, own]
        np.maximum(agreed, np.finfo(scores.dtype).tiny, out=agreed)
        loss = (np.log(total) - np.log(agreed)) @ weight
        by_total, by_agreed = (weight / total).astype(scores.dtype), (weight / agreed).astype(scores.dtype)
        prior, posterior = scores @ by_total, np.zeros(labels.shape)
        for own, label in block.runs:
            posterior[:, label] = labels[:, label] * (scores[:, own] @ by_agreed[own])
            scores[:, own] *= by_total[own] - narrow_labels[:, label, None] * by_agreed[own]
        return loss, scores @ X, prior, posterior

    loss, by_direction = 0.0, np.zeros(directions.shape)
    prior, posterior = np.zeros(len(directions)), np.zeros(labels.shape)
    for part in map_in_order(block_terms, rows.blocks(len(point.prototypes))):
        loss += float(part[0])
        by_direction += part[1]
        prior += part[2]
        posterior += part[3]
    agreed = posterior.sum(axis=1)
    by_logits = agreed[:, None] * labels - posterior
    return loss, _chained(point, directions, by_direction, agreed - prior, by_logits)


def _chained(point, directions, by_direction, by_level, by_logits) -> PrototypePosterior:
    """Derivatives in prototypes and root from those in directions and levels."""
    by_prototype = by_direction @ point.metric + by_level[:, None] * directions
    by_metric = point.prototypes.T @ by_direction + 0.5 * (point.prototypes.T * by_level) @ point.prototypes
    return PrototypePosterior(by_prototype, (by_metric + by_metric.T) @ point.root, by_logits)
