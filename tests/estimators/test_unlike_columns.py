"""Features of very different scales: classes may be separated by small differences, or by features in small units."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from annealed import AnnealedLDA, AnnealedLogisticRegression

SCHEDULE = [1.0, 0.1, 0.01]


def signal(n_rows=500, seed=0):
    """A random generator, an informative feature, and labels that it determines almost completely."""
    generator = np.random.RandomState(seed)
    informative = generator.randn(n_rows)
    return generator, informative, (informative + 0.2 * generator.randn(n_rows) > 0).astype(int)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("size", [1e-2, 1e-3, 1e-4])
def test_a_path_continues_until_the_difference_of_two_features_is_learned(size, seed):
    generator, informative, y = signal(seed=seed)
    common = generator.randn(len(y))
    X = np.column_stack([common, common + size * informative])
    assert AnnealedLogisticRegression().fit(X, y).score(X, y) > 0.93


def test_the_path_of_uninformative_features_ends_early():
    generator, _, y = signal()
    common = generator.randn(len(y))
    path = AnnealedLogisticRegression().fit(np.column_stack([common, common + 1e-3 * generator.randn(len(y))]), y).path_
    assert path.temperatures[-1] > 1e-4 * path.temperatures[0]


@pytest.mark.parametrize("store", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("widest", [1e5, 1e7, 1e9])
def test_without_penalty_scaling_features_in_small_units_are_learned(widest, store):
    """The minimum is not above that of scikit-learn without the feature in large units, which is uninformative."""
    generator, informative, y = signal()
    X = np.column_stack([informative, generator.randn(len(y)), widest * generator.randn(len(y))])
    model = AnnealedLogisticRegression(penalty_scaling="none", schedule=SCHEDULE, selection="last").fit(store(X), y)
    without = LogisticRegression(C=2 / (SCHEDULE[-1] * len(y)), tol=1e-10, max_iter=10_000).fit(X[:, :2], y)
    margin = np.where(y == 1, -1, 1) * without.decision_function(X[:, :2])
    minimum = np.mean(np.logaddexp(0, margin)) + SCHEDULE[-1] / 4 * np.sum(without.coef_**2)
    assert model.path_.free_energy[-1] / SCHEDULE[-1] <= minimum * (1 + 1e-6)
    assert model.score(store(X), y) > 0.9


@pytest.mark.parametrize(("penalty_scaling", "chosen"), [("auto", "half-whiten"), ("cv", "whiten")])
def test_a_constant_feature_changes_nothing(penalty_scaling, chosen):
    """Its standard deviation is rounding error of its mean; it must not prevent the use of the eigenbasis."""
    generator = np.random.default_rng(2)
    mixing = generator.normal(size=(30, 30)) * np.geomspace(1, 0.03, 30)
    latent = generator.normal(size=(300, 30))
    y = (1.5 * latent[:, -6:] @ generator.normal(size=(6, 3)) + generator.gumbel(size=(300, 3))).argmax(axis=1)
    X = latent @ mixing
    with_constant, without = (
        AnnealedLogisticRegression(penalty_scaling=penalty_scaling).fit(features, y)
        for features in (np.c_[X, np.full(300, 3.3)], X)
    )
    assert with_constant.penalty_scaling_ == without.penalty_scaling_ == chosen
    np.testing.assert_allclose(with_constant.coef_[:, :-1], without.coef_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(with_constant.coef_[:, -1], 0, atol=1e-9)


def test_all_scalings_are_compared_if_features_differ_too_much_for_one_eigenbasis():
    """Without an intercept, the distance from zero is the scale of a feature."""
    generator, informative, y = signal(100)
    X = np.column_stack([informative, 1e6 + generator.randn(len(y))])
    model = AnnealedLogisticRegression(penalty_scaling="cv", fit_intercept=False, schedule=SCHEDULE).fit(X, y)
    same = AnnealedLogisticRegression(
        penalty_scaling=model.penalty_scaling_, fit_intercept=False, schedule=SCHEDULE
    ).fit(X, y)
    np.testing.assert_allclose(model.coef_, same.coef_, rtol=1e-6)


@pytest.mark.parametrize("n_columns", [4, 400])
@pytest.mark.parametrize(
    "model",
    [AnnealedLogisticRegression(penalty_scaling="standardize"), AnnealedLDA()],
    ids=lambda model: type(model).__name__,
)
def test_sparse_features_far_from_zero_give_the_fit_of_dense_ones(model, n_columns):
    """The variance cancels completely in the mean of their squares, unless they are centred first."""
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, 150)
    X = generator.normal(size=(150, n_columns))
    X[:, :3] += 2 * np.eye(3)[y]
    X[:, 3:] *= generator.uniform(size=X[:, 3:].shape) < 0.5
    X[:, [0, 2]] += 1e8
    dense, rows = clone(model).fit(X, y), sparse.csr_array(X)
    posterior = clone(model).fit(rows, y).predict_proba(rows)
    np.testing.assert_allclose(posterior, dense.predict_proba(X), atol=2e-3)


@pytest.mark.parametrize("seed", [2, 3, 4, 5, 14, 17])
def test_a_small_difference_of_two_features_is_learned_after_their_sum(seed):
    """The score test needs the variance of the current posterior: with that of the prior it detects nothing."""
    generator = np.random.RandomState(seed)
    common, difference = generator.randn(2, 200)
    y = 6.4 * np.sign(common) * np.abs(common) ** 0.3 + 2.7 * difference + 0.3 * generator.logistic(size=200) > 0
    X = np.column_stack([common + 3.5e-3 * difference, common - 3.5e-3 * difference])
    paths = [AnnealedLogisticRegression().fit(features, y).path_ for features in (X, np.c_[common, difference])]
    hidden, separate = (path.validation_score.mean(axis=1).max() for path in paths)
    assert hidden > separate - 0.05


@pytest.mark.parametrize("offset", [1e6, 4e6, 1e8])
def test_without_intercept_no_direction_is_dropped_however_far_features_are_from_zero(offset):
    """The direction of the mean has nearly all of the second moment, which makes the others look empty."""
    generator = np.random.default_rng(1)
    near = generator.normal(size=(300, 10))
    y = (near[:, :3] + generator.gumbel(size=(300, 3))).argmax(axis=1)
    model = AnnealedLogisticRegression(fit_intercept=False, selection="last", schedule=SCHEDULE).fit(near + offset, y)
    # Coefficients times a large mean act as an intercept that is almost unpenalized.
    with_intercept = AnnealedLogisticRegression(selection="last", schedule=SCHEDULE).fit(near, y)
    np.testing.assert_allclose(model.path_.free_energy, with_intercept.path_.free_energy, rtol=1e-2)


@pytest.mark.parametrize("store", [np.asarray, sparse.csr_array])
def test_no_direction_is_dropped_because_of_an_outlier(store):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(200, 20))
    y = (X[:, :3] + generator.gumbel(size=(200, 3))).argmax(axis=1)
    X[0] *= 1e8
    settings = {"penalty_scaling": "none", "selection": "last", "schedule": SCHEDULE}
    model = AnnealedLogisticRegression(**settings).fit(store(X), y)
    without = AnnealedLogisticRegression(**settings).fit(X[1:], y[1:])
    assert model.score(X[1:], y[1:]) > without.score(X[1:], y[1:]) - 0.02
    assert model.path_.certificate.max() < 1e-6


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_free_energy_decreases_though_an_outlier_turns_the_path():
    """A minimum that is not reached must not be the basis of the next prediction: Q / T would grow without bound."""
    generator = np.random.default_rng(1)
    X = generator.normal(size=(200, 40)) @ generator.normal(size=(40, 40))
    y = generator.integers(10, size=200)
    X[0] *= 1e7
    schedule = [100 / 2**step for step in range(18)]
    path = AnnealedLogisticRegression(penalty_scaling="none", selection="last", schedule=schedule).fit(X, y).path_
    assert (np.diff(path.free_energy / path.temperatures) < 0).all()


def test_the_path_of_many_uninformative_features_ends_once_validation_is_clearly_worse():
    generator = np.random.default_rng(10)
    X = sparse.random(1200, 3000, density=20 / 3000, random_state=1, format="csr")
    y = generator.integers(10, size=1200)
    X.data = np.exp(3 * generator.normal(size=X.nnz))
    path = AnnealedLogisticRegression(penalty_scaling="none").fit(X, y).path_
    assert path.temperatures[-1] > 5e-6 * path.temperatures[0]
