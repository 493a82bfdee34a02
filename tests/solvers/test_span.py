"""The minimum over a few directions whose scores are known."""

import numpy as np
import pytest
from problems import fold_masks, make_everything_wide, stack_of, two_classes

from annealed.objectives import InnerProduct
from annealed.solvers import Subspace, subspace
from annealed.solvers.span import _falls


def test_a_fall_is_a_share_of_what_was_promised_and_no_more_than_that():
    promised = np.array([0.1, 0.1, 0.1, 0.0])
    falls = _falls(np.ones(4), np.array([0.95, 1.0, 0.5, 1.0]), promised)
    assert falls.tolist() == [True, False, False, True]


@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_the_value_is_that_of_the_point_where_rows_see_little_of_a_direction(monkeypatch, temperature):
    """Ninety rows of three columns: most combinations of rows are no direction at all, and the last steps agree."""
    make_everything_wide(monkeypatch)
    monkeypatch.setattr(subspace, "WHOLE_VALUES", 0)  # by halves: rounding alone leaves their small systems indefinite
    table = two_classes()
    solver = Subspace()
    problem = solver.adapt(
        InnerProduct(penalty_scaling="none").prepare(stack_of(table, fold_masks(len(table.y), 4))), 5e-6
    )
    options = {"tol": 5e-6, "max_iter": 500, "memory": solver.new_memory(problem)}
    solution = solver.minimize(problem, problem.start(temperature), temperature, **options)
    alpha, _, intercept = problem.split(solution.parameters)
    image = problem.image(alpha)
    losses, _ = problem.contrasts.loss_and_posterior(image + intercept[:, None], problem.design.labels)
    penalty = 0.5 * problem.l2_strength * temperature * np.einsum("fns,fns->f", alpha, image)
    loss = np.einsum("nf,fn->f", problem.design.weight, losses)
    np.testing.assert_allclose(solution.value, loss + penalty, rtol=1e-7)
