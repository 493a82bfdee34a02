"""Splitters and scorers get X and y as they were passed to fit, as in scikit-learn's `cross_validate`."""

import numpy as np
import pytest
import sklearn
from sklearn.datasets import load_iris
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import BaseCrossValidator

from annealed import MELDA, AnnealedLDA, AnnealedLogisticRegression

X, y = load_iris(return_X_y=True)
FEW = [3.0, 1.0, 0.1]
NAMES = list("abcd")
ESTIMATORS = pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, AnnealedLDA])
FRAMES = pytest.mark.parametrize("library", ["pandas", "polars"])


class ByColumn(BaseCrossValidator):
    """Samples whose column "a" is above its median, and the others."""

    def get_n_splits(self, X=None, y=None, groups=None):
        return 2

    def _iter_test_masks(self, X, y=None, groups=None):
        is_above = np.asarray(X["a"]) > 5.8
        return iter([is_above, ~is_above])


def accuracy_by_name(model, X, y):
    """Weighted by a column, which only a data frame has by name."""
    return accuracy_score(y, model.predict(X), sample_weight=1.0 + np.asarray(X["a"]))


def accuracy_by_position(model, X, y):
    return accuracy_score(y, model.predict(X), sample_weight=1.0 + X[:, 0])


@ESTIMATORS
@FRAMES
@pytest.mark.filterwarnings("ignore:. of the 2 folds of cv train without any sample")
def test_frames_reach_splitters_and_scorers(estimator, library):
    frame = pytest.importorskip(library).DataFrame(dict(zip(NAMES, X.T, strict=True)))
    is_above = X[:, 0] > 5.8
    splits = [(np.flatnonzero(~is_test), np.flatnonzero(is_test)) for is_test in (is_above, ~is_above)]
    named = estimator(schedule=FEW, cv=ByColumn(), scoring=accuracy_by_name).fit(frame, y)
    plain = estimator(schedule=FEW, cv=splits, scoring=accuracy_by_position).fit(X, y)
    np.testing.assert_array_equal(named.path_.validation_score, plain.path_.validation_score)
    np.testing.assert_array_equal(named.path_.train_score, plain.path_.train_score)


@ESTIMATORS
def test_frames_of_a_validation_set_reach_the_scorer(estimator):
    """Without a warning that X has no feature names: pytest would turn it into an error."""
    model = estimator(schedule=FEW, selection="holdout", scoring=accuracy_by_name)
    named = model.fit(pandas_frame(), y, X_val=pandas_frame()[::2], y_val=y[::2])
    plain = estimator(schedule=FEW, selection="holdout", scoring=accuracy_by_position)
    plain.fit(X, y, X_val=X[::2], y_val=y[::2])
    np.testing.assert_array_equal(named.path_.validation_score, plain.path_.validation_score)


def test_a_series_of_labels_reaches_the_scorer_with_its_index():
    pandas = pytest.importorskip("pandas")
    series = pandas.Series(np.array(["se", "ve", "vi"])[y], index=np.arange(len(y))[::-1] + 1000, dtype="category")
    first_indices = []

    def scoring(model, X, y):
        first_indices.append(y.index[0])
        return accuracy_score(y, model.predict(X))

    AnnealedLogisticRegression(schedule=FEW, scoring=scoring).fit(X, series)
    assert max(first_indices) == 1149 and min(first_indices) >= 1000


@pytest.mark.parametrize("given", [y.tolist(), tuple(y), y[:, None]], ids=["list", "tuple", "column"])
@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
def test_labels_of_another_type_reach_the_scorer_as_an_array(given):
    scoring = make_scorer(lambda y_true, y_predicted: float(np.mean(y_true.reshape(-1) == y_predicted)))
    model = AnnealedLogisticRegression(schedule=FEW, scoring=scoring).fit(X, given)
    plain = AnnealedLogisticRegression(schedule=FEW, scoring="accuracy").fit(X, y)
    np.testing.assert_allclose(model.path_.validation_score, plain.path_.validation_score)


def test_metadata_of_a_scorer_need_not_be_one_value_per_sample():
    def power(y_true, y_predicted, exponent):
        return np.mean(y_true == y_predicted) ** exponent

    with sklearn.config_context(enable_metadata_routing=True):
        scoring = make_scorer(power).set_score_request(exponent=True)
        squared = AnnealedLogisticRegression(schedule=FEW, scoring=scoring).fit(X, y, exponent=2)
    plain = AnnealedLogisticRegression(schedule=FEW, scoring="accuracy").fit(X, y)
    np.testing.assert_allclose(squared.path_.validation_score, plain.path_.validation_score**2)


def pandas_frame():
    return pytest.importorskip("pandas").DataFrame(X, columns=NAMES)


@pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, AnnealedLDA, MELDA])
def test_frames_of_sparse_boolean_columns_are_counted_as_numbers(estimator):
    """As returned by `pandas.get_dummies(sparse=True)`. scikit-learn keeps them boolean, so that sums would be True."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    category, y = rng.integers(0, 6, 300), rng.integers(0, 3, 300)
    y[category < 3] = category[category < 3]
    indicators = pandas.get_dummies(pandas.Series(category), sparse=True)
    model = estimator().fit(indicators, y)
    same = estimator().fit(indicators.astype(pandas.SparseDtype(float, 0.0)), y)
    np.testing.assert_allclose(model.predict_proba(indicators), same.predict_proba(indicators), atol=1e-12)
    assert model.score(indicators, y) > 0.6
