"""Subspace minimization in combinations of samples, on small tables, with a low limit of what counts as wide."""

from dataclasses import replace

import numpy as np
import oracles
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from small_problems import (
    Table,
    dense,
    fold_masks,
    gaussian,
    make_everything_wide,
    separable,
    solve,
    solve_final,
    solve_fits,
    stack_of,
    text,
    two_classes,
    uneven_weights,
    wide,
    wide_text,
)

from annealed import AnnealedClassifier
from annealed.problems import HeldOut, InnerProduct, held_out_logits
from annealed.solvers import Subspace, make_solver, plan, subspace

TOL = 5e-6
TABLES = [gaussian, two_classes, separable, wide, text, wide_text]


@pytest.fixture(autouse=True)
def _everything_is_wide(monkeypatch):
    make_everything_wide(monkeypatch)


def adapted(table, weight=None, tol=TOL, **settings):
    primal = InnerProduct(**settings).prepare(stack_of(table, weight))
    assert isinstance(make_solver("subspace", primal), Subspace)
    return primal, Subspace().adapt(primal, tol)


def minimize(problem, temperature, tol=TOL, max_iter=500, memory=None, start=None):
    start = problem.start(temperature) if start is None else start
    return solve_fits(Subspace(), problem, start, temperature, tol=tol, max_iter=max_iter, memory=memory)


def used_columns(table):
    return dense(table.X)[:, dense(table.X).std(axis=0) > 0]


# --- the minimum ------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.02])
@pytest.mark.parametrize("penalty_scaling", ["none", "standardize"])
@pytest.mark.parametrize("make", TABLES, ids=lambda make: make.__name__)
def test_final_fit_reaches_the_minimum(make, penalty_scaling, temperature):
    table = make()
    rows = used_columns(table)
    _, problem = adapted(
        replace(table, X=type(table.X)(rows) if sparse.issparse(table.X) else rows), penalty_scaling=penalty_scaling
    )
    solution = minimize(problem, temperature)
    assert solution.converged.all()
    matrix = oracles.penalty_matrix(rows, penalty_scaling)
    expected = oracles.multinomial_optimum(rows, table.y, temperature * matrix)
    np.testing.assert_allclose(solution.value[0], expected.value, rtol=0.01 * TOL)
    reported = problem.report(solution.parameters, temperature)
    logits, exact = (
        rows @ point[0].T + point[1] for point in [(reported["coef"][0], reported["intercept"][0]), expected[:2]]
    )
    np.testing.assert_allclose(logits, exact, atol=2e-3 * np.abs(exact).max())


@pytest.mark.parametrize("make", [wide, text, wide_text], ids=lambda make: make.__name__)
def test_reaches_a_fine_tolerance(make):
    """Like every other solver: inner minimizations must be as accurate as the tolerance requires."""
    _, problem = adapted(make(), tol=1e-7, penalty_scaling="none")
    assert minimize(problem, 0.1, tol=1e-7, max_iter=200).converged.all()


def test_reaches_a_cold_temperature_from_the_start():
    _, problem = adapted(wide(), tol=1e-4, penalty_scaling="none")
    assert minimize(problem, 1e-3, tol=1e-4).converged.all()


@pytest.mark.parametrize("temperature", [0.1, 0.02, 1e-3])
@pytest.mark.parametrize("make", [separable, two_classes], ids=lambda make: make.__name__)
def test_combinations_stay_bounded_if_the_samples_have_low_rank(make, temperature):
    """With two features, K maps all but two directions to zero: the component of a point along them must not grow."""
    table = make()
    _, problem = adapted(replace(table, X=used_columns(table)[:, :2]), penalty_scaling="none")
    assert len(problem.model.eigenvalues) <= 2
    solution = minimize(problem, temperature)
    assert solution.converged.all()
    alpha, image, _ = problem.split(solution.parameters)
    np.testing.assert_allclose(problem.image(alpha), image, atol=1e-8 * np.abs(image).max())


def test_minimum_without_intercept():
    table = wide()
    _, problem = adapted(table, penalty_scaling="none", fit_intercept=False)
    solution = minimize(problem, 0.1)
    expected = oracles.multinomial_optimum(table.X, table.y, 0.1 * np.eye(60), fit_intercept=False)
    np.testing.assert_allclose(solution.value[0], expected.value, rtol=0.01 * TOL)
    reported = problem.report(solution.parameters, 0.1)
    np.testing.assert_allclose(reported["coef"][0], expected.coef, atol=1e-4)
    np.testing.assert_allclose(reported["intercept"][0], 0, atol=1e-12)


@pytest.mark.parametrize("make", [gaussian, wide, text], ids=lambda make: make.__name__)
def test_folds_are_solved_to_the_tolerance(make):
    table = make()
    primal, problem = adapted(table, uneven_weights(len(table.y)) * fold_masks(len(table.y)), penalty_scaling="none")
    solution = minimize(problem, 0.1)
    expected = solve(primal, 0.1, tol=1e-8).value
    assert solution.converged.all()
    excess = solution.value / expected - 1
    assert excess.min() > -1e-9
    assert excess[0] <= 0.01 * TOL
    assert excess[1:].max() < 10 * TOL


@pytest.mark.parametrize("make", [gaussian, wide, text], ids=lambda make: make.__name__)
def test_float32_products_keep_the_guarantees_of_the_default_tolerance(make):
    """The certified relative suboptimality is a hundredth of the tolerance, the gradient within it."""
    table = make()
    primal, problem = adapted(table, tol=1e-4, penalty_scaling="none")
    solution = minimize(problem, 0.1, tol=1e-4)
    assert solution.converged.all()
    reached = problem.report(solution.parameters, 0.1)
    rows, eye = dense(table.X), np.eye(table.X.shape[1])
    lambda_, intercept = 0.1 * reached["coef"][0], 0.1 * reached["intercept"][0]
    energy = oracles.penalized_free_energy(rows, table.y, lambda_, intercept, 0.1, 1.0, eye)
    assert energy / 0.1 <= solve(primal, 0.1, tol=1e-9).value[0] * (1 + 1e-6)
    by_lambda, by_intercept = oracles.penalized_gradient(rows, table.y, lambda_, intercept, 0.1, 1.0, eye)
    assert np.abs(by_lambda - np.outer(by_intercept, rows.mean(axis=0))).max() <= 1e-4
    assert np.abs(by_intercept).max() <= 1e-4


@pytest.mark.parametrize("missing", [0, 2])
def test_a_class_missing_from_a_fold_stays_finite(missing):
    table = gaussian()
    weight = np.column_stack([np.ones(len(table.y)), table.y != missing]).astype(float)
    primal, problem = adapted(table, weight)
    solution = minimize(problem, 0.1)
    np.testing.assert_allclose(solution.value, solve(primal, 0.1).value, rtol=1e-3)
    reported = problem.report(solution.parameters, 0.1)
    assert np.isfinite(reported["coef"]).all()
    assert np.isfinite(reported["intercept"]).all()


@pytest.mark.parametrize("temperature", [5.0, 0.05])
@pytest.mark.parametrize("make", [gaussian, wide, text], ids=lambda make: make.__name__)
def test_free_energy_never_increases_within_a_solve(make, temperature):
    table = make()
    _, problem = adapted(table, fold_masks(len(table.y)))
    values = np.array([minimize(problem, temperature, tol=1e-12, max_iter=bound).value for bound in range(1, 15)])
    assert np.diff(values, axis=0).max() <= 1e-12 * values.max()


def test_iterations_are_bounded_and_counted():
    _, problem = adapted(wide(), fold_masks(24))
    solution = minimize(problem, 1e-3, tol=1e-12, max_iter=2)
    assert solution.n_iter.max() <= 2
    assert not solution.converged[0]


# --- stacks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.05])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("make", TABLES, ids=lambda make: make.__name__)
def test_one_stack_two_stacks_and_single_fits_agree(make, size, temperature, monkeypatch):
    table = make()
    _, problem = adapted(table, fold_masks(len(table.y), 4), penalty_scaling="none")
    stacked = minimize(problem, temperature)
    monkeypatch.setattr(subspace, "_stack_size", lambda problem: size)
    alone = minimize(problem, temperature)
    assert stacked.converged.all()
    assert alone.converged.all()
    np.testing.assert_allclose(stacked.value, alone.value, rtol=1e-3)
    np.testing.assert_allclose(stacked.value[0], alone.value[0], rtol=1e-6)  # certified


def test_each_fit_of_a_stack_has_its_own_iterations():
    table = text()
    weight = np.column_stack([np.ones(60), np.arange(60) % 12 == 0, np.arange(60) < 50]).astype(float)
    _, problem = adapted(table, weight, penalty_scaling="none")
    solution = minimize(problem, 0.01)
    assert solution.n_iter[1] < solution.n_iter[2]


def test_a_start_that_was_far_from_its_minimum_is_reported():
    _, problem = adapted(text())
    temperatures, settings = [0.1, 0.09], {"tol": TOL, "max_iter": 500}
    cold = np.repeat(problem.start(0.1)[:1], 2, axis=0)
    solved = solve_final(Subspace(), problem, cold, temperatures, **settings)
    assert solved.was_far.all()
    assert not solve_final(Subspace(), problem, solved.parameters, temperatures, **settings).was_far.any()


@pytest.mark.parametrize("make", TABLES, ids=lambda make: make.__name__)
def test_the_final_fit_at_several_temperatures_equals_each_solved_alone(make):
    """One start is solved, the others are far away: each stops separately."""
    _, problem = adapted(make(), penalty_scaling="none")
    temperatures, settings = [1.0, 0.3, 0.02], {"tol": TOL, "max_iter": 500}
    starts = np.repeat(problem.start(1.0)[:1], 3, axis=0)
    starts[1] = minimize(problem, 0.3, tol=0.1 * TOL).parameters[0]
    together = solve_final(Subspace(), problem, starts, temperatures, **settings)
    assert together.converged.all()
    assert together.is_certified.all()
    assert together.n_iter[1] == 0 < together.n_iter[0] < together.n_iter[2]
    assert (together.gradient_norm <= TOL).all()
    for number, temperature in enumerate(temperatures):
        alone = solve_final(Subspace(), problem, starts[[number]], [temperature], **settings)
        np.testing.assert_allclose(together.value[number], alone.value[0], rtol=0.01 * TOL)


def test_too_few_iterations_at_one_temperature_leave_the_others_solved():
    _, problem = adapted(text())
    starts = np.repeat(minimize(problem, 0.3, tol=0.1 * TOL).parameters[:1], 2, axis=0)
    solution = solve_final(Subspace(), problem, starts, [0.3, 0.02], tol=TOL, max_iter=2)
    assert solution.converged.tolist() == [True, False]
    assert solution.n_iter.tolist() == [0, 2]
    np.testing.assert_allclose(solution.parameters[0], starts[0], rtol=1e-5)


# --- along a path -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [gaussian, wide, text], ids=lambda make: make.__name__)
def test_memory_carried_over_temperatures_gives_the_answer_of_a_cold_start(make):
    _, problem = adapted(make())
    memory = Subspace().new_memory(problem)
    point = problem.start(1.0)
    for temperature in np.geomspace(3, 0.01, 6):
        carried = minimize(problem, temperature, memory=memory, start=point)
        point = carried.parameters
        cold = minimize(problem, temperature)
        assert carried.converged.all()
        np.testing.assert_allclose(carried.value, cold.value, rtol=0.01 * TOL)


def test_summary_and_held_out_logits_match_the_definitions():
    table = text()
    weight = fold_masks(len(table.y))
    _, problem = adapted(table, weight)
    parameters = minimize(problem, 0.1).parameters
    held_out = HeldOut(np.array([1, 1, 4, 59]), np.array([0, 2, 1, 2]))
    (training_summary,) = problem.summarize([(parameters[0], 0.1, 2.0)])
    reported = problem.report(parameters, 0.1)
    rows = dense(table.X)
    fit_weight = weight[:, 0] / weight[:, 0].sum()
    logits = rows @ reported["coef"][0].T + reported["intercept"][0]
    np.testing.assert_allclose(
        training_summary.calibrated_loss, oracles.free_energy(2 * logits, table.y, 1.0, fit_weight), rtol=1e-7
    )
    np.testing.assert_allclose(training_summary.entropy, oracles.mean_entropy(logits, 1.0, fit_weight), rtol=1e-7)
    logits = held_out_logits(problem, held_out, [parameters], [0.1])[0]
    for row, fit, picked in zip(held_out.rows, held_out.fits, logits, strict=True):
        sample_logits = rows[row] @ reported["coef"][fit].T + reported["intercept"][fit]
        np.testing.assert_allclose(picked - picked.mean(), sample_logits - sample_logits.mean(), atol=1e-7)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csr_array], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_gradient_vanishes_on_every_backend_through_the_classifier(kind, precision):
    table = text()
    X = kind(table.X.toarray().astype(precision))
    model = AnnealedClassifier(InnerProduct(penalty_scaling="none"), schedule=[1.0, 0.1, 0.01], solver="subspace", cv=3)
    path = model.fit(X, table.y).path_
    assert path.converged.all()
    rows, eye = table.X.toarray(), np.eye(25)
    for index, temperature in enumerate(path.temperatures):
        lambda_, intercept = temperature * path.coef[index], temperature * path.intercept[index]
        gradient = oracles.penalized_gradient(rows, table.y, lambda_, intercept, temperature, 1.0, eye)
        assert oracles.gradient_norm(*gradient, rows.mean(axis=0), eye) <= 1e-4 * np.sqrt(78)


@pytest.mark.parametrize("make", TABLES, ids=lambda make: make.__name__)
def test_gaps_at_the_end_and_on_the_way_give_the_same_path(make, monkeypatch):
    """Those of small problems are solved at the end of the path, in stacks."""
    table, ladder, paths = make(), np.geomspace(3, 1e-3, 14), []
    for size in (20, 1):
        monkeypatch.setattr(subspace, "_stack_size", lambda problem, size=size: size)
        model = AnnealedClassifier(
            InnerProduct(penalty_scaling="none"), schedule=ladder, solver="subspace", cv=3, tol=TOL
        )
        paths.append(model.fit(table.X, table.y).path_)
    solved_last, expected = paths
    assert solved_last.converged.all()
    np.testing.assert_allclose(solved_last.coef, expected.coef, atol=1e-3 * np.abs(expected.coef).max())
    np.testing.assert_allclose(solved_last.validation_score, expected.validation_score, atol=0.01)


def test_equal_seeds_give_equal_bits():
    """Fits run in separate threads: their order has no effect."""
    table = text()
    models = [
        AnnealedClassifier(InnerProduct(), schedule=[1.0, 0.1], solver="subspace", random_state=0) for _ in range(3)
    ]
    first, *repeated = (model.fit(table.X, table.y).path_ for model in models)
    assert all(first == path for path in repeated)


def test_choice_of_temperature_is_that_of_exact_folds():
    table = text(n_samples=150)
    ladder = np.geomspace(3, 1e-3, 14)
    chosen = [
        AnnealedClassifier(InnerProduct(penalty_scaling="none"), schedule=ladder, solver=solver, random_state=0)
        .fit(table.X, table.y)
        .path_
        for solver in ("subspace", "lbfgs")
    ]
    np.testing.assert_allclose(chosen[0].validation_score, chosen[1].validation_score, atol=0.01)
    assert abs(chosen[0].best_index - chosen[1].best_index) <= 1


@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e6])
def test_units_of_the_features_affect_neither_result_nor_convergence(unit):
    """A gradient scales with the features; rounding limits how small it can become."""
    table = text()
    model = AnnealedClassifier(
        InnerProduct(penalty_scaling="none"), schedule=unit**2 * np.array([3.0, 0.3, 0.03]), solver="subspace", cv=3
    )
    path = model.fit(table.X * unit, table.y).path_
    assert path.converged.all()
    usual = AnnealedClassifier(
        InnerProduct(penalty_scaling="none"), schedule=[3.0, 0.3, 0.03], solver="lbfgs", cv=3, tol=1e-7
    )
    expected = usual.fit(table.X, table.y).path_
    np.testing.assert_allclose(path.coef * unit, expected.coef, atol=2e-3 * np.abs(expected.coef).max())
    np.testing.assert_allclose(path.validation_score, expected.validation_score, atol=1e-3)


def test_repeated_samples_with_random_labels():
    """K has a fifth of the rank that the preconditioner assumes: small steps decide whether the certificate holds."""
    generator = np.random.default_rng(9)
    X, y = np.repeat(generator.normal(size=(86, 1290)), 5, axis=0), generator.integers(2, size=430)
    path = AnnealedClassifier(InnerProduct(penalty_scaling="none"), solver="subspace").fit(X, y).path_
    assert path.converged.all()


def test_samples_of_very_different_lengths_are_solved_in_few_steps():
    table = wide_text()
    length = np.exp(np.random.default_rng(0).standard_normal(len(table.y)))
    _, problem = adapted(replace(table, X=sparse.csr_array(table.X.multiply(length[:, None]))), penalty_scaling="none")
    for temperature in (1.0, 0.1, 0.01):
        solution = minimize(problem, temperature)
        assert solution.converged.all()
        assert solution.n_iter.max() <= 40


# --- Gram matrices whose spectrum decays slowly --------------------------------------------------------


def smooth_features(n_classes, n_rows=240, n_columns=700):
    """Waves of a few variables: the eigenvalues of K decay slowly, over many orders of magnitude."""
    generator = np.random.default_rng(3)
    points = generator.normal(size=(n_rows, 4))
    waves = np.cos(points @ generator.normal(size=(4, n_columns)) + generator.uniform(0, 6, n_columns))
    bends = points**2 @ generator.normal(size=(4, n_classes)) + generator.gumbel(size=(n_rows, n_classes))
    return Table("smooth_features", waves, np.argmax(bends, axis=1))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_path_that_takes_too_many_steps_is_solved_in_columns(n_classes, monkeypatch):
    table = smooth_features(n_classes, n_rows=120, n_columns=150)
    settings = dict(schedule=[1.0, 0.1], random_state=0)
    expected = AnnealedClassifier(InnerProduct(), solver="lbfgs", **settings).fit(table.X, table.y).path_
    for module in (subspace, plan):
        monkeypatch.setattr(module, "MOST_STEPS", 3)
    with pytest.warns(ConvergenceWarning):
        given = AnnealedClassifier(InnerProduct(), solver="subspace", **settings).fit(table.X, table.y).path_
    assert given.plan.startswith("Subspace")
    assert given.n_iter.max() <= 6  # twice, with few eigenvectors and with more
    assert not given.converged.all()
    monkeypatch.setattr(plan, "_by_shape", lambda problem: "subspace")
    path = AnnealedClassifier(InnerProduct(), **settings).fit(table.X, table.y).path_
    assert path.plan.startswith("L-BFGS")
    assert path.converged.all()
    np.testing.assert_allclose(path.free_energy, expected.free_energy, rtol=1e-6)


@pytest.mark.parametrize(("n_classes", "expected"), [(2, 20), (4, 10)])
def test_more_classes_take_fewer_eigenvectors(n_classes, expected):
    _, problem = adapted(smooth_features(n_classes))
    assert problem.model.vectors.shape == (240, expected + 1)
