"""Rows fewer than columns, in a metric in which every direction of theirs has variance one: each class is one point.

Weighted and centred, such rows have Z Z' = 1 / weight - 1, whatever they are: each is as far from one as from any
other. A penalized fit then gives all rows of a class the same scores, so that its coefficients are combinations of sums
over classes, and coordinates along these are all that it needs. They come from a solution of the rows' Gram matrix.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from annealed.arrays import to_host
from annealed.design.base import Design
from annealed.design.coordinates import Coordinates, RowsOfFit, rows_of_fits

RIDGE = 1e-12  # beside the mean curvature: rows that occur twice have a factor too
LARGEST_SPREAD = 1e-8  # of the rows of a class about their point, beside the distance of points


def class_point_coordinates(design: Design, is_centered: bool) -> Coordinates | None:
    """Each fit's own; None where classes are no points, as of rows that depend on each other, or where one is empty."""
    members = np.eye(design.n_classes)[to_host(design.labels)]
    found = []
    for seen in rows_of_fits(design, is_centered):
        own = _of_fit(seen, members[seen.is_seen], is_centered)
        if own is None:
            return None
        found.append(own)
    basis, inverse = (np.stack(part) for part in zip(*found, strict=True))
    return Coordinates(basis, inverse, np.ones((len(found), basis.shape[2])), per_fit=True)


def _of_fit(seen: RowsOfFit, members, is_centered):
    """(basis, inverse) of one fit, if it has them."""
    shares, root = seen.weight @ members, np.sqrt(seen.weight)[:, None]
    if not shares.all():
        return None
    spread, wanted = np.diag(shares), members
    if is_centered:
        spread, wanted = spread - np.outer(shares, shares), members - shares
    coef = _interpolating(seen.rows * root, wanted * root, root if is_centered else np.zeros_like(root))
    if coef is None or np.abs(seen.rows @ coef - wanted).max() > LARGEST_SPREAD:
        return None
    combined = _inverse_root(spread, is_centered)
    return coef @ combined, (seen.rows.T * seen.weight) @ wanted @ combined


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


def _inverse_root(spread, is_centered):
    """Combinations of classes that have mean squares of one; the common shift, which has none, left out."""
    values, vectors = np.linalg.eigh(spread)
    if not is_centered:
        return (vectors / np.sqrt(values)) @ vectors.T
    return (vectors[:, 1:] / np.sqrt(values[1:])) @ vectors[:, 1:].T @ linalg.helmert(len(spread)).T
