"""Coordinates of all fits and of each one's own: directions divided by their variance, and those without any."""

from dataclasses import replace

import numpy as np
import pytest
from problems import categories, fold_masks, gaussian, stack_of, wide

from annealed.design import make_design
from annealed.design.coordinates import coordinates_of_fits, principal_coordinates


def centred(make):
    table = make()
    design = stack_of(table, fold_masks(len(table.y), 3))
    return design.centered(design.column_mean())


def covariance(design, fit):
    rows, weight = design.X - design.center, design.weight[:, fit]
    rows = rows - weight @ rows
    return (rows.T * weight) @ rows


@pytest.mark.parametrize("power", [0.25, 0.5])
@pytest.mark.parametrize("make", [gaussian, wide], ids=lambda make: make.__name__)
def test_each_fit_divides_by_the_variance_of_its_own_rows(make, power):
    design = centred(make)
    own = coordinates_of_fits(design, power, is_centered=True)
    for fit in range(design.n_fits):
        variance, vectors = np.linalg.eigh(covariance(design, fit))
        is_kept = variance > 1e-10 * variance[-1]
        assert is_kept.all() == (make is gaussian)
        lowered = np.where(is_kept, np.where(is_kept, variance, 1.0) ** (-2 * power), 0.0)
        expected = (vectors * lowered) @ vectors.T
        np.testing.assert_allclose(own.basis[fit] @ own.basis[fit].T, expected, atol=1e-8 * np.abs(expected).max())
        seen = own.basis[fit].T @ covariance(design, fit) @ own.basis[fit]
        np.testing.assert_allclose(own.spectrum[fit], np.diag(seen), atol=1e-10 * own.spectrum[fit].max())


@pytest.mark.parametrize("power", [0.0, 0.25, 0.5])
def test_directions_in_which_no_row_lies_are_dropped(power):
    design = centred(categories)
    coordinates = principal_coordinates(design, np.ones(12), power)
    assert coordinates.rank == 12 - 3
    rows = design.X - design.center
    np.testing.assert_allclose(coordinates.to_points(coordinates.from_features(rows)), rows, atol=1e-12)


@pytest.mark.parametrize("power", [0.0, 0.5])
@pytest.mark.parametrize("value", [1.0, 0.1, 1e5 / 3])
def test_a_constant_column_leaves_the_others_their_eigenbasis(value, power):
    table = gaussian()
    design = stack_of(replace(table, X=np.column_stack([table.X, np.full(len(table.y), value)])))
    design = design.centered(np.append(design.column_mean()[:-1], value * (1 + 1e-15)))  # as rounding leaves it
    coordinates = principal_coordinates(design, np.ones(5), power)
    assert coordinates.basis.shape == (5, 4)
    assert not coordinates.basis[-1].any()


@pytest.mark.parametrize("power", [0.0, 0.5])
def test_rows_that_are_all_the_same_keep_some_direction(power):
    design = make_design(np.zeros((6, 3)), np.arange(6) % 2, np.full((6, 1), 1 / 6), np.full(1, 6.0), 2)
    assert principal_coordinates(design, np.ones(3), power).rank > 0


def test_points_and_coefficients_come_back():
    design = centred(gaussian)
    own = coordinates_of_fits(design, 0.5, is_centered=True)
    rows = np.broadcast_to(design.X - design.center, (design.n_fits, *design.X.shape))
    np.testing.assert_allclose(own.to_points(own.from_features(rows)), rows, atol=1e-9)


def test_the_final_fit_has_the_coordinates_of_all_rows():
    design = centred(gaussian)
    own = coordinates_of_fits(design, 0.5, is_centered=True).of_final
    shared = principal_coordinates(design, np.ones(design.n_features), 0.5)
    np.testing.assert_allclose(np.abs(own.basis), np.abs(shared.basis), atol=1e-8 * np.abs(shared.basis).max())
    np.testing.assert_allclose(own.spectrum, shared.spectrum, rtol=1e-8)


def test_folds_are_turned_as_the_final_fit_is():
    """So that one fit's moves serve another."""
    design = centred(gaussian)
    own = coordinates_of_fits(design, 0.5, is_centered=True)
    for fold in own.basis[1:]:
        assert np.linalg.norm(fold - own.basis[0]) < 0.3 * np.linalg.norm(own.basis[0])


def test_coordinates_of_neighbouring_fits_are_not_copied():
    own = coordinates_of_fits(centred(gaussian), 0.5, is_centered=True)
    for fits in (slice(None), slice(0, 1), [1, 2], np.array([0])):
        assert np.shares_memory(own.of_fits(fits).basis, own.basis)
    np.testing.assert_array_equal(own.of_fits([0, 2]).basis, own.basis[[0, 2]])
