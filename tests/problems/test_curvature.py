"""The preconditioner computed from a sample of rows."""

import numpy as np
import oracles
import pytest
from small_problems import fold_masks, gaussian, solve, stack_of

from annealed.datasets import make_gaussian_classes
from annealed.problems import InnerProduct, hessian_sample, linear

TEMPERATURE = 0.05


def learned_at_some_point(problem, level=0):
    point = problem.start(TEMPERATURE) + 0.3 * np.random.RandomState(0).standard_normal(problem.start(1.0).shape)
    return point, problem.preconditioners.learn(point[0], TEMPERATURE, level)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_all_rows_give_the_exact_hessian_of_the_final_fit(fit_intercept):
    problem = InnerProduct(fit_intercept=fit_intercept).prepare(stack_of(gaussian()))
    point, learned = learned_at_some_point(problem)
    spread = np.tile(learned.sample.spread, 2)
    steps = np.random.RandomState(1).standard_normal((4, len(spread)))
    ways = problem.scores.table.contrasts.from_differences(steps.reshape(4, 2, -1), learned.reference).reshape(4, -1)
    for step, way in zip(steps, ways, strict=True):
        slopes = oracles.slope(lambda move, way=way: problem.loss(point + move * way, TEMPERATURE)[1], np.array(0.0))
        expected = problem.scores.table.contrasts.by_differences(slopes.reshape(3, -1), learned.reference).reshape(-1)
        np.testing.assert_allclose(spread * (learned.hessian @ (spread * step)), expected, rtol=1e-5, atol=1e-6)


def test_the_reference_is_the_class_of_largest_curvature():
    """A well-separated class has little curvature: as reference it would make small differences rounding errors."""
    table = gaussian()
    table.X[table.y == 1] += 50.0
    problem = InnerProduct().prepare(stack_of(table))
    solution = solve(problem, 1e-4, tol=1e-4)
    assert problem.preconditioners.learn(solution.parameters[0], 1e-4, 0).reference != 1


def test_preconditioning_solves_the_newton_system():
    problem = InnerProduct().prepare(stack_of(gaussian()))
    point, learned = learned_at_some_point(problem)
    _, gradient, hessian = problem.hessians.terms(point, TEMPERATURE, slice(None))
    for n_vectors in (1, 2):  # a single vector is solved by another routine than several
        direction = problem.precondition(np.repeat(gradient, n_vectors, axis=0), TEMPERATURE, slice(0, 1), learned)
        table = direction[-1].reshape(3, -1)
        along = hessian[0] @ (table - table[-1])[:2].reshape(-1)
        expected = problem.hessians.by_differences(gradient)[0]
        assert np.abs(along - expected).max() <= 1e-4 * np.abs(gradient).max()


def test_only_leading_coordinates_are_learned_if_there_are_too_many(monkeypatch):
    monkeypatch.setattr(hessian_sample, "MOST_VALUES", 24**2)
    problem = InnerProduct().prepare(stack_of(gaussian()))
    point, learned = learned_at_some_point(problem)
    assert learned.hessian.shape == (6, 6)
    assert learned.sample.leading.tolist() == [2, 3, 4]
    vectors = np.random.RandomState(1).standard_normal(point.shape)
    plain = problem.precondition(vectors, TEMPERATURE, slice(None)).reshape(-1, 3, 5)
    better = problem.precondition(vectors, TEMPERATURE, slice(None), learned).reshape(-1, 3, 5)
    np.testing.assert_array_equal(better[..., :2], plain[..., :2])
    assert np.abs(better[..., 2:] - plain[..., 2:]).min() > 0
    _, larger = learned_at_some_point(problem, level=1)
    assert larger.hessian.shape == (10, 10)


@pytest.mark.parametrize("unit", [1e-60, 1e60])
def test_the_curvature_does_not_depend_on_the_units_of_the_rows(unit, monkeypatch):
    """In float32 too, where squares of such numbers underflow or overflow."""
    hessians = []
    for factor in (1.0, unit):
        table = gaussian(n_samples=200, n_features=6)
        table.X[:] *= factor
        problem = InnerProduct(penalty_scaling="none").prepare(stack_of(table))
        point = problem.start(TEMPERATURE) + 0.1  # intercepts only, so that the posterior does not depend on the units
        point.reshape(-1, problem.scores.table.n_scores, problem.scores.table.width)[..., :-1] = 0
        learned = problem.preconditioners.learn(point[0], TEMPERATURE, 0)
        hessians.append(learned.hessian)
    np.testing.assert_allclose(np.abs(hessians[1]), np.abs(hessians[0]), rtol=1e-4, atol=1e-5)


def test_float32_rows_give_the_same_curvature_as_a_sample_copy(monkeypatch):
    monkeypatch.setattr(linear, "FEWEST_COPIED_VALUES", 1)
    table = gaussian(n_samples=300, n_features=7)
    plain, quick = (InnerProduct().prepare(stack_of(table, fold_masks(300))) for _ in range(2))
    quick.scores.make_float32_copy()
    assert quick.scores.has_quick_rows and not plain.scores.has_quick_rows
    _, expected = learned_at_some_point(plain)
    _, found = learned_at_some_point(quick)
    np.testing.assert_allclose(found.hessian, expected.hessian, rtol=1e-4, atol=1e-6)


def test_float32_rows_of_equal_spread_give_the_curvature_of_the_leading_coordinates(monkeypatch):
    """Whitened coordinates have no order: rounding errors decide which of them are leading."""
    monkeypatch.setattr(linear, "FEWEST_COPIED_VALUES", 1)
    monkeypatch.setattr(hessian_sample, "MOST_VALUES", 32**2)
    table = gaussian(n_samples=300, n_features=7)
    problem = InnerProduct(penalty_scaling="whiten").prepare(stack_of(table, fold_masks(300)))
    problem.scores.make_float32_copy()
    _, learned = learned_at_some_point(problem)
    named = learned.sample.leading[: learned.sample.n_leading]
    np.testing.assert_array_equal(learned.sample._points, problem.scores.float32_rows.X[:, named])


def test_learning_saves_iterations_and_gives_the_same_minimum(monkeypatch):
    table = gaussian(n_samples=200, n_features=8, separation=4.0)
    problem = InnerProduct().prepare(stack_of(table, fold_masks(len(table.y))))
    learned = solve(problem, 1e-6, tol=1e-4)
    monkeypatch.setattr(type(problem.preconditioners), "cost", lambda *_: np.inf)
    plain = solve(problem, 1e-6, tol=1e-4)
    assert learned.n_iter[0] < 0.7 * plain.n_iter[0]
    np.testing.assert_allclose(learned.value[0], plain.value[0], rtol=1e-6)


# --- blocks of single classes -----------------------------------------------------------------------


def test_blocks_of_classes_are_those_of_the_hessian(monkeypatch):
    monkeypatch.setattr(hessian_sample, "ROWS_PER_COORDINATE", 1000)
    problem = InnerProduct().prepare(stack_of(gaussian()))
    point = problem.start(TEMPERATURE) + 0.3 * np.random.RandomState(0).standard_normal(problem.start(1.0).shape)
    learned = problem.preconditioners.learn_classes(point[0], TEMPERATURE)
    spread = learned.sample.spread
    for label in range(3):
        for step in np.random.RandomState(1).standard_normal((2, len(spread))):
            way = np.zeros((1, 3, len(spread)))
            way[0, label] = step
            slopes = oracles.slope(
                lambda move, way=way: problem.loss(point + move * way.reshape(1, -1), TEMPERATURE)[1], np.array(0.0)
            )
            expected = slopes.reshape(3, -1)[label]
            np.testing.assert_allclose(
                spread * (learned.blocks[label] @ (spread * step)), expected, rtol=1e-5, atol=1e-6
            )


@pytest.mark.parametrize("n_vectors", [1, 3])
def test_class_blocks_precondition_each_class(n_vectors):
    """They are factored again when the penalty has changed."""
    problem = InnerProduct().prepare(stack_of(gaussian()))
    point = problem.start(TEMPERATURE) + 0.3 * np.random.RandomState(0).standard_normal(problem.start(1.0).shape)
    learned = problem.preconditioners.learn_classes(point[0], TEMPERATURE)
    vectors = np.random.RandomState(1).standard_normal((n_vectors, 3, 5))
    spread = learned.sample.spread
    for strength in (0.05, 0.005):
        solved = np.zeros_like(vectors)
        learned.improve(solved, vectors, strength)
        penalized = spread[:, None] * learned.blocks * spread + strength * np.diag([1, 1, 1, 1, 0])
        expected = np.linalg.solve(penalized, vectors[..., None])[..., 0]
        np.testing.assert_allclose(solved, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("intercept", [-300.0, -1e4])
@pytest.mark.parametrize("is_whole", [False, True])
def test_a_class_excluded_by_every_row_moves_no_further_than_others(is_whole, intercept, monkeypatch):
    problem = InnerProduct().prepare(stack_of(gaussian()))
    point = problem.start(TEMPERATURE)
    problem.scores.table.of(point)[0, 1, -1] = intercept
    learn = (lambda *at: problem.preconditioners.learn(*at, 0)) if is_whole else problem.preconditioners.learn_classes
    learned = learn(point[0], TEMPERATURE)
    solved, vectors = np.zeros((1, 3, 5)), np.zeros((1, 3, 5))
    vectors[0, 1, -1] = 1e-30
    learned.improve(solved, vectors, 0.05)
    assert np.isfinite(solved).all() and np.abs(solved).max() < 1e-6


def test_class_blocks_save_steps_for_many_classes(monkeypatch):
    table = make_gaussian_classes(600, 20, 12, separation=3.0, random_state=0)
    problem = InnerProduct().prepare(stack_of(table, fold_masks(len(table.y)), n_classes=12))
    by_classes = solve(problem, 1e-3, tol=1e-4)
    monkeypatch.setattr(type(problem.preconditioners), "class_cost", lambda self: np.inf)
    otherwise = solve(problem, 1e-3, tol=1e-4)
    assert by_classes.n_iter[0] < 0.8 * otherwise.n_iter[0]
    np.testing.assert_allclose(by_classes.value[0], otherwise.value[0], rtol=1e-6)
