"""The preconditioner of fits in combinations of rows, compared with the exact systems."""

from dataclasses import replace

import numpy as np
import pytest
from small_problems import make_everything_wide, stack_of, text, uneven_weights, wide, wide_text

from annealed.problems import InnerProduct, RowPreconditioner
from annealed.solvers import Subspace

HUGE = 1e7  # eigenvalue in place of the infinite one of the intercepts


def wide_of_two():
    table = wide()
    return replace(table, y=np.minimum(table.y, 1))


TABLES = [wide, wide_of_two, text, wide_text]


def adapted(make, **settings):
    table = make()
    primal = InnerProduct(penalty_scaling="none", **settings).prepare(stack_of(table, uneven_weights(len(table.y))))
    return Subspace().adapt(primal, tol=1e-6)


@pytest.fixture(autouse=True)
def _everything_is_wide(monkeypatch):
    make_everything_wide(monkeypatch)


def modelled(problem):
    """The preconditioner's approximation of K."""
    eigenvalues = problem.model.eigenvalues
    if problem.fit_intercept:
        eigenvalues = np.append(eigenvalues, HUGE * eigenvalues.max())
    return (
        problem.model.remainder * np.eye(problem.design.n_rows)
        + (problem.model.vectors * eigenvalues) @ problem.model.vectors.T
    )


@pytest.mark.parametrize("kappa", [1.0, 1e-3])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("make", TABLES, ids=lambda make: make.__name__)
def test_preconditioner_solves_the_newton_system_of_its_model(make, fit_intercept, kappa):
    problem = adapted(make, fit_intercept=fit_intercept)
    generator = np.random.default_rng(0)
    shape = problem.n_fits, problem.design.n_rows, problem.contrasts.n_scores
    posterior = generator.dirichlet(np.ones(problem.n_classes), shape[:2])
    weight = problem.design.weight.T
    sought = generator.standard_normal(shape)
    if fit_intercept:  # what the intercepts would take from it
        sought -= sought.mean(axis=1, keepdims=True)
    image = modelled(problem) @ sought
    system = kappa * sought + weight[..., None] * problem.contrasts.curved(posterior, image)
    found = RowPreconditioner(problem, posterior, weight, np.full(len(weight), kappa)).apply(system)
    np.testing.assert_allclose(found, sought, atol=1e-5 * np.abs(sought).max())


@pytest.mark.parametrize("make", [wide, wide_of_two], ids=lambda make: make.__name__)
def test_the_gram_matrix_of_few_dense_rows_is_stored(make, monkeypatch):
    formed = adapted(make)
    monkeypatch.setattr("annealed.rows.row_products.MOST_FORMED_ROWS", 0)
    unformed = adapted(make)
    vectors = np.random.default_rng(0).normal(size=(2, 24, formed.contrasts.n_scores))
    np.testing.assert_allclose(formed.image(vectors), unformed.image(vectors), rtol=1e-10)
    np.testing.assert_allclose(formed.model.eigenvalues, unformed.model.eigenvalues, rtol=1e-6)
    assert formed.products._formed is not None and unformed.products._formed is None
