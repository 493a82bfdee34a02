"""Weights count rows; weights that add up to less, such as shares, count the rows that have any."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.model_selection import KFold

from annealed import MELDA, AnnealedClassifier, AnnealedLDA, AnnealedLogisticRegression, PottsDA
from annealed.objectives import InnerProduct, Quadratic

X, y = load_iris(return_X_y=True)
ESTIMATORS = pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, AnnealedLDA, MELDA])


@ESTIMATORS
@pytest.mark.parametrize("share", [1 / 569, 1e-300, 5e-324])
def test_shares_choose_what_ones_choose(estimator, share):
    X, y = load_breast_cancer(return_X_y=True)
    ones, shares = (estimator().fit(X, y, sample_weight=np.full(len(y), own)) for own in (1.0, share))
    np.testing.assert_allclose(shares.predict_proba(X), ones.predict_proba(X), atol=1e-6)


@ESTIMATORS
@pytest.mark.parametrize("make_rows", [np.asarray, csr_array])
@pytest.mark.parametrize("n_idle", [40, 400])
def test_rows_of_weight_zero_are_as_if_they_were_not_there(estimator, make_rows, n_idle):
    """Folds do not count them either. Most of many are left out, few are carried along."""
    idle = np.random.default_rng(0).normal(scale=9, size=(n_idle, X.shape[1]))
    longer, labels = np.concatenate([idle, X]), np.r_[np.zeros(n_idle, int), y]
    weight = np.r_[np.zeros(n_idle), np.ones(len(y))]
    weighted = estimator().fit(make_rows(longer), labels, sample_weight=weight)
    removed = estimator().fit(make_rows(X), y)
    np.testing.assert_allclose(weighted.predict_proba(X), removed.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize(
    "model",
    [
        AnnealedLogisticRegression(penalty_scaling="half-whiten"),
        AnnealedLogisticRegression(penalty_scaling="whiten"),
        AnnealedLDA(),
    ],
)
def test_rows_of_weight_zero_do_not_make_up_for_columns(model):
    """Where all rows outnumber columns, but those with weight do not."""
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
def test_rows_of_weight_zero_may_lie_anywhere(model, size):
    rng = np.random.default_rng(0)
    y = np.arange(55) % 3
    X = rng.normal(size=(55, 120)) + 3 * np.eye(3, 120)[y]
    X[40:] *= size
    weighted = clone(model).fit(X, y, sample_weight=(np.arange(55) < 40).astype(float))
    removed = clone(model).fit(X[:40], y[:40])
    np.testing.assert_allclose(weighted.predict_proba(X[:40]), removed.predict_proba(X[:40]), atol=1e-3)


@pytest.mark.parametrize("lightest", [1e-8, 1e-12])
def test_light_rows_of_whitened_wide_tables_take_no_longer(lightest):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 100)), rng.integers(3, size=80)
    weight = np.where(np.arange(80) < 24, lightest, 1.0)
    path = AnnealedLogisticRegression(penalty_scaling="whiten").fit(X, y, sample_weight=weight).path_
    assert path.converged.all() and path.n_iter.max() < 10


def test_folds_and_scores_of_the_user_go_by_the_rows_given():
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
        model.fit(X[half], y[half], X_val=X[~half], y_val=y[~half], sample_weight_val=np.full(75, own)).temperature_
        for own in (1.0, 1 / 75)
    ]
    assert chosen[0] == pytest.approx(chosen[1])


@pytest.mark.parametrize("size", [1e-20, 1e-6, 1.0, 1e20, 1e300])
def test_a_class_that_a_fold_has_not_seen_at_any_size_of_weights(size):
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
        AnnealedLogisticRegression(device="cpu").fit(X, y, sample_weight=np.full(len(y), own)) for own in (1.0, 1 / 150)
    )
    np.testing.assert_allclose(shares.predict_proba(X), ones.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, AnnealedLDA])
@pytest.mark.parametrize("factor", [1e-18, 1e-100, 1e-300])
def test_a_class_whose_weight_is_lost_beside_the_others(estimator, factor):
    """As if it had none, without a warning; two such leave one class."""
    lost, nothing = (estimator(class_weight={0: own}).fit(X, y) for own in (factor, 0.0))
    np.testing.assert_array_equal(lost.predict_proba(X), nothing.predict_proba(X))
    with pytest.raises(ValueError, match="at least two classes with positive weight"):
        estimator(class_weight={0: factor, 1: factor}).fit(X, y)


@ESTIMATORS
def test_weights_of_classes_that_y_does_not_hold(estimator):
    """As in scikit-learn: left alone where every class of y is named, and else taken for a slip."""
    two = y < 2
    more, named = (estimator(class_weight=own).fit(X[two], y[two]) for own in ({0: 1, 1: 3, 2: 5}, {0: 1, 1: 3}))
    np.testing.assert_array_equal(more.predict_proba(X), named.predict_proba(X))
    with pytest.raises(
        ValueError, match=r"class_weight must name every class .* Got unknown classes \['2'\], missing \[0\]."
    ):
        estimator(class_weight={1: 3, 2: 5}).fit(X[two], y[two])


def test_a_class_of_little_weight_is_fitted_without_a_warning():
    assert AnnealedLogisticRegression(class_weight={0: 1e-13}).fit(X, y).path_.converged.all()


@pytest.mark.parametrize("size", [1e38, 1e100, 1e300])
def test_prototypes_of_rows_of_huge_weight(size):
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
def test_a_class_whose_rows_all_weigh_nothing_wins_no_row_and_changes_no_other(model, unweighted):
    if "cpu" in str(model):
        pytest.importorskip("torch")
    weighted = y != unweighted
    alone = clone(model).fit(X[weighted], y[weighted]).predict_proba(X)
    p = clone(model).fit(X, y, sample_weight=weighted * 1.0).predict_proba(X)
    assert p[:, unweighted].max() < 1e-5
    np.testing.assert_allclose(np.delete(p, unweighted, axis=1), alone, atol=2e-3)


@pytest.mark.parametrize("weight", [2.0, 2, np.array(2.0)], ids=repr)
def test_one_weight_for_all_rows_reaches_scorers_too(weight):
    plain = AnnealedLogisticRegression(scoring="accuracy", schedule=[1.0, 0.1]).fit(X, y)
    model = clone(plain).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(model.path_.validation_score, plain.path_.validation_score)
    held = clone(plain).set_params(selection="holdout").fit(X, y, X_val=X, y_val=y, sample_weight_val=weight)
    np.testing.assert_allclose(held.path_.validation_score[:, 0], held.path_.train_score)


def test_weights_that_are_no_numbers_are_shown():
    with pytest.raises(ValueError, match="sample_weight must hold one number for each sample. Got 'a'"):
        AnnealedLogisticRegression().fit(X, y, sample_weight="a")


@pytest.mark.parametrize("make_rows", [np.asarray, csr_array])
@pytest.mark.parametrize("n_columns", [45, 800])
@pytest.mark.parametrize(
    "model", [AnnealedLogisticRegression(penalty_scaling="whiten"), AnnealedLogisticRegression(), AnnealedLDA()]
)
def test_weights_are_repetitions_where_columns_outnumber_unlike_rows(model, n_columns, make_rows):
    """As in a bootstrap sample: it may have more rows than columns, but no fold sees as many that differ."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, n_columns))
    y = (X[:, :3] + rng.gumbel(size=(40, 3))).argmax(axis=1)
    times = rng.integers(1, 5, size=40)
    repeated = np.repeat(np.arange(40), times)

    def folds(rows):
        return [(np.flatnonzero(rows % 5 != own), np.flatnonzero(rows % 5 == own)) for own in range(5)]

    weighted = clone(model).set_params(cv=folds(np.arange(40))).fit(make_rows(X), y, sample_weight=times)
    longer = clone(model).set_params(cv=folds(repeated)).fit(make_rows(X[repeated]), y[repeated])
    np.testing.assert_allclose(weighted.predict_proba(X), longer.predict_proba(X), atol=2e-4)


@pytest.mark.parametrize("are_sparse", [False, True])
def test_rows_repeat_however_their_zeros_are_kept(are_sparse):
    """Negative, or stored among the entries of sparse rows."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 50)) * (rng.random((60, 50)) < 0.5)
    picked = rng.integers(0, 40, 60)
    X, y = X[picked], rng.integers(0, 3, 40)[picked]
    other = np.where((X == 0) & (rng.random(X.shape) < 0.5), -0.0, X)
    if are_sparse:
        stored = other.ravel(), np.tile(np.arange(50), 60), np.arange(0, 3001, 50)
        X, other = csr_array(X), csr_array(stored, shape=X.shape)
    folds = [(np.flatnonzero(picked % 5 != own), np.flatnonzero(picked % 5 == own)) for own in range(5)]
    model = AnnealedLogisticRegression(penalty_scaling="whiten", cv=folds)
    np.testing.assert_allclose(model.fit(X, y).predict_proba(X), model.fit(other, y).predict_proba(X), atol=1e-6)
