"""Coordinates in which the covariance of each fit's own rows is the identity."""

import numpy as np
import oracles
import pytest
from problems import badly_scaled, fold_masks, gaussian, rare_class, stack_of

from annealed.design import whitening
from annealed.design.whitening import Covariances, whitening_coordinates

TABLES = [gaussian, badly_scaled, rare_class]
AMOUNT = 0.1


def estimates(make, shrinkage=AMOUNT, is_pooled=True):
    table = make()
    design = stack_of(table, fold_masks(len(table.y), 3))
    design = design.centered(design.column_mean())
    shares = design.class_weight_sums()
    means = design.class_sums() / shares[..., None]
    spread = np.sqrt(design.column_variance())
    return Covariances(design, means, shares, is_pooled, shrinkage, spread, design.n_features)


def covariance_by_definition(covariances, fit):
    design = covariances.design
    rows, weight = design.X - design.center, design.weight[:, fit]
    total = (rows.T * weight) @ rows - np.outer(weight @ rows, weight @ rows)
    own = oracles.pooled_covariance(rows, design.labels, weight) if covariances.is_pooled else total
    units = np.sqrt(np.outer(np.diag(total), np.diag(total)))
    target = np.trace(own / units) / len(own) * np.eye(len(own)) * units
    return (1 - AMOUNT) * own + AMOUNT * target


@pytest.mark.parametrize("all_diagonal", [True, False])
@pytest.mark.parametrize("is_pooled", [True, False])
@pytest.mark.parametrize("make", TABLES, ids=lambda make: make.__name__)
def test_the_covariance_of_every_fit_becomes_the_identity(make, is_pooled, all_diagonal):
    covariances = estimates(make, is_pooled=is_pooled)
    own = whitening_coordinates(covariances, all_diagonal)
    for fit in range(covariances.design.n_fits):
        seen = own.basis[fit].T @ covariance_by_definition(covariances, fit) @ own.basis[fit]
        np.testing.assert_allclose(seen, np.eye(own.rank), atol=1e-9)
        np.testing.assert_allclose(own.inverse[fit].T @ own.basis[fit], np.eye(own.rank), atol=1e-9)


@pytest.mark.parametrize("all_diagonal", [True, False])
def test_the_spectrum_is_the_second_moment_or_for_folds_near_it(all_diagonal):
    covariances = estimates(lambda: gaussian(n_samples=2000))
    own = whitening_coordinates(covariances, all_diagonal)
    for fit in range(covariances.design.n_fits):
        moment = own.basis[fit].T @ covariances.design.covariance(fit) @ own.basis[fit]
        tolerance = 1e-10 if all_diagonal or fit == 0 else 0.15 * own.spectrum[0].max()
        np.testing.assert_allclose(moment, np.diag(own.spectrum[fit]), atol=tolerance)


@pytest.mark.parametrize("make", TABLES, ids=lambda make: make.__name__)
def test_one_factor_from_the_final_fit_does_what_two_decompositions_do(make):
    covariances = estimates(make)
    quick, slow = (whitening_coordinates(covariances, all_diagonal) for all_diagonal in (False, True))
    assert not np.allclose(quick.basis[1], slow.basis[1])  # they differ by a rotation
    for one, other in zip(quick.basis, slow.basis, strict=True):
        product = other @ other.T
        np.testing.assert_allclose(one @ one.T, product, rtol=1e-8, atol=1e-10 * np.abs(product).max())


def test_a_covariance_without_shrinkage_keeps_a_floor_under_its_eigenvalues():
    """Of a column that is the sum of two others."""

    def collinear():
        table = gaussian()
        table.X[:, 3] = table.X[:, 0] + table.X[:, 1]
        return table

    own = whitening_coordinates(estimates(collinear, shrinkage=0.0), all_diagonal=False)
    assert np.isfinite(own.basis).all()
    assert np.abs(own.basis).max() < 2 / np.sqrt(whitening.SMALLEST_VARIANCE)
