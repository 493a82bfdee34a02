"""Rows fewer than columns, in a metric in which every direction of theirs has variance one: each class is one point.

Weighted and centred, such rows have Z Z' = 1 / weight - 1, whatever they are: a row is as far from one as from any
other. A penalized fit then gives all rows of a class the same scores, so that its coefficients are combinations of sums
over classes, and coordinates along these are all that it needs. They come from a solution of the rows' Gram matrix.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from annealed.design.base import Design
from annealed.design.coordinates import Coordinates

RIDGE = 1e-12  # beside the mean curvature: rows that occur twice have a factor too
LARGEST_SPREAD = 1e-8  # of the rows of a class about their point, beside the distance of points


def class_point_coordinates(design: Design, is_centered: bool) -> Coordinates | None:
    """Each fit's own; None where classes are no points, as of rows that depend on each other, or where one is empty."""
    members = np.eye(design.n_classes)[design.labels]
    if not np.all(members.T @ design.weight > 0):
        return None
    rows = design.X - design.center
    own = [_of_fit(rows, members, weight, is_centered) for weight in design.weight.T]
    if any(basis is None for basis, _ in own):
        return None
    basis, inverse = (np.stack(part) for part in zip(*own, strict=True))
    return Coordinates(basis, inverse, np.ones((len(own), basis.shape[2])), per_fit=True)


def _of_fit(rows, members, weight, is_centered):
    """(basis, inverse) of one fit."""
    is_seen = weight > 0
    rows, members, root = rows[is_seen], members[is_seen], np.sqrt(weight[is_seen])[:, None]
    shares = np.sum(members * root**2, axis=0)
    wanted, spread = members, np.diag(shares)
    if is_centered:
        rows, wanted = rows - root[:, 0] ** 2 @ rows, members - shares
        spread = spread - np.outer(shares, shares)
    whitened = _root_inverse(spread, is_centered)
    coef = _interpolating(rows * root, wanted * root, root if is_centered else 0 * root)
    if coef is None or np.abs(rows @ coef - wanted).max() > LARGEST_SPREAD:
        return None, None
    return coef @ whitened, rows.T @ (wanted * root**2) @ whitened


def _interpolating(rows, wanted, unseen):
    """The shortest coefficients that give `wanted`, of rows that depend on each other through `unseen` alone."""
    gram = rows @ rows.T
    mean = np.trace(gram) / len(gram)
    gram += mean * (unseen @ unseen.T)
    gram.flat[:: len(gram) + 1] += RIDGE * mean
    try:
        factor = linalg.cho_factor(gram, lower=True, overwrite_a=True)
    except linalg.LinAlgError:
        return None
    return rows.T @ linalg.cho_solve(factor, wanted)


def _root_inverse(spread, is_centered):
    """Combinations of classes that have mean squares of one; the common shift, which has none, left out."""
    values, vectors = np.linalg.eigh(spread)
    if not is_centered:
        return (vectors / np.sqrt(values)) @ vectors.T
    values, vectors = values[1:], vectors[:, 1:]
    return (vectors / np.sqrt(values)) @ vectors.T @ linalg.helmert(len(spread)).T
