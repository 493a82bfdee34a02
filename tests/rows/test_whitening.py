"""Coordinates in which the covariance of the samples of each fit is the identity."""

import numpy as np
import oracles
import pytest
from small_problems import badly_scaled, fold_masks, gaussian, rare_class, stack_of, wide

from annealed.rows import make_design, row_span, whitening
from annealed.rows.whitening import Covariances, whitening_coordinates

TABLES = [gaussian, badly_scaled, rare_class]
AMOUNT = 0.1


def estimates(make, shrinkage=AMOUNT, is_pooled=True, in_span=False, weight=None):
    table = make()
    design = stack_of(table, fold_masks(len(table.y), 5 if in_span else 3) * (1 if weight is None else weight[:, None]))
    design = design.centered(design.column_mean())
    if in_span:
        span = row_span(design, np.ones(design.n_features))
        design = make_design(span.rows, design.labels, design.weight, design.total_weight, design.n_classes)
    shares = design.class_weight_sums()
    means = design.class_sums() / shares[..., None]
    spread = None if in_span else np.sqrt(design.column_variance())
    return Covariances(design, means, shares, is_pooled, shrinkage, spread, table.X.shape[1])


def whitened(covariances, all_diagonal):
    """Coordinates with one basis per fit."""
    coordinates = whitening_coordinates(covariances, all_diagonal)
    return coordinates if all_diagonal else coordinates.merged()


def covariance_by_definition(covariances, fit):
    design = covariances.design
    rows, weight = design.X - design.center, design.weight[:, fit]
    total = (rows.T * weight) @ rows - np.outer(weight @ rows, weight @ rows)
    covariance = oracles.pooled_covariance(rows, design.labels, weight) if covariances.is_pooled else total
    units = np.sqrt(np.outer(*2 * [design.column_variance()]))  # those of all samples, also in a fold
    target = np.trace(covariance / units) / len(covariance) * np.eye(len(covariance)) * units
    return (1 - AMOUNT) * covariance + AMOUNT * target


@pytest.mark.parametrize("all_diagonal", [True, False])
@pytest.mark.parametrize("is_pooled", [True, False])
@pytest.mark.parametrize("make", TABLES, ids=lambda make: make.__name__)
def test_the_covariance_of_every_fit_becomes_the_identity(make, is_pooled, all_diagonal):
    covariances = estimates(make, is_pooled=is_pooled)
    coordinates = whitened(covariances, all_diagonal)
    for fit in range(covariances.design.n_fits):
        covariance = coordinates.basis[fit].T @ covariance_by_definition(covariances, fit) @ coordinates.basis[fit]
        np.testing.assert_allclose(covariance, np.eye(coordinates.rank), atol=1e-9)
        np.testing.assert_allclose(
            coordinates.inverse[fit].T @ coordinates.basis[fit], np.eye(coordinates.rank), atol=1e-9
        )


@pytest.mark.parametrize("all_diagonal", [True, False])
def test_the_spectrum_is_the_second_moment_approximately_so_for_folds(all_diagonal):
    covariances = estimates(lambda: gaussian(n_samples=2000))
    coordinates = whitened(covariances, all_diagonal)
    for fit in range(covariances.design.n_fits):
        moment = coordinates.basis[fit].T @ covariances.design.covariance(fit) @ coordinates.basis[fit]
        tolerance = 1e-10 if all_diagonal or fit == 0 else 0.15 * coordinates.spectrum[0].max()
        np.testing.assert_allclose(moment, np.diag(coordinates.spectrum[fit]), atol=tolerance)


@pytest.mark.parametrize("make", TABLES, ids=lambda make: make.__name__)
def test_one_cholesky_factor_replaces_two_eigendecompositions(make):
    covariances = estimates(make)
    quick, slow = (whitened(covariances, all_diagonal) for all_diagonal in (False, True))
    assert not np.allclose(quick.basis[1], slow.basis[1])  # they differ by a rotation
    for quick_basis, slow_basis in zip(quick.basis, slow.basis, strict=True):
        product = slow_basis @ slow_basis.T
        np.testing.assert_allclose(quick_basis @ quick_basis.T, product, rtol=1e-8, atol=1e-10 * np.abs(product).max())


@pytest.mark.parametrize("weight", [None, 1 + np.arange(24) % 3], ids=["rows_alike", "weighted"])
def test_the_axes_of_a_span_replace_eigendecompositions(weight):
    covariances = estimates(wide, in_span=True, weight=weight)
    quick, slow = (whitened(covariances, all_diagonal) for all_diagonal in (False, True))
    for fit in range(covariances.design.n_fits):
        product = slow.basis[fit] @ slow.basis[fit].T
        np.testing.assert_allclose(quick.basis[fit] @ quick.basis[fit].T, product, atol=1e-8 * np.abs(product).max())
        np.testing.assert_allclose(quick.inverse[fit].T @ quick.basis[fit], np.eye(quick.rank), atol=1e-9)
    if weight is None:
        moment = quick.basis[0].T @ covariances.design.covariance() @ quick.basis[0]
        np.testing.assert_allclose(quick.spectrum[0], np.diag(moment), rtol=1e-9)


@pytest.mark.parametrize("in_span", [False, True], ids=["columns", "span"])
def test_turned_coordinates_equal_one_basis_per_fit(in_span):
    turned = whitening_coordinates(estimates(wide if in_span else gaussian, in_span=in_span), all_diagonal=False)
    merged = turned.merged()
    generator, fits = np.random.default_rng(0), np.array([2, 0])
    z = generator.normal(size=(2, 3, turned.rank))
    x = generator.normal(size=(2, 3, len(turned.frame.basis)))
    for name, vectors in (("to_features", z), ("to_points", z), ("from_features", x)):
        first, second = (getattr(coordinates.of_fits(fits), name)(vectors) for coordinates in (turned, merged))
        np.testing.assert_allclose(first, second, rtol=1e-9, atol=1e-9)


def test_a_fold_without_a_cholesky_factor_is_decomposed(monkeypatch):
    covariances = estimates(gaussian)
    expected = whitened(covariances, all_diagonal=False)
    monkeypatch.setattr(whitening, "_cholesky", lambda matrix: None)
    coordinates = whitened(covariances, all_diagonal=False)
    for first, second in zip(coordinates.basis, expected.basis, strict=True):
        np.testing.assert_allclose(first @ first.T, second @ second.T, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(
        np.swapaxes(coordinates.inverse, 1, 2) @ coordinates.basis, [np.eye(coordinates.rank)] * 4, atol=1e-9
    )


def test_a_covariance_without_shrinkage_has_floored_eigenvalues():
    """With a feature that is the sum of two others."""

    def collinear():
        table = gaussian()
        table.X[:, 3] = table.X[:, 0] + table.X[:, 1]
        return table

    coordinates = whitened(estimates(collinear, shrinkage=0.0), all_diagonal=False)
    assert np.isfinite(coordinates.basis).all()
    assert np.abs(coordinates.basis).max() < 2 / np.sqrt(whitening.SMALLEST_VARIANCE)
