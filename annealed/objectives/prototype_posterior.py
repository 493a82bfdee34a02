"""The posterior that labelled prototypes give, and its log-loss with the derivatives in every parameter.

    s_ik = -(x_i - y_k)' A (x_i - y_k) / 2,    A = L L',    Xi_k = softmax(a_k)
    p_im = sum_k softmax(s_i)_k Xi_km,    loss = - sum_i w_i log p_i,c(i) / sum_i w_i

A row's own square cancels, so s is linear in x: directions q_k = A y_k and levels h_k = y_k' q_k / 2. The derivative of
a row's loss in s_ik is g_ik = P(k | x_i) - P(k | x_i, c(i)), and the rest follows from sums of it over rows:

    d loss / d q_k = sum_i w_i g_ik x_i,    d loss / d h_k = - sum_i w_i g_ik
A itself is never needed: q_k = L L' y_k, and the derivative in L is of rank 2 K. Where columns are many,
L = I + P (R - I) P' with an orthonormal basis P (n_features, n_basis) and a root R within it.
Shapes: prototypes y, directions q (K, n_features), root L or R square, label_logits a (K, n_classes).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from annealed.design.threads import map_in_order
from annealed.objectives import gibbs
from annealed.objectives.potts import LabelledRows


class PrototypePosterior(NamedTuple):
    """Prototypes, a root of the metric, and logits of the labels; a root within `basis` is the identity outside it."""

    prototypes: np.ndarray
    root: np.ndarray
    label_logits: np.ndarray
    basis: np.ndarray | None = None

    @property
    def parts(self):
        return self.prototypes, self.root, self.label_logits

    def through(self, rows):
        """`rows @ metric`, without the metric."""
        if self.basis is None:
            return rows @ self.root @ self.root.T
        within = rows @ self.basis
        return rows + (within @ self.root @ self.root.T - within) @ self.basis.T

    def within(self, rows):
        """Coordinates of rows in the basis of the root."""
        return rows if self.basis is None else rows @ self.basis

    def flat(self):
        return np.concatenate([part.ravel() for part in self.parts])

    def like(self, flat) -> PrototypePosterior:
        """Another point of the same shapes, from a vector."""
        parts, first = [], 0
        for part in self.parts:
            parts.append(flat[first : first + part.size].reshape(part.shape))
            first += part.size
        prototypes, root, label_logits = parts
        return PrototypePosterior(prototypes, root, label_logits, self.basis)


def log_posterior(X, prototypes, metric, label_logits):
    """Logarithm of the posterior of rows, (n_rows, n_classes), of their type."""
    labels = gibbs.posterior(label_logits).astype(X.dtype)
    return np.log(np.maximum(memberships(X, prototypes, metric).T @ labels, np.finfo(X.dtype).tiny))


def memberships(X, prototypes, metric):
    """Of rows in prototypes, the softmax of s, (K, n_rows), of the rows' type."""
    directions = prototypes @ metric
    levels = 0.5 * (directions * prototypes).sum(axis=1)
    shares = directions.astype(X.dtype) @ X.T
    shares -= levels.astype(X.dtype)[:, None]
    _, total = gibbs.exponentials(shares)
    shares *= 1 / total
    return shares


def loss_and_gradient(rows: LabelledRows, point: PrototypePosterior) -> tuple[float, PrototypePosterior]:
    """Mean log-loss of the rows and its derivatives, by blocks of rows."""
    directions = point.through(point.prototypes)
    levels = 0.5 * (directions * point.prototypes).sum(axis=1)
    labels = gibbs.posterior(point.label_logits)
    cast, level, narrow_labels = (part.astype(rows.X.dtype) for part in (directions, levels, labels))

    def block_terms(block):
        with np.errstate(invalid="ignore"):  # BLAS may raise the flag by what it reads beside an array
            return terms(block)

    def terms(block):
        X, weight = rows.X[block.rows], rows.weight[block.rows] / rows.total
        prior = cast @ X.T
        prior -= level[:, None]
        _, total = gibbs.exponentials(prior)
        posterior = block.spread(narrow_labels)
        posterior *= prior
        agreed = np.maximum(posterior.sum(axis=0) / total, np.finfo(X.dtype).tiny)
        share = weight.astype(X.dtype) / total
        prior *= share
        posterior *= share / agreed
        by_level = prior.sum(axis=1)
        prior -= posterior
        return -(np.log(agreed) @ weight), prior @ X, by_level, block.class_sums(posterior)

    loss, by_direction = 0.0, np.zeros(directions.shape)
    prior, posterior = np.zeros(len(directions)), np.zeros(labels.shape)
    blocks = rows.blocks(len(directions))
    for block, part in zip(blocks, map_in_order(block_terms, blocks), strict=True):
        loss += float(part[0])
        by_direction += part[1]
        prior += part[2]
        posterior[:, block.labels] += part[3]
    agreed = posterior.sum(axis=1)
    by_logits = agreed[:, None] * labels - posterior
    return loss, _chained(point, directions, by_direction, agreed - prior, by_logits)


def _chained(point, directions, by_direction, by_level, by_logits) -> PrototypePosterior:
    """Derivatives in prototypes and root from those in directions and levels."""
    by_prototype = point.through(by_direction) + by_level[:, None] * directions
    places, pulls = point.within(point.prototypes), point.within(by_direction)
    rooted = places @ point.root
    by_root = pulls.T @ rooted + places.T @ (pulls @ point.root + by_level[:, None] * rooted)
    return PrototypePosterior(by_prototype, by_root, by_logits, point.basis)
