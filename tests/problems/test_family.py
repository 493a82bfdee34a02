"""User-defined families: scores and their pullback."""

from dataclasses import replace

import numpy as np
import oracles
import pytest
from scipy import sparse
from small_problems import (
    Loudness,
    Radial,
    Table,
    fold_masks,
    gaussian,
    rare_class,
    separable,
    solve,
    stack_of,
    text,
    two_classes,
    wide,
)

from annealed import AnnealedClassifier
from annealed.path.prediction import carried_over
from annealed.problems import HeldOut, ScoreFamily, held_out_logits

FAMILIES = [Radial, Loudness]


class Linear(ScoreFamily):
    """Inner products without intercept that start at zero: pADA without intercept on standardized rows."""

    def start(self, X, labels, weight, n_classes, random_state):
        return np.zeros((n_classes, X.shape[1]))

    def scores(self, X, parameters):
        return X @ parameters.T

    def pullback(self, X, parameters, residual):
        return residual.T @ X


class RandomStart(Linear):
    """The same with a random start."""

    def start(self, X, labels, weight, n_classes, random_state):
        return np.random.RandomState(random_state).normal(size=(n_classes, X.shape[1]))


def standard_rows(table):
    return (table.X - table.X.mean(axis=0)) / table.X.std(axis=0)


def near_start(problem, temperature):
    start = problem.start(temperature)
    return start + 0.2 / temperature * np.random.default_rng(0).normal(size=start.shape)


@pytest.mark.parametrize("temperature", [20.0, 1.0, 0.3])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("make", [gaussian, two_classes], ids=lambda make: make.__name__)
def test_gradient_is_the_slope(make, family, temperature):
    table = make()
    problem = family(l2_strength=0.7).prepare(stack_of(table, fold_masks(len(table.y))), 0)
    point = near_start(problem, temperature)
    _, gradient, loss_gradient = problem.objective(point, temperature)
    for part, expected in [(problem.objective, gradient), (problem.loss, loss_gradient)]:
        slopes = oracles.slope(lambda shift, part=part: part(point + shift, temperature)[0], np.zeros(point.shape[1]))
        np.testing.assert_allclose(slopes, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array])
def test_gradient_is_the_slope_on_sparse_rows(kind):
    table = text(kind)
    problem = Loudness().prepare(stack_of(table, fold_masks(len(table.y))), 0)
    point = near_start(problem, 1.0)
    slopes = oracles.slope(lambda shift: problem.objective(point + shift, 1.0)[0], np.zeros(point.shape[1]))
    np.testing.assert_allclose(slopes, problem.objective(point, 1.0)[1], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("temperature", [20.0, 1.0, 0.3])
@pytest.mark.parametrize("family", FAMILIES)
def test_value_is_equation_9_with_the_pull_to_the_start(family, temperature):
    table = gaussian()
    weight = fold_masks(len(table.y))
    problem = family(l2_strength=0.7).prepare(stack_of(table, weight), 0)
    point = near_start(problem, temperature)
    value, _, _ = problem.objective(point, temperature)
    parameters = problem.report(point, temperature)["parameters"]
    rows = standard_rows(table)
    for fit, shares in enumerate((weight / weight.sum(axis=0)).T):
        scores = family().scores(rows, parameters[fit])
        used = shares > 0
        start = family().start(rows[used], table.y[used], shares[used], 3, None)
        pull = 0.35 * np.sum((parameters[fit] - start) ** 2)
        expected = oracles.free_energy(scores, table.y, temperature, shares) + pull
        np.testing.assert_allclose(temperature * value[fit], expected, rtol=1e-10)


def test_a_user_defined_inner_product_agrees_with_the_inner_product_family():
    table = gaussian()
    problem = Linear(l2_strength=0.5).prepare(stack_of(table), 0)
    parameters = problem.report(solve(problem, 0.2).parameters, 0.2)["parameters"][0]
    expected = oracles.multinomial_optimum(standard_rows(table), table.y, 0.1 * np.eye(4), fit_intercept=False)
    np.testing.assert_allclose(parameters / 0.2, expected.coef, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_predictor_agrees_with_the_logits_of_a_pass(family):
    table = gaussian()
    problem = family().prepare(stack_of(table), 0)
    point = near_start(problem, 0.3)
    held_out = HeldOut(np.arange(9), np.zeros(9, dtype=int))
    picked = held_out_logits(problem, held_out, [point], [0.3])[0]
    arrays = {name: array[0] for name, array in problem.report(point, 0.3).items()}
    np.testing.assert_allclose(problem.predictor.logits(table.X[:9], arrays, 0.3), picked, atol=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pass_over_some_fits_equals_those_of_the_whole_stack(family):
    table = gaussian()
    problem = family().prepare(stack_of(table, fold_masks(len(table.y))), 0)
    point = near_start(problem, 1.0)
    some = np.array([2, 0])
    for part, whole in zip(problem.objective(point[some], 1.0, some), problem.objective(point, 1.0), strict=True):
        np.testing.assert_allclose(part, whole[some], rtol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_scores_are_carried_to_another_temperature(family):
    table = gaussian()
    problem = family().prepare(stack_of(table), 0)
    point = near_start(problem, 2.0)
    carried = carried_over(problem, point, 2.0, 0.5)
    expected = problem.report(point, 2.0)["parameters"]
    np.testing.assert_allclose(problem.report(carried, 0.5)["parameters"], expected, rtol=1e-12)


def test_permuting_classes_permutes_the_posterior():
    table = gaussian()
    order = np.array([2, 0, 1])
    plain, permuted = (
        problem.report(solve(problem, 2.0).parameters, 2.0)["parameters"][0]
        for problem in (Radial().prepare(stack_of(ordered), 0) for ordered in (table, replace(table, y=order[table.y])))
    )
    np.testing.assert_allclose(permuted[order], plain, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_weight_two_equals_the_row_twice(family):
    table = gaussian()
    counts = 1 + (np.arange(len(table.y)) % 3 == 0)
    rows = np.repeat(np.arange(len(table.y)), counts)
    doubled = replace(table, X=table.X[rows], y=table.y[rows])
    problems = family().prepare(stack_of(table, counts[:, None]), 0), family().prepare(stack_of(doubled), 0)
    weighted, expected = (problem.report(solve(problem, 5.0).parameters, 5.0)["parameters"] for problem in problems)
    np.testing.assert_allclose(weighted, expected, atol=1e-6)


def test_float32_rows_agree_with_float64():
    table = gaussian()
    single = replace(table, X=table.X.astype(np.float32))
    double = replace(table, X=single.X.astype(np.float64))
    problems = [Radial().prepare(stack_of(rows), 0) for rows in (single, double)]
    first, second = (problem.report(solve(problem, 2.0).parameters, 2.0)["parameters"] for problem in problems)
    np.testing.assert_allclose(first, second, atol=1e-6)


@pytest.mark.parametrize("make", [gaussian, two_classes, rare_class, separable, wide], ids=lambda make: make.__name__)
def test_hot_temperature_makes_the_posterior_nearly_uniform(make):
    """Also if the start classifies every row correctly, so that a step from it changes almost nothing."""
    table = make()
    problem = Radial().prepare(stack_of(table), 0)
    hot = problem.hot_temperature()
    arrays = {name: array[0] for name, array in problem.report(problem.start(hot), hot).items()}
    logits = problem.predictor.logits(table.X, arrays, hot)
    assert np.isfinite(logits).all(), f"no logits at the hot temperature {hot}"
    posterior = oracles.posterior(logits, 1.0)
    assert np.sqrt(np.mean((posterior - 1 / table.n_classes) ** 2, axis=0)).max() < 0.1


def test_random_start_repeats_with_its_seed():
    problems = [RandomStart().prepare(stack_of(gaussian()), seed) for seed in (0, 0, 1)]
    first, again, other = (problem.start(1.0) for problem in problems)
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0


@pytest.mark.parametrize("strength", [0, -1.0])
def test_an_invalid_strength_raises(strength):
    with pytest.raises(ValueError, match=f"l2_strength must be a positive number. Got {strength}"):
        Radial(l2_strength=strength).prepare(stack_of(gaussian()), 0)


class WrongStart(Radial):
    def start(self, X, labels, weight, n_classes, random_state):
        return np.full((n_classes, X.shape[1]), np.nan)


class WrongScores(Radial):
    def scores(self, X, parameters):
        return super().scores(X, parameters)[:, :2]


class NanScores(Radial):
    def scores(self, X, parameters):
        return np.log(super().scores(X, parameters))


class WrongPullback(Radial):
    def pullback(self, X, parameters, residual):
        return super().pullback(X, parameters, residual)[:, :2]


class WrongShape(Radial):
    def start(self, X, labels, weight, n_classes, random_state):
        return np.zeros(len(X))


class StringStart(Radial):
    def start(self, X, labels, weight, n_classes, random_state):
        return "at the mean"


class NoneScores(Radial):
    def scores(self, X, parameters):
        super().scores(X, parameters)


class NanPullback(Radial):
    def pullback(self, X, parameters, residual):
        return np.nan * super().pullback(X, parameters, residual)


class NanAwayFromStart(Radial):
    def scores(self, X, parameters):
        self.first = getattr(self, "first", parameters)
        is_away = not any(np.allclose(parameters, known) for known in (self.first, 0))
        return super().scores(X, parameters) * (np.nan if is_away else 1)


@pytest.mark.parametrize(
    ("family", "message"),
    [
        (WrongStart(), "WrongStart.start must return finite numbers, .* Got array"),
        (
            WrongShape(),
            "WrongShape.start must return finite numbers, in the same shape for every fold. Got array",
        ),
        (StringStart(), "StringStart.start must return an array of numbers. Got 'at the mean'"),
        (NoneScores(), r"NoneScores.scores must return .* here \(10, 3\). Got shape \(1,\): array\(\[None"),
        (NanPullback(), "NanPullback.pullback must return finite numbers .* nan"),
        (NanAwayFromStart(), "NanAwayFromStart.scores must be finite one gradient step away"),
        (WrongScores(), r"WrongScores.scores must return .* here \(10, 3\). Got shape \(10, 2\)"),
        (NanScores(), r"NanScores.scores must return finite numbers .* nan"),
        (WrongPullback(), r"WrongPullback.pullback must return .* parameters, \(3, \d\). Got shape \(3, 2\)"),
    ],
    ids=["start", "start_shape", "start_words", "nothing", "slope", "away", "scores", "numbers", "pullback"],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_family_that_returns_something_else_raises(family, message):
    table = gaussian()
    with pytest.raises(ValueError, match=message):
        AnnealedClassifier(family).fit(table.X, table.y)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_start_without_samples_of_a_class_raises():
    class Means(Radial):
        def start(self, X, labels, weight, n_classes, random_state):
            share = weight * (labels == np.arange(n_classes)[:, None])
            return share @ X / share.sum(axis=1, keepdims=True)

    table = gaussian()
    with pytest.raises(ValueError, match=r"Means.start must (?s:.*)for samples without any of classes \[1\]"):
        AnnealedClassifier(Means(), class_weight={1: 0.0}).fit(table.X, table.y)


def test_lists_are_converted_to_arrays():
    class Listed(Radial):
        def start(self, *rows):
            return super().start(*rows).tolist()

        def scores(self, X, parameters):
            return super().scores(X, parameters).tolist()

        def pullback(self, X, parameters, residual):
            return super().pullback(X, parameters, residual).tolist()

    table = gaussian()
    plain, listed = (AnnealedClassifier(family).fit(table.X, table.y) for family in (Radial(), Listed()))
    np.testing.assert_array_equal(listed.predict_proba(table.X), plain.predict_proba(table.X))


@pytest.mark.parametrize("family", [Radial, Linear])
def test_constant_rows_have_an_ordinary_path(family):
    X, y = np.ones((40, 2)), np.arange(40) % 2
    model = AnnealedClassifier(family()).fit(X, y)
    assert model.path_.temperatures[0] == 1.0
    np.testing.assert_allclose(model.predict_proba(X), 0.5)


@pytest.mark.parametrize("shift", [0.0, 0.7])
@pytest.mark.parametrize("l2_strength", [0.01, 1.0])
def test_a_start_that_is_a_minimum_is_hot_at_one(l2_strength, shift):
    """The gradient of linear scores vanishes there, or is rounding error if rows are not exactly centred."""
    X = 0.1 * np.array([[1, 3], [-1, -3], [1, -3], [-1, 3]] * 10) + shift
    problem = Linear(l2_strength=l2_strength).prepare(stack_of(Table("xor", X, np.tile([0, 0, 1, 1], 10))), 0)
    assert problem.hot_temperature() == 1.0


def test_nearly_uninformative_samples_have_an_ordinary_hot_end():
    """The response is smaller than that of a hot end at any temperature."""
    generator = np.random.default_rng(0)
    problem = Linear().prepare(stack_of(Table("noise", generator.normal(size=(3000, 3)), np.arange(3000) % 2)), 0)
    assert problem.hot_temperature() == 1.0
