"""Many columns: computations in principal axes give the same results as in the original columns."""

from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from annealed import PottsDA
from annealed.potts.cooling import Cooling, cool, start_state
from annealed.potts.growth import plus_plus_starts, within_class_scatter
from annealed.potts.refinement import calibrated, refinements
from annealed.potts.rows import LabelledRows, along_axes, principal_rows
from annealed.potts.state import DiagonalPlus, MetricPrior, dense, shrunk_inverse
from annealed.potts.sweep import Multilinear, Quadratic, free_energy

COOLING = Cooling(tuple(2 / 1.5**step for step in range(12)), coupling=8.0, shrinkage=0.3)


def made_rows(n_rows=40, n_features=12, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.integers(2, size=n_rows)
    X = generator.normal(size=(n_rows, n_features)) * generator.uniform(0.3, 2, n_features)
    X[:, 0] += 3 * labels + 6 * generator.integers(2, size=n_rows)
    return LabelledRows(X - X.mean(axis=0), labels, generator.uniform(0.5, 2.0, n_rows), 2)


def both_starts(rows):
    """The same start in the columns of the rows and in their principal axes."""
    principal = principal_rows(rows)
    prototypes, labels = rows.X[[0, 1, -2, -1]], np.eye(2)[[0, 0, 1, 1]]
    plain = start_state(rows, prototypes, labels, within_class_scatter(rows)[0], 0.3)
    turned = start_state(principal, prototypes @ principal.axes, labels, within_class_scatter(principal)[0], 0.3)
    return principal, plain, turned


@pytest.mark.parametrize("n_rows", [60, 10], ids=["tall", "wide"])
def test_the_second_moment_is_diagonal_along_the_axes(n_rows):
    rows = made_rows(n_rows)
    principal = principal_rows(rows)
    moment = (principal.X.T * principal.weight / principal.total) @ principal.X
    np.testing.assert_allclose(moment, np.diag(principal.variances), atol=1e-10)
    np.testing.assert_allclose(principal.X @ principal.X.T, rows.X @ rows.X.T, atol=1e-8)
    np.testing.assert_allclose(principal.axes.T @ principal.axes, np.eye(len(principal.variances)), atol=1e-8)
    assert len(principal.variances) == min(12, n_rows - 1)


def test_equal_rows_keep_one_axis():
    principal = principal_rows(LabelledRows(np.zeros((4, 3)), np.array([0, 0, 1, 1]), np.ones(4), 2))
    assert principal.X.shape == (4, 1)
    assert along_axes(LabelledRows(np.zeros((3, 3)), np.arange(3), np.ones(3), 3)).axes is not None


@pytest.mark.parametrize("relaxation", [Multilinear, Quadratic])
def test_sweeps_are_the_same(relaxation):
    rows = made_rows()
    principal, plain, turned = both_starts(rows)
    in_columns, in_axes = relaxation(rows, 8.0), relaxation(principal, 8.0)
    for temperature in (2.0, 1.0, 0.5):
        prior = MetricPrior(0.4, 0.7)
        expected, swept = in_columns.sweep(plain, temperature, prior), in_axes.sweep(turned, temperature, prior)
        np.testing.assert_allclose(swept.free_energy, expected.free_energy)
        plain, turned = expected.state, swept.state
        np.testing.assert_allclose(turned.labels, plain.labels, atol=1e-10)
        np.testing.assert_allclose(turned.prototypes, plain.prototypes @ principal.axes, atol=1e-8)
        np.testing.assert_allclose(dense(turned.metric), principal.axes.T @ plain.metric @ principal.axes, atol=1e-8)
    assert isinstance(turned.metric, DiagonalPlus)


def test_the_free_energy_of_any_memberships_is_the_same():
    rows = made_rows()
    principal, plain, turned = both_starts(rows)
    spins = np.random.default_rng(1).dirichlet(np.ones(4), size=40)
    prior = MetricPrior(0.4, 0.7)
    expected = free_energy(rows, plain, spins, 0.7, prior, 8.0)
    np.testing.assert_allclose(free_energy(principal, turned, spins, 0.7, prior, 8.0), expected)


def test_cooling_ends_at_the_same_state():
    rows = made_rows(80)
    principal, plain, turned = both_starts(rows)
    expected, cooled = cool(rows, plain, COOLING), cool(principal, turned, COOLING)
    np.testing.assert_allclose(cooled.state.prototypes, expected.state.prototypes @ principal.axes, atol=1e-6)
    energies = [[step.free_energy for step in result.steps] for result in (expected, cooled)]
    np.testing.assert_allclose(*energies)


def test_without_a_prior_the_floor_on_eigenvalues_is_kept():
    scatter = DiagonalPlus(np.array([1.0, 1e-12, 2.0]), np.array([[0.3, 0.0, 0.1]]), np.array([[0.5]]))
    both = (shrunk_inverse(matrix, 0.0, 1.0, 1e-3) for matrix in (scatter, scatter.dense()))
    for actual, expected in zip(*both, strict=True):
        np.testing.assert_allclose(actual, expected)


# --- refinement ---------------------------------------------------------------------------------------------


def test_refinement_in_a_complete_span_is_that_of_all_columns():
    """With as many prototypes as columns the span holds everything, so both minimize the same function."""
    rows = made_rows(60, 4)
    principal = principal_rows(rows)
    state = cool(rows, next(plus_plus_starts(rows, [3, 3], 0.3, np.random.RandomState(0))), COOLING).state
    turned = replace(state, prototypes=state.prototypes @ principal.axes, scatter=None)
    metric = DiagonalPlus(np.ones(4), np.eye(4), principal.axes.T @ state.metric @ principal.axes - np.eye(4))
    (expected,) = refinements(rows, calibrated(rows, state, 1.0), [0.02])
    (refined,) = refinements(principal, calibrated(principal, replace(turned, metric=metric), 1.0), [0.02])
    np.testing.assert_allclose(refined.log_proba(principal.X), expected.log_proba(rows.X), atol=2e-2)


def test_a_strong_penalty_keeps_the_annealed_solution_in_a_span():
    principal, _, turned = both_starts(made_rows())
    start = calibrated(principal, turned, 1.0)
    (refined,) = refinements(principal, start, [1e8])
    np.testing.assert_allclose(refined.prototypes, start.prototypes, atol=1e-5)
    np.testing.assert_allclose(dense(refined.metric), dense(start.metric), atol=1e-5)


# --- the estimator ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_rows", [50, 300], ids=["wide", "tall"])
@pytest.mark.parametrize("options", [{}, {"shrinkage": 0.0}, {"shrinkage": "ledoit_wolf"}, {"init": "mean"}], ids=repr)
def test_many_columns_are_fitted(n_rows, options):
    generator = np.random.default_rng(0)
    y = generator.integers(2, size=n_rows)
    X = generator.normal(size=(n_rows, 140)) + 1.0 * y[:, None] * (np.arange(140) < 40)
    model = PottsDA(n_prototypes=4, n_init=2, **options).fit(X, y)
    assert model.score(X, y) > 0.9
    assert np.isfinite(model.metric_).all() and model.metric_.shape == (140, 140)
    offsets = X[:, None] - model.prototypes_
    distances = np.einsum("nkd,de,nke->nk", offsets, model.metric_, offsets)
    np.testing.assert_array_equal(distances.argmin(axis=1), model.apply(X))


def test_a_subset_of_very_many_rows_is_fitted_in_its_own_axes(monkeypatch):
    monkeypatch.setattr("annealed.potts.search.FIT_ROWS", 200)
    generator = np.random.default_rng(0)
    y = generator.integers(2, size=400)
    X = generator.normal(size=(400, 130)) + y[:, None] * (np.arange(130) < 30)
    model = PottsDA(n_prototypes=2, n_init=1, shrinkage=0.3).fit(X, y)
    assert model.score(X, y) > 0.9 and model.path_.round[-1] == 1


def test_a_fit_does_not_depend_on_the_number_of_threads():
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(400, 700)), np.arange(400) % 3
    fits = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads):
            fits.append(PottsDA(3, n_init=1, shrinkage=0.3).fit(X + y[:, None], y).prototypes_)
    np.testing.assert_array_equal(*fits)
