"""PooledGaussian against Bayes' rule with one normal density for each feature, and against its invariances."""

import tracemalloc

import numpy as np
import oracles
import pytest
from scipy import sparse
from scipy.stats import norm
from sklearn.exceptions import NotFittedError
from small_problems import gaussian, text, two_classes, uneven_weights

from annealed import PooledGaussian

TABLE = gaussian()
TABLES = pytest.mark.parametrize("table", [TABLE, two_classes()], ids=repr)


def bayes(X, y, X_new, prior, weight=None):
    """Posterior by a loop over samples, classes and features."""
    means = oracles.class_means(X, y, weight)
    spread = np.sqrt(np.diag(oracles.pooled_covariance(X, y, weight)))
    posterior = []
    for row in X_new:
        joint = []
        for class_prior, class_mean in zip(prior, means, strict=True):
            densities = [norm(mean, scale).pdf(x) for x, mean, scale in zip(row, class_mean, spread, strict=True)]
            joint.append(class_prior * np.prod(densities))
        posterior.append(np.array(joint) / sum(joint))
    return np.array(posterior)


@TABLES
def test_empirical_priors(table):
    model = PooledGaussian().fit(table.X, table.y)
    counts = np.bincount(table.y) / len(table.y)
    np.testing.assert_allclose(model.class_prior_, counts)
    expected = bayes(table.X, table.y, table.X[:20], counts)
    np.testing.assert_allclose(model.predict_proba(table.X[:20]), expected, atol=1e-7)


@pytest.mark.parametrize(
    ("priors", "prior"),
    [("equal", [1 / 3, 1 / 3, 1 / 3]), ([0.2, 0.5, 0.3], [0.2, 0.5, 0.3]), ([2, 1, 1], [0.5, 0.25, 0.25])],
)
def test_other_priors(priors, prior):
    model = PooledGaussian(priors=priors).fit(TABLE.X, TABLE.y)
    np.testing.assert_allclose(model.class_prior_, prior)
    expected = bayes(TABLE.X, TABLE.y, TABLE.X[:20], prior)
    np.testing.assert_allclose(model.predict_proba(TABLE.X[:20]), expected, atol=1e-7)


def test_class_of_prior_zero_is_never_predicted():
    model = PooledGaussian(priors=[0.5, 0.5, 0.0]).fit(TABLE.X, TABLE.y)
    np.testing.assert_array_equal(model.predict_proba(TABLE.X)[:, 2], 0)
    assert set(model.predict(TABLE.X)) == {0, 1}


@TABLES
def test_predictions_agree_with_each_other(table):
    names = np.array(["rose", "lily", "iris"])[: table.n_classes]
    model = PooledGaussian().fit(table.X, names[table.y])
    posterior = model.predict_proba(table.X)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(table.X)), posterior, atol=1e-12)
    np.testing.assert_array_equal(model.predict(table.X), np.sort(names)[posterior.argmax(axis=1)])
    scores = model.decision_function(table.X)
    if table.n_classes == 2:
        np.testing.assert_allclose(scores, np.log(posterior[:, 1] / posterior[:, 0]), atol=1e-8)
    else:
        np.testing.assert_allclose(oracles.posterior(scores, 1.0), posterior, atol=1e-12)


def test_it_is_linear_discriminant_analysis_if_features_are_uncorrelated_within_classes():
    y = np.repeat([0, 1, 2], [8, 4, 12])
    corners = np.array([[1.0, 2.0], [1.0, -2.0], [-1.0, 2.0], [-1.0, -2.0]])
    X = np.tile(corners, (6, 1)) + np.array([[0.0, 0.0], [1.0, 1.0], [2.0, -3.0]])[y]
    prior = np.bincount(y) / len(y)
    model = PooledGaussian().fit(X, y)
    np.testing.assert_allclose(model.variance_, [1, 4], rtol=1e-7)
    np.testing.assert_allclose(model.predict_proba(X), oracles.lda_posterior(X, y, X, prior), atol=1e-7)


def test_weights():
    weight = uneven_weights(len(TABLE.y), 1).ravel()
    model = PooledGaussian().fit(TABLE.X, TABLE.y, weight)
    prior = np.bincount(TABLE.y, weight) / weight.sum()
    np.testing.assert_allclose(model.means_, oracles.class_means(TABLE.X, TABLE.y, weight), rtol=1e-10)
    expected = bayes(TABLE.X, TABLE.y, TABLE.X[:20], prior, weight)
    np.testing.assert_allclose(model.predict_proba(TABLE.X[:20]), expected, atol=1e-7)


@pytest.mark.parametrize("store", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("table", [TABLE, two_classes()], ids=repr)
def test_coefficients_are_those_of_the_decision_function(table, store):
    X = store(table.X)
    model = PooledGaussian().fit(X, table.y)
    n_rows = len(np.unique(table.y)) if table is TABLE else 1
    assert model.coef_.shape == (n_rows, X.shape[1]) and model.intercept_.shape == (n_rows,)
    found, expected = model.decision_function(X), X @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(expected.reshape(found.shape), found, atol=1e-10)


def test_weight_two_is_the_sample_twice_and_weight_zero_no_sample():
    weight = np.arange(len(TABLE.y)) % 3
    weighted = PooledGaussian().fit(TABLE.X, TABLE.y, weight)
    repeated = np.repeat(np.arange(len(TABLE.y)), weight)
    counted = PooledGaussian().fit(TABLE.X[repeated], TABLE.y[repeated])
    np.testing.assert_allclose(weighted.predict_proba(TABLE.X), counted.predict_proba(TABLE.X), atol=1e-10)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array, sparse.csc_array])
def test_sparse_equals_dense(kind):
    table = text(kind)
    words = table.X.toarray()
    model, dense = PooledGaussian().fit(table.X, table.y), PooledGaussian().fit(words, table.y)
    np.testing.assert_allclose(model.variance_, dense.variance_, rtol=1e-10)
    np.testing.assert_allclose(model.predict_proba(table.X), dense.predict_proba(words), atol=1e-10)


def test_sparse_float32_samples_far_from_the_origin():
    X = (1e4 + TABLE.X).astype(np.float32)
    model, dense = PooledGaussian().fit(sparse.csr_array(X), TABLE.y), PooledGaussian().fit(X, TABLE.y)
    np.testing.assert_allclose(model.variance_, dense.variance_, rtol=1e-5)


@pytest.mark.parametrize("weight", [None, uneven_weights(len(TABLE.y), 1).ravel()], ids=["plain", "weighted"])
def test_sparse_samples_far_from_the_origin(weight):
    X = np.column_stack([TABLE.X + 1e8, np.maximum(TABLE.X, 0)])  # features without zeros, and with many
    dense = PooledGaussian().fit(X, TABLE.y, weight).predict_proba(X)
    stored = sparse.csr_array(X)
    np.testing.assert_allclose(PooledGaussian().fit(stored, TABLE.y, weight).predict_proba(stored), dense, atol=1e-5)


def test_sparse_entries_stored_twice_are_added_first():
    X, y = np.array([[1.0, 2.0], [3.0, 0.0], [0.0, 5.0], [7.0, 1.0]]), [0, 0, 1, 1]
    plain = sparse.csr_array(X)
    halves = sparse.csr_array(
        (np.repeat(plain.data / 2, 2), np.repeat(plain.indices, 2), 2 * plain.indptr), shape=plain.shape
    )
    assert not halves.has_canonical_format
    np.testing.assert_allclose(PooledGaussian().fit(halves, y).variance_, PooledGaussian().fit(X, y).variance_)


@pytest.mark.parametrize("value", [0.0, 0.1, 1000.0])
def test_a_constant_feature_changes_nothing(value):
    X = np.column_stack([TABLE.X, np.full(len(TABLE.y), value)])
    posterior = PooledGaussian().fit(X, TABLE.y).predict_proba(X)
    np.testing.assert_allclose(posterior, PooledGaussian().fit(TABLE.X, TABLE.y).predict_proba(TABLE.X), atol=1e-6)


@pytest.mark.parametrize("shift", [-3.0, 1e3, 1e6])
def test_shift_changes_nothing(shift):
    posterior = PooledGaussian().fit(TABLE.X + shift, TABLE.y).predict_proba(TABLE.X + shift)
    np.testing.assert_allclose(posterior, PooledGaussian().fit(TABLE.X, TABLE.y).predict_proba(TABLE.X), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.uint8, np.int64])
@pytest.mark.parametrize("shape", [(100_000, 200), (200, 100_000)], ids=["tall", "wide"])
def test_a_large_memory_map_is_read_in_blocks(tmp_path, dtype, shape):
    """A copy in float64 would take 160 MB; so would an array per block of a wide map."""
    X = np.memmap(tmp_path / "X", dtype=dtype, mode="w+", shape=shape)
    X[:] = np.abs(np.random.default_rng(0).normal(scale=9, size=(200, 200))).repeat(500, axis=np.argmax(shape))
    y, weight = np.arange(len(X)) % 3, 1.0 + np.arange(len(X)) % 5
    tracemalloc.start()
    try:
        PooledGaussian().fit(X, y, weight).predict(X)
        assert tracemalloc.get_traced_memory()[1] < 40e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8, np.int64, bool])
def test_numbers_of_any_type_count_as_floats(dtype):
    X, weight = np.abs(3 * TABLE.X).astype(dtype), uneven_weights(len(TABLE.y), 1).ravel()
    model, oracle = (PooledGaussian().fit(rows, TABLE.y, weight) for rows in (X, X.astype(float)))
    np.testing.assert_allclose(model.predict_proba(X), oracle.predict_proba(X.astype(float)), atol=1e-6)
    np.testing.assert_allclose(model.predict_proba(sparse.csr_array(X.astype("d"))), model.predict_proba(X), atol=1e-6)


def test_constant_features_alone_give_the_prior():
    X, y = np.ones((10, 2)), np.repeat([0, 1], [7, 3])
    np.testing.assert_allclose(PooledGaussian().fit(X, y).predict_proba(X), np.tile([0.7, 0.3], (10, 1)))


def test_one_sample_for_each_class():
    X, y = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.arange(3)
    model = PooledGaussian().fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()
    np.testing.assert_array_equal(model.predict(X), y)


@pytest.mark.parametrize(
    ("priors", "message"),
    [
        ("flat", "priors must be .* Got 'flat'"),
        (["much", "some", "none"], "priors must be .* Got .'much', 'some', 'none'"),
        ([0.5, 0.5], "one finite number of at least 0 for each of 3 classes"),
        ([0.5, 0.7, -0.2], "one finite number of at least 0 for each of 3 classes"),
        ([0, 0, 0], "not 0 for all. Got"),
        ([np.inf, 1, 1], r"one finite number .* Got array\(\[inf"),
        ([np.nan, 1, 1], r"one finite number .* Got array\(\[nan"),
    ],
)
def test_bad_priors(priors, message):
    with pytest.raises(ValueError, match=message):
        PooledGaussian(priors=priors).fit(TABLE.X, TABLE.y)


def test_priors_may_be_the_largest_floats():
    model = PooledGaussian(priors=[1e308, 1e308, 1e308]).fit(TABLE.X, TABLE.y)
    np.testing.assert_allclose(model.class_prior_, [1 / 3, 1 / 3, 1 / 3])


@pytest.mark.parametrize("smoothing", [-1, np.nan, np.inf, "a", None])
def test_bad_smoothing(smoothing):
    with pytest.raises(ValueError, match=f"var_smoothing must be a finite number of at least 0. Got {smoothing!r}"):
        PooledGaussian(var_smoothing=smoothing).fit(TABLE.X, TABLE.y)


@pytest.mark.parametrize("smoothing", [0, 1e-300, 1e-308])
def test_columns_that_are_constant_within_classes_need_smoothing(smoothing):
    X, y = np.array([[0.0, 1e15], [1, 1e15], [2, 1e15 + 1], [3, 1e15 + 1]]), [0, 0, 1, 1]
    with pytest.raises(ValueError, match=f"var_smoothing must .* Got {smoothing}, with which that of column 1 of X is"):
        PooledGaussian(var_smoothing=smoothing).fit(X, y)
    assert PooledGaussian().fit(X, y).score(X, y) == 1


@pytest.mark.parametrize("priors", ["equal", "empirical", [2, 0, 2]])
def test_a_class_without_weight_is_not_predicted(priors):
    weight = (TABLE.y != 1).astype(float)
    model = PooledGaussian(priors=priors).fit(TABLE.X, TABLE.y, weight)
    assert model.class_prior_[1] == 0 and set(model.predict(TABLE.X)) == {0, 2}
    others = PooledGaussian(priors="equal" if priors != "empirical" else priors)
    others.fit(TABLE.X[TABLE.y != 1], TABLE.y[TABLE.y != 1])
    np.testing.assert_allclose(model.predict_proba(TABLE.X)[:, [0, 2]], others.predict_proba(TABLE.X), atol=1e-10)


@pytest.mark.parametrize("dtype", [str, object])
def test_a_class_without_weight_must_have_prior_zero(dtype):
    names = np.array(["rose", "lily", "iris"], dtype=dtype)[TABLE.y]
    with pytest.raises(
        ValueError, match="must be 0 for a class whose samples all have weight 0. Got 2.0 for class 'lily'"
    ):
        PooledGaussian(priors=[1, 2, 1]).fit(TABLE.X, names, names != "lily")


def test_a_failed_refit_leaves_the_estimator_unfitted():
    model = PooledGaussian(priors=[1, 1, 1]).fit(TABLE.X, TABLE.y)
    with pytest.raises(ValueError, match="for each of 2 classes"):
        model.fit(TABLE.X + 1, TABLE.y > 0)
    with pytest.raises(NotFittedError):
        model.predict_proba(TABLE.X)


def test_bad_weights():
    with pytest.raises(ValueError, match="must not be negative. Got -1.0 at sample 0"):
        PooledGaussian().fit(TABLE.X, TABLE.y, -np.ones(len(TABLE.y)))


@pytest.mark.parametrize("size", [1e308, 1e-300, 5e-324])
def test_weights_may_be_the_largest_and_the_smallest_floats(size):
    model, plain = (PooledGaussian().fit(TABLE.X, TABLE.y, weight) for weight in (np.full(len(TABLE.y), size), None))
    np.testing.assert_allclose(model.predict_proba(TABLE.X), plain.predict_proba(TABLE.X), atol=1e-10)


@pytest.mark.parametrize("store", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(("size", "what"), [(1e160, "large .* infinite"), (1e-300, "small .* zero")])
def test_features_whose_squares_overflow_or_underflow_are_refused(size, what, store):
    with pytest.raises(ValueError, match=f"Column 0 of X holds numbers so {what}. Divide it"):
        PooledGaussian().fit(store(TABLE.X * size), TABLE.y)


def test_before_fit():
    with pytest.raises(NotFittedError):
        PooledGaussian().predict(TABLE.X)
