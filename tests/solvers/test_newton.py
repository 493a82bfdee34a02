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
