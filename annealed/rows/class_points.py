"""Coordinates for whitened data with more features than samples, where each class collapses to a single point.

Centred and whitened samples satisfy Z Z' = diag(1 / weight) - 1 1', whatever the data are: with equal weights they are
all equally far apart (data piling). A penalized fit then gives all samples of a class the same scores, and its
coefficients are combinations of the class sums. Coordinates along those sums are therefore all that the fit needs. They
are computed as minimum-norm interpolants of the class indicators, by one solve with the samples' Gram matrix.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from annealed.arrays import to_host
from annealed.rows.base import Design
from annealed.rows.coordinates import Coordinates, RowsOfFit, rows_of_fits

RIDGE = 1e-12  # relative to the mean diagonal of the Gram matrix: makes it positive definite with duplicate samples
LARGEST_SPREAD = np.sqrt(np.finfo(float).eps)  # of a class about its point, relative to the distance between points


def class_point_coordinates(design: Design, is_centered: bool) -> Coordinates | None:
    """Coordinates of every fit, or None if a class is empty or, because of dependent samples, does not collapse."""
    members = np.eye(design.n_classes)[to_host(design.labels)]
    maps = []
    for rows_of_fit in rows_of_fits(design, is_centered):
        basis_and_inverse = _of_fit(rows_of_fit, members[rows_of_fit.is_seen], is_centered)
        if basis_and_inverse is None:
            return None
        maps.append(basis_and_inverse)
    basis, inverse = (np.stack(part) for part in zip(*maps, strict=True))
    return Coordinates(basis, inverse, np.ones((len(maps), basis.shape[2])), per_fit=True)


def _of_fit(rows_of_fit: RowsOfFit, members, is_centered):
    """(basis, inverse) of one fit, or None."""
    shares, root = rows_of_fit.weight @ members, np.sqrt(rows_of_fit.weight)[:, None]
    if not shares.all():
        return None
    spread, indicators = np.diag(shares), members
    if is_centered:
        spread, indicators = spread - np.outer(shares, shares), members - shares
    coef = _interpolating(rows_of_fit.rows * root, indicators * root, root if is_centered else np.zeros_like(root))
    if coef is None or np.abs(rows_of_fit.rows @ coef - indicators).max() > LARGEST_SPREAD:
        return None
    combined = _inverse_root(spread, is_centered)
    return coef @ combined, (rows_of_fit.rows.T * rows_of_fit.weight) @ indicators @ combined


def _interpolating(rows, wanted, unseen):
    """Minimum-norm coefficients that map `rows` to `wanted`, if `unseen` is the rows' only linear dependence.

    None if their Gram matrix has no Cholesky factor.
    """
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
    """Combinations of classes with unit mean square, without the common shift, whose mean square is zero."""
    values, vectors = np.linalg.eigh(spread)
    if not is_centered:
        return (vectors / np.sqrt(values)) @ vectors.T
    return (vectors[:, 1:] / np.sqrt(values[1:])) @ vectors[:, 1:].T @ linalg.helmert(len(spread)).T
