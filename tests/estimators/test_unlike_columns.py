"""What tells the classes apart may vary far less than the rest, or lie in far smaller units."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from annealed import AnnealedLDA, AnnealedLogisticRegression

SCHEDULE = [1.0, 0.1, 0.01]


def signal(n_rows=500, seed=0):
    generator = np.random.RandomState(seed)
    told = generator.randn(n_rows)
    return generator, told, (told + 0.2 * generator.randn(n_rows) > 0).astype(int)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("size", [1e-2, 1e-3, 1e-4])
def test_a_path_goes_on_until_the_difference_of_two_columns_is_learned(size, seed):
    generator, told, y = signal(seed=seed)
    common = generator.randn(len(y))
    X = np.column_stack([common, common + size * told])
    assert AnnealedLogisticRegression().fit(X, y).score(X, y) > 0.93


def test_a_path_of_chance_ends_early():
    generator, _, y = signal()
    common = generator.randn(len(y))
    path = AnnealedLogisticRegression().fit(np.column_stack([common, common + 1e-3 * generator.randn(len(y))]), y).path_
    assert path.temperatures[-1] > 1e-4 * path.temperatures[0]


@pytest.mark.parametrize("store", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("widest", [1e5, 1e7, 1e9])
def test_euclidean_metric_keeps_columns_of_small_units(widest, store):
    """Against scikit-learn's fit without the wide column, which tells nothing: no minimum is above it."""
    generator, told, y = signal()
    X = np.column_stack([told, generator.randn(len(y)), widest * generator.randn(len(y))])
    model = AnnealedLogisticRegression(penalty_scaling="none", schedule=SCHEDULE, selection="last").fit(store(X), y)
    without = LogisticRegression(C=2 / (SCHEDULE[-1] * len(y)), tol=1e-10, max_iter=10_000).fit(X[:, :2], y)
    margin = np.where(y == 1, -1, 1) * without.decision_function(X[:, :2])
    least = np.mean(np.logaddexp(0, margin)) + SCHEDULE[-1] / 4 * np.sum(without.coef_**2)
    assert model.path_.free_energy[-1] / SCHEDULE[-1] <= least * (1 + 1e-6)
    assert model.score(store(X), y) > 0.9


@pytest.mark.parametrize(("penalty_scaling", "chosen"), [("auto", "half-whiten"), ("cv", "whiten")])
def test_a_constant_column_changes_nothing(penalty_scaling, chosen):
    """Its spread is the rounding of its mean, and no reason to leave the eigenbasis that other metrics start from."""
    generator = np.random.default_rng(2)
    mixing = generator.normal(size=(30, 30)) * np.geomspace(1, 0.03, 30)
    told = generator.normal(size=(300, 30))
    y = (1.5 * told[:, -6:] @ generator.normal(size=(6, 3)) + generator.gumbel(size=(300, 3))).argmax(axis=1)
    X = told @ mixing
    ours, theirs = (
        AnnealedLogisticRegression(penalty_scaling=penalty_scaling).fit(own, y)
        for own in (np.c_[X, np.full(300, 3.3)], X)
    )
    assert ours.penalty_scaling_ == theirs.penalty_scaling_ == chosen
    np.testing.assert_allclose(ours.coef_[:, :-1], theirs.coef_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ours.coef_[:, -1], 0, atol=1e-9)


def test_columns_too_unlike_for_one_eigenbasis_have_other_metrics_too():
    """Without an intercept a column counts by its distance from zero."""
    generator, told, y = signal(100)
    X = np.column_stack([told, 1e6 + generator.randn(len(y))])
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
def test_sparse_columns_far_from_zero_are_as_dense_ones(model, n_columns):
    """Their squares have no digit of the spread, unless they are centred first."""
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
def test_what_two_columns_hide_is_found_where_their_sum_is_learned_first(seed):
    """The score test must know how certain rows are by then: with the variance of the hot end it sees nothing."""
    generator = np.random.RandomState(seed)
    common, told = generator.randn(2, 200)
    y = 6.4 * np.sign(common) * np.abs(common) ** 0.3 + 2.7 * told + 0.3 * generator.logistic(size=200) > 0
    X = np.column_stack([common + 3.5e-3 * told, common - 3.5e-3 * told])
    paths = [AnnealedLogisticRegression().fit(rows, y).path_ for rows in (X, np.column_stack([common, told]))]
    hidden, known = (path.validation_score.mean(axis=1).max() for path in paths)
    assert hidden > known - 0.05


@pytest.mark.parametrize("offset", [1e6, 4e6, 1e8])
def test_columns_far_from_an_origin_without_intercept_keep_their_directions(offset):
    """The direction of the mean holds nearly all of the square: others were dropped, and no certificate knew."""
    generator = np.random.default_rng(1)
    near = generator.normal(size=(300, 10))
    y = (near[:, :3] + generator.gumbel(size=(300, 3))).argmax(axis=1)
    model = AnnealedLogisticRegression(fit_intercept=False, selection="last", schedule=SCHEDULE).fit(near + offset, y)
    free = AnnealedLogisticRegression(selection="last", schedule=SCHEDULE).fit(near, y)  # as good as a free intercept
    np.testing.assert_allclose(model.path_.free_energy, free.path_.free_energy, rtol=1e-2)


@pytest.mark.parametrize("store", [np.asarray, sparse.csr_array])
def test_an_outlying_row_leaves_others_their_directions(store):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(200, 20))
    y = (X[:, :3] + generator.gumbel(size=(200, 3))).argmax(axis=1)
    X[0] *= 1e8
    settings = {"penalty_scaling": "none", "selection": "last", "schedule": SCHEDULE}
    model = AnnealedLogisticRegression(**settings).fit(store(X), y)
    alone = AnnealedLogisticRegression(**settings).fit(X[1:], y[1:])
    assert model.score(X[1:], y[1:]) > alone.score(X[1:], y[1:]) - 0.02
    assert model.path_.certificate.max() < 1e-6


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_free_energy_falls_where_an_outlying_row_turns_the_path():
    """Predicted minima were out of reach, and each was predicted from the last: Q / T ended at 1e16."""
    generator = np.random.default_rng(1)
    X = generator.normal(size=(200, 40)) @ generator.normal(size=(40, 40))
    y = generator.integers(10, size=200)
    X[0] *= 1e7
    schedule = [100 / 2**step for step in range(18)]
    path = AnnealedLogisticRegression(penalty_scaling="none", selection="last", schedule=schedule).fit(X, y).path_
    assert (np.diff(path.free_energy / path.temperatures) < 0).all()


def test_wide_rows_of_chance_end_where_validation_has_long_been_worse():
    generator = np.random.default_rng(10)
    X = sparse.random(1200, 3000, density=20 / 3000, random_state=1, format="csr")
    y = generator.integers(10, size=1200)
    X.data = np.exp(3 * generator.normal(size=X.nnz))
    path = AnnealedLogisticRegression(penalty_scaling="none").fit(X, y).path_
    assert path.temperatures[-1] > 5e-6 * path.temperatures[0]
