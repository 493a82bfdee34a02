"""Distance family: scores (10), gradient (12), LDA at the start, and properties of the exact minimum."""

from dataclasses import replace

import numpy as np
import oracles
import pytest
from devices import mover
from scipy import sparse
from sklearn.covariance import ledoit_wolf_shrinkage, oas
from sklearn.metrics import log_loss
from small_problems import (
    Table,
    badly_scaled,
    dense,
    fold_masks,
    gaussian,
    rare_class,
    solve,
    stack_of,
    standardized,
    text,
    two_classes,
    uneven_weights,
    wide,
    wide_text,
)

from annealed import AnnealedLDA
from annealed.arrays import is_foreign
from annealed.problems import Distance
from annealed.problems.smooth import HOT_LOGIT
from annealed.rows import make_design

TEMPERATURES = [50.0, 2.0, 0.1]
COVARIANCES = ["pooled", "total", "diagonal", "identity"]


def prepared(table, weight=None, random_state=0, **settings):
    return Distance(**settings).prepare(stack_of(table, weight), random_state)


def near_start(problem, temperature, size=0.3):
    start = problem.start(temperature)
    return start + size * np.random.default_rng(0).normal(size=start.shape)


def optimum(problem, temperature, tol=1e-9):
    return problem.report(solve(problem, temperature, tol=tol).parameters, temperature)


def at_start(problem, temperature):
    return problem.report(problem.start(temperature), temperature)


def posterior(table, reported, fit=0):
    return oracles.posterior(dense(table.X) @ reported["coef"][fit].T + reported["intercept"][fit], 1.0)


def covariance_of(X, labels, name, weight=None):
    """The matrix of (10) by its definition, without shrinkage."""
    _, total = oracles.moments(X, weight)
    pooled = oracles.pooled_covariance(X, labels, weight)
    return {
        "pooled": pooled,
        "total": total,
        "diagonal": np.diag(np.diag(pooled)),
        "identity": np.eye(X.shape[1]),
    }[name]


def shrunk(covariance, amount, spread):
    """Covariance shrunk towards the diagonal of column variances, in units of `spread`."""
    standard = covariance / np.outer(spread, spread)
    target = np.trace(standard) / len(standard) * np.eye(len(standard))
    return ((1 - amount) * standard + amount * target) * np.outer(spread, spread)


# --- value and gradient -----------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("anchor", [0, 0.8])
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_gradient_is_the_slope(covariance, anchor, temperature):
    table = gaussian()
    weight = uneven_weights(len(table.y)) * fold_masks(len(table.y))
    problem = prepared(table, weight, covariance=covariance, anchor=anchor)
    point = near_start(problem, temperature)
    _, gradient, loss_gradient = problem.objective(point, temperature)
    for part, expected in [(problem.objective, gradient), (problem.loss, loss_gradient)]:
        slopes = oracles.slope(
            lambda shift, part=part: part(point + shift, temperature)[0], np.zeros(point.shape[1]), step=1e-4
        )
        np.testing.assert_allclose(slopes, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_value_is_equation_9_on_the_scores_of_equation_10(covariance, temperature):
    """With the reported means and the covariance by its definition, for the final fit and the folds."""
    table = gaussian()
    weight = uneven_weights(len(table.y))
    problem = prepared(table, weight, covariance=covariance, shrinkage=0.0, anchor=0)
    point = near_start(problem, temperature)
    value, _, _ = problem.objective(point, temperature)
    means = problem.report(point, temperature)["means"]
    for fit, shares in enumerate((weight / weight.sum(axis=0)).T):
        matrix = covariance_of(table.X, table.y, covariance, shares)
        scores = oracles.distance_scores(table.X, means[fit], matrix)
        expected = oracles.free_energy(scores, table.y, temperature, shares)
        np.testing.assert_allclose(temperature * value[fit], expected, rtol=1e-9)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_value_with_anchor_adds_priors_and_the_pull_to_the_class_means(temperature):
    table = gaussian()
    weight = uneven_weights(len(table.y), 2)
    problem = prepared(table, weight, covariance="pooled", shrinkage=0.0, anchor=0.8)
    point = near_start(problem, temperature)
    value, _, _ = problem.objective(point, temperature)
    means = problem.report(point, temperature)["means"]
    for fit, shares in enumerate((weight / weight.sum(axis=0)).T):
        matrix = oracles.pooled_covariance(table.X, table.y, shares)
        prior = np.bincount(table.y, shares)
        scores = oracles.distance_scores(table.X, means[fit], matrix) + temperature * np.log(prior)
        offsets = means[fit] - oracles.class_means(table.X, table.y, shares)
        pull = 0.4 * sum(p * offset @ np.linalg.solve(matrix, offset) for p, offset in zip(prior, offsets, strict=True))
        expected = oracles.free_energy(scores, table.y, temperature, shares) + pull
        np.testing.assert_allclose(temperature * value[fit], expected, rtol=1e-9)


def test_gradient_is_equation_12():
    """2/N sum_i (p_ij - y_ij) S^-1 (x_i - mean_j), against finite differences of Q in the user's units."""
    table = gaussian()
    problem = prepared(table, covariance="pooled", shrinkage=0.0, anchor=0)
    temperature = 3.0
    means = problem.report(near_start(problem, temperature), temperature)["means"][0]
    matrix = oracles.pooled_covariance(table.X, table.y)
    p = oracles.posterior(oracles.distance_scores(table.X, means, matrix), temperature)
    expected = np.zeros_like(means)
    for row, posterior_row, label in zip(table.X, p, table.y, strict=True):
        for j in range(3):
            expected[j] += (
                -2 / len(table.y) * (posterior_row[j] - (j == label)) * np.linalg.solve(matrix, means[j] - row)
            )

    def energy(shift):
        return oracles.free_energy(oracles.distance_scores(table.X, means + shift, matrix), table.y, temperature)

    slopes = oracles.slope(energy, np.zeros_like(means)).reshape(means.shape)
    np.testing.assert_allclose(slopes, expected, rtol=1e-6, atol=1e-8)
    loss_gradient = problem.objective(near_start(problem, temperature), temperature)[1].reshape(3, -1)
    expected = expected @ problem.scores.coordinates.inverse[0] / 2
    np.testing.assert_allclose(loss_gradient, expected, rtol=1e-6, atol=1e-8)


def test_a_pass_over_some_fits_equals_those_of_the_whole_stack():
    table = gaussian()
    problem = prepared(table, uneven_weights(len(table.y)))
    point = near_start(problem, 1.0)
    some = np.array([2, 0])
    for part, whole in zip(problem.objective(point[some], 1.0, some), problem.objective(point, 1.0), strict=True):
        np.testing.assert_allclose(part, whole[some], rtol=1e-12)


# --- linear discriminant analysis -------------------------------------------------------------------


@pytest.mark.parametrize("make", [gaussian, two_classes, rare_class], ids=lambda make: make.__name__)
def test_start_at_temperature_two_is_lda_with_uniform_priors(make):
    table = make()
    reported = at_start(prepared(table, covariance="pooled", shrinkage=0.0, anchor=0), 2.0)
    uniform = np.full(table.n_classes, 1 / table.n_classes)
    expected = oracles.lda_posterior(table.X, table.y, table.X, uniform)
    np.testing.assert_allclose(posterior(table, reported), expected, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(reported["means"][0], oracles.class_means(table.X, table.y), atol=1e-10)


def test_start_at_temperature_two_is_lda_in_any_units():
    plain, scaled = gaussian(), badly_scaled()
    uniform = np.full(3, 1 / 3)
    expected = oracles.lda_posterior(plain.X, plain.y, plain.X, uniform)
    reported = at_start(prepared(scaled, covariance="pooled", shrinkage=0.0, anchor=0), 2.0)
    np.testing.assert_allclose(posterior(scaled, reported), expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("make", [gaussian, two_classes, rare_class], ids=lambda make: make.__name__)
def test_strong_anchor_at_temperature_two_is_lda_with_priors(make):
    table = make()
    reported = optimum(prepared(table, covariance="pooled", shrinkage=0.0, anchor=1e6), 2.0, tol=1e-6)
    prior = np.bincount(table.y) / len(table.y)
    expected = oracles.lda_posterior(table.X, table.y, table.X, prior)
    np.testing.assert_allclose(posterior(table, reported), expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_strong_anchor_keeps_the_class_means(temperature):
    table = gaussian()
    reported = optimum(prepared(table, anchor=1e6), temperature, tol=1e-6)
    np.testing.assert_allclose(reported["means"][0], oracles.class_means(table.X, table.y), atol=1e-5)


def test_temperature_matters_at_the_exact_minimum_with_an_anchor():
    table = gaussian()
    hot, cold = (posterior(table, optimum(prepared(table), temperature)) for temperature in (20.0, 2.0))
    assert np.abs(hot - cold).max() > 0.1


@pytest.mark.parametrize("anchor", [0, 1.0])
def test_infinite_temperature_is_uniform_without_and_the_prior_with_an_anchor(anchor):
    table = gaussian()
    expected = np.bincount(table.y) / len(table.y) if anchor else np.full(3, 1 / 3)
    hot = at_start(prepared(table, anchor=anchor), 1e7)
    np.testing.assert_allclose(posterior(table, hot), np.tile(expected, (len(table.y), 1)), atol=1e-5)


# --- the exact minimum of the literal form ----------------------------------------------------------


@pytest.mark.parametrize("temperature", [200.0, 20.0, 2.0, 0.5, 0.05])
@pytest.mark.parametrize("make", [gaussian, two_classes], ids=lambda make: make.__name__)
def test_exact_minimum_is_unpenalized_likelihood_at_any_temperature(make, temperature):
    table = standardized(make())
    expected = oracles.multinomial_optimum(table.X, table.y, np.zeros((table.X.shape[1],) * 2))
    problem = prepared(table, anchor=0, shrinkage=0.0)
    solution = solve(problem, temperature, tol=1e-6, max_iter=20000)
    energy = temperature * solution.value[0]
    np.testing.assert_allclose(energy, temperature * expected.value, rtol=1e-9)
    reported = problem.report(solution.parameters, temperature)
    exact = oracles.posterior(table.X @ expected.coef.T + expected.intercept, 1.0)
    np.testing.assert_allclose(posterior(table, reported), exact, atol=1e-3)


# --- the covariance ---------------------------------------------------------------------------------


@pytest.mark.parametrize("amount", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("covariance", ["pooled", "total"])
def test_a_number_as_shrinkage_shrinks_towards_the_column_variances(covariance, amount):
    table = gaussian()
    reported = at_start(prepared(table, covariance=covariance, shrinkage=amount, anchor=0), 2.0)
    matrix = shrunk(covariance_of(table.X, table.y, covariance), amount, table.X.std(axis=0))
    scores = oracles.distance_scores(table.X, oracles.class_means(table.X, table.y), matrix)
    np.testing.assert_allclose(posterior(table, reported), oracles.posterior(scores, 2.0), rtol=1e-8, atol=1e-12)


def sklearn_amount(name, rows):
    return oas(rows, assume_centered=True)[1] if name == "oas" else ledoit_wolf_shrinkage(rows, assume_centered=True)


@pytest.mark.parametrize("shrinkage", ["oas", "ledoit_wolf"])
@pytest.mark.parametrize("covariance", ["pooled", "total"])
@pytest.mark.parametrize(
    "make", [gaussian, badly_scaled, two_classes, rare_class, wide, text, wide_text], ids=lambda make: make.__name__
)
def test_shrinkage_amount_is_that_of_scikit_learn(make, covariance, shrinkage):
    """For standardized rows, class-centred for the pooled covariance; recovered from the whole posterior.

    Constant columns do not count.
    """
    table = make()
    rows = dense(table.X)
    rows = rows[:, rows.std(axis=0) > 0]
    means = oracles.class_means(rows, table.y)
    centers = means[table.y] if covariance == "pooled" else rows.mean(axis=0)
    amount = sklearn_amount(shrinkage, (rows - centers) / rows.std(axis=0))
    assert amount > 0
    named = at_start(prepared(table, covariance=covariance, shrinkage=shrinkage, anchor=0), 2.0)
    number = at_start(prepared(table, covariance=covariance, shrinkage=amount, anchor=0), 2.0)
    np.testing.assert_allclose(posterior(table, named), posterior(table, number), rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("shrinkage", ["oas", "ledoit_wolf"])
def test_shrinkage_amount_counts_a_row_of_weight_two_twice(shrinkage):
    table = gaussian()
    counts = 1 + (np.arange(len(table.y)) % 3 == 0)
    rows = np.repeat(np.arange(len(table.y)), counts)
    doubled = replace(table, X=table.X[rows], y=table.y[rows])
    weighted = at_start(prepared(table, counts[:, None], shrinkage=shrinkage), 2.0)
    expected = at_start(prepared(doubled, shrinkage=shrinkage), 2.0)
    np.testing.assert_allclose(posterior(table, weighted), posterior(table, expected), rtol=1e-8)


@pytest.mark.parametrize("make", [wide, wide_text], ids=lambda make: make.__name__)
@pytest.mark.parametrize("covariance", ["pooled", "total"])
def test_row_span_equals_the_shrunk_covariance_of_all_columns(covariance, make):
    table = make()
    rows = dense(table.X)
    used = rows.std(axis=0) > 0
    table = replace(table, X=table.X[:, used])
    rows = rows[:, used]
    problem = prepared(table, covariance=covariance, shrinkage=0.4, anchor=0)
    assert problem.features.span is not None
    matrix = shrunk(covariance_of(rows, table.y, covariance), 0.4, rows.std(axis=0))
    scores = oracles.distance_scores(rows, oracles.class_means(rows, table.y), matrix)
    reported = at_start(problem, 2.0)
    np.testing.assert_allclose(posterior(table, reported), oracles.posterior(scores, 2.0), rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(reported["means"][0], oracles.class_means(rows, table.y), atol=1e-8)


def training_rows(table, weight):
    kept = weight > 0
    return replace(table, X=table.X[kept], y=table.y[kept])


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_the_covariance_of_a_fold_is_estimated_from_its_training_rows(covariance):
    """A fold of a stack starts at the same means as a separate fit on the rows of the fold.

    Without shrinkage, which is in the units of all rows.
    """
    table = gaussian(n_samples=80)
    weight = fold_masks(len(table.y))
    stacked = at_start(prepared(table, weight, covariance=covariance, shrinkage=0.0), 2.0)
    for fit in range(3):
        alone = at_start(prepared(training_rows(table, weight[:, fit]), covariance=covariance, shrinkage=0.0), 2.0)
        np.testing.assert_allclose(stacked["means"][fit], alone["means"][0], atol=1e-10)
        np.testing.assert_allclose(posterior(table, stacked, fit), posterior(table, alone), rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("n_rows", [1001, 30_001])
@pytest.mark.parametrize("usual", [0.0, 1.0])
def test_a_column_that_is_constant_in_a_fold_is_not_magnified_there(usual, n_rows):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n_rows, 2)), rng.integers(0, 3, n_rows)
    rare = slice(0, n_rows // 60)
    X[:, 0] = usual
    X[rare, 0] = 1 - usual
    weight = np.ones((n_rows, 2))
    weight[rare, 1] = 0
    problem = prepared(replace(gaussian(), X=X, y=y), weight)
    assert np.abs(problem.scores.coordinates.basis).max() < 1000


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_a_fold_without_shrinkage_does_not_depend_on_the_rows_it_leaves_out(covariance):
    table = gaussian(n_samples=40)
    weight = np.column_stack([np.ones(40), np.arange(40) < 30]).astype(float)
    X = table.X.copy()
    X[30:] = 3 * X[30:] + 1
    moved = replace(table, X=X)
    plain, other = (
        at_start(prepared(rows, weight, covariance=covariance, shrinkage=0.0), 2.0) for rows in (table, moved)
    )
    np.testing.assert_allclose(posterior(table, other, 1), posterior(table, plain, 1), rtol=1e-6, atol=1e-10)


# --- starts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [gaussian, text], ids=lambda make: make.__name__)
def test_zero_start_is_the_origin(make):
    table = make()
    means = at_start(prepared(table, init="zero"), 1.0)["means"][0]
    np.testing.assert_allclose(means, 0, atol=1e-10)


@pytest.mark.parametrize("make", [gaussian, wide], ids=lambda make: make.__name__)
def test_random_start_is_at_rows_and_repeats_with_its_seed(make):
    table = make()
    first, again, other = (
        at_start(prepared(table, init="random", random_state=seed), 1.0)["means"][0] for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0
    for mean in first:
        assert np.abs(table.X - mean).max(axis=1).min() < 1e-8


@pytest.mark.parametrize("init", ["random", "zero"])
def test_every_start_reaches_the_same_anchored_minimum(init):
    table = gaussian()
    expected = posterior(table, optimum(prepared(table), 5.0))
    np.testing.assert_allclose(posterior(table, optimum(prepared(table, init=init), 5.0)), expected, atol=1e-5)


# --- rows, weights, classes -------------------------------------------------------------------------


@pytest.mark.parametrize("anchor", [0, 1.0])
def test_permuting_classes_permutes_the_posterior(anchor):
    table = gaussian()
    order = np.array([2, 0, 1])
    settings = {"anchor": anchor, "shrinkage": 0.1}
    plain = optimum(prepared(table, **settings), 2.0)
    permuted = optimum(prepared(replace(table, y=order[table.y]), **settings), 2.0)
    if anchor:
        np.testing.assert_allclose(permuted["means"][0][order], plain["means"][0], atol=1e-5)
    np.testing.assert_allclose(posterior(table, permuted)[:, order], posterior(table, plain), atol=1e-5)


def test_weight_two_equals_the_row_twice():
    table = gaussian()
    counts = 1 + (np.arange(len(table.y)) % 3 == 0)
    rows = np.repeat(np.arange(len(table.y)), counts)
    weighted = optimum(prepared(table, counts[:, None]), 1.0)
    expected = optimum(prepared(replace(table, X=table.X[rows], y=table.y[rows])), 1.0)
    for name in ("coef", "intercept", "means"):
        np.testing.assert_allclose(weighted[name], expected[name], atol=1e-6)


@pytest.mark.parametrize("anchor", [0, 1.0])
@pytest.mark.parametrize("missing", [0, 2])
def test_a_class_missing_from_a_fold_stays_finite(missing, anchor):
    table = gaussian()
    weight = np.column_stack([np.ones(len(table.y)), table.y != missing]).astype(float)
    problem = prepared(table, weight, anchor=anchor)
    solution = solve(problem, 2.0, tol=1e-6) if anchor else None
    parameters = solution.parameters if anchor else problem.start(2.0)
    reported = problem.report(parameters, 2.0)
    assert all(np.isfinite(array).all() for array in reported.values())
    p = posterior(table, reported, 1)
    assert np.isfinite(p).all()
    if anchor:
        assert p[table.y != missing, missing].mean() < 0.05


@pytest.mark.parametrize("temperature", [100.0, 10.0])
def test_the_mean_of_a_class_missing_from_a_fold_is_penalized_too(temperature):
    """It is pulled to the mean of the rows; without a penalty it would diverge."""
    table = gaussian()
    weight = np.column_stack([np.ones(len(table.y)), table.y != 2]).astype(float)
    problem = prepared(table, weight, anchor=1.0)
    reported = problem.report(solve(problem, temperature, tol=1e-6).parameters, temperature)
    p = posterior(table, reported, 1)
    assert np.log(p[table.y == 2, 2]).mean() > -7


BACKENDS = {
    "float32": lambda X: X.astype(np.float32),
    "csr_matrix": sparse.csr_matrix,
    "csr_array": sparse.csr_array,
}


@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("make", [text, wide_text], ids=lambda make: make.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_agrees_with_dense_float64(backend, make, covariance):
    table = make()
    rows = table.X.toarray()
    weight = fold_masks(len(rows))
    expected = optimum(prepared(replace(table, X=rows), weight, covariance=covariance), 1.0, tol=1e-8)
    stored = optimum(prepared(replace(table, X=BACKENDS[backend](rows)), weight, covariance=covariance), 1.0, tol=1e-8)
    for name in ("coef", "intercept", "means"):
        np.testing.assert_allclose(stored[name], expected[name], atol=1e-5)


# --- errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"covariance": "full"}, "covariance must be one of .* Got 'full'."),
        ({"init": "kmeans"}, "init must be one of .* Got 'kmeans'."),
        ({"anchor": -1}, "anchor must be a number that is not negative. Got -1."),
        ({"anchor": np.nan}, "anchor must be a number that is not negative. Got nan."),
        ({"shrinkage": 1.5}, r"shrinkage must be one of .* or in \[0, 1\]. Got 1.5."),
        ({"shrinkage": "lw"}, "shrinkage must be one of .* Got 'lw'."),
    ],
)
def test_invalid_settings_raise(settings, message):
    with pytest.raises(ValueError, match=message):
        prepared(gaussian(), **settings)


def correlated(n_rows, n_columns, seed=0):
    """Two classes that differ a little along one direction, which all columns share."""
    generator = np.random.RandomState(seed)
    y = np.arange(n_rows) % 2
    shared = generator.randn(n_rows, 1) + 0.3 * y[:, None]
    return Table("correlated", shared + 0.05 * generator.randn(n_rows, n_columns), y)


@pytest.mark.parametrize("n_columns", [8, 150])
@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("backend", [np.asarray, *BACKENDS.values(), mover("strict")])
def test_at_the_hot_end_scores_along_class_means_are_small(backend, covariance, n_columns):
    """Also if the columns are the coordinates, and correlated columns add up."""
    table = correlated(100, n_columns)
    weight = np.full((100, 1), 0.01)
    X = backend(table.X)
    others = [backend(array) if is_foreign(X) else array for array in (table.y, weight)]
    design = make_design(X, *others, np.array([100.0]), 2)
    hot = Distance(covariance=covariance, shrinkage=0.5).prepare(design, 0).hot_temperature()
    matrix = covariance_of(table.X, table.y, covariance)
    if covariance in ("pooled", "total"):
        matrix = shrunk(matrix, 0.5, table.X.std(axis=0))
    rows = table.X - table.X.mean(axis=0)
    means = np.stack([rows[table.y == label].mean(axis=0) for label in (0, 1)])
    scores = rows @ np.linalg.solve(matrix, means.T)
    overshoot = 3.0  # for anchor = 1
    np.testing.assert_allclose(hot, 2 * overshoot * scores.std(axis=0).max() / HOT_LOGIT, rtol=1e-4)


def test_the_path_of_correlated_columns_starts_hot_enough():
    table, new = correlated(300, 2000), correlated(2000, 2000, seed=1)
    model = AnnealedLDA(covariance="diagonal", calibrate=False).fit(table.X, table.y)
    assert model.path_.best_index > 0
    assert log_loss(new.y, model.predict_proba(new.X)) < np.log(2)


@pytest.mark.parametrize("temperature", [2.0, np.array([3.0, 2.0, 0.1])], ids=["one", "each"])
def test_penalty_pulls_each_mean_to_its_class_by_its_share(temperature):
    table = rare_class()
    problem = prepared(table, fold_masks(len(table.y)), anchor=0.7)
    strength, anchor = problem.penalty(temperature, slice(None))
    temperatures = np.reshape(temperature, (-1, 1, 1))
    expected = np.broadcast_to(0.7 * temperatures / 4 * problem.anchored_shares[..., None], problem.class_means.shape)
    np.testing.assert_array_equal(strength, expected.reshape(3, -1))
    np.testing.assert_array_equal(anchor, (2 / temperatures * problem.class_means).reshape(3, -1))
    again = problem.penalty(temperature, slice(None))
    assert not np.shares_memory(strength, again[0]) and not np.shares_memory(anchor, again[1])


@pytest.mark.parametrize("covariance", ["auto", "diagonal", "pooled", "total"])
@pytest.mark.parametrize("constant", [1.0, 0.1, 3.7])
def test_a_constant_column_has_the_same_effect_in_sparse_and_dense_rows(covariance, constant):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 400)
    X = rng.normal(size=(400, 4)) + 1.5 * rng.normal(size=(3, 4))[y]
    X = np.column_stack([X, np.full(400, constant)])
    model = AnnealedLDA(covariance=covariance, selection="last", schedule=[10.0, 1.0])
    plain = model.fit(X, y).predict_proba(X)
    np.testing.assert_allclose(model.fit(sparse.csr_array(X), y).predict_proba(X), plain, atol=1e-6)


def test_a_constant_column_of_sparse_rows_does_not_change_predictions():
    """Rounding differences between its class means are not divided by a zero spread."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 400)
    X = np.column_stack([rng.normal(size=(400, 4)) + 1.5 * rng.normal(size=(3, 4))[y], np.full(400, 1e6)])
    model = AnnealedLDA(covariance="diagonal", selection="last", schedule=[10.0, 1.0]).fit(sparse.csr_array(X), y)
    known = model.predict_proba(X)
    X[:, -1] += 1
    np.testing.assert_allclose(model.predict_proba(X), known, atol=1e-6)
