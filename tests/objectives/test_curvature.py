"""The preconditioner learned from a sample of rows."""

import numpy as np
import oracles
import pytest
from problems import fold_masks, gaussian, rare_class, stack_of

from annealed.datasets import make_gaussian_classes
from annealed.objectives import InnerProduct, curvature, penalized_linear
from annealed.solvers import LBFGS, lbfgs

TEMPERATURE = 0.05


def learned_at_some_point(problem, level=0):
    point = problem.start(TEMPERATURE) + 0.3 * np.random.RandomState(0).standard_normal(problem.start(1.0).shape)
    return point, problem.learn_curvature(point[0], TEMPERATURE, level)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_all_rows_give_the_exact_hessian_of_the_final_fit(fit_intercept):
    problem = InnerProduct(fit_intercept=fit_intercept).prepare(stack_of(gaussian()))
    point, learned = learned_at_some_point(problem)
    spread = np.tile(learned.sample.spread, 2)
    steps = np.random.RandomState(1).standard_normal((4, len(spread)))
    ways = problem.contrasts.from_differences(steps.reshape(4, 2, -1), learned.reference).reshape(4, -1)
    for step, way in zip(steps, ways, strict=True):
        slopes = oracles.slope(lambda move, way=way: problem.loss(point + move * way, TEMPERATURE)[1], np.array(0.0))
        expected = problem.contrasts.by_differences(slopes.reshape(3, -1), learned.reference).reshape(-1)
        np.testing.assert_allclose(spread * (learned.hessian @ (spread * step)), expected, rtol=1e-5, atol=1e-6)


def test_the_reference_is_the_class_of_most_curvature():
    """A class that is told apart has hardly any: as reference it would leave small differences to rounding."""
    table = gaussian()
    table.X[table.y == 1] += 50.0
    problem = InnerProduct().prepare(stack_of(table))
    start = problem.start(1e-4)
    solver = LBFGS()
    solution = solver.minimize(problem, start, 1e-4, tol=1e-4, max_iter=1000, memory=solver.new_memory(problem))
    assert problem.learn_curvature(solution.parameters[0], 1e-4, 0).reference != 1


def test_preconditioning_solves_the_newton_system():
    problem = InnerProduct().prepare(stack_of(gaussian()))
    point, learned = learned_at_some_point(problem)
    _, gradient, hessian = problem.objective_and_hessian(point, TEMPERATURE, slice(None))
    for n_vectors in (1, 2):  # one is solved in another way than several
        direction = problem.precondition(np.repeat(gradient, n_vectors, axis=0), TEMPERATURE, slice(0, 1), learned)
        table = direction[-1].reshape(3, -1)
        along = hessian[0] @ (table - table[-1])[:2].reshape(-1)
        expected = problem.by_differences(gradient)[0]
        assert np.abs(along - expected).max() <= 1e-4 * np.abs(gradient).max()


def test_only_leading_coordinates_are_learned_where_there_are_too_many(monkeypatch):
    monkeypatch.setattr(curvature, "FEWEST_PARAMETERS", 6)
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


@pytest.fixture
def few_are_drawn(monkeypatch):
    for name, value in (("FEWEST_ROWS", 40), ("ROWS_PER_COORDINATE", 0), ("CHEAP_WORK", 0)):
        monkeypatch.setattr(curvature, name, value)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_drawn_rows_give_no_negative_curvature_and_all_of_it_in_the_mean(n_classes, few_are_drawn, monkeypatch):
    table = make_gaussian_classes(400, 4, n_classes, separation=3.0, random_state=0)
    problem = InnerProduct().prepare(stack_of(table, n_classes=n_classes))
    draws = []
    for seed in range(60):
        uniform = np.random.RandomState(seed).uniform
        with monkeypatch.context() as patched:
            patched.setattr(curvature, "_luck", lambda size, uniform=uniform: uniform(size=size))
            draws.append(learned_at_some_point(problem)[1].hessian)
    monkeypatch.setattr(curvature, "FEWEST_ROWS", 400)
    exact = learned_at_some_point(problem)[1].hessian
    assert min(np.linalg.eigvalsh(own)[0] for own in draws) >= -1e-12
    error = np.std(draws, axis=0, ddof=1) / np.sqrt(len(draws))
    assert (error > 0).all() and np.mean(np.abs(np.mean(draws, axis=0) - exact) <= 2 * error) >= 0.8


def lots_of(*other_classes, n_drawn):
    """Draws for a first class whose posterior is one, so that a pair with it has the other's weights as shares."""
    posterior = np.column_stack([np.ones(len(other_classes[0])), *other_classes])
    return curvature._Lots(np.ones(len(posterior)), posterior, n_drawn)


def test_about_as_many_rows_are_drawn_as_asked_for_and_those_of_much_curvature_surely():
    share = np.random.RandomState(2).exponential(size=20_000) ** 4
    for n_drawn in (20, 500, 5000):
        drawn, stands_for = lots_of(share, n_drawn=n_drawn).draw(0)
        assert abs(len(drawn) - n_drawn) <= 0.1 * n_drawn + 4 * np.sqrt(n_drawn)
        np.testing.assert_array_equal(stands_for, np.maximum(share[drawn], stands_for.min()))
        assert set(np.flatnonzero(share > 1.0001 * stands_for.min())) <= set(drawn)
        assert abs(stands_for.sum() / share.sum() - 1) <= 4 / np.sqrt(n_drawn)


def test_a_pair_of_rare_classes_draws_enough_rows_too():
    generator = np.random.RandomState(0)
    often, rarely = generator.uniform(size=20_000), generator.uniform(0, 1e-9, size=20_000)
    drawn, stands_for = lots_of(often, rarely, n_drawn=1000).draw(1)
    assert abs(len(drawn) - 250) <= 80 and stands_for.max() < 1e-6


def test_rows_without_curvature_are_not_drawn():
    share = np.where(np.arange(20_000) % 100 == 0, 1.0, 0.0)
    drawn, stands_for = lots_of(share, n_drawn=1000).draw(0)
    np.testing.assert_array_equal(drawn, np.arange(0, 20_000, 100))
    np.testing.assert_array_equal(stands_for, 1.0)


def test_where_all_rows_are_taken_those_of_next_to_no_curvature_are_not():
    """Products of posteriors that are all but zero are slow: they have fewer digits than others."""
    share = np.where(np.arange(1000) % 4 == 0, 0.3, 1e-25)
    drawn, stands_for = lots_of(share, n_drawn=1000).draw(0)
    np.testing.assert_array_equal(drawn, np.arange(0, 1000, 4))
    np.testing.assert_array_equal(stands_for, 0.3)
    drawn, stands_for = lots_of(np.linspace(0.1, 1, 1000), n_drawn=1000).draw(0)
    assert drawn is None and len(stands_for) == 1000


@pytest.mark.parametrize("unit", [1e-60, 1e60])
def test_units_of_the_rows_change_no_curvature(unit, monkeypatch):
    """In single precision too, where squares of such numbers have no digits or are infinite."""
    monkeypatch.setattr(curvature, "DOUBLE_PARAMETERS", 0)
    hessians = []
    for factor in (1.0, unit):
        table = gaussian(n_samples=200, n_features=6)
        table.X[:] *= factor
        problem = InnerProduct(metric="euclidean").prepare(stack_of(table))
        point = problem.start(TEMPERATURE) + 0.1  # of the intercepts: posteriors that coefficients do not move
        point.reshape(-1, problem.n_scores, problem._width)[..., :-1] = 0
        learned = problem.learn_curvature(point[0], TEMPERATURE, 0)
        assert learned.hessian.dtype == np.float32
        hessians.append(learned.hessian)
    np.testing.assert_allclose(np.abs(hessians[1]), np.abs(hessians[0]), rtol=1e-4, atol=1e-5)


def test_quick_rows_give_the_same_curvature_as_a_copy_of_their_own(monkeypatch):
    monkeypatch.setattr(penalized_linear, "FEWEST_COPIED_VALUES", 1)
    table = gaussian(n_samples=300, n_features=7)
    plain, quick = (InnerProduct().prepare(stack_of(table, fold_masks(300))) for _ in range(2))
    quick.quicken()
    assert quick.has_quick_rows and not plain.has_quick_rows
    _, expected = learned_at_some_point(plain)
    _, found = learned_at_some_point(quick)
    np.testing.assert_allclose(found.hessian, expected.hessian, rtol=1e-4, atol=1e-6)


def test_quick_rows_of_equal_spread_give_the_curvature_of_the_coordinates_named(monkeypatch):
    """Whitened coordinates have no order: rounding would name any of them as leading."""
    monkeypatch.setattr(penalized_linear, "FEWEST_COPIED_VALUES", 1)
    monkeypatch.setattr(curvature, "FEWEST_PARAMETERS", 8)
    table = gaussian(n_samples=300, n_features=7)
    problem = InnerProduct(metric="covariance").prepare(stack_of(table, fold_masks(300)))
    problem.quicken()
    _, learned = learned_at_some_point(problem)
    named = learned.sample.leading[: learned.sample.n_leading]
    np.testing.assert_array_equal(learned.sample._points, problem._quick.X[:, named])


def test_a_sample_keeps_rare_classes_whole_and_stands_for_all_rows():
    table = rare_class()
    design = stack_of(table)
    rows, weight = curvature._stratified(design, 30)
    rarest = np.argmin(np.bincount(table.y))
    assert set(np.flatnonzero(table.y == rarest)) <= set(rows)
    assert len(rows) < len(table.y)
    shares = np.bincount(table.y[rows], weight)
    np.testing.assert_allclose(shares, np.bincount(table.y) / len(table.y), atol=1e-12)


def test_learning_saves_iterations_and_gives_the_same_minimum(monkeypatch):
    table = gaussian(n_samples=200, n_features=8, separation=4.0)
    problem = InnerProduct().prepare(stack_of(table, fold_masks(len(table.y))))
    settings = {"tol": 1e-4, "max_iter": 3000}

    def cold():
        solver = LBFGS()
        return solver.minimize(problem, problem.start(1e-6), 1e-6, memory=solver.new_memory(problem), **settings)

    learned = cold()
    monkeypatch.setattr(lbfgs, "LEAST_PATIENCE", np.inf)
    plain = cold()
    assert learned.converged.all() and plain.converged.all()
    assert learned.n_iter[0] < 0.7 * plain.n_iter[0]
    np.testing.assert_allclose(learned.value[0], plain.value[0], rtol=1e-6)
