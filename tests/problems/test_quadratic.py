"""Quadratic family: the inner-product family on second-order features."""

import tracemalloc
from dataclasses import replace

import numpy as np
import oracles
import pytest
from small_problems import badly_scaled, fold_masks, gaussian, rare_class, solve, stack_of, two_classes, uneven_weights

from annealed import AnnealedClassifier
from annealed.problems import InnerProduct, Quadratic
from annealed.rows import DenseDesign

PENALTY_SCALINGS = ["none", "standardize", "half-whiten", "whiten"]


def second_order(X, weight=None):
    """x_i, then x_i x_j for i <= j, of standardized columns, in loops."""
    mean, covariance = oracles.moments(X, weight)
    rows = (X - mean) / np.sqrt(np.diag(covariance))
    n_columns = rows.shape[1]
    pairs = [(i, j) for i in range(n_columns) for j in range(i, n_columns)]
    return np.array([[*row, *(row[i] * row[j] for i, j in pairs)] for row in rows])


def rings():
    """Two classes that no plane separates: an inner disc and a ring around it."""
    table = gaussian(n_samples=80, n_features=2)
    angle = np.linspace(0, 20 * np.pi, 80)
    y = np.arange(80) % 2
    radius = np.where(y == 0, 0.7, 2.0) + 0.2 * np.sin(5 * angle)
    return replace(table, name="rings", X=radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)]), y=y)


def near_start(problem, temperature):
    start = problem.start(temperature)
    return start + 0.3 * np.random.default_rng(0).normal(size=start.shape)


def optimum(family, table, temperature, weight=None, tol=1e-10):
    problem = family.prepare(stack_of(table, weight))
    reported = problem.report(solve(problem, temperature, tol=tol).parameters, temperature)
    return problem, {name: array[0] for name, array in reported.items()}


@pytest.mark.parametrize("temperature", [10.0, 0.1])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("penalty_scaling", PENALTY_SCALINGS)
def test_gradient_is_the_slope(penalty_scaling, fit_intercept, temperature):
    table = gaussian()
    weight = uneven_weights(len(table.y)) * fold_masks(len(table.y))
    problem = Quadratic(penalty_scaling=penalty_scaling, fit_intercept=fit_intercept).prepare(stack_of(table, weight))
    point = near_start(problem, temperature)
    _, gradient, _ = problem.objective(point, temperature)
    slopes = oracles.slope(lambda shift: problem.objective(point + shift, temperature)[0], np.zeros(point.shape[1]))
    np.testing.assert_allclose(slopes, gradient, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("penalty_scaling", PENALTY_SCALINGS)
@pytest.mark.parametrize("make", [gaussian, badly_scaled, two_classes, rare_class], ids=lambda make: make.__name__)
def test_minimum_is_the_inner_product_family_on_second_order_features(make, penalty_scaling):
    table = make()
    features = second_order(table.X)
    _, reported = optimum(Quadratic(penalty_scaling=penalty_scaling), table, 0.1)
    matrix = oracles.penalty_matrix(features, penalty_scaling)
    expected = oracles.multinomial_optimum(features, table.y, 0.1 * matrix)
    np.testing.assert_allclose(reported["coef"], expected.coef, atol=1e-5)
    np.testing.assert_allclose(reported["intercept"], expected.intercept, atol=1e-5)


@pytest.mark.parametrize("make", [gaussian, badly_scaled], ids=lambda make: make.__name__)
def test_the_predictor_gives_the_logits_of_new_rows(make):
    table = make()
    problem, reported = optimum(Quadratic(), table, 0.1)
    logits = problem.predictor.logits(table.X[:7], reported, 0.1)
    expected = second_order(table.X)[:7] @ reported["coef"].T + reported["intercept"]
    np.testing.assert_allclose(logits, expected, atol=1e-8)


def test_the_minimum_does_not_depend_on_units():
    plain, scaled = (optimum(Quadratic(), make(), 0.1)[1] for make in (gaussian, badly_scaled))
    np.testing.assert_allclose(scaled["coef"], plain["coef"], atol=1e-6)


def test_only_quadratic_scores_separate_rings():
    table = rings()
    problem, reported = optimum(Quadratic(), table, 1e-3)
    assert (problem.predictor.logits(table.X, reported, 1e-3).argmax(axis=1) == table.y).all()
    linear, reported = optimum(InnerProduct(), table, 1e-3)
    assert (linear.predictor.logits(table.X, reported, 1e-3).argmax(axis=1) == table.y).mean() < 0.8


def test_more_features_than_rows_are_solved_in_their_span():
    table = gaussian(n_samples=15, n_features=6)
    features = second_order(table.X)
    assert features.shape[1] > features.shape[0]
    _, reported = optimum(Quadratic(penalty_scaling="none"), table, 0.1)
    expected = oracles.multinomial_optimum(features, table.y, 0.1 * np.eye(features.shape[1]))
    np.testing.assert_allclose(reported["coef"], expected.coef, atol=1e-6)


def test_permuting_classes_permutes_the_coefficients():
    table = gaussian()
    order = np.array([2, 0, 1])
    _, plain = optimum(Quadratic(), table, 0.1)
    _, permuted = optimum(Quadratic(), replace(table, y=order[table.y]), 0.1)
    np.testing.assert_allclose(permuted["coef"][order], plain["coef"], atol=1e-7)


def test_weight_two_equals_the_row_twice():
    table = gaussian()
    counts = 1 + (np.arange(len(table.y)) % 3 == 0)
    rows = np.repeat(np.arange(len(table.y)), counts)
    _, weighted = optimum(Quadratic(), table, 0.1, counts[:, None])
    _, expected = optimum(Quadratic(), replace(table, X=table.X[rows], y=table.y[rows]), 0.1)
    np.testing.assert_allclose(weighted["coef"], expected["coef"], atol=1e-6)


def test_float32_rows_agree_with_float64():
    table = gaussian()
    rounded = replace(table, X=table.X.astype(np.float32).astype(np.float64))
    _, double = optimum(Quadratic(), rounded, 0.1)
    _, single = optimum(Quadratic(), replace(table, X=table.X.astype(np.float32)), 0.1)
    np.testing.assert_allclose(single["coef"], double["coef"], atol=1e-7)


def test_the_sum_does_not_depend_on_the_blocks_of_rows(monkeypatch):
    table = gaussian()
    problem = Quadratic().prepare(stack_of(table, fold_masks(len(table.y))))
    point = near_start(problem, 0.1)
    whole = problem.objective(point, 0.1)
    monkeypatch.setattr(DenseDesign, "block_rows", lambda self, n_fits, copies_rows=True: 7)
    for part, expected in zip(problem.objective(point, 0.1), whole, strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-10, atol=1e-12)


def test_a_class_missing_from_a_fold_stays_finite():
    table = gaussian()
    weight = np.column_stack([np.ones(len(table.y)), table.y != 2]).astype(float)
    problem = Quadratic().prepare(stack_of(table, weight))
    reported = problem.report(solve(problem, 0.1).parameters, 0.1)
    assert np.isfinite(reported["coef"]).all()
    assert np.isfinite(reported["intercept"]).all()


def test_a_constant_column_has_no_products():
    """Its deviations from the mean are rounding errors; standardized, its products would be copies of other columns."""
    table = gaussian()
    plain, with_constant = (
        Quadratic().prepare(stack_of(replace(table, X=X)))
        for X in (table.X, np.column_stack([table.X, np.full(len(table.y), 3.3)]))
    )
    ours, theirs = (problem.report(solve(problem, 0.1).parameters, 0.1) for problem in (with_constant, plain))
    assert np.abs(ours["coef"]).max() < 1e3
    new = table.X[:5]
    moved = np.column_stack([new, np.full(5, 4.4)])
    seen = [
        problem.predictor.logits(X, {name: part[0] for name, part in found.items()}, 0.1)
        for problem, X, found in ((with_constant, moved, ours), (plain, new, theirs))
    ]
    np.testing.assert_allclose(*seen, atol=1e-6)


@pytest.mark.parametrize("columns", [slice(None), slice(1, 3), slice(2, 9), slice(7, 8), slice(11, 14), slice(5, None)])
def test_a_slice_of_columns_agrees_with_all_columns(columns):
    table = gaussian(n_samples=9)
    rows = Quadratic().prepare(stack_of(table)).scaling.design.X
    np.testing.assert_allclose(rows[2:7, columns], second_order(table.X)[2:7, columns], rtol=1e-12)
    np.testing.assert_array_equal(rows[:, columns], rows[:][:, columns])


def test_new_rows_and_columns_are_processed_in_parts():
    """The whole wide table is never in memory: it would take 165 MB for these rows, 60 MB for these columns."""
    table = gaussian(n_samples=50, n_features=44)
    problem = Quadratic().prepare(stack_of(table))
    n_features = problem.features.number
    arrays = {"coef": np.ones((3, n_features)), "intercept": np.zeros(3)}
    new = np.zeros((20_000, 44))
    wide_rows = Quadratic().prepare(stack_of(gaussian(n_samples=60, n_features=500))).scaling.design.X
    tracemalloc.start()
    problem.predictor.logits(new, arrays, 1.0)
    _, of_rows = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    wide_rows[:, 600:700]
    _, of_columns = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert of_rows < 20_000_000 and of_columns < 2_000_000


@pytest.mark.parametrize("size", [1e90, 1e200, 3e307])
def test_extreme_new_rows_have_a_posterior(size):
    """Every warning is an error in this test suite."""
    table = two_classes()
    model = AnnealedClassifier(Quadratic(), schedule=[1.0], selection="last").fit(table.X * 1e-3, table.y)
    direction = np.array([[1.0, 0, 0], [-1.0, 0, 0], [0, 0, 1.0], [0.3, -1.0, 0.7], [1.0, 1.0, 1.0]])
    posterior = model.predict_proba(size * direction)
    np.testing.assert_allclose(posterior.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict(size * direction), posterior.argmax(axis=1))
    np.testing.assert_array_equal(posterior[:3], model.predict_proba(1e50 * direction[:3]))
