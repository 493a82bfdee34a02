"""A second fit of the same estimator leaves nothing of the first."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError

from annealed import MELDA, AnnealedClassifier, AnnealedLogisticRegression, PooledGaussian, PottsDA, SecondOrderFeatures
from annealed.problems import Distance, Quadratic

X, y = load_wine(return_X_y=True)


def test_a_refit_in_the_papers_coordinates_removes_the_explained_information():
    model = MELDA().fit(X, y)
    assert hasattr(model, "explained_information_")
    model.set_params(coordinates="paper").fit(X, y)
    assert not hasattr(model, "explained_information_")


def test_a_refit_with_another_family_removes_the_attributes_of_the_first():
    model = AnnealedClassifier().fit(X, y)
    assert model.penalty_scaling_ == "standardize"
    model.set_params(objective=Distance()).fit(X, y)
    assert not hasattr(model, "penalty_scaling_")
    fresh = AnnealedClassifier(Distance()).fit(X, y)
    assert vars(model).keys() == vars(fresh).keys()
    np.testing.assert_array_equal(model.predict_proba(X), fresh.predict_proba(X))


def test_an_invalid_parameter_keeps_the_previous_fit():
    model = PottsDA(3, n_init=1, shrinkage="oas", refine=False).fit(X, y)
    posterior = model.predict_proba(X)
    with pytest.raises(ValueError, match="n_init must be a positive whole number. Got 0"):
        model.set_params(n_init=0).fit(X[:, :2], y + 5)
    np.testing.assert_array_equal(model.classes_, [0, 1, 2])
    np.testing.assert_array_equal(model.predict_proba(X), posterior)


@pytest.mark.parametrize("columns", [slice(None), slice(2)])
def test_a_failed_refit_with_other_classes_leaves_no_fitted_prototypes(columns):
    model = PottsDA(3, n_init=1, shrinkage="oas", refine=False).fit(X[:, columns], y)
    with pytest.raises(ValueError, match="n_prototypes as a dict must name every class of y"):
        model.set_params(n_prototypes={0: 1}).fit(X + 1, y + 5)
    for method in (model.predict, model.predict_proba, model.transform, model.apply):
        with pytest.raises(NotFittedError):
            method(X)


@pytest.mark.parametrize("is_refit", [False, True])
@pytest.mark.parametrize(
    ("estimator", "wrong"),
    [
        (AnnealedLogisticRegression(), {"cv": []}),
        (MELDA(coordinates="paper"), {"reference_class": "nope"}),
        (MELDA(), {"n_components": 9}),
        (MELDA(), {"cv": []}),
    ],
    ids=repr,
)
def test_after_a_failed_fit_the_estimator_is_not_fitted(estimator, wrong, is_refit):
    model = clone(estimator)
    if is_refit:
        model.fit(X, y)
    with pytest.raises(ValueError, match=next(iter(wrong))):
        model.set_params(**wrong).fit(X + 1, y + 5)
    for method in ("predict", "predict_proba", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(model, method)(X)


@pytest.mark.parametrize(
    "estimator", [AnnealedLogisticRegression(), AnnealedClassifier(Quadratic()), PooledGaussian(), MELDA()], ids=repr
)
def test_after_an_invalid_x_with_other_features_the_estimator_is_not_fitted(estimator):
    model = clone(estimator).fit(X[:, :3], y)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full_like(X[:, :5], np.nan), y)
    for columns in (3, 5):
        with pytest.raises(NotFittedError):
            model.predict(X[:, :columns])


@pytest.mark.parametrize(
    "estimator", [AnnealedLogisticRegression(selection="holdout"), MELDA(selection="holdout")], ids=repr
)
def test_after_an_invalid_validation_set_the_estimator_is_not_fitted(estimator):
    model = clone(estimator).fit(X[:, :3], y)
    with pytest.raises(ValueError, match="3 features"):
        model.fit(X[:, :5], y, X_val=X[:, :3], y_val=y)
    for columns in (3, 5):
        with pytest.raises(NotFittedError):
            model.predict(X[:, :columns])


def test_after_a_failed_callback_the_estimator_is_not_fitted():
    class Failing:
        def setup(self, estimator, context):
            raise RuntimeError("no")

        def teardown(self, estimator, context): ...

        def on_fit_task_begin(self, estimator, context, **data):
            raise RuntimeError("no")

        def on_fit_task_end(self, estimator, context, **data): ...

    model = AnnealedLogisticRegression().fit(X, y).set_callbacks(Failing())
    with pytest.raises(RuntimeError):
        model.fit(X, np.array(["p", "q", "r"])[y][::-1])
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_after_an_invalid_neighborhood_the_transformer_is_not_fitted():
    products = SecondOrderFeatures(1).fit(X[:, :4])
    with pytest.raises(ValueError, match="neighborhood must be"):
        products.set_params(neighborhood=-1).fit(X[:, :9])
    with pytest.raises(NotFittedError):
        products.transform(X[:, :9])
