"""What rows tell of what the penalty holds back: a score test."""

import numpy as np
import pytest
from problems import Table, solve, stack_of

from annealed.objectives import InnerProduct
from annealed.solvers import LBFGS, Newton

N_ROWS = 400


def noise(n_columns=6, n_classes=3, seed=0):
    generator = np.random.default_rng(seed)
    return Table("noise", generator.normal(size=(N_ROWS, n_columns)), generator.integers(n_classes, size=N_ROWS))


def evidence(table, temperature, **settings):
    problem = InnerProduct(**settings).prepare(stack_of(table))
    return problem.evidence_held_back(solve(problem, temperature).parameters[0], temperature)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("penalty_scaling", ["none", "standardize", "whiten"])
def test_labels_by_chance_are_evidence_of_nothing(penalty_scaling, n_classes):
    """Hot, all is held back: a chi square of as many squares as classes have contrasts, less where columns are few."""
    seen = [evidence(noise(6, n_classes, seed), 20.0, penalty_scaling=penalty_scaling) for seed in range(100)]
    errors = np.array([own.errors for own in seen])
    assert abs(errors.mean()) < 0.4
    assert 0.7 < errors.std() < 1.4
    assert np.mean(errors > 3) <= 0.03


def test_the_nats_are_those_of_a_small_step_without_penalty():
    """What the likelihood gains by one Newton step from the prior, less what chance gives."""
    table = noise(4, 2)
    shift = 0.3 * (table.y - 0.5)
    table.X[:, 0] += shift
    problem = InnerProduct(penalty_scaling="whiten").prepare(stack_of(table))
    hot, cold = (solve(problem, temperature) for temperature in (100.0, 1e-6))
    gained = hot.value[0] - cold.value[0]
    found = problem.evidence_held_back(hot.parameters[0], 100.0)
    np.testing.assert_allclose(found.nats, gained - 4 / (2 * N_ROWS), rtol=0.15)


def test_what_is_held_back_is_found_among_what_is_not():
    table = noise(6, 2)
    table.X[:, 3] = 1e-3 * (table.X[:, 3] + 2.0 * table.y)
    assert evidence(table, 1e-3, penalty_scaling="none").errors > 20
    assert evidence(table, 1e-9, penalty_scaling="none").errors < 1  # nothing is held back there


def test_weights_count_as_rows():
    table = noise(6, 2)
    plain = evidence(table, 20.0)
    problem = InnerProduct().prepare(stack_of(table, np.full((N_ROWS, 1), 3.0)))
    heavier = problem.evidence_held_back(solve(problem, 20.0).parameters[0], 20.0)
    np.testing.assert_allclose(heavier, plain, rtol=1e-6)  # weights are told apart by how uneven they are alone


def test_of_as_many_columns_as_rows_nothing_is_said():
    assert np.isnan(evidence(noise(150), 20.0)).all()


@pytest.mark.parametrize("solver", [Newton(), LBFGS()], ids=repr)
def test_it_goes_by_the_posterior_where_it_is_asked(solver):
    """Looks with Hessians do not tell the variance of a class, which is that of the hot end then."""
    table = noise(6, 2)
    table.X[:, 0] += 20 * table.y  # nearly separable: the posterior is hard where the others are still held back
    temperature = 1e-3
    problem = InnerProduct(penalty_scaling="none").prepare(stack_of(table))
    parameters = solve(problem, temperature, solver).parameters
    found = problem.evidence_held_back(parameters[0], temperature)
    problem.loss(parameters[:1], temperature, slice(0, 1))
    known = problem.evidence_held_back(parameters[0], temperature, problem.class_variance)
    np.testing.assert_allclose(found, known, rtol=1e-6)
