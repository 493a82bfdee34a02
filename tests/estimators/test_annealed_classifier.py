"""AnnealedClassifier with any family, and what it has in common with its specializations."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine, make_circles
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from small_problems import Radial

from annealed import AnnealedClassifier, AnnealedLDA, AnnealedLogisticRegression
from annealed.problems import Distance, InnerProduct, Quadratic

X, y = load_iris(return_X_y=True)


FAMILIES = [InnerProduct(), Distance(), Quadratic(), Radial()]
ESTIMATORS = [AnnealedLogisticRegression(), AnnealedLDA(), *map(AnnealedClassifier, FAMILIES)]


def test_specializations_equal_the_general_classifier_with_their_family():
    for specialization, family in [(AnnealedLogisticRegression(), InnerProduct()), (AnnealedLDA(), Distance())]:
        general = AnnealedClassifier(family).fit(X, y)
        np.testing.assert_array_equal(specialization.fit(X, y).predict_proba(X), general.predict_proba(X))


def test_a_user_defined_family_can_be_fitted():
    model = AnnealedClassifier(Radial()).fit(X, y)
    assert model.score(X, y) > 0.9
    assert not hasattr(model, "coef_")
    assert model.path_.parameters.shape == (len(model.path_), 3, 4)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    other = model.at(model.path_.temperatures[3])
    assert other.temperature_ == model.path_.temperatures[3]


def test_quadratic_scores_separate_circles_and_linear_scores_do_not():
    features, labels = make_circles(300, noise=0.1, factor=0.5, random_state=0)
    linear = cross_val_score(AnnealedLogisticRegression(), features, labels)
    quadratic = cross_val_score(AnnealedClassifier(Quadratic()), features, labels)
    assert linear.mean() < 0.65
    assert quadratic.mean() > 0.95


def test_quadratic_equals_logistic_regression_on_second_order_features():
    temperature = 0.01
    model = AnnealedClassifier(Quadratic(penalty_scaling="none"), temperature=temperature, tol=1e-8).fit(X, y)
    standardized = (X - X.mean(axis=0)) / X.std(axis=0)
    left, right = np.triu_indices(4)
    features = np.hstack([standardized, standardized[:, left] * standardized[:, right]])
    oracle = LogisticRegression(C=1 / (temperature * len(y)), tol=1e-12, max_iter=10_000, solver="newton-cg")
    oracle.fit(features, y)
    np.testing.assert_allclose(model.coef_, oracle.coef_, atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(X), oracle.predict_proba(features), atol=1e-6)


@pytest.mark.parametrize("model", ESTIMATORS, ids=str)
def test_models_can_be_cloned_pickled_and_shown_as_html(model):
    fitted = clone(model).set_params(schedule=[5.0, 1.0, 0.1]).fit(X, y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert again.path_ == fitted.path_
    assert type(model).__name__ in model._repr_html_()


@pytest.mark.parametrize("model", ESTIMATORS, ids=str)
def test_a_fitted_model_does_not_contain_its_training_data(model):
    features, labels = np.tile(X, (40, 1)), np.tile(y, 40)
    fitted = clone(model).set_params(schedule=[5.0, 1.0]).fit(features, labels)
    assert len(pickle.dumps(fitted)) < features.nbytes / 4


@pytest.mark.parametrize("model", ESTIMATORS, ids=str)
def test_feature_names_are_stored_and_checked(model):
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    fitted = clone(model).set_params(schedule=[5.0, 1.0]).fit(frame, y)
    assert list(fitted.feature_names_in_) == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(frame[["b", "a", "c", "d"]])


@pytest.mark.parametrize("model", ESTIMATORS, ids=str)
def test_duplicated_samples_count_as_weights(model):
    weight = np.where(np.arange(len(y)) % 3 == 0, 2, 1)
    weight[::7] = 0
    rows = np.repeat(np.arange(len(y)), weight)
    settings = dict(schedule=[10.0, 1.0, 0.1], selection="last", tol=1e-8)
    weighted = clone(model).set_params(**settings).fit(X, y, sample_weight=weight)
    repeated = clone(model).set_params(**settings).fit(X[rows], y[rows])
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("model", ESTIMATORS, ids=str)
def test_permuting_classes_permutes_posteriors(model):
    settings = dict(schedule=[10.0, 1.0, 0.1], selection="last", tol=1e-8)
    plain = clone(model).set_params(**settings).fit(X, y)
    order = np.array([2, 0, 1])
    permuted = clone(model).set_params(**settings).fit(X, order[y])
    np.testing.assert_allclose(permuted.predict_proba(X)[:, order], plain.predict_proba(X), atol=1e-6)


def test_class_weights_equal_sample_weights():
    settings = dict(schedule=[1.0, 0.1], calibrate=False)
    weight = np.array([1.0, 2.0, 5.0])
    by_class = AnnealedLogisticRegression(class_weight=dict(enumerate(weight)), **settings).fit(X, y)
    by_sample = AnnealedLogisticRegression(**settings).fit(X, y, sample_weight=weight[y])
    np.testing.assert_allclose(by_class.coef_, by_sample.coef_)


def test_balanced_class_weights_are_inverse_to_class_frequencies():
    labels = y[:120]
    balanced = AnnealedLogisticRegression(class_weight="balanced", temperature=0.1).fit(X[:120], labels)
    count = np.bincount(labels)
    explicit = AnnealedLogisticRegression(temperature=0.1).fit(
        X[:120], labels, sample_weight=(120 / (3 * count))[labels]
    )
    np.testing.assert_allclose(balanced.coef_, explicit.coef_)


def test_at_gives_a_model_of_any_temperature_on_the_path_without_a_refit():
    features, labels = load_wine(return_X_y=True)
    model = AnnealedLogisticRegression(calibrate=False).fit(features, labels)
    before = model.coef_.copy()
    between = np.sqrt(model.path_.temperatures[8] * model.path_.temperatures[9])
    at_between = model.at(between)
    assert at_between.temperature_ == pytest.approx(between)
    np.testing.assert_array_equal(model.coef_, before)
    refitted = AnnealedLogisticRegression(temperature=float(between), calibrate=False).fit(features, labels)
    np.testing.assert_allclose(at_between.predict_proba(features), refitted.predict_proba(features), atol=1e-4)
