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

from annealed.arrays import HOST, Place, is_foreign, to_host
from annealed.rows.array_api import row_batches
from annealed.rows.coordinates import SMALLEST_VARIANCE

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


def score_moments(X, labels, weight, coef) -> Moments:
    """Moments of the scores `X @ coef.T`, summed over blocks of rows on the device of X.

    labels, weight : codes and weights of the samples, in NumPy
    """
    place, counts = Place.of(X) if is_foreign(X) else HOST, np.bincount(labels, weight, len(coef))
    wide_coef, codes, weights = place.wide(coef), place.whole(labels), place.wide(weight)
    classes = place.whole(np.arange(len(counts)))

    def scores_of(rows):
        with np.errstate(over="ignore", invalid="ignore"):  # without weight, a sample may be any distance away
            scores = (X[rows] if place.is_host else place.wide(X[rows, :])) @ wide_coef.T
        return place.xp.where(weights[rows][:, None] > 0, scores, place.xp.zeros_like(scores))

    def total(sums):
        return place.host(sum(map(sums, row_batches(len(labels), max(coef.shape), place))))[0]

    mean = total(lambda rows: weights[rows] @ scores_of(rows)) / counts.sum()
    level = place.wide(mean)

    def squares(rows):
        centred = scores_of(rows) - level
        weighted, targets = centred * weights[rows][:, None], place.wide(codes[rows][:, None] == classes)
        return place.xp.concat([weighted.T @ centred, targets.T @ weighted])

    covariance, class_sums = np.split(total(squares), [len(coef)])
    class_means = class_sums / np.where(counts > 0, counts, 1)[:, None]
    return Moments(mean, covariance / counts.sum(), counts, class_means)


def directions_of(moments: Moments, most: int | None = None) -> Directions:
    """Whiten the scores by their total covariance, rotate to the axes of the covariance within classes, whiten that.

    most : largest possible rank of the scores; with samples far from the origin, further directions are rounding noise
    """
    mean, class_means = moments.mean, moments.class_means
    counts = moments.counts / moments.counts.sum()
    n_classes = len(mean)
    spread, axes = linalg.eigh(moments.covariance)
    keep = spread > SMALLEST_VARIANCE * max(spread[-1], np.finfo(float).tiny)
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


def _with_settled_axes(rotation, is_constant, spread):
    """Order the axes along which classes do not vary by their total variance: rounding alone would order them."""
    if is_constant.sum() < 2:
        return rotation
    group = rotation[:, is_constant]
    _, inner = linalg.eigh((group.T * spread**2) @ group)
    rotation[:, is_constant] = group @ inner[:, ::-1]
    return rotation
