"""The preconditioner learned from a sample of rows."""

import numpy as np
import pytest
from problems import fold_masks, gaussian, rare_class, stack_of

from annealed.objectives import InnerProduct, curvature
from annealed.solvers import LBFGS, lbfgs

TEMPERATURE = 0.05


def learned_at_some_point(problem, level=0):
    point = problem.start(TEMPERATURE) + 0.3 * np.random.RandomState(0).standard_normal(problem.start(1.0).shape)
    return point, problem.learn_curvature(point[0], TEMPERATURE, level)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_all_rows_give_the_exact_hessian_of_the_final_fit(fit_intercept):
    problem = InnerProduct(fit_intercept=fit_intercept).prepare(stack_of(gaussian()))
    point, learned = learned_at_some_point(problem)
    _, _, hessian = problem.objective_and_hessian(point, TEMPERATURE, slice(None))
    strength, _ = problem.penalty(TEMPERATURE, slice(None))
    spread = np.tile(learned.sample.spread, 3)
    difference = np.outer(spread, spread) * learned.hessian - hessian[0] + np.diag(strength)
    without_shift = np.kron(np.eye(3) - 1 / 3, np.eye(len(difference) // 3))  # of all classes, which moves nothing
    np.testing.assert_allclose(difference @ without_shift, 0, atol=1e-6 * np.abs(hessian).max())


def test_preconditioning_solves_the_newton_system():
    problem = InnerProduct().prepare(stack_of(gaussian()))
    point, learned = learned_at_some_point(problem)
    _, gradient, hessian = problem.objective_and_hessian(point, TEMPERATURE, slice(None))
    direction = problem.precondition(gradient, TEMPERATURE, slice(None), learned)
    residual = hessian[0] @ direction[0] - gradient[0]
    assert np.abs(residual).max() <= 1e-4 * np.abs(gradient).max()


def test_only_leading_coordinates_are_learned_where_there_are_too_many(monkeypatch):
    monkeypatch.setattr(curvature, "FEWEST_PARAMETERS", 9)
    problem = InnerProduct().prepare(stack_of(gaussian()))
    point, learned = learned_at_some_point(problem)
    assert learned.hessian.shape == (9, 9)
    assert learned.sample.leading.tolist() == [2, 3, 4]
    vectors = np.random.RandomState(1).standard_normal(point.shape)
    plain = problem.precondition(vectors, TEMPERATURE, slice(None)).reshape(-1, 3, 5)
    better = problem.precondition(vectors, TEMPERATURE, slice(None), learned).reshape(-1, 3, 5)
    np.testing.assert_array_equal(better[..., :2], plain[..., :2])
    assert np.abs(better[..., 2:] - plain[..., 2:]).min() > 0
    _, larger = learned_at_some_point(problem, level=1)
    assert larger.hessian.shape == (15, 15)


def test_a_sample_keeps_rare_classes_whole_and_stands_for_all_rows(monkeypatch):
    monkeypatch.setattr(curvature, "SMALLEST_SAMPLE", 30)
    monkeypatch.setattr(curvature, "SAMPLE_PER_PARAMETER", 0)
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
