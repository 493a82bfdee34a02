"""The annealing path: its record, how it is printed, and interpolation between its temperatures."""

import copy
import pickle
from dataclasses import replace
from itertools import pairwise

import numpy as np
import oracles
import pytest
from sklearn.datasets import load_wine
from small_problems import (
    Radial,
    badly_scaled,
    gaussian,
    make_everything_wide,
    solve,
    stack_of,
    text,
    two_classes,
    wide,
)

from annealed import AnnealedClassifier, AnnealedLDA, AnnealedLogisticRegression, AnnealingPath
from annealed.path import FixedSchedule, Validation, anneal
from annealed.problems import Distance, InnerProduct
from annealed.solvers import LBFGS, Plan
from annealed.validation.calibration import scaled_moments
from annealed.validation.selection import NOTHING_HELD_OUT

LADDER = 4.0 * 0.7 ** np.arange(12)


@pytest.fixture(scope="module")
def model():
    table = gaussian()
    return AnnealedLogisticRegression(schedule=LADDER, cv=3, tol=1e-8).fit(table.X, table.y)


@pytest.fixture(scope="module")
def path(model):
    return model.path_


def remade(path, **changes):
    return replace(path, **changes)


# --- record ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [gaussian, two_classes, wide], ids=lambda make: make.__name__)
@pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, AnnealedLDA])
def test_every_array_has_one_entry_per_temperature(estimator, make):
    table = make()
    path = estimator(schedule=[2.0, 1.0, 0.5], cv=2).fit(table.X, table.y).path_
    n_classes, n_features = table.n_classes, table.X.shape[1]
    assert isinstance(path, AnnealingPath)
    assert len(path) == 3
    assert path.temperatures.tolist() == [2.0, 1.0, 0.5]
    assert path.coef.shape == (3, n_classes, n_features)
    assert path.intercept.shape == (3, n_classes)
    assert path.validation_score.shape == (3, 2)
    one_each = ["free_energy", "entropy", "train_score", "posterior_scale", "n_iter", "seconds", "gradient_norm"]
    assert {getattr(path, name).shape for name in [*one_each, "converged"]} == {(3,)}
    assert path.converged.all()
    assert (path.seconds > 0).all()
    if estimator is AnnealedLDA:
        assert path.means.shape == (3, n_classes, n_features)


def test_absent_arrays_are_none_and_unknown_names_are_errors(path):
    assert path.means is None
    with pytest.raises(AttributeError, match="'AnnealingPath' object has no attribute 'lambda_'"):
        _ = path.lambda_


def test_a_user_defined_family_has_parameters_only():
    table = gaussian()
    path = AnnealedClassifier(Radial(), schedule=[2.0, 1.0], selection="last").fit(table.X, table.y).path_
    assert path.parameters.shape == (2, 3, 4)
    assert path.coef is None


@pytest.mark.parametrize(
    ("make", "penalty_scaling"),
    [
        *(
            (make, penalty_scaling)
            for make in (gaussian, two_classes, wide)
            for penalty_scaling in ("none", "standardize")
        ),
        (badly_scaled, "standardize"),
    ],
    ids=lambda own: getattr(own, "__name__", own),
)
def test_free_energy_is_equation_17_at_the_recorded_parameters(make, penalty_scaling):
    table = make()
    model = AnnealedLogisticRegression(
        schedule=[2.0, 0.3, 0.05], l2_strength=0.6, penalty_scaling=penalty_scaling, cv=2, tol=1e-7
    )
    path = model.fit(table.X, table.y).path_
    matrix = oracles.penalty_matrix(table.X, penalty_scaling)
    for index, temperature in enumerate(path.temperatures):
        lambda_, intercept = temperature * path.coef[index], temperature * path.intercept[index]
        expected = oracles.penalized_free_energy(table.X, table.y, lambda_, intercept, temperature, 0.6, matrix)
        np.testing.assert_allclose(path.free_energy[index], expected, rtol=1e-7)


def test_free_energy_of_distances_is_equation_9_with_priors_and_pull():
    table = gaussian()
    path = AnnealedLDA(schedule=[5.0, 1.0], shrinkage=0.0, anchor=0.8, selection="last", tol=1e-7)
    path = path.fit(table.X, table.y).path_
    covariance = oracles.pooled_covariance(table.X, table.y)
    prior = np.bincount(table.y) / len(table.y)
    for index, temperature in enumerate(path.temperatures):
        offsets = path.means[index] - oracles.class_means(table.X, table.y)
        pull = 0.4 * sum(p * own @ np.linalg.solve(covariance, own) for p, own in zip(prior, offsets, strict=True))
        scores = oracles.distance_scores(table.X, path.means[index], covariance) + temperature * np.log(prior)
        expected = oracles.free_energy(scores, table.y, temperature) + pull
        np.testing.assert_allclose(path.free_energy[index], expected, rtol=1e-9)


def test_entropy_and_train_score_are_those_of_the_recorded_logits(path):
    table = gaussian()
    for index in range(len(path)):
        logits = table.X @ path.coef[index].T + path.intercept[index]
        np.testing.assert_allclose(path.entropy[index], oracles.mean_entropy(logits, 1.0), rtol=1e-6)
        calibrated = path.posterior_scale[index] * logits
        np.testing.assert_allclose(-path.train_score[index], oracles.free_energy(calibrated, table.y, 1.0), rtol=1e-6)


@pytest.mark.parametrize("solver", ["newton", "lbfgs", "scg", "subspace"])
def test_certificate_bounds_the_excess_of_every_temperature(solver, monkeypatch):
    table = gaussian()
    X = table.X
    if solver == "subspace":
        make_everything_wide(monkeypatch)
        table, X = text(), text().X.toarray()
    family = InnerProduct(l2_strength=0.3, penalty_scaling="none")
    path = AnnealedClassifier(family, schedule=LADDER, solver=solver, cv=2).fit(table.X, table.y).path_
    strengths = 0.3 * path.temperatures[:, None, None] * np.eye(X.shape[1])
    least = [oracles.multinomial_optimum(X, table.y, strength).value for strength in strengths]
    excess = path.free_energy / path.temperatures / least - 1
    assert path.converged.all()
    assert ((-1e-12 < excess) & (excess < path.certificate + 1e-12)).all()
    assert 0 < path.certificate.max() <= 1e-6


def test_a_family_without_a_certificate_has_none():
    table = gaussian()
    path = AnnealedLDA(schedule=[2.0, 1.0], cv=2).fit(table.X, table.y).path_
    assert path.certificate is None
    assert "certified" not in repr(path)


def test_entropy_falls_with_temperature(path):
    assert np.diff(path.entropy).max() < 0


def test_free_energy_at_the_minimum_falls_with_temperature(path):
    assert np.diff(path.free_energy).max() < 0


def test_validation_score_is_the_calibrated_log_loss_of_fits_that_did_not_see_the_fold():
    table = gaussian()
    folds = np.arange(len(table.y)) % 3
    splits = [(np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)) for fold in range(3)]
    model = AnnealedLogisticRegression(schedule=[1.0, 0.1], penalty_scaling="none", cv=splits, tol=1e-8).fit(
        table.X, table.y
    )
    for index, temperature in enumerate(model.path_.temperatures):
        for fold, (train, test) in enumerate(splits):
            strength = temperature * np.eye(4)
            fit = oracles.multinomial_optimum(table.X[train], table.y[train], strength)
            logits = model.path_.posterior_scale[index] * (table.X[test] @ fit.coef.T + fit.intercept)
            expected = -oracles.free_energy(logits, table.y[test], 1.0)
            np.testing.assert_allclose(model.path_.validation_score[index, fold], expected, rtol=1e-5)


def test_posterior_scale_is_the_best_one_under_its_prior():
    """It minimizes `loss(exp(s) * logits) + 2 s^2 / n_rows` and a tenth of the loss of one misclassified sample."""
    table = gaussian()
    folds = np.arange(len(table.y)) % 3
    splits = [(np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)) for fold in range(3)]
    model = AnnealedLogisticRegression(schedule=[3.0, 0.3, 0.01], penalty_scaling="none", cv=splits, tol=1e-8).fit(
        table.X, table.y
    )
    for index, temperature in enumerate(model.path_.temperatures):
        logits = np.zeros((len(table.y), 3))
        for train, test in splits:
            fit = oracles.multinomial_optimum(table.X[train], table.y[train], temperature * np.eye(4))
            logits[test] = table.X[test] @ fit.coef.T + fit.intercept

        rows = np.arange(len(table.y))
        others = logits.copy()
        others[rows, table.y] = -np.inf
        margin = np.mean(logits[rows, table.y] - others.max(axis=1))

        def penalized(s, logits=logits, margin=margin):
            loss, n_rows = oracles.free_energy(np.exp(s) * logits, table.y, 1.0), len(table.y)
            return loss + 2 * s**2 / n_rows + 0.1 / n_rows * (loss + np.exp(s) * margin)

        found = np.log(model.path_.posterior_scale[index])
        assert np.abs(oracles.slope(penalized, np.array(found))).max() < 1e-4


@pytest.mark.parametrize("margin", [300.0, 352.0, 690.0, 699.0, 1e4])
def test_moments_of_a_sample_that_is_far_on_the_wrong_side(margin):
    loss, mean, variance = scaled_moments(np.ones(1), np.array([[[0.0, margin, 3.0]]]))
    np.testing.assert_allclose([loss, mean], margin, rtol=1e-12)
    np.testing.assert_allclose(variance, 0, atol=1e-6)


def test_without_calibration_the_posterior_scale_is_one():
    table = gaussian()
    path = AnnealedLogisticRegression(schedule=[1.0, 0.1], cv=2, calibrate=False).fit(table.X, table.y).path_
    assert path.posterior_scale.tolist() == [1.0, 1.0]


def test_chosen_temperature_has_the_best_penalized_validation_score(model, path):
    penalty = 2 * np.log(path.posterior_scale) ** 2 / len(gaussian().y)
    means = path.validation_score.mean(axis=1) - penalty
    assert path.best_index == means.argmax()
    assert model.temperature_ == path.temperatures[path.best_index]
    assert model.posterior_scale_ == pytest.approx(path.posterior_scale[path.best_index])


# --- solving ----------------------------------------------------------------------------------------


class NoValidator:
    held_out = NOTHING_HELD_OUT
    sees_final = False

    def validate(self, problem, parameters, temperature):
        return Validation()

    def validate_all(self, problem, points, temperatures):
        return [Validation() for _ in points]


@pytest.mark.parametrize("family", [InnerProduct(), Distance()], ids=["inner_product", "distance"])
def test_every_step_of_the_walk_is_the_minimum_a_cold_start_finds(family):
    problem = family.prepare(stack_of(gaussian()), 0)
    steps = anneal(Plan.of(problem, LBFGS(), 1e-9, 2000), FixedSchedule(LADDER), NoValidator())
    assert [step.temperature for step in steps] == LADDER.tolist()
    for step in steps:
        cold = solve(problem, step.temperature, tol=1e-9)
        np.testing.assert_allclose(step.value, cold.value[0], rtol=1e-11)
        reached = problem.report(step.parameters, step.temperature)
        for name, array in problem.report(cold.parameters, step.temperature).items():
            np.testing.assert_allclose(reached[name][0], array[0], atol=1e-6 * np.abs(array).max())


# --- interpolation ---------------------------------------------------------------------------------


def test_at_a_visited_temperature_is_what_was_recorded(path):
    for index, temperature in enumerate(path.temperatures):
        arrays, scale = path.at(temperature)
        np.testing.assert_array_equal(arrays["coef"], path.coef[index])
        np.testing.assert_array_equal(arrays["intercept"], path.intercept[index])
        np.testing.assert_allclose(scale, path.posterior_scale[index], rtol=1e-12)


@pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, AnnealedLDA])
def test_at_a_temperature_between_is_close_to_a_fit_there(estimator):
    table = gaussian()
    model = estimator(schedule=LADDER, selection="last", tol=1e-8).fit(table.X, table.y)
    between = np.sqrt(LADDER[1:] * LADDER[:-1])
    for temperature in between:
        real = estimator(schedule=[temperature], selection="last", tol=1e-8).fit(table.X, table.y)
        difference = model.at(temperature).predict_proba(table.X) - real.predict_proba(table.X)
        assert np.abs(difference).max() < 1e-3


@pytest.mark.parametrize("n_temperatures", [1, 2, 3])
def test_at_works_on_short_paths(n_temperatures):
    table = gaussian()
    ladder = [1.0, 0.5, 0.25][:n_temperatures]
    path = AnnealedLogisticRegression(schedule=ladder, selection="last", tol=1e-8).fit(table.X, table.y).path_
    for index, temperature in enumerate(ladder):
        np.testing.assert_array_equal(path.at(temperature)[0]["coef"], path.coef[index])
    assert np.isfinite(path.at(np.sqrt(ladder[0] * ladder[-1]))[0]["coef"]).all()


@pytest.mark.parametrize(
    "ladder", [[100.0, 10.0, 1.0, 0.1, 0.01], [100.0, 1.0, 0.9, 0.8, 0.7], [10.0, 9.0, 8.0, 7.0, 0.01]]
)
@pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, AnnealedLDA])
def test_at_between_distant_temperatures_is_no_worse_than_either_end(estimator, ladder):
    table = gaussian()
    model = estimator(schedule=ladder, selection="last", tol=1e-6).fit(table.X, table.y)
    for hot, cold in pairwise(ladder):
        between = np.sqrt(hot * cold)
        real = estimator(schedule=[between], selection="last", tol=1e-6).fit(table.X, table.y)
        errors = [
            np.abs(model.at(own).predict_proba(table.X) - real.predict_proba(table.X)).max()
            for own in (hot, between, cold)
        ]
        assert errors[1] <= max(errors[0], errors[2])


def test_at_takes_the_ends_though_rounded(path):
    hot, cold = path.temperatures[0], path.temperatures[-1]
    np.testing.assert_allclose(path.at(hot * (1 + 1e-12))[0]["coef"], path.coef[0], rtol=1e-9)
    np.testing.assert_allclose(path.at(cold * (1 - 1e-12))[0]["coef"], path.coef[-1], rtol=1e-9)


@pytest.mark.parametrize("temperature", [4.01, 0.05, 1e9])
def test_at_outside_the_ends_is_an_error_that_names_them(path, temperature):
    cold = f"{path.temperatures[-1]:.6g}"
    with pytest.raises(ValueError, match=f"between {cold} and 4. Got {temperature!r}. Refit with a schedule"):
        path.at(temperature)


@pytest.mark.parametrize("temperature", [0, -1.0, np.nan])
def test_at_refuses_values_that_are_not_temperatures(path, temperature):
    with pytest.raises(ValueError, match="temperature must"):
        path.at(temperature)


def test_a_temperature_without_a_finite_model_is_refused():
    table = gaussian()
    with pytest.raises(ValueError, match="The model at temperature 1e-300 has no finite free energy"):
        AnnealedLDA(schedule=[1.0, 1e-300], cv=3).fit(table.X, table.y)


# --- print, frame, equality -------------------------------------------------------------------------


def test_repr_is_a_table_with_the_chosen_row_marked(path):
    first, header, *rows = repr(path).splitlines()
    method = "Newton's method in an eigenbasis of the features (4 directions)"
    assert first == f"AnnealingPath: 12 temperatures, score neg_log_loss, {method}"
    names = [
        "temperature",
        "C",
        "free_energy",
        "entropy",
        "train_score",
        "validation_score",
        "compared_score",
        "n_iter",
    ]
    assert header.split() == names
    certified = rows.pop()
    assert f"certified within {path.certificate[path.best_index]:.1e} of its minimum" in certified
    rows = rows[:12]
    marked = [index for index, row in enumerate(rows) if row.startswith("->")]
    assert marked == [path.best_index]
    chosen = rows[path.best_index].removeprefix("->").split()
    expected = [
        path.temperatures[path.best_index],
        path.C[path.best_index],
        path.free_energy[path.best_index],
        path.entropy[path.best_index],
        path.train_score[path.best_index],
        path.validation_score[path.best_index].mean(),
        path.compared_score[path.best_index],
        path.n_iter[path.best_index],
    ]
    np.testing.assert_allclose([float(word) for word in chosen], expected, rtol=1e-5)


def test_compared_score_is_the_mean_validation_score_without_the_penalty():
    """The penalty of a posterior scale, and a tenth of the loss of one more sample that is classified wrongly."""
    table = gaussian()
    splits = [(np.arange(len(table.y)), np.arange(len(table.y)))]  # held-out logits are those of the final fit
    path = AnnealedLogisticRegression(schedule=LADDER, cv=splits).fit(table.X, table.y).path_
    n_rows, rows = len(table.y), np.arange(len(table.y))
    for index, scale in enumerate(path.posterior_scale):
        logits = scale * (table.X @ path.coef[index].T + path.intercept[index])
        others = logits.copy()
        others[rows, table.y] = -np.inf
        loss = -path.validation_score[index].mean()
        wrong = loss + np.mean(logits[rows, table.y] - others.max(axis=1))
        penalty = 2 * np.log(scale) ** 2 / n_rows + 0.1 * wrong / n_rows
        np.testing.assert_allclose(path.compared_score[index], -loss - penalty, rtol=1e-4)


@pytest.mark.parametrize("settings", [{}, {"calibrate": False}, {"scoring": "accuracy"}, {"selection": "loo"}], ids=str)
@pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, AnnealedLDA])
def test_the_chosen_temperature_has_the_best_compared_score(estimator, settings):
    if estimator is AnnealedLDA and "selection" in settings:
        settings = {"selection": "holdout"}
    path = estimator(**settings).fit(*load_wine(return_X_y=True)).path_
    assert path.best_index == path.compared_score.argmax()
    if "scoring" in settings:
        np.testing.assert_array_equal(path.compared_score, path.validation_score.mean(axis=1))


def printed(path):
    rows = repr(path).splitlines()[2:]
    return [row.removeprefix("->").split()[0] for row in rows if row[:2] in ("  ", "->")]


def test_print_explains_why_another_temperature_has_a_better_validation_score():
    path = AnnealedLogisticRegression().fit(*load_wine(return_X_y=True)).path_
    best = path.validation_score.mean(axis=1).argmax()
    assert best != path.best_index
    text = repr(path)
    assert "-> chosen by compared_score: validation_score less a penalty for a posterior_scale far from one" in text
    assert f"The best validation_score is at temperature {path.temperatures[best]:.6g}." in text
    assert f"{path.temperatures[best]:.6g}" in printed(path)
    assert max(map(len, text.splitlines())) <= 120


def test_print_has_no_explanation_if_the_chosen_temperature_has_the_best_validation_score(path):
    best = int(path.validation_score.mean(axis=1).argmax())
    assert "chosen by" not in repr(remade(path, best_index=best))
    assert "chosen" not in repr(long_path(3, 1))


def test_print_explains_one_standard_error():
    model = AnnealedLogisticRegression(rule="one_standard_error").fit(*load_wine(return_X_y=True))
    path = model.path_
    best = path.compared_score.argmax()
    assert path.rule == "one_standard_error" and path.best_index < best
    line = f"{path.compared_score[best]:.6g} at temperature {path.temperatures[best]:.6g}."
    assert f"within one standard error of the best,\n   {line}" in repr(path)
    assert f"{path.temperatures[best]:.6g}" in printed(path)


@pytest.mark.parametrize("best_index", [0, 1, 20, 38, 39])
def test_repr_of_a_long_path_shows_its_ends_and_the_chosen_row(best_index):
    long = long_path(40, best_index)
    rows = repr(long).splitlines()[2:]
    assert len(rows) <= 12
    temperatures = [float(row.removeprefix("->").split()[0]) for row in rows if row.strip() != "..."]
    np.testing.assert_allclose([temperatures[0], temperatures[-1]], long.temperatures[[0, -1]], rtol=1e-5)
    (marked,) = [row for row in rows if row.startswith("->")]
    np.testing.assert_allclose(float(marked.removeprefix("->").split()[0]), long.temperatures[best_index], rtol=1e-5)


def long_path(n_temperatures, best_index):
    each = np.linspace(1.0, 0.1, n_temperatures)
    return AnnealingPath(
        temperatures=np.geomspace(10, 0.1, n_temperatures),
        arrays={"coef": np.zeros((n_temperatures, 2, 1)), "intercept": np.zeros((n_temperatures, 2))},
        free_energy=each,
        entropy=each,
        train_score=-each,
        validation_score=None,
        posterior_scale=np.ones(n_temperatures),
        n_iter=np.arange(n_temperatures),
        seconds=each,
        gradient_norm=each,
        converged=np.ones(n_temperatures, dtype=bool),
        is_node=np.ones(n_temperatures, dtype=bool),
        best_index=best_index,
        score_name="neg_log_loss",
    )


def test_to_frame_has_a_row_per_temperature(path):
    pytest.importorskip("pandas")
    frame = path.to_frame()
    assert len(frame) == len(path)
    np.testing.assert_array_equal(frame["temperature"], path.temperatures)
    np.testing.assert_array_equal(frame["C"], path.C)
    np.testing.assert_array_equal(frame["free_energy"], path.free_energy)
    np.testing.assert_array_equal(frame["validation_score"], path.validation_score.mean(axis=1))
    np.testing.assert_array_equal(frame["validation_spread"], path.validation_score.std(axis=1))
    np.testing.assert_array_equal(frame["compared_score"], path.compared_score)
    assert np.flatnonzero(frame["chosen"]).tolist() == [path.best_index]


def test_to_frame_without_validation_leaves_its_columns_out():
    pytest.importorskip("pandas")
    columns = set(long_path(3, 1).to_frame().columns)
    assert {"temperature", "entropy", "train_score", "n_iter", "seconds", "converged", "chosen"} <= columns
    assert not {"validation_score", "validation_spread", "compared_score", "posterior_scale", "C"} & columns


def test_equality_compares_everything_but_times(path):
    assert path == remade(path, seconds=path.seconds + 1)
    assert path != remade(path, best_index=path.best_index + 1)
    assert path != remade(path, free_energy=path.free_energy + 1e-9)
    assert path != remade(path, arrays={**path.arrays, "coef": path.coef + 1e-9})
    assert path != remade(path, arrays={"coef": path.coef})
    assert path != remade(path, validation_score=None)
    assert path != "a path"


@pytest.mark.parametrize("name", ["validation_score", "train_score"])
def test_paths_with_nan_at_the_same_place_are_equal(path, name):
    """A scorer may return NaN."""
    scores = getattr(path, name).copy()
    scores[0] = np.nan
    assert remade(path, **{name: scores}) == remade(path, **{name: scores.copy()})
    assert remade(path, **{name: scores}) != path
    assert remade(path, **{name: scores}) != remade(path, **{name: scores[::-1]})


def test_a_path_is_not_hashable_and_immutable(path):
    with pytest.raises(TypeError, match="unhashable"):
        hash(path)
    with pytest.raises(AttributeError):
        path.best_index = 0


@pytest.mark.parametrize("round_trip", [lambda own: pickle.loads(pickle.dumps(own)), copy.copy, copy.deepcopy])
def test_round_trips(path, round_trip):
    other = round_trip(path)
    assert other == path
    assert other.coef.tobytes() == path.coef.tobytes()
    assert repr(other) == repr(path)
