"""Soft nearest-prototype classification: the posterior of labelled prototypes, its log-loss, and the gradient.

    s_ik = -(x_i - y_k)' A (x_i - y_k) / 2,    A = L L',    Xi_k = softmax(a_k)
    p_im = sum_k softmax(s_i)_k Xi_km,    loss = - sum_i w_i log p_i,c(i) / sum_i w_i

The term x_i' A x_i cancels in the softmax, which leaves scores that are linear in x: s_ik = q_k' x_i - h_k, with
directions q_k = A y_k and levels h_k = y_k' q_k / 2. The derivative of a row's loss in s_ik is a difference of
responsibilities, g_ik = P(k | x_i) - P(k | x_i, c(i)), and all other derivatives follow from two sums over rows (with
w_i divided by their sum):

    d loss / d q_k = sum_i w_i g_ik x_i,    d loss / d h_k = - sum_i w_i g_ik

A itself is never formed, because q_k = L L' y_k.

Shapes: prototypes y and directions q (K, n_features), root L (n_features, n_features), label_logits a (K, n_classes).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from annealed.potts.problem import LabelledRows
from annealed.problems import gibbs
from annealed.rows.threads import map_in_order


class PrototypePosterior(NamedTuple):
    """Prototypes, a root of the metric, and logits of the labels."""

    prototypes: np.ndarray
    root: np.ndarray
    label_logits: np.ndarray

    def flat(self):
        return np.concatenate([part.ravel() for part in self])

    def like(self, flat) -> PrototypePosterior:
        """A point with the same shapes from a flat vector, the inverse of `flat`."""
        parts = np.split(flat, np.cumsum([part.size for part in self])[:-1])
        return PrototypePosterior(*(part.reshape(own.shape) for part, own in zip(parts, self, strict=True)))


def log_posterior(X, prototypes, metric, label_logits):
    """Log posterior of rows, (n_rows, n_classes), in the dtype of X."""
    labels = gibbs.posterior(label_logits).astype(X.dtype)
    return np.log(np.maximum(memberships(X, prototypes, metric).T @ labels, np.finfo(X.dtype).tiny))


def memberships(X, prototypes, metric):
    """Memberships of rows in prototypes, softmax(s_i) as a column for each row, (K, n_rows), in the dtype of X."""
    directions = prototypes @ metric
    levels = 0.5 * (directions * prototypes).sum(axis=1)
    spins = directions.astype(X.dtype) @ X.T
    spins -= levels.astype(X.dtype)[:, None]
    _, total = gibbs.exponentials(spins)
    spins *= 1 / total
    return spins


def loss_and_gradient(rows: LabelledRows, point: PrototypePosterior) -> tuple[float, PrototypePosterior]:
    """Mean log-loss of the rows and its gradient, summed over blocks of rows."""
    rooted = point.prototypes @ point.root
    directions = rooted @ point.root.T
    loss, by_direction, by_level, by_logits = slopes(rows, point.prototypes, directions, point.label_logits)
    by_prototype = by_direction @ point.root @ point.root.T + by_level[:, None] * directions
    by_root = by_direction.T @ rooted + point.prototypes.T @ (by_direction @ point.root + by_level[:, None] * rooted)
    return loss, PrototypePosterior(by_prototype, by_root, by_logits)


def slopes(rows: LabelledRows, prototypes, directions, label_logits):
    """Mean log-loss, and its derivatives in directions, minus levels, and label logits."""
    levels = 0.5 * (directions * prototypes).sum(axis=1)
    labels = gibbs.posterior(label_logits)
    row_directions, row_levels, row_labels = (part.astype(rows.X.dtype) for part in (directions, levels, labels))

    def block_terms(block):
        with np.errstate(invalid="ignore"):  # BLAS may set the flag when it reads past the end of an array
            return terms(block)

    def terms(block):
        X, weight = rows.X[block.rows], rows.weight[block.rows] / rows.total
        prior = row_directions @ X.T
        prior -= row_levels[:, None]
        _, total = gibbs.exponentials(prior)  # prior is now total * P(k | x)
        posterior = block.spread(row_labels)
        posterior *= prior
        proba = np.maximum(posterior.sum(axis=0) / total, np.finfo(X.dtype).tiny)  # of the true class
        scaled_weight = weight.astype(X.dtype) / total
        prior *= scaled_weight
        posterior *= scaled_weight / proba  # w P(k | x, c)
        weighted_prior = prior.sum(axis=1)
        prior -= posterior  # w g
        return -(np.log(proba) @ weight), prior @ X, weighted_prior, block.class_sums(posterior)

    loss, by_direction = 0.0, np.zeros(directions.shape)
    prior, posterior = np.zeros(len(directions)), np.zeros(labels.shape)
    blocks = rows.blocks(len(directions))
    for block, part in zip(blocks, map_in_order(block_terms, blocks), strict=True):
        loss += float(part[0])
        by_direction += part[1]
        prior += part[2]
        posterior[:, block.labels] += part[3]
    counts = posterior.sum(axis=1)
    return loss, by_direction, counts - prior, counts[:, None] * labels - posterior
