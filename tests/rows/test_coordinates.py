"""Coordinates shared by all fits or one per fit: directions divided by a power of their variance, empty directions."""

from dataclasses import replace

import numpy as np
import pytest
from small_problems import categories, fold_masks, gaussian, stack_of, wide

from annealed.rows import make_design
from annealed.rows.coordinates import coordinates_of_fits, principal_coordinates


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
    coordinates = coordinates_of_fits(design, power, is_centered=True)
    for fit in range(design.n_fits):
        variance, vectors = np.linalg.eigh(covariance(design, fit))
        is_kept = variance > 1e-10 * variance[-1]
        assert is_kept.all() == (make is gaussian)
        lowered = np.where(is_kept, np.where(is_kept, variance, 1.0) ** (-2 * power), 0.0)
        expected = (vectors * lowered) @ vectors.T
        np.testing.assert_allclose(
            coordinates.basis[fit] @ coordinates.basis[fit].T, expected, atol=1e-8 * np.abs(expected).max()
        )
        moment = coordinates.basis[fit].T @ covariance(design, fit) @ coordinates.basis[fit]
        np.testing.assert_allclose(
            coordinates.spectrum[fit], np.diag(moment), atol=1e-10 * coordinates.spectrum[fit].max()
        )


@pytest.mark.parametrize("power", [0.0, 0.25, 0.5])
def test_empty_directions_are_dropped(power):
    design = centred(categories)
    coordinates = principal_coordinates(design, np.ones(12), power)
    assert coordinates.rank == 12 - 3
    rows = design.X - design.center
    np.testing.assert_allclose(coordinates.to_points(coordinates.from_features(rows)), rows, atol=1e-12)


@pytest.mark.parametrize("power", [0.0, 0.5])
@pytest.mark.parametrize("value", [1.0, 0.1, 1e5 / 3])
def test_a_constant_feature_does_not_affect_the_eigenbasis(value, power):
    table = gaussian()
    design = stack_of(replace(table, X=np.column_stack([table.X, np.full(len(table.y), value)])))
    design = design.centered(np.append(design.column_mean()[:-1], value * (1 + 1e-15)))  # a mean with rounding error
    coordinates = principal_coordinates(design, np.ones(5), power)
    assert coordinates.basis.shape == (5, 4)
    assert not coordinates.basis[-1].any()


@pytest.mark.parametrize("power", [0.0, 0.5])
def test_equal_samples_keep_at_least_one_direction(power):
    design = make_design(np.zeros((6, 3)), np.arange(6) % 2, np.full((6, 1), 1 / 6), np.full(1, 6.0), 2)
    assert principal_coordinates(design, np.ones(3), power).rank > 0


def test_mapping_points_there_and_back_is_the_identity():
    design = centred(gaussian)
    coordinates = coordinates_of_fits(design, 0.5, is_centered=True)
    rows = np.broadcast_to(design.X - design.center, (design.n_fits, *design.X.shape))
    np.testing.assert_allclose(coordinates.to_points(coordinates.from_features(rows)), rows, atol=1e-9)


def test_the_final_fit_has_the_coordinates_of_all_samples():
    design = centred(gaussian)
    final = coordinates_of_fits(design, 0.5, is_centered=True).of_final
    shared = principal_coordinates(design, np.ones(design.n_features), 0.5)
    np.testing.assert_allclose(np.abs(final.basis), np.abs(shared.basis), atol=1e-8 * np.abs(shared.basis).max())
    np.testing.assert_allclose(final.spectrum, shared.spectrum, rtol=1e-8)


def test_folds_have_axes_close_to_those_of_the_final_fit():
    """So that the steps of one fit are useful to another."""
    design = centred(gaussian)
    coordinates = coordinates_of_fits(design, 0.5, is_centered=True)
    for fold in coordinates.basis[1:]:
        assert np.linalg.norm(fold - coordinates.basis[0]) < 0.3 * np.linalg.norm(coordinates.basis[0])


def test_selecting_consecutive_fits_does_not_copy():
    coordinates = coordinates_of_fits(centred(gaussian), 0.5, is_centered=True)
    for fits in (slice(None), slice(0, 1), [1, 2], np.array([0])):
        assert np.shares_memory(coordinates.of_fits(fits).basis, coordinates.basis)
    np.testing.assert_array_equal(coordinates.of_fits([0, 2]).basis, coordinates.basis[[0, 2]])
