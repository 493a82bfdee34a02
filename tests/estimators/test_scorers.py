"""The user's scorer on folds and on a validation set: weights, missing scores, feature names."""

import warnings

import numpy as np
import pytest
import sklearn
from sklearn.datasets import load_breast_cancer, load_iris, load_wine, make_classification
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import accuracy_score, make_scorer, precision_score
from sklearn.model_selection import LeaveOneGroupOut

from annealed import AnnealedLDA, AnnealedLogisticRegression, PottsDA

X, y = load_breast_cancer(return_X_y=True)
FEW = [3.0, 1.0, 0.1]
ESTIMATORS = pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, AnnealedLDA])


def sites(one_class=True):
    """A group for each sample; the last one has samples of one class only."""
    generator = np.random.RandomState(0)
    groups = generator.randint(0, 5, len(y))
    return np.where((y == 1) & (generator.rand(len(y)) < 0.2), 9, groups) if one_class else groups


@ESTIMATORS
def test_weights_of_a_series_are_taken_by_position(estimator):
    pandas = pytest.importorskip("pandas")
    order = np.random.RandomState(1).permutation(len(y))
    weight = np.where(y == 0, 5.0, 1.0)
    given = (weight[order], pandas.Series(weight).iloc[order])
    plain, series = (
        estimator(scoring="accuracy", schedule=FEW).fit(X[order], y[order], sample_weight=weights).path_
        for weights in given
    )
    np.testing.assert_array_equal(plain.validation_score, series.validation_score)


@pytest.mark.parametrize("rule", ["best", "one_standard_error"])
def test_folds_without_a_score_are_left_out(rule):
    scorer = AnnealedLogisticRegression(cv=LeaveOneGroupOut(), scoring="roc_auc", rule=rule)
    with pytest.warns(UserWarning, match=r"returned NaN on validation folds \[5\] of 6"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UndefinedMetricWarning)  # from scikit-learn
        model = scorer.fit(X, y, groups=sites())
    assert model.path_.validation_score.shape[1] == 5
    assert model.score(X, y) > 0.95


@pytest.mark.parametrize(
    ("scoring", "message"),
    [
        (lambda model, X, y: np.nan, "returned NaN on a validation fold at each of 3 temperatures"),
        (lambda model, X, y: None, "must return one number. Got None"),
        (["accuracy", "neg_log_loss"], "the name of one scorer"),
    ],
)
def test_scorers_that_return_no_number(scoring, message):
    with pytest.raises(ValueError, match=message):
        AnnealedLogisticRegression(schedule=FEW, scoring=scoring).fit(X, y)


@pytest.mark.parametrize("rule", ["best", "one_standard_error"])
def test_a_temperature_without_a_score_is_not_chosen(rule):
    """At high temperatures the rare class is never predicted, and its precision is undefined."""
    rows, labels = make_classification(400, 5, weights=[0.85], random_state=0)
    precision = make_scorer(precision_score, zero_division=np.nan)
    model = AnnealedLogisticRegression(scoring=precision, rule=rule).fit(rows, labels)
    scores = model.path_.validation_score
    assert scores.shape[1] == 5 and np.isnan(scores[0]).any()
    assert np.isfinite(scores[model.path_.best_index]).all()


@pytest.mark.parametrize("scoring", ["roc_auc_ovr", "roc_auc_ovo"])
@pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, AnnealedLDA])
def test_folds_that_a_scorer_refuses_as_they_lack_a_class_are_left_out(estimator, scoring):
    rows, labels = load_wine(return_X_y=True)
    groups = np.where((labels > 0) & (np.arange(len(labels)) % 3 == 0), 5, np.arange(len(labels)) % 4)
    with pytest.warns(UserWarning, match=r"returned NaN on validation folds \[4\] of 5"):
        model = estimator(cv=LeaveOneGroupOut(), scoring=scoring, schedule=FEW).fit(rows, labels, groups=groups)
    assert model.path_.validation_score.shape == (3, 4)
    assert model.path_.validation_score.min() > 0.95


def test_an_error_of_a_scorer_on_folds_with_every_class_is_raised():
    def refuses(model, X, y):
        raise ValueError("this is no score")

    with pytest.raises(ValueError, match="this is no score"):
        AnnealedLogisticRegression(schedule=FEW, scoring=refuses).fit(X, y)


def test_an_error_of_a_scorer_on_all_folds_is_the_cause():
    rows, labels = load_wine(return_X_y=True)
    cv = [(np.arange(len(labels)), np.flatnonzero(labels != label)) for label in (0, 1)]
    with pytest.raises(
        ValueError, match="returned NaN on every validation fold, each of which lacks a class"
    ) as caught:
        AnnealedLogisticRegression(cv=cv, scoring="roc_auc_ovr", schedule=FEW).fit(rows, labels)
    assert "Number of classes in y_true" in str(caught.value.__cause__)


def test_a_mistake_in_a_scorer_is_raised_although_a_class_is_lacking():
    def mistaken(model, X, y):
        return model.no_such_thing

    with pytest.raises(AttributeError, match="no_such_thing"):
        AnnealedLogisticRegression(cv=LeaveOneGroupOut(), scoring=mistaken, schedule=FEW).fit(X, y, groups=sites())


def test_folds_that_all_lack_a_class_have_no_score():
    cv = [(np.arange(len(y)), np.flatnonzero(y == label)) for label in (0, 1)]
    nothing = make_scorer(lambda truth, predicted: np.nan)
    with pytest.raises(
        ValueError, match="returned NaN on every validation fold, each of which lacks a class. Got .nan, nan."
    ):
        AnnealedLogisticRegression(cv=cv, scoring=nothing, schedule=FEW).fit(X, y)


@pytest.mark.parametrize("scoring", ["neg_log_loss", "accuracy"])
def test_folds_of_weight_zero_are_left_out(scoring):
    groups = sites(one_class=False)
    weight = (groups != 2).astype(float)
    kept, settings = groups != 2, dict(cv=LeaveOneGroupOut(), scoring=scoring, schedule=FEW)
    weighted = AnnealedLogisticRegression(**settings).fit(X, y, sample_weight=weight, groups=groups).path_
    removed = AnnealedLogisticRegression(**settings).fit(X[kept], y[kept], groups=groups[kept]).path_
    np.testing.assert_allclose(weighted.validation_score, removed.validation_score, rtol=1e-3)


@pytest.mark.parametrize("empty", [np.array([], dtype=int), [], np.zeros(len(y), dtype=bool)])
def test_nothing_held_out(empty):
    with pytest.raises(ValueError, match="No held-out sample has a positive weight"):
        AnnealedLogisticRegression(cv=[(np.arange(len(y)), empty)]).fit(X, y)


def test_folds_may_be_boolean_masks():
    is_train = np.random.RandomState(0).rand(3, len(y)) < 0.7
    flags = [(mask, ~mask) for mask in is_train]
    numbers = [tuple(map(np.flatnonzero, split)) for split in flags]
    first, second = (
        AnnealedLogisticRegression(cv=cv, schedule=FEW).fit(X, y).path_.validation_score for cv in (flags, numbers)
    )
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (np.ones(10, dtype=bool), "but size of corresponding boolean axis is 10"),
        (np.array([0, len(y)]), f"index {len(y)} is out of bounds"),
        (np.array([0.0, 1.0]), "must be of integer"),
    ],
    ids=["flags", "numbers", "fractions"],
)
@pytest.mark.parametrize("part", ["train", "test"])
def test_folds_with_indices_out_of_range_are_refused(rows, reason, part):
    every_row = np.arange(len(y))
    cv = [(rows, every_row) if part == "train" else (every_row, rows)]
    with pytest.raises(ValueError, match=f"cv must give sample indices from 0 to {len(y) - 1}, .*{reason}"):
        AnnealedLogisticRegression(cv=cv, schedule=FEW).fit(X, y)


def test_folds_must_be_one_dimensional():
    with pytest.raises(ValueError, match=r"lists of sample indices, .* Got shape \(300, 1\)"):
        AnnealedLogisticRegression(cv=[(np.arange(300)[:, None], np.arange(300, 500))], schedule=FEW).fit(X, y)


def test_splits_given_as_an_iterator_are_used_by_the_fit_alone():
    halves = np.arange(len(y)) % 2 == 0
    with sklearn.config_context(enable_metadata_routing=True):
        cv = iter([(np.flatnonzero(halves), np.flatnonzero(~halves))])
        assert AnnealedLogisticRegression(cv=cv, schedule=FEW).fit(X, y).path_.validation_score.shape == (3, 1)


@pytest.mark.parametrize("is_routed", [False, True])
def test_weights_of_a_validation_set_reach_the_scorer(is_routed):
    half = np.arange(len(y)) % 2 == 0
    weight = np.where(y[~half] == 0, 10.0, 1.0)
    with sklearn.config_context(enable_metadata_routing=is_routed):
        scorer = make_scorer(accuracy_score)
        scorer = scorer.set_score_request(sample_weight=True) if is_routed else scorer
        model = AnnealedLogisticRegression(schedule=[3.0], selection="holdout", scoring=scorer, calibrate=False)
        model.fit(X[half], y[half], X_val=X[~half], y_val=y[~half], sample_weight_val=weight)
    expected = accuracy_score(y[~half], model.predict(X[~half]), sample_weight=weight)
    assert expected != accuracy_score(y[~half], model.predict(X[~half]))
    assert model.path_.validation_score.item() == pytest.approx(expected)


@pytest.mark.parametrize(
    "scoring", [lambda model, X, y: model.score(X, y), make_scorer(lambda truth, found: np.mean(truth == found))]
)
def test_scorers_that_accept_no_weights_get_advice(scoring):
    with pytest.raises(TypeError, match="must accept the sample_weight given to fit.*Add sample_weight=None"):
        AnnealedLogisticRegression(schedule=FEW, scoring=scoring).fit(X, y, sample_weight=np.ones(len(y)))


def test_validation_weights_need_a_validation_set():
    with pytest.raises(ValueError, match="sample_weight_val weighs the samples of a validation set"):
        AnnealedLogisticRegression().fit(X, y, sample_weight_val=np.ones(3))


@ESTIMATORS
def test_feature_names_give_no_warning(estimator):
    """Every warning is an error here."""
    pandas = pytest.importorskip("pandas")
    iris, species = load_iris(return_X_y=True)
    frame = pandas.DataFrame(iris, columns=list("abcd"))
    estimator(scoring="accuracy", schedule=FEW).fit(frame, species)
    estimator(scoring="accuracy", schedule=FEW, selection="holdout").fit(frame, species, X_val=frame, y_val=species)


@pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, PottsDA])
def test_callbacks_see_the_given_samples(estimator):
    pandas = pytest.importorskip("pandas")
    iris, species = load_iris(return_X_y=True)
    frame, scores = pandas.DataFrame(iris, columns=list("abcd")), []

    class Scores:
        def setup(self, estimator, context): ...

        def teardown(self, estimator, context): ...

        def on_fit_task_begin(self, estimator, context): ...

        def on_fit_task_end(self, estimator, context, *, X, y, fitted_estimator):
            scores.append(None if fitted_estimator is None else fitted_estimator.score(X, y))

    estimator().set_callbacks(Scores()).fit(frame, species)
    assert scores[-1] > 0.9


@pytest.mark.parametrize("scoring", ["neg_log_loss", "accuracy"])
def test_one_number_is_the_weight_of_every_sample(scoring):
    one, each = (
        AnnealedLogisticRegression(class_weight="balanced", scoring=scoring, schedule=FEW)
        .fit(X, y, sample_weight=weights)
        .path_
        for weights in (2.0, np.full(len(y), 2.0))
    )
    np.testing.assert_array_equal(one.validation_score, each.validation_score)
