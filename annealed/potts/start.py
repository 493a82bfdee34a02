"""Initial prototypes: by k-means++ in every class, or as in the slides, all near the mean of the rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from annealed.potts.cooling import start_state
from annealed.potts.diagonal_plus import DiagonalPlus, diagonal
from annealed.potts.problem import LabelledRows, PottsState, symmetric_eigen, within_scatter

NEAR = 0.01  # standard deviation of the slides' initial prototypes about the mean, in units of that of the rows


def within_class_scatter(rows: LabelledRows):
    """Scatter of the rows about their class means."""
    sums = np.zeros((rows.n_classes, rows.X.shape[1]))
    sums[rows.whole.labels] = rows.whole.class_sums(rows.X.T * rows.weight).T
    means = sums / np.maximum(rows.class_weight, 1e-300)[:, None]
    if isinstance(rows.second_moment, DiagonalPlus):
        return rows.second_moment.plus(means, np.diag(-rows.class_weight / rows.total))
    return rows.second_moment - means.T @ sums / rows.total


def plus_plus_starts(rows: LabelledRows, n_per_class, shrinkage, generator) -> Iterator[PottsState]:
    """Yield initial states without end: k-means++ in each class, in the metric of the scatter within classes.

    The label of a prototype is its class.
    """
    scatter = within_class_scatter(rows)
    white = _white(rows, scatter)
    classes = np.split(np.arange(rows.n_rows), np.cumsum(np.bincount(rows.labels, minlength=rows.n_classes))[:-1])
    while True:
        places = [
            plus_plus(white, members, rows.weight, wanted, generator)
            for members, wanted in zip(classes, n_per_class, strict=True)
        ]
        owners = np.repeat(np.arange(rows.n_classes), [len(place) for place in places])
        prototypes = rows.X[np.concatenate(places)].astype(np.float64)
        prototypes = _with_single_prototypes_at_means(rows, prototypes, owners)
        yield start_state(rows, prototypes, np.eye(rows.n_classes)[owners], scatter, shrinkage)


def _white(rows: LabelledRows, scatter):
    """Rows in coordinates in which the scatter is the identity; nearly so, and shrunk by half, along principal axes."""
    if isinstance(scatter, DiagonalPlus):
        variances = diagonal(scatter)
        shrunk = (variances + variances.mean()) / 2
        return rows.X / np.sqrt(np.maximum(shrunk, rows.smallest_variance)).astype(rows.X.dtype)
    values, vectors = symmetric_eigen(scatter)
    return rows.X @ (vectors / np.sqrt(np.maximum(values, rows.smallest_variance))).astype(rows.X.dtype)


def plus_plus(white, members, weight, wanted, generator):
    """Indices of at most `wanted` different rows among `members`.

    The probability of a row is proportional to its weight times its squared distance to the nearest row drawn before,
    at first to the mean. The cumulated probabilities are in the order of distances, so that the result does not depend
    on the order of the rows, nor on a linear map of the columns.
    """
    points, mass = white[members], weight[members]
    centre = mass @ points / max(mass.sum(), 1e-300)
    distance = _squares(points, centre)
    chosen: list[int] = []
    for _ in range(min(wanted, len(members))):
        order = np.argsort(distance, kind="stable")
        reach = np.cumsum(mass[order] * distance[order])
        if not reach[-1] > 0:
            break
        drawn = order[min(np.searchsorted(reach, generator.uniform() * reach[-1], side="right"), len(order) - 1)]
        chosen.append(int(drawn))
        nearer = _squares(points, points[drawn])
        distance = nearer if len(chosen) == 1 else np.minimum(distance, nearer)
    return members[chosen or [0]] if wanted and len(members) else members[:0]


def _squares(points, place):
    return np.sum((points - place) ** 2, axis=1, dtype=np.float64)


def _with_single_prototypes_at_means(rows, prototypes, owners):
    """Move the prototype of every class that has only one to the mean of the class."""
    for label in np.flatnonzero(np.bincount(owners, minlength=rows.n_classes) == 1):
        is_member = rows.labels == label
        prototypes[owners == label] = rows.weight[is_member] @ rows.X[is_member] / rows.weight[is_member].sum()
    return prototypes


def mean_start(rows: LabelledRows, n_prototypes, shrinkage, generator) -> PottsState:
    """The initial state of the slides: prototypes near the mean, nearly uniform labels, the metric of all rows."""
    mean = rows.weight @ rows.X / rows.total
    scatter = within_scatter(rows, mean[None], np.array([rows.total]), mean[None] * rows.total)
    noise = generator.normal(size=(n_prototypes, len(mean)))
    prototypes = mean + NEAR * noise * np.sqrt(np.maximum(diagonal(scatter), 0))
    tilt = 1 + NEAR * generator.uniform(-1, 1, size=(n_prototypes, rows.n_classes))
    return start_state(rows, prototypes, tilt / tilt.sum(axis=1, keepdims=True), scatter, shrinkage)
