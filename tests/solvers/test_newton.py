"""Newton's own: how its minima move with the temperature."""

import numpy as np
import pytest
from problems import badly_scaled, fold_masks, gaussian, rare_class, separable, stack_of, two_classes

from annealed.objectives import InnerProduct
from annealed.solvers import Newton

CONVEX = [gaussian, badly_scaled, two_classes, rare_class, separable]


@pytest.mark.parametrize("temperature", [3.0, 0.05])
@pytest.mark.parametrize("make", CONVEX, ids=lambda make: make.__name__)
def test_newton_says_how_minima_move_with_the_temperature(make, temperature):
    table = make()
    problem = InnerProduct().prepare(stack_of(table, fold_masks(len(table.y))), random_state=0)
    change = 1e-3
    points = {}
    for shift in (-change, 0.0, change):
        own = temperature * np.exp(shift)
        points[shift] = Newton().minimize(problem, problem.start(own), own, tol=1e-10, max_iter=100)
    by_difference = (points[change].parameters - points[-change].parameters) / (2 * change)
    size = np.abs(by_difference).max()
    np.testing.assert_allclose(points[0.0].tangent, by_difference, rtol=1e-4, atol=1e-5 * size)


@pytest.mark.parametrize("make", CONVEX, ids=lambda make: make.__name__)
def test_newton_comes_back_from_far_away(make):
    """Whole steps fail there, by new factors and by old ones."""
    table = make()
    problem = InnerProduct().prepare(stack_of(table, fold_masks(len(table.y))), random_state=0)
    far = problem.start(0.01) + 30 * np.random.default_rng(0).normal(size=(problem.n_fits, problem.n_parameters))
    near, back = (
        Newton().minimize(problem, start, 0.01, tol=1e-8, max_iter=300) for start in (problem.start(0.01), far)
    )
    assert back.converged.all()
    np.testing.assert_allclose(back.value, near.value, rtol=1e-9)


def test_what_a_path_leaves_rough_is_settled_in_one_stack():
    table = gaussian()
    problem = InnerProduct().prepare(stack_of(table, fold_masks(len(table.y))), random_state=0)
    temperatures = np.array([1.0, 0.3, 0.1])
    options = {"tol": 1e-6, "max_iter": 100}
    solver, start = Newton(), problem.start(1.0)
    rough = np.stack([solver.approach(problem, start, own, **options).parameters[0] for own in temperatures])
    rough[1] *= 1.1  # no longer solved as it lies
    settled = solver.settle(problem, rough, temperatures, **options)
    assert settled.converged.all()
    assert settled.n_iter[1] > settled.n_iter[0] == 0
    for number, own in enumerate(temperatures):
        tight = solver.minimize(problem, start, own, tol=1e-12, max_iter=100)
        np.testing.assert_allclose(settled.value[number], tight.value[0], rtol=1e-8)
