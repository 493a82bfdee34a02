"""Whitened, few rows of many columns are as many points as classes; solved as these, a fit is the same."""

import numpy as np
import pytest
from problems import Table, fold_masks, solve, stack_of, uneven_weights, wide

from annealed.design.class_points import class_point_coordinates
from annealed.design.coordinates import coordinates_of_fits
from annealed.objectives import InnerProduct
from annealed.solvers import Newton

TEMPERATURE = 0.2


def with_a_row_twice(label=None):
    """The first row once more at the end, of its own class or of another."""
    table = wide()
    y = np.append(table.y, table.y[0] if label is None else label)
    return Table("twice", np.vstack([table.X, table.X[:1]]), y)


def prepared(table, weight, **settings):
    return InnerProduct(penalty_scaling="whiten", **settings).prepare(stack_of(table, weight))


@pytest.mark.parametrize("is_centered", [True, False])
@pytest.mark.parametrize("make", [wide, with_a_row_twice], ids=lambda make: make.__name__)
def test_each_class_is_one_point_to_every_fit_that_sees_it(make, is_centered):
    table = make()
    masks = fold_masks(len(table.y), 4)
    design = stack_of(table, masks)
    own = class_point_coordinates(design, is_centered)
    assert own.rank == 3 - is_centered
    points = own.from_features(np.broadcast_to(table.X, (design.n_fits, *table.X.shape)))
    for fit, seen in enumerate(masks.T > 0):
        for label in range(3):
            of_class = points[fit][seen & (table.y == label)]
            np.testing.assert_allclose(of_class, np.broadcast_to(of_class[0], of_class.shape), atol=1e-7)
        weight = design.weight[seen, fit]
        about = points[fit][seen] - (weight @ points[fit][seen] if is_centered else 0)
        np.testing.assert_allclose((about.T * weight) @ about, np.eye(own.rank), atol=1e-7)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weigh", [lambda n_rows: fold_masks(n_rows, 4), uneven_weights], ids=["folds", "uneven"])
@pytest.mark.parametrize("make", [wide, with_a_row_twice], ids=lambda make: make.__name__)
def test_the_minimum_is_that_of_all_directions(make, weigh, fit_intercept):
    table = make()
    problem = prepared(table, weigh(len(table.y)), fit_intercept=fit_intercept)
    assert problem.coordinates.rank == 3 - fit_intercept
    general = prepared(table, weigh(len(table.y)), fit_intercept=fit_intercept)
    general._solve_in(coordinates_of_fits(general.design, 0.5, is_centered=fit_intercept))
    assert general.coordinates.rank > 20
    found, expected = (solve(own, TEMPERATURE, Newton(), tol=1e-9) for own in (problem, general))
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-9)
    ours, theirs = (own.report(at.parameters, TEMPERATURE) for own, at in ((problem, found), (general, expected)))
    for name, values in theirs.items():
        np.testing.assert_allclose(ours[name], values, atol=1e-5 * np.abs(values).max())
    assert problem.hot_temperature() == pytest.approx(general.hot_temperature(), rel=1e-9)


def test_rows_that_contradict_each_other_have_no_points():
    table = with_a_row_twice(label=(wide().y[0] + 1) % 3)
    weight = fold_masks(len(table.y), 4)
    assert class_point_coordinates(stack_of(table, weight), is_centered=True) is None
    assert prepared(table, weight).coordinates.rank > 20


def test_a_fold_without_a_class_has_no_points():
    table = wide()
    weight = np.column_stack([np.ones(len(table.y)), table.y != 1]).astype(float)
    assert class_point_coordinates(stack_of(table, weight), is_centered=True) is None
    assert np.isfinite(solve(prepared(table, weight), TEMPERATURE, Newton()).value).all()
