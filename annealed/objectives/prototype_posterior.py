"""The posterior that labelled prototypes give, and its log-loss with the derivatives in every parameter.

    s_ik = log weight_k - (x_i - y_k)' A (x_i - y_k) / 2,    A = L L'
    p_im = sum_k softmax(s_i)_k Xi_km,    loss = - sum_i w_i log p_i,c(i) / sum_i w_i

A row's own square cancels, so s is linear in x: directions q_k = A y_k and levels h_k = y_k' q_k / 2 - log weight_k.
Weights and labels stand together as logits a_km = log(weight_k Xi_km). The derivative of a row's loss in s_ik is
P(k | x_i) - P(k | x_i, c(i)), and everything else follows from sums of it over rows:

    d loss / d q_k = sum_i g_ik x_i,    d loss / d h_k = - sum_i g_ik
Shapes: prototypes y, directions q (K, n_features), root L (n_features, n_features), logits a (K, n_classes).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from annealed.design.threads import map_in_order
from annealed.objectives.potts import LabelledRows


class PrototypePosterior(NamedTuple):
    """Prototypes, a root of the metric, and logits of weights and labels."""

    prototypes: np.ndarray
    root: np.ndarray
    logits: np.ndarray

    @property
    def metric(self):
        return self.root @ self.root.T

    @property
    def weights(self):
        """Logarithms of the prototypes' weights, (K,)."""
        return np.logaddexp.reduce(self.logits, axis=1)

    def flat(self):
        return np.concatenate([part.ravel() for part in self])

    def like(self, flat) -> PrototypePosterior:
        """Another point of the same shapes, from a vector."""
        parts, first = [], 0
        for part in self:
            parts.append(flat[first : first + part.size].reshape(part.shape))
            first += part.size
        return PrototypePosterior(*parts)

    def linear_scores(self):
        """Directions q and levels h, less the weights."""
        directions = self.prototypes @ self.metric
        return directions, 0.5 * np.sum(directions * self.prototypes, axis=1)

    def log_proba(self, X):
        """Logarithm of the posterior of rows, (n_rows, n_classes)."""
        directions, levels = self.linear_scores()
        scores = X @ directions.T - levels + self.weights
        scores -= scores.max(axis=1, keepdims=True)
        memberships = np.exp(scores)
        top = self.logits.max(axis=1, keepdims=True)
        labels = np.exp(self.logits - top) / np.exp(self.logits - top).sum(axis=1, keepdims=True)
        joint = memberships @ labels
        tiny = np.finfo(joint.dtype).tiny
        return np.log(np.maximum(joint, tiny)) - np.log(memberships.sum(axis=1, keepdims=True))


def loss_and_gradient(rows: LabelledRows, point: PrototypePosterior) -> tuple[float, PrototypePosterior]:
    """Mean log-loss of the rows and its derivatives, by blocks of rows of one class."""
    directions, levels = point.linear_scores()
    weights = point.weights
    log_labels = point.logits - weights[:, None]
    labels = np.exp(log_labels)
    bias = (weights - levels).astype(rows.X.dtype)
    cast = directions.astype(rows.X.dtype)

    def block_terms(block):
        own, label = block
        X, weight = rows.X[own], rows.weight[own] / rows.total
        scores = cast @ X.T + bias[:, None]
        scores -= scores.max(axis=0)
        np.exp(scores, out=scores)
        joint = scores * labels[:, label, None].astype(scores.dtype)
        total, agreed = scores.sum(axis=0), np.maximum(joint.sum(axis=0), np.finfo(scores.dtype).tiny)
        loss = (np.log(total) - np.log(agreed)) @ weight
        scores *= (weight / total).astype(scores.dtype)
        joint *= (weight / agreed).astype(scores.dtype)
        prior, posterior = scores.sum(axis=1, dtype=np.float64), joint.sum(axis=1, dtype=np.float64)
        scores -= joint
        return loss, scores @ X, prior, posterior

    blocks = rows.blocks(len(point.prototypes))
    loss, by_direction = 0.0, np.zeros(directions.shape)
    prior, posterior = np.zeros(len(directions)), np.zeros(labels.shape)
    for (_, label), part in zip(blocks, map_in_order(block_terms, blocks), strict=True):
        loss += float(part[0])
        by_direction += part[1]
        prior += part[2]
        posterior[:, label] += part[3]
    by_level = posterior.sum(axis=1) - prior
    return loss, _chained(point, directions, by_direction, by_level, prior[:, None] * labels - posterior)


def _chained(point, directions, by_direction, by_level, by_logits) -> PrototypePosterior:
    """Derivatives in prototypes and root from those in directions and levels."""
    by_prototype = by_direction @ point.metric + by_level[:, None] * directions
    by_metric = point.prototypes.T @ by_direction + 0.5 * (point.prototypes.T * by_level) @ point.prototypes
    return PrototypePosterior(by_prototype, (by_metric + by_metric.T) @ point.root, by_logits)
