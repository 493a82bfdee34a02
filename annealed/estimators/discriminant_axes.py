"""Discriminant axes of the scores of a linear classifier, as MELDA uses them.

The scores z = coef @ x of all samples have a mean, a covariance and class means. These K x K moments determine the
directions y = M (z - mean of z) in which the covariance within classes is the identity and the covariance between
classes is diagonal, in descending order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import linalg

from annealed.arrays import Place, is_foreign, to_host
from annealed.estimators.on_device import check_device_weight, check_labels, weighed_on_device
from annealed.estimators.weights import check_weight, weighed_by_class
from annealed.rows import ArrayDesign

SMALLEST_SPREAD = 1e-10  # variance of the scores relative to the largest, below which a direction is rounding noise
SMALLEST_WITHIN = 1e-6  # smallest share of a direction's variance that is attributed to the variance within classes


@dataclass(frozen=True)
class Directions:
    """Whitened discriminant directions as combinations of scores.

    of_scores : (rank, n_classes), y = of_scores @ (z - score_mean)
    loadings : (n_classes, rank), z = score_mean + loadings @ y
    information : (rank,), descending
    """

    of_scores: np.ndarray
    loadings: np.ndarray
    score_mean: np.ndarray
    information: np.ndarray


class Moments(NamedTuple):
    """Moments of the scores.

    mean : (n_classes,)
    covariance : (n_classes, n_classes)
    counts : (n_classes,), total weight of each class
    class_means : (n_classes, n_classes), the mean of each class relative to the mean of all
    """

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
    """Moments of the scores `X @ coef.T`, computed on the device of X."""
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
    """The moments of rows on a device, by blocks: the scores of all rows are never stored."""
    place, n_classes = Place.of(X), len(coef)
    labels, weight = place.whole(np.searchsorted(classes, y)), check_device_weight(sample_weight, len(y), place)
    weight, _ = weighed_on_device(weight, labels, classes, class_weight, place)
    design = ArrayDesign(X, labels, weight[:, None], None, n_classes, place)
    level = place.wide(np.zeros(n_classes))
    wide_coef = place.wide(coef)

    def scores_of(block):
        return place.wide(block.raw) @ wide_coef.T - level

    def sums(block):
        weight = place.wide(block.weight[:, 0])
        return place.xp.sum(weight), weight @ scores_of(block)

    total, mean = design.sum_rows(sums)
    mean = mean / total
    level = place.wide(mean)

    def squares(block):
        scores, weight = scores_of(block), place.wide(block.weight[:, 0])
        targets = place.wide(design.targets(block.labels)) * weight[:, None]
        return (scores * weight[:, None]).T @ scores, targets.T @ scores, place.xp.sum(targets, axis=0)

    covariance, class_sums, counts = design.sum_rows(squares)
    return Moments(mean, covariance / total, counts, class_sums / np.where(counts > 0, counts, 1)[:, None])


def directions_of(moments: Moments, most: int | None = None) -> Directions:
    """Whiten the scores by their total covariance, rotate to the axes of the covariance within classes, whiten that.

    most : largest possible rank of the scores; with samples far from the origin, further directions are rounding noise
    """
    mean, class_means = moments.mean, moments.class_means
    counts = moments.counts / moments.counts.sum()
    n_classes = len(mean)
    spread, axes = linalg.eigh(moments.covariance)
    keep = spread > SMALLEST_SPREAD * max(spread[-1], np.finfo(float).tiny)
    keep[: n_classes - (most or n_classes)] = False
    if not spread[-1] > 0:  # constant scores: a single zero direction keeps the shapes
        zeros = np.zeros((1, n_classes))
        return Directions(zeros, zeros.T, mean, np.zeros(1))
    spread, axes = np.sqrt(spread[keep]), axes[:, keep]
    whitened_means = class_means @ axes / spread
    within, rotation = linalg.eigh(np.eye(len(spread)) - (whitened_means.T * counts) @ whitened_means)
    rotation = _with_settled_axes(rotation, within < SMALLEST_WITHIN, spread)
    within = np.sqrt(np.clip(within, SMALLEST_WITHIN, 1.0))
    loadings = (axes * spread) @ rotation * within
    strongest = np.argmax(np.abs(loadings).round(12), axis=0)
    sign = np.sign(loadings[strongest, np.arange(loadings.shape[1])])  # makes the sign of an axis unique
    return Directions(
        of_scores=(sign * rotation / within).T @ (axes / spread).T,
        loadings=sign * loadings,
        score_mean=mean,
        information=-np.log(within),
    )


def inverse_of(scalings):
    """Pseudo-inverse of independent directions, (n_components, n_features), accurate for features in any units.

    QR with pivoting, of the rows in descending order, has rounding errors relative to each row. Those of a singular
    value decomposition are relative to the largest row.
    """
    order = np.argsort(-np.abs(scalings).max(axis=1), kind="stable")
    basis, triangle, pivots = linalg.qr(scalings[order], mode="economic", pivoting=True)
    inverse = np.empty(scalings.T.shape)
    inverse[np.ix_(pivots, order)] = linalg.solve_triangular(triangle, basis.T)
    return inverse


def _with_settled_axes(rotation, is_constant, spread):
    """Order the axes along which classes do not vary by their total variance: rounding alone would order them."""
    if is_constant.sum() < 2:
        return rotation
    group = rotation[:, is_constant]
    _, inner = linalg.eigh((group.T * spread**2) @ group)
    rotation[:, is_constant] = group @ inner[:, ::-1]
    return rotation
