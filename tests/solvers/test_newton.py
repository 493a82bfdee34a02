"""Newton's method: its tangents, its factors, and the handover from L-BFGS."""

import numpy as np
import pytest
from small_problems import (
    badly_scaled,
    fold_masks,
    gaussian,
    rare_class,
    separable,
    solve_final,
    solve_fits,
    stack_of,
    two_classes,
    wide,
)

from annealed.problems import InnerProduct
from annealed.problems.hessian import factored
from annealed.solvers import Accuracy, Newton, Points

CONVEX = [gaussian, badly_scaled, two_classes, rare_class, separable]


@pytest.mark.parametrize("temperature", [3.0, 0.05])
@pytest.mark.parametrize("make", CONVEX, ids=lambda make: make.__name__)
def test_newton_gives_the_derivative_of_the_minima_by_log_temperature(make, temperature):
    table = make()
    problem = InnerProduct().prepare(stack_of(table, fold_masks(len(table.y))), random_state=0)
    change = 1e-3
    points = {}
    for shift in (-change, 0.0, change):
        shifted = temperature * np.exp(shift)
        points[shift] = solve_fits(Newton(), problem, problem.start(shifted), shifted, tol=1e-10, max_iter=100)
    by_difference = (points[change].parameters - points[-change].parameters) / (2 * change)
    size = np.abs(by_difference).max()
    np.testing.assert_allclose(points[0.0].tangent, by_difference, rtol=1e-4, atol=1e-5 * size)


@pytest.mark.parametrize("fits", [[0, 3], [1, 3, 2], [0, 0, 2], [1, 2]], ids=str)
def test_stacks_of_fits_with_coordinates_per_fit_are_evaluated_in_them(fits):
    table = wide()
    problem = InnerProduct(penalty_scaling="half-whiten").prepare(
        stack_of(table, fold_masks(len(table.y), 4)), random_state=0
    )
    point = 0.1 * np.random.RandomState(0).standard_normal((len(fits), problem.scores.table.n_parameters))
    temperatures, numbers = np.full(len(fits), 0.1), np.array(fits)
    expected = [problem.objective(point[[position]], 0.1, numbers[[position]])[:2] for position in range(len(fits))]
    for terms in (
        problem.hessians.along(point, point, temperatures, numbers)[:2],
        problem.hessians.terms(point, temperatures, numbers)[:2],
        problem.objective(point, temperatures, numbers)[:2],
    ):
        for position, (value, gradient) in enumerate(expected):
            np.testing.assert_allclose(terms[0][position], value[0], rtol=1e-10)
            np.testing.assert_allclose(terms[1][position], gradient[0], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("make", CONVEX, ids=lambda make: make.__name__)
def test_newton_converges_from_a_distant_start(make):
    """Full steps fail there, with new factors and with old ones."""
    table = make()
    problem = InnerProduct().prepare(stack_of(table, fold_masks(len(table.y))), random_state=0)
    far = problem.start(0.01) + 30 * np.random.default_rng(0).normal(size=problem.start(1.0).shape)
    near, back = (
        solve_fits(Newton(), problem, start, 0.01, tol=1e-8, max_iter=300) for start in (problem.start(0.01), far)
    )
    assert back.converged.all()
    np.testing.assert_allclose(back.value, near.value, rtol=1e-9)


def test_newton_ends_where_gradients_are_rounding_errors():
    """Without a penalty, the loss of separable classes falls as long as there are steps."""
    table = separable()
    problem = InnerProduct().prepare(stack_of(table, fold_masks(len(table.y))), random_state=0)
    found = solve_fits(Newton(), problem, problem.start(1.0), 1e-300, tol=1e-4, max_iter=10_000, certify=False)
    assert found.converged.all()
    assert found.n_iter.max() < 100


def test_newton_leaves_a_start_that_is_worse_than_the_hotter_minimum():
    table = gaussian()
    problem = InnerProduct().prepare(stack_of(table, fold_masks(len(table.y))), random_state=0)
    hot = solve_fits(Newton(), problem, problem.start(0.1), 0.1, tol=1e-8, max_iter=100)
    far = hot.parameters + 1e6 * np.random.default_rng(0).normal(size=hot.parameters.shape)
    points = Points.of_fits([far], [0.1], (hot.parameters, hot.value))
    found = Newton().solve(problem, points, Accuracy(1e-8, 3))
    assert found.converged.all()
    np.testing.assert_allclose(found.value, hot.value, rtol=1e-9)


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("make", [gaussian, separable, wide], ids=lambda make: make.__name__)
def test_a_long_last_step_is_not_taken_without_evaluation(make, is_kept, monkeypatch):
    """However small the predicted decrease: where the posterior is certain, the Hessian is local information."""
    if not is_kept:
        monkeypatch.setattr("annealed.problems.hessian.STORED_BYTES", 0)
    table = make()
    problem = InnerProduct(penalty_scaling="none").prepare(stack_of(table, fold_masks(len(table.y))), random_state=0)
    far = problem.start(0.01) + 30 * np.random.default_rng(0).normal(size=problem.start(1.0).shape)
    solution = solve_fits(Newton(), problem, far.copy(), 0.01, tol=10.0, max_iter=300)
    value, _, _ = problem.objective(solution.parameters, 0.01)
    assert (value <= problem.objective(far, 0.01)[0]).all()
    np.testing.assert_allclose(value, solution.value, rtol=0.1)


def test_large_hessians_are_solved_a_few_at_a_time(monkeypatch):
    table = gaussian()
    problem = InnerProduct().prepare(stack_of(table, fold_masks(len(table.y))), random_state=0)
    temperatures, options = np.array([1.0, 0.3, 0.1, 0.03, 0.01]), {"tol": 1e-6, "max_iter": 100}
    starts = np.repeat(problem.start(1.0)[:1], len(temperatures), axis=0)
    at_once = solve_final(Newton(), problem, starts, temperatures, **options)
    monkeypatch.setattr("annealed.solvers.newton.BLOCK_BYTES", 16 * problem.hessians.size**2)
    in_parts = solve_final(Newton(), problem, starts, temperatures, **options)
    assert in_parts.converged.all()
    np.testing.assert_allclose(in_parts.parameters, at_once.parameters, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(in_parts.n_iter, at_once.n_iter)


@pytest.mark.parametrize(("beside", "ridge"), [(0.5, 1.4e-14), (1 + 1e-9, 1.2e-7)], ids=["definite", "rounded"])
def test_a_factor_has_the_smallest_ridge_that_succeeds(beside, ridge):
    matrix = np.eye(4) + beside * (1 - np.eye(4))
    expected = matrix + ridge * np.eye(4)
    factor = np.tril(factored(matrix.copy()))
    np.testing.assert_allclose(factor @ factor.T, expected, rtol=0, atol=1e-14 + 0.1 * ridge)
