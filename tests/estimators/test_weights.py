"""Sample weights count samples; weights with a smaller sum, such as shares, are scaled up to the number of samples."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.model_selection import KFold

from annealed import (
    MELDA,
    AnnealedClassifier,
    AnnealedKernelClassifier,
    AnnealedLDA,
    AnnealedLogisticRegression,
    PottsDA,
)
from annealed.problems import InnerProduct, Quadratic

X, y = load_iris(return_X_y=True)
ESTIMATORS = pytest.mark.parametrize(
    "estimator", [AnnealedLogisticRegression, AnnealedLDA, MELDA, AnnealedKernelClassifier]
)


@ESTIMATORS
@pytest.mark.parametrize("share", [1 / 569, 1e-300, 5e-324])
def test_shares_give_the_same_choice_as_ones(estimator, share):
    X, y = load_breast_cancer(return_X_y=True)
    ones, shares = (estimator().fit(X, y, sample_weight=np.full(len(y), value)) for value in (1.0, share))
    np.testing.assert_allclose(shares.predict_proba(X), ones.predict_proba(X), atol=1e-6)


@ESTIMATORS
@pytest.mark.parametrize("make_rows", [np.asarray, csr_array])
@pytest.mark.parametrize("n_idle", [40, 400])
def test_samples_of_weight_zero_change_nothing(estimator, make_rows, n_idle):
    """Also not in the folds. Many of them are left out of the fit, few are kept in it."""
    idle = np.random.default_rng(0).normal(scale=9, size=(n_idle, X.shape[1]))
    longer, labels = np.concatenate([idle, X]), np.r_[np.zeros(n_idle, int), y]
    weight = np.r_[np.zeros(n_idle), np.ones(len(y))]
    weighted = estimator().fit(make_rows(longer), labels, sample_weight=weight)
    removed = estimator().fit(make_rows(X), y)
    atol = 2e-4 if estimator is AnnealedKernelClassifier else 1e-5  # idle rows turn the eigenbasis of its features
    np.testing.assert_allclose(weighted.predict_proba(X), removed.predict_proba(X), atol=atol)


@pytest.mark.parametrize(
    "model",
    [
        AnnealedLogisticRegression(penalty_scaling="half-whiten"),
        AnnealedLogisticRegression(penalty_scaling="whiten"),
        AnnealedLDA(),
    ],
)
def test_samples_of_weight_zero_do_not_count_against_features(model):
    """All samples outnumber the features, but those of positive weight do not."""
    rng = np.random.default_rng(3)
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 50)) + 2 * np.eye(3, 50)[y]
    weighted = clone(model).fit(X, y, sample_weight=(np.arange(60) < 40).astype(float))
    removed = clone(model).fit(X[:40], y[:40])
    np.testing.assert_allclose(weighted.predict_proba(X), removed.predict_proba(X), atol=1e-4)


@pytest.mark.parametrize(
    "model", [AnnealedLogisticRegression(penalty_scaling="none"), AnnealedLogisticRegression(), AnnealedLDA()]
)
@pytest.mark.parametrize("size", [1e6, 1e8])
def test_samples_of_weight_zero_may_lie_anywhere(model, size):
    rng = np.random.default_rng(0)
    y = np.arange(55) % 3
    X = rng.normal(size=(55, 120)) + 3 * np.eye(3, 120)[y]
    X[40:] *= size
    weighted = clone(model).fit(X, y, sample_weight=(np.arange(55) < 40).astype(float))
    removed = clone(model).fit(X[:40], y[:40])
    np.testing.assert_allclose(weighted.predict_proba(X[:40]), removed.predict_proba(X[:40]), atol=1e-3)


@pytest.mark.parametrize("lightest", [1e-8, 1e-12])
def test_light_samples_of_whitened_wide_tables_take_no_more_iterations(lightest):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 100)), rng.integers(3, size=80)
    weight = np.where(np.arange(80) < 24, lightest, 1.0)
    path = AnnealedLogisticRegression(penalty_scaling="whiten").fit(X, y, sample_weight=weight).path_
    assert path.converged.all() and path.n_iter.max() < 10


def test_splitters_and_scorers_see_the_given_samples():
    order = np.random.default_rng(0).permutation(len(y))
    weight = np.zeros(len(y))
    weight[order[:60]] = 1.0
    first, second = order[:30], order[30:]
    given = AnnealedLogisticRegression(cv=[(first, second), (second, first)]).fit(X, y, sample_weight=weight)
    scored = AnnealedLogisticRegression(cv=3, scoring="accuracy").fit(X, y, sample_weight=weight)
    kept = np.sort(order[:60])
    removed = AnnealedLogisticRegression(cv=3, scoring="accuracy").fit(X[kept], y[kept], sample_weight=np.ones(60))
    assert given.path_.validation_score.shape[1] == 2
    assert np.isfinite(given.path_.validation_score).all()
    np.testing.assert_allclose(scored.predict_proba(X), removed.predict_proba(X), atol=1e-6)


@ESTIMATORS
def test_a_class_without_weight_is_not_predicted_by_shares(estimator):
    weight = (y != 1) / (y != 1).sum()
    model = estimator(temperature=0.05) if estimator is not MELDA else MELDA(temperature=0.05)
    assert not (model.fit(X, y, sample_weight=weight).predict(X) == 1).any()


def test_shares_of_a_validation_set():
    half = np.arange(len(y)) % 2 == 0
    model = AnnealedLogisticRegression(selection="holdout")
    chosen = [
        model.fit(X[half], y[half], X_val=X[~half], y_val=y[~half], sample_weight_val=np.full(75, value)).temperature_
        for value in (1.0, 1 / 75)
    ]
    assert chosen[0] == pytest.approx(chosen[1])


@pytest.mark.parametrize("size", [1e-20, 1e-6, 1.0, 1e20, 1e300])
def test_a_class_that_is_missing_in_a_fold_at_any_size_of_weights(size):
    """Iris is sorted by class: each fold leaves one out."""
    model = AnnealedLogisticRegression(cv=KFold(3), calibrate=False)
    with pytest.warns(UserWarning, match="3 of the 3 folds of cv train without any sample of a class"):
        model.fit(X, y, sample_weight=np.full(len(y), size))
    assert model.path_.converged.all()
    assert (model.path_.validation_score.mean(axis=1) < -1).all()


def test_weights_that_add_up_to_infinity():
    with pytest.raises(ValueError, match="must add up to a finite number. Got inf"):
        AnnealedLogisticRegression().fit(X, y, sample_weight=np.full(len(y), 1e308))


def test_shares_on_a_device():
    pytest.importorskip("torch")
    ones, shares = (
        AnnealedLogisticRegression(device="cpu").fit(X, y, sample_weight=np.full(len(y), value))
        for value in (1.0, 1 / 150)
    )
    np.testing.assert_allclose(shares.predict_proba(X), ones.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, AnnealedLDA])
@pytest.mark.parametrize("factor", [1e-18, 1e-100, 1e-300])
def test_a_class_whose_weight_is_lost_beside_the_others(estimator, factor):
    """It is fitted as if its weight were zero, without a warning; with two such classes only one is left."""
    lost, nothing = (estimator(class_weight={0: weight}).fit(X, y) for weight in (factor, 0.0))
    np.testing.assert_array_equal(lost.predict_proba(X), nothing.predict_proba(X))
    with pytest.raises(ValueError, match="at least two classes with positive weight"):
        estimator(class_weight={0: factor, 1: factor}).fit(X, y)


@ESTIMATORS
def test_class_weights_of_classes_that_y_does_not_contain(estimator):
    """As in scikit-learn, they are ignored if every class of y is named, and refused otherwise."""
    two = y < 2
    more, named = (
        estimator(class_weight=weights).fit(X[two], y[two]) for weights in ({0: 1, 1: 3, 2: 5}, {0: 1, 1: 3})
    )
    np.testing.assert_array_equal(more.predict_proba(X), named.predict_proba(X))
    with pytest.raises(
        ValueError, match=r"class_weight must name every class .* Got unknown classes \['2'\], missing \[0\]."
    ):
        estimator(class_weight={1: 3, 2: 5}).fit(X[two], y[two])


def test_a_class_of_little_weight_is_fitted_without_a_warning():
    assert AnnealedLogisticRegression(class_weight={0: 1e-13}).fit(X, y).path_.converged.all()


@pytest.mark.parametrize("size", [1e38, 1e100, 1e300])
def test_prototypes_of_samples_of_huge_weight(size):
    rows = np.arange(0, 150, 2)
    model = PottsDA().fit(X[rows], y[rows], sample_weight=np.full(75, size))
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize("unweighted", [0, 1, 2])
@pytest.mark.parametrize(
    "model",
    [
        AnnealedLogisticRegression(temperature=0.01),
        AnnealedLogisticRegression(temperature=0.01, penalty_scaling="whiten"),
        AnnealedLogisticRegression(temperature=0.01, device="cpu"),
        AnnealedClassifier(InnerProduct(), solver="lbfgs", temperature=0.01),
        AnnealedClassifier(Quadratic(), temperature=0.01),
        AnnealedLDA(temperature=2.0),
        AnnealedLDA(temperature=0.01),
        AnnealedLDA(temperature=2.0, device="cpu"),
        MELDA(temperature=0.01),
    ],
    ids=str,
)
def test_a_class_of_total_weight_zero_is_not_predicted_and_changes_no_other(model, unweighted):
    if "cpu" in str(model):
        pytest.importorskip("torch")
    weighted = y != unweighted
    alone = clone(model).fit(X[weighted], y[weighted]).predict_proba(X)
    p = clone(model).fit(X, y, sample_weight=weighted * 1.0).predict_proba(X)
    assert p[:, unweighted].max() < 1e-5
    np.testing.assert_allclose(np.delete(p, unweighted, axis=1), alone, atol=2e-3)


@pytest.mark.parametrize("weight", [2.0, 2, np.array(2.0)], ids=repr)
def test_one_weight_for_all_samples_reaches_scorers_too(weight):
    plain = AnnealedLogisticRegression(scoring="accuracy", schedule=[1.0, 0.1]).fit(X, y)
    model = clone(plain).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(model.path_.validation_score, plain.path_.validation_score)
    held = clone(plain).set_params(selection="holdout").fit(X, y, X_val=X, y_val=y, sample_weight_val=weight)
    np.testing.assert_allclose(held.path_.validation_score[:, 0], held.path_.train_score)


def test_weights_that_are_not_numbers_are_shown():
    with pytest.raises(ValueError, match="sample_weight must hold one number for each sample. Got 'a'"):
        AnnealedLogisticRegression().fit(X, y, sample_weight="a")


@pytest.mark.parametrize("make_rows", [np.asarray, csr_array])
@pytest.mark.parametrize("n_columns", [45, 800])
@pytest.mark.parametrize(
    "model", [AnnealedLogisticRegression(penalty_scaling="whiten"), AnnealedLogisticRegression(), AnnealedLDA()]
)
def test_weights_are_repetitions_if_features_outnumber_distinct_samples(model, n_columns, make_rows):
    """As in a bootstrap sample: it may have more samples than features, but fewer distinct ones in every fold."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, n_columns))
    y = (X[:, :3] + rng.gumbel(size=(40, 3))).argmax(axis=1)
    times = rng.integers(1, 5, size=40)
    repeated = np.repeat(np.arange(40), times)

    def folds(rows):
        return [(np.flatnonzero(rows % 5 != fold), np.flatnonzero(rows % 5 == fold)) for fold in range(5)]

    weighted = clone(model).set_params(cv=folds(np.arange(40))).fit(make_rows(X), y, sample_weight=times)
    longer = clone(model).set_params(cv=folds(repeated)).fit(make_rows(X[repeated]), y[repeated])
    np.testing.assert_allclose(weighted.predict_proba(X), longer.predict_proba(X), atol=2e-4)


@pytest.mark.parametrize("are_sparse", [False, True])
def test_repetitions_are_found_however_zeros_are_stored(are_sparse):
    """Negative zeros, or zeros among the stored entries of sparse samples."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 50)) * (rng.random((60, 50)) < 0.5)
    picked = rng.integers(0, 40, 60)
    X, y = X[picked], rng.integers(0, 3, 40)[picked]
    other = np.where((X == 0) & (rng.random(X.shape) < 0.5), -0.0, X)
    if are_sparse:
        stored = other.ravel(), np.tile(np.arange(50), 60), np.arange(0, 3001, 50)
        X, other = csr_array(X), csr_array(stored, shape=X.shape)
    folds = [(np.flatnonzero(picked % 5 != fold), np.flatnonzero(picked % 5 == fold)) for fold in range(5)]
    model = AnnealedLogisticRegression(penalty_scaling="whiten", cv=folds)
    np.testing.assert_allclose(model.fit(X, y).predict_proba(X), model.fit(other, y).predict_proba(X), atol=1e-6)
