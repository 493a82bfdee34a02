"""Inner-product family: the penalized free energy (17), its gradient (18), and invariances of the minimum."""

from dataclasses import replace

import numpy as np
import oracles
import pytest
from scipy import sparse
from small_problems import (
    badly_scaled,
    dense,
    fold_masks,
    gaussian,
    near_start,
    rare_class,
    separable,
    solve,
    stack_of,
    standardized,
    text,
    two_classes,
    uneven_weights,
    wide,
    wide_text,
)

from annealed.problems import HeldOut, InnerProduct, held_out_logits
from annealed.rows import CsrDesign, DenseDesign

PENALTY_SCALINGS = ["none", "standardize", "half-whiten", "whiten"]
TEMPERATURES = [30.0, 1.0, 0.01]


def optimum(table, temperature, weight=None, **settings):
    """Reported coef and intercept (stacks) at the minimum."""
    problem = InnerProduct(**settings).prepare(stack_of(table, weight))
    reported = problem.report(solve(problem, temperature).parameters, temperature)
    return reported["coef"], reported["intercept"]


def logits(table, coef, intercept):
    return dense(table.X) @ coef.T + intercept


# --- value and gradient -----------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("penalty_scaling", PENALTY_SCALINGS)
def test_gradient_is_the_slope(penalty_scaling, fit_intercept, temperature):
    table = gaussian()
    family = InnerProduct(l2_strength=0.7, penalty_scaling=penalty_scaling, fit_intercept=fit_intercept)
    problem = family.prepare(stack_of(table, uneven_weights(len(table.y)) * fold_masks(len(table.y))))
    point = near_start(problem, temperature)
    _, gradient, loss_gradient = problem.objective(point, temperature)
    for part, expected in [(problem.objective, gradient), (problem.loss, loss_gradient)]:
        slopes = slope_of_stack(part, point, temperature)
        np.testing.assert_allclose(slopes, expected, rtol=1e-7, atol=1e-8)


def slope_of_stack(part, point, temperature):
    """Finite differences (n_fits, n_parameters); fits are independent, so one parameter of each moves at once."""
    return oracles.slope(lambda shift: part(point + shift, temperature)[0], np.zeros(point.shape[1]))


@pytest.mark.parametrize("make", [gaussian, badly_scaled, two_classes, rare_class, wide, text, wide_text])
def test_hessian_is_the_slope_of_the_gradient(make):
    table = make()
    problem = InnerProduct().prepare(stack_of(table, fold_masks(len(table.y))))
    point = near_start(problem, 0.3, size=0.1)
    value, gradient, hessian = problem.hessians.terms(point, 0.3, slice(None))
    expected_value, expected_gradient, _ = problem.objective(point, 0.3)
    np.testing.assert_allclose(value, expected_value, rtol=1e-12)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-12)
    differences = np.random.default_rng(1).normal(size=hessian.shape[1])
    direction = problem.hessians.from_differences(differences[None])[0]
    slopes = oracles.slope(lambda step: problem.objective(point + step * direction, 0.3)[1], np.array(0.0))
    expected = problem.hessians.by_differences(slopes[..., 0])
    np.testing.assert_allclose(hessian @ differences, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("penalty_scaling", PENALTY_SCALINGS)
def test_value_is_equation_17_for_every_fit(penalty_scaling, temperature):
    table = gaussian()
    weight = uneven_weights(len(table.y)) * fold_masks(len(table.y))
    problem = InnerProduct(l2_strength=0.7, penalty_scaling=penalty_scaling).prepare(stack_of(table, weight))
    solution = solve(problem, temperature)
    reported = problem.report(solution.parameters, temperature)
    matrix = oracles.penalty_matrix(table.X, penalty_scaling, weight[:, 0])
    for fit, shares in enumerate((weight / weight.sum(axis=0)).T):
        expected = oracles.penalized_free_energy(
            table.X,
            table.y,
            temperature * reported["coef"][fit],
            temperature * reported["intercept"][fit],
            temperature,
            0.7,
            matrix,
            shares,
        )
        np.testing.assert_allclose(temperature * solution.value[fit], expected, rtol=1e-10)


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("penalty_scaling", PENALTY_SCALINGS)
def test_gradient_is_equation_18_corrected(penalty_scaling, temperature):
    """Away from the minimum: dQ_new / dlambda in loops against finite differences of Q_new."""
    table = gaussian()
    generator = np.random.default_rng(2)
    lambda_, intercept = generator.normal(size=(3, 4)), generator.normal(size=3)
    matrix = oracles.penalty_matrix(table.X, penalty_scaling)

    def energy(shift):
        return oracles.penalized_free_energy(
            table.X, table.y, lambda_ + shift[:, :-1], intercept + shift[:, -1], temperature, 0.7, matrix
        )

    by_lambda, by_intercept = oracles.penalized_gradient(table.X, table.y, lambda_, intercept, temperature, 0.7, matrix)
    slopes = oracles.slope(energy, np.zeros((3, 5)), step=1e-4 * min(1, temperature)).reshape(3, 5)
    np.testing.assert_allclose(np.column_stack([by_lambda, by_intercept]), slopes, rtol=1e-5, atol=1e-7)


def test_a_pass_over_some_fits_equals_those_of_the_whole_stack():
    table = gaussian()
    problem = InnerProduct().prepare(stack_of(table, uneven_weights(len(table.y))))
    point = near_start(problem, 1.0)
    some = np.array([2, 0])
    for part, whole in zip(problem.objective(point[some], 1.0, some), problem.objective(point, 1.0), strict=True):
        np.testing.assert_allclose(part, whole[some], rtol=1e-12)


def test_the_sum_does_not_depend_on_the_blocks_of_rows(monkeypatch):
    table = gaussian()
    weight = fold_masks(len(table.y))
    held_out = HeldOut(np.array([0, 3, 6, 7, 50, 119]), np.array([1, 2, 0, 1, 2, 1]))

    problem = InnerProduct().prepare(stack_of(table, weight))
    parameters = near_start(problem, 0.5)

    def passes():
        (training_summary,) = problem.summarize([(parameters[0], 0.5, 2.0)])
        numbers = training_summary.calibrated_loss, training_summary.entropy
        logits = held_out_logits(problem, held_out, [parameters], [0.5])[0]
        return *problem.objective(parameters, 0.5), *numbers, logits.copy()

    whole = passes()
    monkeypatch.setattr(DenseDesign, "block_rows", lambda self, n_fits, copies_rows=True: 7)
    for part, expected in zip(passes(), whole, strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-10, atol=1e-13)


def test_summary_and_held_out_logits_agree_with_the_definitions():
    table = gaussian()
    weight = fold_masks(len(table.y))
    problem = InnerProduct().prepare(stack_of(table, weight))
    parameters = near_start(problem, 0.5)
    held_out = HeldOut(np.array([1, 1, 4]), np.array([0, 2, 1]))
    (training_summary,) = problem.summarize([(parameters[0], 0.5, 2.0)])
    reported = problem.report(parameters, 0.5)
    shares = weight[:, 0] / weight[:, 0].sum()
    scores = logits(table, reported["coef"][0], reported["intercept"][0])
    np.testing.assert_allclose(
        training_summary.calibrated_loss, oracles.free_energy(2 * scores, table.y, 1.0, shares), rtol=1e-10
    )
    np.testing.assert_allclose(training_summary.entropy, oracles.mean_entropy(scores, 1.0, shares), rtol=1e-10)
    found = held_out_logits(problem, held_out, [parameters], [0.5])[0]
    for row, fit, picked in zip(held_out.rows, held_out.fits, found, strict=True):
        expected = table.X[row] @ reported["coef"][fit].T + reported["intercept"][fit]
        np.testing.assert_allclose(picked - picked.mean(), expected - expected.mean(), atol=1e-10)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("make", [gaussian, two_classes], ids=lambda make: make.__name__)
def test_the_entropy_follows_from_value_and_gradient_anywhere(make, fit_intercept):
    table = make()
    weight = uneven_weights(len(table.y)) * fold_masks(len(table.y))
    problem = InnerProduct(fit_intercept=fit_intercept).prepare(stack_of(table, weight))
    parameters, temperatures = near_start(problem, 0.5), np.array([0.5, 2.0, 30.0])
    value, gradient, _ = problem.objective(parameters, temperatures)
    entropies = problem.entropy_at(parameters, value, gradient, temperatures, slice(None))
    reported = problem.report(parameters, 0.5)
    for fit_weight, coef, intercept, entropy in zip(
        weight.T, reported["coef"], reported["intercept"], entropies, strict=True
    ):
        expected = oracles.mean_entropy(logits(table, coef, intercept), 1.0, fit_weight / fit_weight.sum())
        np.testing.assert_allclose(entropy, expected, rtol=1e-10)


def test_a_known_entropy_is_used_and_an_unknown_one_computed():
    table = gaussian()
    problem = InnerProduct().prepare(stack_of(table))
    points = [(parameters, 0.5, 2.0) for parameters in (near_start(problem, 0.5)[0], problem.start(0.5)[0])]
    found = problem.summarize(points)
    assert problem.summarize(points, [0.25, 0.5]) == [replace(found[0], entropy=0.25), replace(found[1], entropy=0.5)]
    assert problem.summarize(points, [0.25, np.nan]) == found


def test_the_entropy_is_unknown_with_imaginary_rows():
    table = rare_class()
    without = np.stack([np.ones(len(table.y)), table.y != 2], axis=1)
    problem = InnerProduct().prepare(stack_of(table, without))
    parameters = near_start(problem, 0.5)
    value, gradient, _ = problem.objective(parameters, 0.5)
    entropies = problem.entropy_at(parameters, value, gradient, 0.5, slice(None))
    assert np.isnan(entropies).tolist() == [False, True]


# --- the minimum ------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("make", [gaussian, two_classes, rare_class], ids=lambda make: make.__name__)
def test_the_minimum_without_scaling_is_that_of_the_penalized_likelihood(make, temperature):
    table = make()
    coef, intercept = optimum(table, temperature, l2_strength=0.1, penalty_scaling="none")
    expected = oracles.multinomial_optimum(table.X, table.y, 0.1 * temperature * np.eye(table.X.shape[1]))
    np.testing.assert_allclose(coef[0], expected.coef, atol=1e-6)
    np.testing.assert_allclose(logits(table, coef[0], intercept[0]), logits(table, *expected[:2]), atol=1e-6)


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("penalty_scaling", PENALTY_SCALINGS)
def test_minimum_without_intercept(penalty_scaling, temperature):
    """Rows are not centred then: "whiten" whitens their second moment about the origin."""
    table = standardized(gaussian()) if penalty_scaling in ("half-whiten", "whiten") else gaussian()
    coef, intercept = optimum(table, temperature, l2_strength=0.1, penalty_scaling=penalty_scaling, fit_intercept=False)
    strength = 0.1 * temperature * oracles.penalty_matrix(table.X, penalty_scaling)
    expected = oracles.multinomial_optimum(table.X, table.y, strength, fit_intercept=False)
    np.testing.assert_allclose(coef[0], expected.coef, atol=1e-6)
    np.testing.assert_array_equal(intercept[0], 0)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_standardize_equals_no_scaling_of_standardized_columns(temperature):
    table = gaussian()
    coef, _ = optimum(table, temperature, l2_strength=0.1, penalty_scaling="standardize")
    strength = 0.1 * temperature * np.eye(4)
    expected = oracles.multinomial_optimum(table.X / table.X.std(axis=0), table.y, strength)
    np.testing.assert_allclose(coef[0] * table.X.std(axis=0), expected.coef, atol=1e-6)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_whiten_equals_no_scaling_of_whitened_columns(temperature):
    table = gaussian()
    _, covariance = oracles.moments(table.X)
    root = np.linalg.cholesky(covariance)
    whitened = np.linalg.solve(root, table.X.T).T
    coef, _ = optimum(table, temperature, l2_strength=0.1, penalty_scaling="whiten")
    expected = oracles.multinomial_optimum(whitened, table.y, 0.1 * temperature * np.eye(4))
    np.testing.assert_allclose(coef[0] @ root, expected.coef, atol=1e-6)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_whiten_is_invariant_to_affine_maps(temperature):
    table = gaussian()
    map_ = np.random.default_rng(3).normal(size=(4, 4)) * np.array([1e-4, 1, 1, 1e4])
    mapped = replace(table, X=table.X @ map_ + np.array([1.0, 2.0, 3.0, 4e4]))
    plain = logits(table, *(array[0] for array in optimum(table, temperature, penalty_scaling="whiten")))
    other = logits(mapped, *(array[0] for array in optimum(mapped, temperature, penalty_scaling="whiten")))
    np.testing.assert_allclose(other, plain, atol=1e-6)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_standardize_is_invariant_to_units(temperature):
    plain, scaled = gaussian(), badly_scaled()
    expected = logits(plain, *(array[0] for array in optimum(plain, temperature, penalty_scaling="standardize")))
    other = logits(scaled, *(array[0] for array in optimum(scaled, temperature, penalty_scaling="standardize")))
    np.testing.assert_allclose(other, expected, atol=1e-6)


def test_no_scaling_depends_on_units():
    plain, scaled = gaussian(), replace(gaussian(), X=10 * gaussian().X)
    expected = logits(plain, *(array[0] for array in optimum(plain, 1.0, penalty_scaling="none")))
    other = logits(scaled, *(array[0] for array in optimum(scaled, 1.0, penalty_scaling="none")))
    assert np.abs(other - expected).max() > 0.1


@pytest.mark.parametrize(("make", "penalty_scaling"), [(gaussian, "standardize"), (text, "none")])
def test_auto_standardizes_dense_rows_and_does_not_scale_sparse_rows(make, penalty_scaling):
    for automatic, named in zip(
        optimum(make(), 0.1), optimum(make(), 0.1, penalty_scaling=penalty_scaling), strict=True
    ):
        np.testing.assert_array_equal(automatic, named)


@pytest.mark.parametrize("factor", [1e-3, 7.0])
def test_minimum_depends_on_the_product_of_strength_and_temperature(factor):
    table = gaussian()
    plain = optimum(table, 0.2, l2_strength=0.5)
    other = optimum(table, 0.2 / factor, l2_strength=0.5 * factor)
    for array, expected in zip(other, plain, strict=True):
        np.testing.assert_allclose(array, expected, atol=1e-7)


@pytest.mark.parametrize("penalty_scaling", PENALTY_SCALINGS)
def test_separable_rows_have_a_finite_minimum(penalty_scaling):
    table = separable()
    matrix = oracles.penalty_matrix(table.X, penalty_scaling)
    expected = oracles.multinomial_optimum(table.X, table.y, 1e-4 * matrix)
    coef, intercept = optimum(table, 1e-4, penalty_scaling=penalty_scaling)
    np.testing.assert_allclose(logits(table, coef[0], intercept[0]), logits(table, *expected[:2]), atol=1e-4)


def test_constant_columns_get_no_coefficient():
    table = gaussian()
    X = np.column_stack([table.X, np.full(len(table.y), 1e6), np.zeros(len(table.y))])
    coef, _ = optimum(replace(table, X=X), 0.1)
    plain, _ = optimum(table, 0.1)
    np.testing.assert_allclose(coef[0][:, :4], plain[0], atol=1e-7)
    np.testing.assert_allclose(coef[0][:, 4:], 0, atol=1e-12)


@pytest.mark.parametrize("value", [0.1, 1.0, 1e5 / 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_column_is_constant_however_many_rows_it_has(fit_intercept, value):
    """The rounding error of the mean of many rows must not be taken for a spread."""
    table = gaussian()
    X, y = np.tile(table.X, (500, 1)), np.tile(table.y, 500)
    table = replace(table, X=np.column_stack([X, np.full(len(y), value)]), y=y)
    problem = InnerProduct(fit_intercept=fit_intercept).prepare(stack_of(table))
    assert problem.features.scale[-1] == 1
    assert problem.scores.coordinates.rank == 5 - fit_intercept


# --- rows, weights, classes -------------------------------------------------------------------------


@pytest.mark.parametrize("penalty_scaling", PENALTY_SCALINGS)
def test_permuting_classes_permutes_the_coefficients(penalty_scaling):
    table = gaussian()
    order = np.array([2, 0, 1])
    plain = optimum(table, 0.1, penalty_scaling=penalty_scaling)
    permuted = optimum(replace(table, y=order[table.y]), 0.1, penalty_scaling=penalty_scaling)
    for array, expected in zip(permuted, plain, strict=True):
        np.testing.assert_allclose(array[0][order], expected[0], atol=1e-7)


@pytest.mark.parametrize("penalty_scaling", PENALTY_SCALINGS)
@pytest.mark.parametrize("make", [gaussian, text], ids=lambda make: make.__name__)
def test_weight_two_equals_the_row_twice(make, penalty_scaling):
    table = make()
    counts = 1 + (np.arange(len(table.y)) % 3 == 0)
    rows = np.repeat(np.arange(len(table.y)), counts)
    doubled = replace(table, X=table.X[rows], y=table.y[rows])
    weighted = optimum(table, 0.1, counts[:, None], penalty_scaling=penalty_scaling)
    for array, expected in zip(weighted, optimum(doubled, 0.1, penalty_scaling=penalty_scaling), strict=True):
        np.testing.assert_allclose(array, expected, atol=1e-6)


def test_weight_zero_equals_no_row():
    table = gaussian()
    kept = np.arange(len(table.y)) % 4 != 0
    weighted = optimum(table, 0.1, kept[:, None].astype(float))
    removed = optimum(replace(table, X=table.X[kept], y=table.y[kept]), 0.1)
    for array, expected in zip(weighted, removed, strict=True):
        np.testing.assert_allclose(array, expected, atol=1e-7)


def test_the_hot_temperature_does_not_depend_on_units():
    plain, scaled = (InnerProduct().prepare(stack_of(make())).hot_temperature() for make in (gaussian, badly_scaled))
    np.testing.assert_allclose(scaled, plain, rtol=1e-6)


@pytest.mark.parametrize("missing", [0, 2])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_class_missing_from_a_fold_stays_finite(missing, fit_intercept):
    table = gaussian()
    weight = np.column_stack([np.ones(len(table.y)), table.y != missing]).astype(float)
    problem = InnerProduct(fit_intercept=fit_intercept).prepare(stack_of(table, weight))
    point = near_start(problem, 0.1)
    slopes = slope_of_stack(problem.objective, point, 0.1)
    np.testing.assert_allclose(slopes, problem.objective(point, 0.1)[1], rtol=1e-7, atol=1e-8)
    reported = problem.report(solve(problem, 0.1).parameters, 0.1)
    posterior = oracles.posterior(logits(table, reported["coef"][1], reported["intercept"][1]), 1.0)
    assert np.isfinite(reported["coef"]).all()
    assert np.isfinite(reported["intercept"]).all()
    assert posterior[table.y != missing, missing].mean() < (0.02 if fit_intercept else 0.3)


def test_folds_agree_with_separate_fits_of_their_rows():
    """With penalty_scaling="none" a fold does not depend on the rows it leaves out at all."""
    table = gaussian()
    weight = fold_masks(len(table.y), 3)
    coef, intercept = optimum(table, 0.05, weight, penalty_scaling="none")
    for fit in range(4):
        kept = weight[:, fit] > 0
        expected = optimum(replace(table, X=table.X[kept], y=table.y[kept]), 0.05, penalty_scaling="none")
        np.testing.assert_allclose(coef[fit], expected[0][0], atol=1e-6)
        np.testing.assert_allclose(intercept[fit], expected[1][0], atol=1e-6)


# --- backends ---------------------------------------------------------------------------------------


BACKENDS = {
    "float32": lambda X: X.astype(np.float32),
    "csr_matrix": sparse.csr_matrix,
    "csr_array": sparse.csr_array,
    "csr_float32": lambda X: sparse.csr_array(X.astype(np.float32)),
}


@pytest.mark.parametrize("penalty_scaling", PENALTY_SCALINGS)
@pytest.mark.parametrize("make", [text, wide_text], ids=lambda make: make.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_agrees_with_dense_float64(backend, make, penalty_scaling):
    """Word counts are integers, which float32 represents exactly."""
    table = make()
    rows = table.X.toarray()
    weight = fold_masks(len(rows))
    expected = optimum(replace(table, X=rows), 0.02, weight, penalty_scaling=penalty_scaling)
    stored = optimum(replace(table, X=BACKENDS[backend](rows)), 0.02, weight, penalty_scaling=penalty_scaling)
    for array, expected_array in zip(stored, expected, strict=True):
        np.testing.assert_allclose(array, expected_array, atol=1e-6)


def test_sparse_rows_in_blocks_equal_the_whole(monkeypatch):
    expected = optimum(text(), 0.02)
    monkeypatch.setattr(CsrDesign, "block_rows", lambda self, n_fits, copies_rows=True: 7)
    for array, expected_array in zip(optimum(text(), 0.02), expected, strict=True):
        np.testing.assert_allclose(array, expected_array, atol=1e-8)


@pytest.mark.parametrize("temperature", [3.0, 0.05])
@pytest.mark.parametrize("penalty_scaling", ["none", "standardize"])
@pytest.mark.parametrize("make", [wide, wide_text], ids=lambda make: make.__name__)
def test_row_span_equals_the_primal_minimum(make, penalty_scaling, temperature):
    """More columns than rows: the solution in the span of the rows is that in all columns."""
    table = make()
    rows = dense(table.X)
    assert rows.shape[1] > rows.shape[0]
    problem = InnerProduct(penalty_scaling=penalty_scaling).prepare(stack_of(table))
    assert problem.features.span is not None
    coef, intercept = optimum(table, temperature, penalty_scaling=penalty_scaling)
    used = rows.std(axis=0) > 0
    matrix = oracles.penalty_matrix(rows[:, used], penalty_scaling)
    expected = oracles.multinomial_optimum(rows[:, used], table.y, temperature * matrix)
    np.testing.assert_allclose(coef[0][:, used], expected.coef, atol=1e-6)
    np.testing.assert_allclose(coef[0][:, ~used], 0, atol=1e-12)
    np.testing.assert_allclose(intercept[0], expected.intercept, atol=1e-5)


def test_row_span_agrees_with_the_embedded_problem():
    """Four columns embedded into sixty by a rotation: the minimum is rotated with them."""
    table = gaussian(n_samples=50)
    rotation = np.linalg.qr(np.random.default_rng(5).normal(size=(60, 60)))[0][:4]
    turned = replace(table, X=table.X @ rotation)
    plain, intercept = optimum(table, 0.1, penalty_scaling="none")
    coef, turned_intercept = optimum(turned, 0.1, penalty_scaling="none")
    np.testing.assert_allclose(coef[0], plain[0] @ rotation, atol=1e-7)
    np.testing.assert_allclose(turned_intercept[0], intercept[0], atol=1e-7)


# --- errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"l2_strength": 0}, "l2_strength must be a positive number. Got 0."),
        ({"l2_strength": -0.5}, "l2_strength must be a positive number. Got -0.5."),
        ({"l2_strength": np.nan}, "l2_strength must be a positive number. Got nan."),
        ({"penalty_scaling": "manhattan"}, "penalty_scaling must be one of .* Got 'manhattan'."),
    ],
)
def test_invalid_settings_raise(settings, message):
    with pytest.raises(ValueError, match=message):
        InnerProduct(**settings).prepare(stack_of(gaussian()))
