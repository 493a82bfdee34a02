"""Minimization over a few directions whose scores are known."""

import numpy as np
import pytest
from small_problems import fold_masks, make_everything_wide, solve_fits, stack_of, two_classes

from annealed.problems import InnerProduct
from annealed.solvers import Subspace, subspace
from annealed.solvers.span import _falls


def test_a_decrease_must_be_sufficient_and_no_larger_than_predicted():
    predicted = np.array([0.1, 0.1, 0.1, 0.0])
    decreases = _falls(np.ones(4), np.array([0.95, 1.0, 0.5, 1.0]), predicted)
    assert decreases.tolist() == [True, False, False, True]


@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_the_value_is_that_of_the_point_if_directions_are_nearly_in_the_null_space(monkeypatch, temperature):
    """Ninety samples of three features: K maps most combinations to zero, and the last steps are parallel."""
    make_everything_wide(monkeypatch)
    monkeypatch.setattr(
        subspace, "_stack_size", lambda problem: 3
    )  # two stacks: rounding makes their small systems indefinite
    table = two_classes()
    solver = Subspace()
    problem = solver.adapt(
        InnerProduct(penalty_scaling="none").prepare(stack_of(table, fold_masks(len(table.y), 4))), 5e-6
    )
    solution = solve_fits(solver, problem, problem.start(temperature), temperature, tol=5e-6, max_iter=500)
    alpha, _, intercept = problem.split(solution.parameters)
    image = problem.image(alpha)
    losses, _ = problem.contrasts.loss_and_posterior(image + intercept[:, None], problem.design.labels)
    penalty = 0.5 * problem.l2_strength * temperature * np.einsum("fns,fns->f", alpha, image)
    loss = np.einsum("nf,fn->f", problem.design.weight, losses)
    np.testing.assert_allclose(solution.value, loss + penalty, rtol=1e-7)
