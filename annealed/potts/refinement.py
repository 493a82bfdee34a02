"""Discriminative refinement: soft nearest-prototype classification, fitted by log-loss near the annealed solution.

    s_ik = -(x_i - y_k)' A (x_i - y_k) / 2,    A = L L',    Xi_k = softmax(a_k)
    p_im = sum_k softmax(s_i)_k Xi_km,    loss = - sum_i w_i log p_i,c(i) / sum_i w_i
    minimized:  loss(y, L, a) + penalty / 2 ( |y - y0|^2 + |L - I|^2 + |a - a0|^2 )

The term x_i' A x_i cancels in the softmax, which leaves scores that are linear in x: s_ik = q_k' x_i - h_k, with
directions q_k = A y_k and levels h_k = y_k' q_k / 2. The derivative of a row's loss in s_ik is a difference of
responsibilities, g_ik = P(k | x_i) - P(k | x_i, c(i)), and all other derivatives follow from two sums over rows (with
w_i divided by their sum):

    d loss / d q_k = sum_i w_i g_ik x_i,    d loss / d h_k = - sum_i w_i g_ik

The annealed solution is (y0, I, a0), in coordinates where the annealed metric is the identity. The penalty decreases in
steps with warm starts, and the search chooses one by held-out loss. Refinement starts from the soft posterior at
temperature one: a sharp posterior fits the training rows almost perfectly, so its gradients are nearly zero.

With many columns, all of this happens in the span of the prototypes and of the gradient of the loss in them, which has
at most 2 K dimensions; outside it the annealed metric is kept. Little is lost, because the first step from the annealed
solution lies in it, and its metric has rank K beside a diagonal one.

Shapes: prototypes y and directions q (K, n_features), root L (n_features, n_features), label_logits a (K, n_classes).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from annealed.potts.rows import LabelledRows
from annealed.potts.state import (
    CONVERGED,
    SINGLE_ROUNDING,
    DiagonalPlus,
    PottsState,
    Symmetric,
    dense,
    directions_and_levels,
    symmetric_eigen,
)
from annealed.problems import gibbs
from annealed.rows.threads import map_in_order

SMOOTHING = 0.5  # pseudo-rows per class and prototype, in proportion to class frequencies (additive smoothing)
MEMORY = 10  # pairs of L-BFGS
MOST_STEPS = 20  # iterations per penalty: points on the path are validated, so they need not be exact minima


class CalibratedPosterior(NamedTuple):
    """A posterior in the rows' coordinates: prototypes, metric times sharpness, and logits of the labels."""

    prototypes: np.ndarray
    metric: Symmetric
    label_logits: np.ndarray

    def dense(self) -> CalibratedPosterior:
        return self._replace(metric=dense(self.metric))

    def log_proba(self, X):
        """Log posterior of rows, (n_rows, n_classes), in the dtype of X."""
        labels = gibbs.posterior(self.label_logits).astype(X.dtype)
        proba = memberships(X, self.prototypes, self.metric).T @ labels
        return np.log(np.maximum(proba, np.finfo(X.dtype).tiny))


def memberships(X, prototypes, metric):
    """Memberships of rows in prototypes, softmax(s_i) as a column for each row, (K, n_rows), in the dtype of X."""
    directions, levels = directions_and_levels(prototypes, metric)
    spins = directions.astype(X.dtype) @ X.T
    spins += levels.astype(X.dtype)[:, None]
    _, total = gibbs.exponentials(spins)
    spins *= 1 / total
    return spins


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


# --- the loss --------------------------------------------------------------------------------------------------


class PrototypePosterior(NamedTuple):
    """Prototypes, a root of the metric, and logits of the labels."""

    prototypes: np.ndarray
    root: np.ndarray
    label_logits: np.ndarray

    def flat(self):
        return np.concatenate([part.ravel() for part in self])

    def like(self, flat) -> PrototypePosterior:
        """A point with the same shapes from a flat vector, the inverse of `flat`."""
        parts, first = [], 0
        for own in self:
            parts.append(flat[first : first + own.size].reshape(own.shape))
            first += own.size
        return PrototypePosterior(*parts)


def loss_and_gradient(rows: LabelledRows, point: PrototypePosterior) -> tuple[float, PrototypePosterior]:
    """Mean log-loss of the rows and its gradient, summed over blocks of rows; the metric is never formed."""
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
    with np.errstate(over="ignore"):  # points that a line search tries may be too far away for float32
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


# --- the path of penalties -------------------------------------------------------------------------------------


def refinements(rows: LabelledRows, start: CalibratedPosterior, penalties) -> Iterator[CalibratedPosterior]:
    """The minimizer at each penalty, from strong to weak, with warm starts.

    Rows are mapped by `there` to coordinates in which the annealed metric is the identity; `back` undoes it in their
    span.
    """
    there, back = _whitening(rows, start)
    white = rows.like(rows.X @ there.astype(rows.X.dtype))
    anchor = PrototypePosterior(start.prototypes @ there, np.eye(len(back)), start.label_logits)

    def loss(flat):
        value, gradient = loss_and_gradient(white, anchor.like(flat))
        return value, gradient.flat()

    descent = PulledDescent(loss, anchor.flat())
    for penalty in penalties:
        prototypes, root, label_logits = anchor.like(descent.minimize(penalty))
        change = root @ root.T - anchor.root
        is_low_rank = isinstance(start.metric, DiagonalPlus)
        metric = start.metric.plus(there.T, change) if is_low_rank else start.metric + there @ change @ there.T
        yield CalibratedPosterior(prototypes @ back, metric, label_logits)


def _whitening(rows, start: CalibratedPosterior):
    """Maps to white coordinates and back: of all columns or, if many, of the span of prototypes and gradient."""
    basis = np.eye(start.prototypes.shape[1])
    if isinstance(start.metric, DiagonalPlus):
        directions = start.prototypes @ start.metric
        basis = np.vstack([start.prototypes, slopes(rows, start.prototypes, directions, start.label_logits)[1]])
    images = basis @ start.metric
    squares, axes = symmetric_eigen(images @ basis.T)
    kept = squares > len(squares) * np.finfo(float).eps * squares[-1]
    axes = axes[:, kept] / np.sqrt(squares[kept])
    return images.T @ axes, axes.T @ basis


class PulledDescent:
    """L-BFGS for falling penalties: minimizes `loss(x) + penalty / 2 |x - origin|^2` at one after another.

    It starts at the origin, then from the last point. The memory stores pairs of the loss alone: a step s and the
    change y of its gradient. With the penalty that change is `y + penalty s`, so all pairs stay valid when it changes.
    """

    def __init__(self, loss: Callable, origin):
        """`loss(x)` returns value and gradient."""
        self._loss, self._origin, self._point = loss, origin, origin
        self._value, self._slope = loss(origin)
        self._pairs: deque = deque(maxlen=MEMORY)

    def minimize(self, penalty):
        """The minimizer at a penalty, up to `MOST_STEPS` steps."""
        curves = deque((_curve(step, change, penalty) for step, change in self._pairs), MEMORY)
        for _ in range(MOST_STEPS):
            if self._step(penalty, curves) <= CONVERGED:
                break
        return self._point

    def _step(self, penalty, curves) -> float:
        """Take one step with backtracking and return the decrease, 0.0 if no length decreases the loss."""
        offset = self._point - self._origin
        value, gradient = self._value + 0.5 * penalty * (offset @ offset), self._slope + penalty * offset
        step = _direction(gradient, [curve for curve in curves if curve[2] > 0])
        while step @ step > SINGLE_ROUNDING**4:
            new_value, new_slope = self._loss(self._point + step)
            new_offset = offset + step
            gain = value - new_value - 0.5 * penalty * (new_offset @ new_offset)
            if gain > 0:
                self._pairs.append((step, new_slope - self._slope))
                curves.append(_curve(step, new_slope - self._slope, penalty))
                self._point, self._value, self._slope = self._point + step, new_value, new_slope
                return gain
            step = step / 4
        return 0.0


def _curve(step, change, penalty):
    """(s, y, s'y) of a pair with the penalty."""
    penalized_change = change + penalty * step
    return step, penalized_change, step @ penalized_change


def _direction(gradient, curves):
    """The L-BFGS direction by the two-loop recursion; a step of at most length one without pairs."""
    if not curves:
        return -gradient / max(1.0, np.linalg.norm(gradient))
    direction, weights = -gradient, []
    for step, change, product in reversed(curves):
        weights.append(step @ direction / product)
        direction -= weights[-1] * change
    _, change, product = curves[-1]
    direction *= product / (change @ change)
    for step, change, product in curves:
        direction += (weights.pop() - change @ direction / product) * step
    return direction
