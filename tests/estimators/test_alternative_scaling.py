"""penalty_scaling="auto": "standardize", unless folds a little on the way to "half-whiten" improve clearly.

Where columns outnumber rows "covariance" is tried unasked, unless least squares need a ridge; far outnumbered rows that
only lose by one begin there. Sparse columns are taken as they are, unless the
diagonal metric is better: of few, or where nothing was learned, it is tried.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from problems import fold_masks, gaussian, make_everything_wide, shared_noise, solve, stack_of, text, wide
from scipy import sparse
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import log_loss
from sklearn.model_selection import RepeatedStratifiedKFold, StratifiedKFold, StratifiedShuffleSplit

from annealed import AnnealedLogisticRegression
from annealed.design.shrinkage import RidgeEffect
from annealed.estimators import annealing
from annealed.estimators.annealing import Walk
from annealed.objectives import InnerProduct, penalty_scaling
from annealed.selection import improves_significantly
from annealed.solvers import LBFGS, Newton
from annealed.walk import Step, Validation

TEMPERATURE = 0.3


def little_variance():
    """Six classes in correlated columns, apart along the directions of least variance too."""
    generator = np.random.default_rng(0)
    y = np.arange(600) % 6
    spread = np.geomspace(10, 0.05, 20)
    X = (generator.normal(size=(6, 20))[y] + 0.7 * generator.normal(size=(600, 20))) * spread
    return X @ np.linalg.qr(generator.normal(size=(20, 20)))[0], y


def at_minimum(make):
    """A problem with the metric left open, and its final fit's minimum."""
    problem = InnerProduct().prepare(stack_of(make()))
    return problem, solve(problem, TEMPERATURE, Newton())


def test_all_the_way_the_tilted_problem_is_that_of_the_metric_it_leads_to(monkeypatch):
    monkeypatch.setattr(penalty_scaling, "TILT", penalty_scaling.POWERS["half-whiten"])
    problem, found = at_minimum(gaussian)
    with_perturbed_scaling, with_alternative_scaling = (
        problem.with_perturbed_scaling(found.parameters[0], TEMPERATURE, found.value[0]),
        problem.with_alternative_scaling(),
    )
    assert with_alternative_scaling.chosen() == {"penalty_scaling": "half-whiten"}
    unit = (
        with_perturbed_scaling.penalty(1.0, slice(0, 1))[0][0] / problem.coordinates.spectrum[0] ** 0.5
    )  # of the temperature
    here = solve(with_perturbed_scaling, TEMPERATURE, Newton())
    there = solve(with_alternative_scaling, TEMPERATURE * unit, Newton())
    np.testing.assert_allclose(here.value, there.value, rtol=1e-8)
    ours, theirs = (
        own.report(at.parameters, TEMPERATURE)["coef"]
        for own, at in ((with_perturbed_scaling, here), (with_alternative_scaling, there))
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-5 * np.abs(theirs).max())


def test_tilted_penalty_weighs_the_final_fit_as_much():
    problem, found = at_minimum(gaussian)
    with_perturbed_scaling = problem.with_perturbed_scaling(found.parameters[0], TEMPERATURE, found.value[0])
    values = [own.objective(found.parameters, TEMPERATURE)[0][0] for own in (problem, with_perturbed_scaling)]
    assert values[0] == pytest.approx(values[1], rel=1e-12)
    assert not np.allclose(*(own.penalty(TEMPERATURE, slice(0, 1))[0] for own in (problem, with_perturbed_scaling)))


def test_tilted_hessian_is_the_slope_of_its_gradient():
    problem, found = at_minimum(gaussian)
    with_perturbed_scaling = problem.with_perturbed_scaling(found.parameters[0], TEMPERATURE, found.value[0])
    fits, point = slice(0, 1), found.parameters[:1]
    _, _, hessian = with_perturbed_scaling.objective_and_hessian(point, TEMPERATURE, fits)
    direction = np.random.default_rng(0).normal(size=hessian.shape[1])
    step = 1e-6 * with_perturbed_scaling.from_differences(direction[None])
    rise, fall = (with_perturbed_scaling.objective(point + sign * step, TEMPERATURE, fits)[1] for sign in (1, -1))
    slope = with_perturbed_scaling.by_differences(rise - fall)[0] / 2e-6
    np.testing.assert_allclose(hessian[0] @ direction, slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("solver", [LBFGS, Newton])
def test_folds_alone_reach_what_they_reach_beside_the_final_fit(solver):
    table = gaussian()
    problem = InnerProduct().prepare(stack_of(table, fold_masks(len(table.y), 3)))
    start = problem.start(TEMPERATURE)
    options = {"tol": 1e-8, "max_iter": 500}
    alone, beside = solver(), solver()
    folds = alone.minimize_folds(problem, start, TEMPERATURE, memory=alone.new_memory(problem), **options)
    every = beside.minimize(problem, start, TEMPERATURE, memory=beside.new_memory(problem), **options)
    np.testing.assert_allclose(folds.value[1:], every.value[1:], rtol=1e-7)


def test_a_table_that_gains_gets_the_other_metric_and_its_path():
    X, y = little_variance()
    model, alone = (
        AnnealedLogisticRegression().fit(X, y),
        AnnealedLogisticRegression(penalty_scaling="half-whiten").fit(X, y),
    )
    diagonal = AnnealedLogisticRegression(penalty_scaling="standardize").fit(X, y)
    assert (model.penalty_scaling_, alone.penalty_scaling_, diagonal.penalty_scaling_) == (
        "half-whiten",
        "half-whiten",
        "standardize",
    )
    np.testing.assert_allclose(model.path_.temperatures, alone.path_.temperatures, rtol=1e-6)
    np.testing.assert_allclose(model.predict_proba(X), alone.predict_proba(X), atol=1e-4)
    assert model.path_.validation_score.mean(axis=1).max() > diagonal.path_.validation_score.mean(axis=1).max()


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_a_table_that_does_not_keeps_the_diagonal_one_to_the_bit(load):
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
def test_nothing_is_tried_where_it_was_not_left_open_or_cannot_be_told(settings, monkeypatch):
    asked = []
    monkeypatch.setattr(annealing, "improves_significantly", lambda *scores: asked.append(scores))
    X, y = little_variance()
    assert AnnealedLogisticRegression(**settings).fit(X, y).penalty_scaling_ == "standardize"
    assert not asked


def test_a_penalty_that_weighs_nothing_has_nothing_to_lean_to():
    problem, found = at_minimum(gaussian)
    assert problem.with_perturbed_scaling(found.parameters[0], 1e-6 * TEMPERATURE, found.value[0]) is None


@pytest.mark.parametrize(("least_gain", "is_tried"), [(0.01, True), (0.5, False)])
def test_where_too_little_is_left_to_gain_no_other_metric_is_tried(least_gain, is_tried, monkeypatch):
    walked, walk = [], AnnealedLogisticRegression._walk
    monkeypatch.setattr(annealing, "LEAST_GAIN", least_gain)
    monkeypatch.setattr(AnnealedLogisticRegression, "_walk", lambda *own: walked.append(own) or walk(*own))
    AnnealedLogisticRegression(penalty_scaling="cv").fit(*load_iris(return_X_y=True))  # with a log-loss of about 0.07
    assert (len(walked) > 1) == is_tried


# --- sparse rows ------------------------------------------------------------------------------------


def mixed_units(n_rows=300, n_words=30, seed=0):
    """Counts of words beside one column of large numbers that says nothing."""
    generator = np.random.default_rng(seed)
    y = np.arange(n_rows) % 3
    topics = generator.dirichlet(np.full(n_words, 0.2), size=3) + 0.01
    counts = np.stack([generator.multinomial(10, topics[label] / topics[label].sum()) for label in y])
    return sparse.csr_matrix(np.column_stack([counts, 1e3 * generator.normal(size=n_rows)])), y


@pytest.fixture
def everything_is_wide(monkeypatch):
    make_everything_wide(monkeypatch)
    monkeypatch.setattr("annealed.objectives.penalized_linear.MOST_SPANNED_ROWS", 1)


@pytest.mark.parametrize("is_wide", [False, True])
def test_sparse_columns_in_other_units_get_the_diagonal_metric_and_its_path(is_wide, request):
    if is_wide:
        request.getfixturevalue("everything_is_wide")
    X, y = mixed_units()
    model = AnnealedLogisticRegression().fit(X, y)
    assert model.penalty_scaling_ == "standardize"
    assert model.path_ == AnnealedLogisticRegression(penalty_scaling="standardize").fit(X, y).path_
    raw = AnnealedLogisticRegression(penalty_scaling="none").fit(X, y)
    assert model.path_.validation_score.mean(axis=1).max() > raw.path_.validation_score.mean(axis=1).max() + 0.01


@pytest.mark.usefixtures("everything_is_wide")
def test_many_sparse_columns_are_tried_unasked_where_next_to_nothing_was_learned():
    problem = InnerProduct().prepare(stack_of(text()))
    shares = problem.class_shares[0]
    nothing = float(shares @ np.log(shares))
    assert problem.always_tries_alternative(0.99 * nothing)
    assert not problem.always_tries_alternative(0.9 * nothing)
    dense = InnerProduct().prepare(stack_of(gaussian()))
    assert not dense.always_tries_alternative(nothing)


@pytest.mark.parametrize("is_wide", [False, True])
def test_sparse_columns_in_like_units_stay_as_they_are_to_the_bit(is_wide, request):
    if is_wide:
        request.getfixturevalue("everything_is_wide")
    table = text()
    model = AnnealedLogisticRegression().fit(table.X, table.y)
    assert model.penalty_scaling_ == "none"
    assert model.path_ == AnnealedLogisticRegression(penalty_scaling="none").fit(table.X, table.y).path_


@pytest.mark.parametrize(
    "settings", [{"schedule": [10.0, 1.0, 0.1]}, {"scoring": "accuracy"}, {"temperature": 1.0}], ids=str
)
def test_sparse_columns_stay_where_no_other_metric_was_left_open(settings):
    X, y = mixed_units()
    assert AnnealedLogisticRegression(**settings).fit(X, y).penalty_scaling_ == "none"


# --- more columns than rows --------------------------------------------------------------------------


def test_more_columns_than_rows_are_tried_unasked_and_not_tilted():
    problem, found = at_minimum(wide)
    assert problem.with_perturbed_scaling(found.parameters[0], TEMPERATURE, found.value[0]) is None
    assert problem.always_tries_alternative(-1.0)
    assert problem.with_alternative_scaling().chosen() == {"penalty_scaling": "whiten"}


def test_rows_of_few_dimensions_in_many_columns_are_not_tried():
    """No metric makes points of their classes: a second path would cost what the first did."""
    table = gaussian()
    turned = table.X @ np.random.default_rng(0).normal(size=(table.X.shape[1], len(table.y) + 10))
    problem = InnerProduct().prepare(stack_of(replace(table, X=turned)))
    assert problem.span is not None
    assert not problem.always_tries_alternative(-1.0)


def test_directions_that_hide_the_classes_get_the_covariance_metric():
    X, y = shared_noise()
    model = AnnealedLogisticRegression().fit(X, y)
    assert model.penalty_scaling_ == "whiten"
    plain = AnnealedLogisticRegression(penalty_scaling="standardize").fit(X, y)
    new, labels = shared_noise(400, seed=2)
    ours, theirs = (log_loss(labels, own.predict_proba(new)) for own in (model, plain))
    assert ours < 0.9 * theirs
    assert model.path_.validation_score[model.path_.best_index].mean() == pytest.approx(-ours, abs=0.1)


def far_outnumbered():
    return shared_noise(n_columns=2000)


def walks_of(X, y, monkeypatch, **settings):
    """A fit, and how many paths it walked."""
    walked, walk = [], AnnealedLogisticRegression._walk
    monkeypatch.setattr(AnnealedLogisticRegression, "_walk", lambda *own: walked.append(own) or walk(*own))
    return AnnealedLogisticRegression(**settings).fit(X, y), len(walked)


def test_far_outnumbered_rows_that_only_lose_by_a_ridge_are_whitened_at_once(monkeypatch):
    X, y = far_outnumbered()
    model, n_walks = walks_of(X, y, monkeypatch)
    assert (model.penalty_scaling_, n_walks) == ("whiten", 1)
    assert model.path_ == AnnealedLogisticRegression(penalty_scaling="whiten").fit(X, y).path_


def test_rows_that_a_splitter_may_keep_together_are_not_taken_one_by_one(monkeypatch):
    X, y = far_outnumbered()
    for cv in (StratifiedKFold(3), list(StratifiedKFold(3).split(X, y))):
        _, n_walks = walks_of(X, y, monkeypatch, cv=cv)
        assert n_walks > 1


@pytest.mark.parametrize(
    "cv",
    [
        StratifiedKFold(3, shuffle=True, random_state=0),
        RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0),
        StratifiedShuffleSplit(3, random_state=0),
    ],
)
def test_a_splitter_that_deals_rows_at_random_is_as_a_number_of_folds(cv, monkeypatch):
    X, y = far_outnumbered()
    model, n_walks = walks_of(X, y, monkeypatch, cv=cv)
    assert (model.penalty_scaling_, n_walks) == ("whiten", 1)


def test_sample_weights_of_zero_are_rows_left_out_of_that_question():
    X, y = far_outnumbered()
    extra = np.random.default_rng(0).normal(size=(3, X.shape[1]))
    weight = np.r_[np.ones(len(y)), np.zeros(3)]
    longer, labels = np.concatenate([X, extra]), np.r_[y, y[:3]]
    model = AnnealedLogisticRegression(cv=3).fit(longer, labels, sample_weight=weight)
    assert model.penalty_scaling_ == AnnealedLogisticRegression(cv=3).fit(X, y).penalty_scaling_ == "whiten"


@pytest.mark.parametrize(
    ("gain", "cost", "n_columns", "n_walks"),
    [
        (0.02, 0.1, 2000, 2),
        (0.0, 0.03, 2000, 2),
        (np.nan, np.nan, 2000, 2),
        (0.0, 0.1, 500, 2),
        (0.2, 0.1, 2000, 1),
        (0.2, -0.1, 500, 1),
    ],
)
def test_least_squares_say_how_many_metrics_are_walked(gain, cost, n_columns, n_walks, monkeypatch):
    """Both where the answer is not clear, or rows are not few enough to trust it; the diagonal one alone where a ridge
    is needed.
    """
    monkeypatch.setattr(penalty_scaling, "ridge_effect", lambda *own: RidgeEffect(gain, cost))
    model, walked = walks_of(*shared_noise(n_columns=n_columns), monkeypatch)
    assert walked == n_walks
    assert n_walks > 1 or model.penalty_scaling_ == "standardize"


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
def test_they_are_not_asked_where_the_metric_was_not_left_open(settings, monkeypatch):
    monkeypatch.setattr(penalty_scaling, "ridge_effect", None)  # not to be called
    model, n_walks = walks_of(*far_outnumbered(), monkeypatch, **settings)
    assert (model.penalty_scaling_, n_walks) == ("standardize", 1)


def test_one_validation_set_asks_for_no_other_metric():
    """By how much two paths differ is not known from one set of rows."""
    X, y = shared_noise()
    assert AnnealedLogisticRegression(selection="holdout").fit(X, y).penalty_scaling_ == "standardize"


# --- the question -----------------------------------------------------------------------------------


def test_a_rise_is_many_errors_and_a_share_of_the_score():
    reference = np.array([-0.5, -0.6, -0.55, -0.4, -0.45])
    assert improves_significantly(reference + 0.01, reference)
    assert not improves_significantly(reference + 0.001, reference)  # too little
    assert not improves_significantly(reference - 0.01, reference)
    assert not improves_significantly(
        reference + np.array([0.1, -0.06, 0.1, -0.06, 0.02]), reference
    )  # not beyond its error
    assert not improves_significantly(reference + np.nan, reference)


def test_what_further_steps_do_to_rough_folds_is_not_taken_for_the_metric():
    """Folds that stopped early validate worse here; solved, they validate as well where they are as a little on."""

    class Solved:
        leaves_folds_rough = True

        def minimize_folds(self, problem, start, temperature, **options):
            return SimpleNamespace(parameters=start * 0 + problem.minimum)

    class Scores:
        def validate(self, problem, parameters, temperature):
            return Validation(-1 + 0.1 * parameters[:, 0] + 1e-6 * np.arange(len(parameters)))

    problem, with_perturbed_scaling = SimpleNamespace(minimum=1.0), SimpleNamespace(minimum=1.0)
    problem.with_perturbed_scaling = lambda *point: with_perturbed_scaling
    rough = np.zeros((5, 1))
    node = Step(1.0, 1.0, 0.0, 1, True, True, Scores().validate(problem, rough, 1.0), rough, 0.0)
    walk = Walk(problem, Scores(), [node], {}, Solved(), {})
    assert not AnnealedLogisticRegression()._prefers_alternative(walk)
    with_perturbed_scaling.minimum = 2.0
    assert AnnealedLogisticRegression()._prefers_alternative(walk)
