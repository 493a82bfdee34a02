"""Score test of the directions that the penalty suppresses."""

import numpy as np
import pytest
from small_problems import Table, solve, stack_of

from annealed.path.adaptive import evidence_held_back, excess
from annealed.problems import InnerProduct
from annealed.solvers import LBFGS, Newton

N_ROWS = 400


def noise(n_columns=6, n_classes=3, seed=0):
    generator = np.random.default_rng(seed)
    return Table("noise", generator.normal(size=(N_ROWS, n_columns)), generator.integers(n_classes, size=N_ROWS))


def evidence(table, temperature, **settings):
    problem = InnerProduct(**settings).prepare(stack_of(table))
    return evidence_held_back(problem, solve(problem, temperature).parameters[0], temperature)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("penalty_scaling", ["none", "standardize", "whiten"])
def test_random_labels_give_no_evidence(penalty_scaling, n_classes):
    """At a high temperature all directions are suppressed, and the statistic is a chi square."""
    seen = [evidence(noise(6, n_classes, seed), 20.0, penalty_scaling=penalty_scaling) for seed in range(100)]
    errors = np.array([evidence.errors for evidence in seen])
    assert abs(errors.mean()) < 0.4
    assert 0.7 < errors.std() < 1.4
    assert np.mean(errors > 3) <= 0.03


def test_nats_are_the_gain_of_an_unpenalized_newton_step():
    """Gain of the likelihood by one Newton step from the prior, minus its expectation under chance."""
    table = noise(4, 2)
    shift = 0.3 * (table.y - 0.5)
    table.X[:, 0] += shift
    problem = InnerProduct(penalty_scaling="whiten").prepare(stack_of(table))
    hot, cold = (solve(problem, temperature) for temperature in (100.0, 1e-6))
    gained = hot.value[0] - cold.value[0]
    found = evidence_held_back(problem, hot.parameters[0], 100.0)
    np.testing.assert_allclose(found.nats, gained - 4 / (2 * N_ROWS), rtol=0.15)


def test_suppressed_directions_are_found_among_others():
    table = noise(6, 2)
    table.X[:, 3] = 1e-3 * (table.X[:, 3] + 2.0 * table.y)
    assert evidence(table, 1e-3, penalty_scaling="none").errors > 20
    assert evidence(table, 1e-9, penalty_scaling="none").errors < 1  # nothing is suppressed there


def test_weights_count_as_rows():
    table = noise(6, 2)
    plain = evidence(table, 20.0)
    problem = InnerProduct().prepare(stack_of(table, np.full((N_ROWS, 1), 3.0)))
    heavier = evidence_held_back(problem, solve(problem, 20.0).parameters[0], 20.0)
    np.testing.assert_allclose(heavier, plain, rtol=1e-6)  # only relative weights matter


def test_as_many_columns_as_rows_give_nan():
    assert np.isnan(evidence(noise(150), 20.0)).all()


@pytest.mark.parametrize("solver", [Newton(), LBFGS()], ids=repr)
def test_the_variance_is_that_of_the_given_parameters(solver):
    """Evaluations with Hessians do not update the class variance, which then is that of the prior."""
    table = noise(6, 2)
    table.X[:, 0] += 20 * table.y  # nearly separable: certain posteriors while other directions are suppressed
    temperature = 1e-3
    problem = InnerProduct(penalty_scaling="none").prepare(stack_of(table))
    parameters = solve(problem, temperature, solver).parameters
    found = evidence_held_back(problem, parameters[0], temperature)
    problem.loss(parameters[:1], temperature, slice(0, 1))
    known = excess(problem, parameters[:1], temperature, problem.class_variance)
    np.testing.assert_allclose(found, known, rtol=1e-6)
