"""MELDA chooses its temperature as AnnealedLogisticRegression does, also by groups and by a validation set."""

from functools import partial

import numpy as np
import pytest
import sklearn
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError
from sklearn.metrics import balanced_accuracy_score, make_scorer
from sklearn.model_selection import GroupKFold, cross_validate

from annealed import MELDA, AnnealedLogisticRegression

X, y = load_wine(return_X_y=True)
GROUPS = np.random.RandomState(0).randint(0, 20, len(y))
HALF = np.arange(len(y)) % 2 == 0


@pytest.mark.parametrize("n_components", [None, 1])
def test_folds_of_groups(n_components):
    model = MELDA(n_components, cv=GroupKFold(3)).fit(X, y, groups=GROUPS)
    alone = AnnealedLogisticRegression(cv=GroupKFold(3)).fit(X, y, groups=GROUPS)
    assert model.classifier_.temperature_ == alone.temperature_


@pytest.mark.parametrize("n_components", [None, 1])
def test_splits_may_be_an_iterator(n_components):
    splits = [(np.flatnonzero(HALF), np.flatnonzero(~HALF)), (np.flatnonzero(~HALF), np.flatnonzero(HALF))]
    once, listed = (MELDA(n_components, cv=given).fit(X, y) for given in (iter(splits), splits))
    np.testing.assert_array_equal(once.predict_proba(X), listed.predict_proba(X))


def test_groups_are_routed():
    with sklearn.config_context(enable_metadata_routing=True):
        found = cross_validate(
            MELDA(cv=GroupKFold(3)), X, y, cv=GroupKFold(3), params={"groups": GROUPS}, error_score="raise"
        )
    assert found["test_score"].min() > 0.9


@pytest.mark.parametrize("n_components", [None, 1])
def test_a_validation_set(n_components):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=[f"column {number}" for number in range(X.shape[1])])
    held_out = {"X_val": frame[~HALF], "y_val": y[~HALF], "sample_weight_val": np.arange(1.0, (~HALF).sum() + 1)}
    model = MELDA(n_components, selection="holdout").fit(frame[HALF], y[HALF], **held_out)
    alone = AnnealedLogisticRegression(selection="holdout").fit(frame[HALF], y[HALF], **held_out)
    assert model.classifier_.temperature_ == alone.temperature_
    assert model.transform(frame).shape == (len(y), n_components or 2)


def test_unknown_arguments_are_refused():
    with pytest.raises(TypeError, match=r"unexpected arguments \['colour'\]"):
        MELDA().fit(X, y, colour=1)


# --- scoring, rule and calibration ----------------------------------------------------------------------------

SETTINGS = [
    {"scoring": "accuracy"},
    {"scoring": make_scorer(balanced_accuracy_score)},
    {"rule": "one_standard_error"},
    {"calibrate": False},
]


@pytest.mark.parametrize("n_components", [None, 1])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_temperature_and_scale_are_chosen_as_by_annealed_logistic_regression(settings, n_components):
    model, alone = (make(**settings).fit(X, y) for make in (partial(MELDA, n_components), AnnealedLogisticRegression))
    assert model.temperature_ == alone.temperature_
    assert model.posterior_scale_ == alone.posterior_scale_
    assert model.C_ == alone.C_
    assert model.penalty_scaling_ == alone.penalty_scaling_
    assert model.path_.score_name == alone.path_.score_name
    np.testing.assert_array_equal(model.path_.validation_score, alone.path_.validation_score)
    if n_components is None:
        np.testing.assert_array_equal(model.predict_proba(X), alone.predict_proba(X))


@pytest.mark.parametrize(
    "settings",
    [
        {"scoring": None},
        {"scoring": "no_such_scorer"},
        {"scoring": lambda model, X, y: np.nan},
        {"scoring": "accuracy", "selection": "loo"},
        {"rule": "worst"},
        {"rule": "one_standard_error", "selection": "holdout"},
        {"calibrate": 1},
    ],
    ids=", ".join,
)
def test_bad_settings_are_refused_as_by_annealed_logistic_regression(settings):
    with pytest.raises(ValueError) as expected:
        AnnealedLogisticRegression(**settings).fit(X, y)
    with pytest.raises(ValueError) as caught:
        MELDA(**settings).fit(X, y)
    assert str(caught.value) == str(expected.value)


def test_weights_are_routed_to_the_scorer():
    weight = np.arange(1.0, len(y) + 1)
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = make_scorer(balanced_accuracy_score).set_score_request(sample_weight=True)
        model, alone = (
            make(scoring=scorer, schedule=[10.0, 1.0, 0.1]).fit(X, y, sample_weight=weight)
            for make in (MELDA, AnnealedLogisticRegression)
        )
        assert "scorer" in str(model.get_metadata_routing())
    np.testing.assert_array_equal(model.path_.validation_score, alone.path_.validation_score)


@pytest.mark.parametrize("n_components", [None, 1])
def test_another_temperature_is_the_log_linear_classifier_there(n_components):
    model, alone = MELDA(n_components).fit(X, y), AnnealedLogisticRegression().fit(X, y)
    before = model.predict_proba(X)
    np.testing.assert_array_equal(model.at(0.5).predict_proba(X), alone.at(0.5).predict_proba(X))
    np.testing.assert_array_equal(model.at(C=1.0).predict_proba(X), alone.at(C=1.0).predict_proba(X))
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_there_is_no_path_before_a_fit():
    assert not any(hasattr(MELDA(), name) for name in ("path_", "temperature_", "C_", "posterior_scale_", "coef_"))
    with pytest.raises(NotFittedError):
        MELDA().at(1.0)
