"""The penalty scaling chosen by `penalty_scaling="auto"`, and when the alternative scaling is tried.

Dense features start with "standardize". The alternative is "half-whiten", which is tried if perturbing the scaling
towards it improves the validation score significantly. With more features than samples it is "whiten", which is tried
unless ridge regression shows that shrinkage is needed; if shrinkage only does harm, the fit starts with "whiten".
Sparse features start with "none". The alternative is "standardize", which is always tried for few features and for a
path that has learned almost nothing.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import log_loss
from sklearn.model_selection import RepeatedStratifiedKFold, StratifiedKFold, StratifiedShuffleSplit
from small_problems import fold_masks, gaussian, make_everything_wide, shared_noise, solve, stack_of, text, wide

from annealed import AnnealedLogisticRegression
from annealed.estimators import path_fit
from annealed.estimators.path_fit import PathFit, SolvedPath, _prefers_alternative
from annealed.path import Step, Validation
from annealed.problems import InnerProduct, penalty_scaling
from annealed.problems.penalty_scaling import ScalingChoices
from annealed.solvers import LBFGS, Newton, Plan, Points
from annealed.validation.selection import improves_significantly

TEMPERATURE = 0.3


def little_variance():
    """Six classes in correlated features, separated along directions of small variance as much as of large variance."""
    generator = np.random.default_rng(0)
    y = np.arange(600) % 6
    spread = np.geomspace(10, 0.05, 20)
    X = (generator.normal(size=(6, 20))[y] + 0.7 * generator.normal(size=(600, 20))) * spread
    return X @ np.linalg.qr(generator.normal(size=(20, 20)))[0], y


def at_minimum(make):
    """A problem with `penalty_scaling="auto"` and the minimum of its final fit."""
    problem = InnerProduct().prepare(stack_of(make()))
    return problem, solve(problem, TEMPERATURE, Newton())


def fit_and_count_paths(X, y, monkeypatch, **settings):
    """A fitted model, and how many paths were computed for it."""
    calls, original = [], PathFit._solve_path
    monkeypatch.setattr(PathFit, "_solve_path", lambda *args: calls.append(args) or original(*args))
    return AnnealedLogisticRegression(**settings).fit(X, y), len(calls)


def test_the_largest_perturbation_gives_the_problem_in_the_alternative_scaling(monkeypatch):
    monkeypatch.setattr(penalty_scaling, "PERTURBATION", penalty_scaling.POWERS["half-whiten"])
    problem, minimum = at_minimum(gaussian)
    perturbed, alternative = (
        ScalingChoices(problem).perturbed(minimum.parameters[:1], TEMPERATURE, minimum.value[0]),
        ScalingChoices(problem).alternative(),
    )
    assert ScalingChoices(alternative).chosen() == {"penalty_scaling": "half-whiten"}
    # The two penalties differ by a factor, which multiplies the temperature.
    factor = perturbed.penalty(1.0, slice(0, 1))[0][0] / problem.scores.coordinates.spectrum[0] ** 0.5
    of_perturbed = solve(perturbed, TEMPERATURE, Newton())
    of_alternative = solve(alternative, TEMPERATURE * factor, Newton())
    np.testing.assert_allclose(of_perturbed.value, of_alternative.value, rtol=1e-8)
    actual, expected = (
        solved.report(solution.parameters, TEMPERATURE)["coef"]
        for solved, solution in ((perturbed, of_perturbed), (alternative, of_alternative))
    )
    np.testing.assert_allclose(actual, expected, atol=1e-5 * np.abs(expected).max())


def test_perturbing_the_scaling_keeps_the_penalty_of_the_final_fit():
    problem, minimum = at_minimum(gaussian)
    perturbed = ScalingChoices(problem).perturbed(minimum.parameters[:1], TEMPERATURE, minimum.value[0])
    values = [scaled.objective(minimum.parameters, TEMPERATURE)[0][0] for scaled in (problem, perturbed)]
    assert values[0] == pytest.approx(values[1], rel=1e-12)
    assert not np.allclose(*(scaled.penalty(TEMPERATURE, slice(0, 1))[0] for scaled in (problem, perturbed)))


def test_the_hessian_with_a_perturbed_scaling_agrees_with_finite_differences_of_the_gradient():
    problem, minimum = at_minimum(gaussian)
    perturbed = ScalingChoices(problem).perturbed(minimum.parameters[:1], TEMPERATURE, minimum.value[0])
    fits, point = slice(0, 1), minimum.parameters[:1]
    _, _, hessian = perturbed.hessians.terms(point, TEMPERATURE, fits)
    direction = np.random.default_rng(0).normal(size=hessian.shape[1])
    step = 1e-6 * perturbed.hessians.from_differences(direction[None])
    forward, backward = (perturbed.objective(point + sign * step, TEMPERATURE, fits)[1] for sign in (1, -1))
    slope = perturbed.hessians.by_differences(forward - backward)[0] / 2e-6
    np.testing.assert_allclose(hessian[0] @ direction, slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("solver", [LBFGS, Newton])
def test_folds_solved_without_the_final_fit_reach_the_same_minima(solver):
    table = gaussian()
    problem = InnerProduct().prepare(stack_of(table, fold_masks(len(table.y), 3)))
    plan, folds = Plan.of(problem, solver(), 1e-8, 500), np.arange(1, 4)
    alone = plan.solve(Points(folds, np.full(3, TEMPERATURE), problem.start(TEMPERATURE)[1:]))
    np.testing.assert_allclose(alone.value, solve(problem, TEMPERATURE, solver(), tol=1e-8).value[1:], rtol=1e-7)


def test_the_alternative_scaling_is_kept_where_it_validates_better():
    X, y = little_variance()
    model, half_whitened = (
        AnnealedLogisticRegression().fit(X, y),
        AnnealedLogisticRegression(penalty_scaling="half-whiten").fit(X, y),
    )
    standardized = AnnealedLogisticRegression(penalty_scaling="standardize").fit(X, y)
    assert (model.penalty_scaling_, half_whitened.penalty_scaling_, standardized.penalty_scaling_) == (
        "half-whiten",
        "half-whiten",
        "standardize",
    )
    np.testing.assert_allclose(model.path_.temperatures, half_whitened.path_.temperatures, rtol=1e-6)
    np.testing.assert_allclose(model.predict_proba(X), half_whitened.predict_proba(X), atol=1e-4)
    assert model.path_.validation_score.mean(axis=1).max() > standardized.path_.validation_score.mean(axis=1).max()


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_without_a_gain_the_path_is_exactly_that_of_standardize(load):
    X, y = load(return_X_y=True)
    model = AnnealedLogisticRegression().fit(X, y)
    assert model.penalty_scaling_ == "standardize"
    assert model.path_ == AnnealedLogisticRegression(penalty_scaling="standardize").fit(X, y).path_


@pytest.mark.parametrize(
    "settings",
    [
        {"penalty_scaling": "standardize"},
        {"schedule": [1.0, 0.1, 0.01, 1e-3]},
        {"scoring": "accuracy"},
        {"selection": "holdout"},
        {"temperature": 0.01},
    ],
    ids=str,
)
def test_no_alternative_is_tried_if_the_scaling_is_given_or_scores_cannot_decide(settings, monkeypatch):
    compared = []
    monkeypatch.setattr(path_fit, "improves_significantly", lambda *scores: compared.append(scores))
    X, y = little_variance()
    assert AnnealedLogisticRegression(**settings).fit(X, y).penalty_scaling_ == "standardize"
    assert not compared


def test_the_scaling_of_a_negligible_penalty_is_not_perturbed():
    problem, minimum = at_minimum(gaussian)
    assert ScalingChoices(problem).perturbed(minimum.parameters[:1], 1e-6 * TEMPERATURE, minimum.value[0]) is None


@pytest.mark.parametrize(("least_gain", "is_tried"), [(0.01, True), (0.5, False)])
def test_other_scalings_are_tried_only_if_the_score_can_still_improve_enough(least_gain, is_tried, monkeypatch):
    monkeypatch.setattr(path_fit, "LEAST_GAIN", least_gain)
    X, y = load_iris(return_X_y=True)  # its log-loss is about 0.07
    _, n_paths = fit_and_count_paths(X, y, monkeypatch, penalty_scaling="cv")
    assert (n_paths > 1) == is_tried


# --- sparse rows ------------------------------------------------------------------------------------


def mixed_units(n_rows=300, n_words=30, seed=0):
    """Counts of words and one feature of large numbers that is unrelated to the classes."""
    generator = np.random.default_rng(seed)
    y = np.arange(n_rows) % 3
    topics = generator.dirichlet(np.full(n_words, 0.2), size=3) + 0.01
    counts = np.stack([generator.multinomial(10, topics[label] / topics[label].sum()) for label in y])
    return sparse.csr_matrix(np.column_stack([counts, 1e3 * generator.normal(size=n_rows)])), y


@pytest.fixture
def everything_is_wide(monkeypatch):
    make_everything_wide(monkeypatch)
    monkeypatch.setattr("annealed.problems.penalty_scaling.FEW_ROWS", 1)


@pytest.mark.parametrize("is_wide", [False, True])
def test_sparse_features_in_very_different_units_are_standardized(is_wide, request):
    if is_wide:
        request.getfixturevalue("everything_is_wide")
    X, y = mixed_units()
    model = AnnealedLogisticRegression().fit(X, y)
    assert model.penalty_scaling_ == "standardize"
    assert model.path_ == AnnealedLogisticRegression(penalty_scaling="standardize").fit(X, y).path_
    raw = AnnealedLogisticRegression(penalty_scaling="none").fit(X, y)
    assert model.path_.validation_score.mean(axis=1).max() > raw.path_.validation_score.mean(axis=1).max() + 0.01


@pytest.mark.usefixtures("everything_is_wide")
def test_for_many_sparse_features_the_alternative_is_always_tried_if_almost_nothing_was_learned():
    problem = InnerProduct().prepare(stack_of(text()))
    assert ScalingChoices(problem).tries_alternative(has_learned=False)
    assert not ScalingChoices(problem).tries_alternative(has_learned=True)
    dense = InnerProduct().prepare(stack_of(gaussian()))
    assert not ScalingChoices(dense).tries_alternative(has_learned=False)


@pytest.mark.usefixtures("everything_is_wide")
@pytest.mark.parametrize(("unit", "is_tried"), [(1e3, True), (1.0, False)])
def test_the_alternative_is_tried_if_one_sparse_feature_has_more_variance_than_all_others(unit, is_tried):
    X, y = mixed_units()
    X[:, -1] *= unit / 1e3
    problem = InnerProduct().prepare(stack_of(replace(text(), X=sparse.csr_array(X), y=y)))
    assert ScalingChoices(problem).tries_alternative(has_learned=True) == is_tried


@pytest.mark.parametrize("is_wide", [False, True])
def test_for_sparse_features_in_similar_units_the_path_is_exactly_that_of_none(is_wide, request):
    if is_wide:
        request.getfixturevalue("everything_is_wide")
    table = text()
    model = AnnealedLogisticRegression().fit(table.X, table.y)
    assert model.penalty_scaling_ == "none"
    assert model.path_ == AnnealedLogisticRegression(penalty_scaling="none").fit(table.X, table.y).path_


@pytest.mark.parametrize(
    "settings", [{"schedule": [10.0, 1.0, 0.1]}, {"scoring": "accuracy"}, {"temperature": 1.0}], ids=str
)
def test_no_alternative_is_tried_for_sparse_features_if_scores_cannot_decide(settings):
    X, y = mixed_units()
    assert AnnealedLogisticRegression(**settings).fit(X, y).penalty_scaling_ == "none"


# --- more features than samples ----------------------------------------------------------------------


def test_with_more_features_than_samples_whiten_is_tried_without_a_perturbed_scaling():
    problem, minimum = at_minimum(wide)
    assert ScalingChoices(problem).perturbed(minimum.parameters[:1], TEMPERATURE, minimum.value[0]) is None
    assert ScalingChoices(problem).tries_alternative(has_learned=True)
    assert ScalingChoices(ScalingChoices(problem).alternative()).chosen() == {"penalty_scaling": "whiten"}


def test_for_samples_of_low_rank_whiten_is_not_always_tried():
    """Whitening does not reduce their classes to points, so a second path would cost as much as the first."""
    table = gaussian()
    embedded = table.X @ np.random.default_rng(0).normal(size=(table.X.shape[1], len(table.y) + 10))
    problem = InnerProduct().prepare(stack_of(replace(table, X=embedded)))
    assert problem.features.span is not None
    assert not ScalingChoices(problem).tries_alternative(has_learned=True)


def test_whiten_is_chosen_if_directions_of_large_variance_hide_the_classes():
    X, y = shared_noise()
    model = AnnealedLogisticRegression().fit(X, y)
    assert model.penalty_scaling_ == "whiten"
    standardized = AnnealedLogisticRegression(penalty_scaling="standardize").fit(X, y)
    X_new, y_new = shared_noise(400, seed=2)
    loss, loss_standardized = (log_loss(y_new, fitted.predict_proba(X_new)) for fitted in (model, standardized))
    assert loss < 0.9 * loss_standardized
    assert model.path_.validation_score[model.path_.best_index].mean() == pytest.approx(-loss, abs=0.1)


def many_more_features():
    return shared_noise(n_columns=2000)


def test_with_many_more_features_whiten_is_the_only_path_if_shrinkage_does_harm(monkeypatch):
    X, y = many_more_features()
    model, n_paths = fit_and_count_paths(X, y, monkeypatch)
    assert (model.penalty_scaling_, n_paths) == ("whiten", 1)
    assert model.path_ == AnnealedLogisticRegression(penalty_scaling="whiten").fit(X, y).path_


def test_leave_one_out_regression_is_not_used_if_the_splitter_may_keep_samples_together(monkeypatch):
    X, y = many_more_features()
    for cv in (StratifiedKFold(3), list(StratifiedKFold(3).split(X, y))):
        _, n_paths = fit_and_count_paths(X, y, monkeypatch, cv=cv)
        assert n_paths > 1


@pytest.mark.parametrize(
    "cv",
    [
        StratifiedKFold(3, shuffle=True, random_state=0),
        RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0),
        StratifiedShuffleSplit(3, random_state=0),
    ],
)
def test_a_splitter_that_shuffles_is_treated_like_a_number_of_folds(cv, monkeypatch):
    X, y = many_more_features()
    model, n_paths = fit_and_count_paths(X, y, monkeypatch, cv=cv)
    assert (model.penalty_scaling_, n_paths) == ("whiten", 1)


def test_samples_of_weight_zero_do_not_affect_the_choice():
    X, y = many_more_features()
    extra = np.random.default_rng(0).normal(size=(3, X.shape[1]))
    weight = np.r_[np.ones(len(y)), np.zeros(3)]
    X_longer, y_longer = np.concatenate([X, extra]), np.r_[y, y[:3]]
    model = AnnealedLogisticRegression(cv=3).fit(X_longer, y_longer, sample_weight=weight)
    assert model.penalty_scaling_ == AnnealedLogisticRegression(cv=3).fit(X, y).penalty_scaling_ == "whiten"


@pytest.mark.parametrize(
    ("cost", "n_paths", "chosen"),
    [(0.1, 1, "whiten"), (0.03, 2, "whiten"), (np.nan, 2, "whiten"), (-0.01, 1, "standardize")],
)
def test_the_effect_of_shrinkage_decides_how_many_paths_are_computed(cost, n_paths, chosen, monkeypatch):
    """Two if the effect is unclear; only that of "standardize" if shrinkage is needed."""
    monkeypatch.setattr(penalty_scaling, "ridge_cost", lambda *args: cost)
    model, n_computed = fit_and_count_paths(*many_more_features(), monkeypatch)
    assert (n_computed, model.penalty_scaling_) == (n_paths, chosen)


@pytest.mark.parametrize(
    "settings",
    [
        {"penalty_scaling": "standardize"},
        {"schedule": [1.0, 0.1, 0.01]},
        {"scoring": "accuracy"},
        {"selection": "holdout"},
    ],
    ids=str,
)
def test_the_effect_of_shrinkage_is_not_computed_if_no_alternative_is_possible(settings, monkeypatch):
    monkeypatch.setattr(penalty_scaling, "ridge_cost", None)  # a call would raise
    model, n_paths = fit_and_count_paths(*many_more_features(), monkeypatch, **settings)
    assert (model.penalty_scaling_, n_paths) == ("standardize", 1)


def test_with_a_single_validation_set_no_alternative_is_tried():
    """The error of the difference between two scores cannot be estimated from one set of samples."""
    X, y = shared_noise()
    assert AnnealedLogisticRegression(selection="holdout").fit(X, y).penalty_scaling_ == "standardize"


# --- significance of an improvement ------------------------------------------------------------------


def test_an_improvement_must_be_large_compared_with_its_error_and_with_the_score():
    reference = np.array([-0.5, -0.6, -0.55, -0.4, -0.45])
    assert improves_significantly(reference + 0.01, reference)
    assert not improves_significantly(reference + 0.001, reference)  # too small a share of the score
    assert not improves_significantly(reference - 0.01, reference)
    within_its_error = np.array([0.1, -0.06, 0.1, -0.06, 0.02])
    assert not improves_significantly(reference + within_its_error, reference)
    assert not improves_significantly(reference + np.nan, reference)


def test_progress_of_unfinished_folds_is_not_mistaken_for_an_effect_of_the_scaling():
    """Folds that stopped early score worse than solved ones, so both scalings are compared at solved folds."""

    class Solved:
        def solve(self, problem, points, accuracy, memory):
            return SimpleNamespace(parameters=points.parameters * 0 + problem.minimum)

    class Scores:
        def validate(self, problem, parameters, temperature):
            return Validation(-1 + 0.1 * parameters[:, 0] + 1e-6 * np.arange(len(parameters)))

    problem, perturbed = SimpleNamespace(minimum=1.0), SimpleNamespace(minimum=1.0)
    choices = SimpleNamespace(perturbed=lambda *point: perturbed)
    rough = np.zeros((5, 1))
    node = Step(1.0, 1.0, 0.0, 1, True, True, Scores().validate(problem, rough, 1.0), rough, 0.0)
    path = SolvedPath(Plan(problem, Solved(), 1e-4, 100, None), Scores(), [node], {})
    assert not _prefers_alternative(choices, path)
    perturbed.minimum = 2.0
    assert _prefers_alternative(choices, path)
