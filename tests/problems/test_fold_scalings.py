"""If columns outnumber rows, the penalty scaling of a fold depends on its training rows only."""

import numpy as np
import pytest
from small_problems import Table, fold_masks, near_start, solve, stack_of, uneven_weights, wide

from annealed.problems import InnerProduct, hessian
from annealed.solvers import LBFGS, Newton

TEMPERATURE = 0.2
PENALTY_SCALINGS = ["half-whiten", "whiten"]


@pytest.fixture(autouse=True)
def _columns_in_one_unit(monkeypatch):
    """Standard deviations of columns are those of all rows, also within folds."""
    name = "annealed.problems.penalized_linear.spread_of_columns"
    monkeypatch.setattr(name, lambda design, mean: np.ones(design.n_features))


def prepared(penalty_scaling, weight=None, **settings):
    table = wide()
    weight = fold_masks(len(table.y), 4) if weight is None else weight
    problem = InnerProduct(penalty_scaling=penalty_scaling, **settings).prepare(stack_of(table, weight))
    assert problem.scores.coordinates.per_fit
    return problem


@pytest.mark.parametrize("solver", [Newton, LBFGS])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("penalty_scaling", PENALTY_SCALINGS)
def test_a_fold_agrees_with_a_separate_fit_of_its_rows(penalty_scaling, fit_intercept, solver):
    problem = prepared(penalty_scaling, fit_intercept=fit_intercept)
    solution = solve(problem, TEMPERATURE, solver())
    folds = problem.report(solution.parameters, TEMPERATURE)
    table, masks = wide(), fold_masks(24, 4).astype(bool)
    for fit in range(5):
        rows = masks[:, fit]
        alone = InnerProduct(penalty_scaling=penalty_scaling, fit_intercept=fit_intercept).prepare(
            stack_of(Table("some rows", table.X[rows], table.y[rows]))
        )
        found = solve(alone, TEMPERATURE, Newton())
        np.testing.assert_allclose(solution.value[fit], found.value[0], rtol=1e-6)
        expected = alone.report(found.parameters, TEMPERATURE)
        for name, atol in (("coef", 1e-4), ("intercept", 1e-4)):
            size = max(1.0, np.abs(expected[name]).max())
            np.testing.assert_allclose(folds[name][fit], expected[name][0], atol=atol * size)


@pytest.mark.parametrize("penalty_scaling", PENALTY_SCALINGS)
def test_gradient_and_hessian_agree_with_finite_differences(penalty_scaling):
    problem = prepared(penalty_scaling, uneven_weights(24))
    fits, point = slice(None), near_start(problem, TEMPERATURE)
    value, gradient, matrix = problem.hessians.terms(point, TEMPERATURE, fits)
    again, same, _ = problem.objective(point, TEMPERATURE)
    np.testing.assert_allclose(again, value, rtol=1e-12)
    np.testing.assert_allclose(same, gradient, atol=1e-12)
    generator = np.random.default_rng(1)
    differences = generator.normal(size=(problem.n_fits, problem.hessians.size))
    step = 1e-6 * problem.hessians.from_differences(differences)
    ends = [problem.objective(point + sign * step, TEMPERATURE) for sign in (1, -1)]
    slope = (ends[0][0] - ends[1][0]) / 2
    np.testing.assert_allclose(slope, np.sum(gradient * step, axis=1), rtol=1e-5)
    turned = problem.hessians.by_differences(ends[0][1] - ends[1][1]) / 2e-6
    np.testing.assert_allclose(turned, np.einsum("fij,fj->fi", matrix, differences), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("fits", [slice(None), np.array([0, 2]), np.array([0, 0, 0])], ids=str)
def test_stored_rows_and_blocks_agree(fits, monkeypatch):
    problem, blocks = prepared("whiten"), prepared("whiten")
    assert isinstance(problem.hessians.rows, hessian.SmallRows)
    monkeypatch.setattr(hessian, "STORED_BYTES", 0)
    assert isinstance(blocks.hessians.rows, hessian.BlockRows)
    point = near_start(problem, TEMPERATURE)[fits]
    along = np.random.default_rng(2).normal(size=point.shape)
    for name, vectors in (("terms", ()), ("along", (along,))):
        ours, theirs = (getattr(rows.hessians, name)(point, *vectors, TEMPERATURE, fits) for rows in (problem, blocks))
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-10 * np.abs(other).max())
