"""Approximate leave-one-out compared with fits that leave the row out."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from small_problems import fold_masks, gaussian, rare_class, solve, solve_fits, stack_of, text, two_classes, wide

from annealed.problems import Distance, InnerProduct, gibbs, leave_one_out
from annealed.solvers import Subspace, make_solver

TABLES = [gaussian, two_classes, rare_class]


def truly_left_out(table, rows, temperature, **settings):
    """Logits of some rows, each from a fit of all the others."""
    weight = np.ones((len(table.y), 1 + len(rows)))
    weight[rows, 1 + np.arange(len(rows))] = 0
    problem = InnerProduct(**settings).prepare(stack_of(table, weight))
    reported = problem.report(solve(problem, temperature, tol=1e-9).parameters, temperature)
    X = table.X.toarray() if hasattr(table.X, "toarray") else table.X
    return np.stack(
        [X[row] @ reported["coef"][fit].T + reported["intercept"][fit] for fit, row in enumerate(rows, start=1)]
    )


def left_out(table, temperature, **settings):
    problem = InnerProduct(**settings).prepare(stack_of(table))
    return leave_one_out.leave_one_out(problem, solve(problem, temperature, tol=1e-9).parameters, temperature)


def centred(logits):
    return logits - logits.mean(axis=1, keepdims=True)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("temperature", [1.0, 0.05])
@pytest.mark.parametrize("make", TABLES, ids=lambda make: make.__name__)
def test_is_close_to_fits_without_the_row(make, temperature, fit_intercept):
    table, rows = make(), np.arange(0, 60, 3)
    exact = centred(truly_left_out(table, rows, temperature, fit_intercept=fit_intercept))
    logits, _ = left_out(table, temperature, fit_intercept=fit_intercept)
    with_row = InnerProduct(fit_intercept=fit_intercept).prepare(stack_of(table))
    reported = with_row.report(solve(with_row, temperature, tol=1e-9).parameters, temperature)
    seen = centred(table.X[rows] @ reported["coef"][0].T + reported["intercept"][0])
    missed, moved = np.abs(centred(logits[rows]) - exact).mean(), np.abs(seen - exact).mean()
    assert missed < 0.15 * moved


def test_leverages_sum_to_the_number_of_parameters():
    """At a low temperature with a negligible penalty: two free classes, each with four columns and an intercept."""
    _, leverage = left_out(gaussian(), 1e-7)
    np.testing.assert_allclose(leverage.sum(), 2 * 5, rtol=1e-3)
    assert leverage.min() > 0


def test_at_a_high_temperature_only_the_intercepts_move():
    _, leverage = left_out(two_classes(), 1e6)
    np.testing.assert_allclose(leverage.sum(), 1, rtol=1e-3)


@pytest.mark.parametrize("make", [gaussian, two_classes], ids=lambda make: make.__name__)
def test_probes_estimate_the_blocks(make, monkeypatch):
    table = make()
    exact, leverage = left_out(table, 0.05)
    monkeypatch.setattr("annealed.problems.leave_one_out.MOST_EXACT_WORK", 0)
    monkeypatch.setattr(leave_one_out, "N_PROBES", 4096)
    probed, estimated = left_out(table, 0.05)
    np.testing.assert_allclose(estimated, leverage, rtol=0.2)
    losses = [gibbs.negative_log_likelihood(logits, table.y).mean() for logits in (exact, probed)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=5e-3)


@pytest.mark.parametrize("most_exact_work", [0, np.inf], ids=["probed", "exact"])
def test_sparse_rows_stay_sparse(most_exact_work, monkeypatch):
    monkeypatch.setattr("annealed.problems.leave_one_out.MOST_EXACT_WORK", most_exact_work)
    table = text(n_samples=100, n_words=100)
    X, y = sparse.vstack([table.X] * 300, format="csr"), np.tile(table.y, 300)
    problem = InnerProduct().prepare(stack_of(replace(table, X=X, y=y)))
    parameters = problem.start(1.0)
    leave_one_out.leave_one_out(problem, parameters, 1.0)  # stores the rows from which Hessians are sampled
    tracemalloc.start()
    leave_one_out.leave_one_out(problem, parameters, 1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.shape[0] * X.shape[1] * 8


@pytest.fixture
def by_rows(monkeypatch):
    """Solves a table in combinations of its rows, however few; returns the problem and its solution."""
    for module in ("rows.coordinates", "problems.linear", "problems.penalized_linear", "solvers.plan"):
        monkeypatch.setattr(f"annealed.{module}.WIDEST_EIGENPROBLEM", 1)
    monkeypatch.setattr("annealed.rows.coordinates.WIDEST_ROTATION", 1)

    def solved(table, temperature, **settings):
        primal, solver = InnerProduct(penalty_scaling="none", **settings).prepare(stack_of(table)), Subspace()
        assert isinstance(make_solver("subspace", primal), Subspace)
        problem = solver.adapt(primal, 1e-9)
        options = {"tol": 1e-9, "max_iter": 2000}
        return problem, solve_fits(solver, problem, problem.start(temperature), temperature, **options).parameters

    return solved


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("make", [text, wide, two_classes], ids=lambda make: make.__name__)
def test_row_combinations_agree_with_columns(make, fit_intercept, by_rows):
    table = make()
    problem, parameters = by_rows(table, 0.3, fit_intercept=fit_intercept)
    logits, leverage = leave_one_out.leave_one_out(problem, parameters, 0.3)
    settings = {"penalty_scaling": "none", "fit_intercept": fit_intercept}
    expected, expected_leverage = left_out(table, 0.3, **settings)
    np.testing.assert_allclose(centred(logits), centred(expected), atol=2e-4)
    np.testing.assert_allclose(leverage, expected_leverage, atol=1e-5)


def test_too_many_rows_for_their_gram_matrix_raise(by_rows, monkeypatch):
    monkeypatch.setattr("annealed.problems.leave_one_out.MOST_EXACT_WORK", 59**3)
    problem, parameters = by_rows(text(n_samples=60), 0.3)
    with pytest.raises(leave_one_out.NotTrusted, match="Leave-one-out of 60 samples"):
        leave_one_out.leave_one_out(problem, parameters, 0.3)


def test_a_family_without_leave_one_out_raises():
    problem = Distance().prepare(stack_of(gaussian(), fold_masks(120)), 0)
    with pytest.raises(ValueError, match='selection="loo" needs the inner-product.*selection="cv"'):
        leave_one_out.leave_one_out(problem, problem.start(1.0), 1.0)
