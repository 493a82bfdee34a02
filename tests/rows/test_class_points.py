"""Whitened data with more features than samples collapse to one point per class; solving there gives the same fit."""

import numpy as np
import pytest
from small_problems import Table, fold_masks, solve, stack_of, uneven_weights, wide

from annealed.problems import InnerProduct
from annealed.rows.class_points import class_point_coordinates
from annealed.rows.coordinates import coordinates_of_fits
from annealed.solvers import Newton

TEMPERATURE = 0.2


def with_a_row_twice(label=None):
    """`wide` with its first sample repeated at the end, with its own label or another."""
    table = wide()
    y = np.append(table.y, table.y[0] if label is None else label)
    return Table("twice", np.vstack([table.X, table.X[:1]]), y)


def prepared(table, weight, **settings):
    return InnerProduct(penalty_scaling="whiten", **settings).prepare(stack_of(table, weight))


@pytest.mark.parametrize("is_centered", [True, False])
@pytest.mark.parametrize("make", [wide, with_a_row_twice], ids=lambda make: make.__name__)
def test_each_class_is_one_point_in_every_fit(make, is_centered):
    table = make()
    masks = fold_masks(len(table.y), 4)
    design = stack_of(table, masks)
    coordinates = class_point_coordinates(design, is_centered)
    assert coordinates.rank == 3 - is_centered
    points = coordinates.from_features(np.broadcast_to(table.X, (design.n_fits, *table.X.shape)))
    for fit, in_fit in enumerate(masks.T > 0):
        for label in range(3):
            of_class = points[fit][in_fit & (table.y == label)]
            np.testing.assert_allclose(of_class, np.broadcast_to(of_class[0], of_class.shape), atol=1e-7)
        weight = design.weight[in_fit, fit]
        about = points[fit][in_fit] - (weight @ points[fit][in_fit] if is_centered else 0)
        np.testing.assert_allclose((about.T * weight) @ about, np.eye(coordinates.rank), atol=1e-7)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weigh", [lambda n_rows: fold_masks(n_rows, 4), uneven_weights], ids=["folds", "uneven"])
@pytest.mark.parametrize("make", [wide, with_a_row_twice], ids=lambda make: make.__name__)
def test_the_minimum_equals_that_in_general_coordinates(make, weigh, fit_intercept):
    table = make()
    problem = prepared(table, weigh(len(table.y)), fit_intercept=fit_intercept)
    assert problem.scores.coordinates.rank == 3 - fit_intercept
    general = prepared(table, weigh(len(table.y)), fit_intercept=fit_intercept)
    general.solve_in(coordinates_of_fits(general.design, 0.5, is_centered=fit_intercept))
    assert general.scores.coordinates.rank > 20
    actual, expected = (solve(each, TEMPERATURE, Newton(), tol=1e-9) for each in (problem, general))
    np.testing.assert_allclose(actual.value, expected.value, rtol=1e-9)
    ours, theirs = (
        each.report(solution.parameters, TEMPERATURE) for each, solution in ((problem, actual), (general, expected))
    )
    for name, values in theirs.items():
        np.testing.assert_allclose(ours[name], values, atol=1e-5 * np.abs(values).max())
    assert problem.hot_temperature() == pytest.approx(general.hot_temperature(), rel=1e-9)


def test_duplicates_with_different_labels_have_no_class_points():
    table = with_a_row_twice(label=(wide().y[0] + 1) % 3)
    weight = fold_masks(len(table.y), 4)
    assert class_point_coordinates(stack_of(table, weight), is_centered=True) is None
    assert prepared(table, weight).scores.coordinates.rank > 20


def test_a_fold_without_a_class_has_no_class_points():
    table = wide()
    weight = np.column_stack([np.ones(len(table.y)), table.y != 1]).astype(float)
    assert class_point_coordinates(stack_of(table, weight), is_centered=True) is None
    assert np.isfinite(solve(prepared(table, weight), TEMPERATURE, Newton()).value).all()
