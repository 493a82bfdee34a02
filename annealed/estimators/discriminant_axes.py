"""Discriminant axes of scores: what MELDA makes of the weights of its log-linear model.

Scores z = coef @ x of all rows have a mean, a covariance, and class means; from these K x K moments alone come the
directions y = M (z - mean of z) whose covariance within classes is the identity, and between them diagonal, falling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import linalg

from annealed.arrays import Place, is_foreign, to_host
from annealed.design import ArrayDesign
from annealed.estimators.on_device import check_device_weight, check_labels, weighed_on_device
from annealed.estimators.weights import check_weight, weighed_by_class

SMALLEST_SPREAD = 1e-10  # relative variance of scores below which a direction is rounding noise
SMALLEST_WITHIN = 1e-6  # share of a direction's variance that classes are always granted within them


@dataclass(frozen=True)
class Directions:
    """Whitened discriminant directions as combinations of scores.

    of_scores : (rank, n_classes), y = of_scores @ (z - score_mean)
    loadings : (n_classes, rank), z = score_mean + loadings @ y
    information : (rank,), falling
    """

    of_scores: np.ndarray
    loadings: np.ndarray
    score_mean: np.ndarray
    information: np.ndarray


class Moments(NamedTuple):
    """Of the scores of all rows: mean, covariance, weights of the classes and their means about the whole one."""

    mean: np.ndarray
    covariance: np.ndarray
    counts: np.ndarray
    class_means: np.ndarray


def class_weights_of(classifier):
    """Coefficients and intercepts of the logit of each class, (n_classes, n_features) and (n_classes,), in float64.

    Their means over classes are zero, unless an intercept is infinite.
    """
    coef, intercept = (
        np.asarray(to_host(classifier.coef_), dtype=np.float64),
        np.asarray(to_host(classifier.intercept_), dtype=np.float64),
    )
    if classifier.classes_.shape[0] == 2:
        coef, intercept = np.vstack([-coef, coef]) / 2, np.concatenate([-intercept, intercept]) / 2
    middle = intercept.mean() if np.isfinite(intercept).all() else 0.0  # a prior of zero has an infinite logarithm
    return coef - coef.mean(axis=0), intercept - middle


def score_moments(X, y, sample_weight, coef, classes, class_weight=None) -> Moments:
    """Moments of the scores `X @ coef.T`, found where X is."""
    if is_foreign(X):
        return _moments_on_device(X, check_labels(y, X.shape[0]), sample_weight, coef, classes, class_weight)
    labels, scores = np.searchsorted(classes, y), np.asarray(X @ coef.T, dtype=np.float64)
    weight, _ = weighed_by_class(check_weight(sample_weight, len(labels)), labels, classes, class_weight)
    share = weight / weight.sum()
    mean = share @ scores
    centred = scores - mean
    counts = np.bincount(labels, share, scores.shape[1])
    class_sums = np.stack([np.bincount(labels, share * column, scores.shape[1]) for column in centred.T], axis=1)
    class_means = class_sums / np.where(counts > 0, counts, 1)[:, None]
    covariance = (centred * share[:, None]).T @ centred
    return Moments(mean, covariance, np.bincount(labels, weight, len(coef)), class_means)


def _moments_on_device(X, y, sample_weight, coef, classes, class_weight) -> Moments:
    """The same in blocks of rows of a device; the scores of all rows are never held."""
    place, n_classes = Place.of(X), len(coef)
    labels, weight = place.whole(np.searchsorted(classes, y)), check_device_weight(sample_weight, len(y), place)
    weight, _ = weighed_on_device(weight, labels, classes, class_weight, place)
    design = ArrayDesign(X, labels, weight[:, None], None, n_classes, place)
    level = place.wide(np.zeros(n_classes))
    wide_coef = place.wide(coef)

    def scores_of(block):
        return place.wide(block.raw) @ wide_coef.T - level

    def sums(block):
        own = place.wide(block.weight[:, 0])
        return place.xp.sum(own), own @ scores_of(block)

    total, mean = design.sum_rows(sums)
    mean = mean / total
    level = place.wide(mean)

    def squares(block):
        scores, own = scores_of(block), place.wide(block.weight[:, 0])
        targets = place.wide(design.targets(block.labels)) * own[:, None]
        return (scores * own[:, None]).T @ scores, targets.T @ scores, place.xp.sum(targets, axis=0)

    covariance, class_sums, counts = design.sum_rows(squares)
    return Moments(mean, covariance / total, counts, class_sums / np.where(counts > 0, counts, 1)[:, None])


def directions_of(moments: Moments, most: int | None = None) -> Directions:
    """Whiten the scores in total, turn to the axes of their within-class covariance, whiten that.

    most : how many directions the scores can have; of rows far from zero, more would be rounding
    """
    mean, class_means = moments.mean, moments.class_means
    counts = moments.counts / moments.counts.sum()
    n_classes = len(mean)
    spread, axes = linalg.eigh(moments.covariance)
    keep = spread > SMALLEST_SPREAD * max(spread[-1], np.finfo(float).tiny)
    keep[: n_classes - (most or n_classes)] = False
    if not spread[-1] > 0:  # no score moves: one direction of nothing keeps the shapes
        zeros = np.zeros((1, n_classes))
        return Directions(zeros, zeros.T, mean, np.zeros(1))
    spread, axes = np.sqrt(spread[keep]), axes[:, keep]
    whitened_means = class_means @ axes / spread
    within, turn = linalg.eigh(np.eye(len(spread)) - (whitened_means.T * counts) @ whitened_means)
    turn = _settled(turn, within < SMALLEST_WITHIN, spread)
    within = np.sqrt(np.clip(within, SMALLEST_WITHIN, 1.0))
    loadings = (axes * spread) @ turn * within
    strongest = np.argmax(np.abs(loadings).round(12), axis=0)
    sign = np.sign(loadings[strongest, np.arange(loadings.shape[1])])  # an axis has no sign of its own
    return Directions(
        of_scores=(sign * turn / within).T @ (axes / spread).T,
        loadings=sign * loadings,
        score_mean=mean,
        information=-np.log(within),
    )


def inverse_of(scalings):
    """Pseudo-inverse of independent directions, (n_components, n_features), right also where units are very unlike.

    From the largest rows to the smallest, with pivots, rounding is relative to each row; a singular value is not.
    """
    order = np.argsort(-np.abs(scalings).max(axis=1), kind="stable")
    basis, triangle, pivots = linalg.qr(scalings[order], mode="economic", pivoting=True)
    inverse = np.empty(scalings.T.shape)
    inverse[np.ix_(pivots, order)] = linalg.solve_triangular(triangle, basis.T)
    return inverse


def _settled(turn, is_nothing, spread):
    """Axes along which nothing varies within classes are rounding alone: by their spread, the largest first."""
    if is_nothing.sum() < 2:
        return turn
    group = turn[:, is_nothing]
    _, inner = linalg.eigh((group.T * spread**2) @ group)
    turn[:, is_nothing] = group @ inner[:, ::-1]
    return turn
