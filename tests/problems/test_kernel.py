"""Kernels and their features, compared with scikit-learn's kernels and with finite differences."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics.pairwise import laplacian_kernel, polynomial_kernel, rbf_kernel

from annealed.arrays import HOST
from annealed.problems.kernel import KernelPredictor
from annealed.problems.kernel_features import Kernel, KernelFeatures
from annealed.rows.indicators import categories_of

REFERENCES = {
    "rbf": lambda X, Z: rbf_kernel(X, Z, gamma=0.3),
    "laplacian": lambda X, Z: laplacian_kernel(X, Z, gamma=0.3),
    "polynomial": lambda X, Z: polynomial_kernel(X, Z, gamma=0.3, degree=3, coef0=1),
}


def table(n_rows=40, n_columns=3):
    return np.random.default_rng(0).normal(size=(n_rows, n_columns))


def features_of(name, X, indices, gamma=0.3):
    center, scale = np.zeros(X.shape[1]), np.ones(X.shape[1])
    return KernelFeatures.of(Kernel(name, gamma), X, center, scale, np.asarray(indices))


@pytest.mark.parametrize("name", REFERENCES)
def test_kernels_are_those_of_scikit_learn(name):
    X, Z = table(), table(7)
    for rows, others in ((X, Z), (sparse.csr_array(X), sparse.csr_array(Z))):
        np.testing.assert_allclose(Kernel(name, 0.3)(HOST, rows, others), REFERENCES[name](X, Z), rtol=1e-12)


@pytest.mark.parametrize("name", REFERENCES)
def test_derivatives_are_those_of_finite_differences(name):
    rows, landmarks, coef, step = table(5), table(9) + 0.5, np.random.default_rng(1).normal(size=(2, 9)), 1e-6
    kernel = Kernel(name, 0.3)
    found = kernel.derivatives(rows, landmarks, coef)
    for column in range(rows.shape[1]):
        ahead, behind = rows.copy(), rows.copy()
        ahead[:, column] += step
        behind[:, column] -= step
        slopes = (kernel(HOST, ahead, landmarks) - kernel(HOST, behind, landmarks)) @ coef.T / (2 * step)
        np.testing.assert_allclose(found[:, :, column], slopes.T, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", REFERENCES)
def test_with_all_rows_as_landmarks_features_have_the_kernel_as_their_products(name):
    X = table()
    features = features_of(name, X, np.arange(len(X)))
    points = features.of_rows(X, np.float64)
    np.testing.assert_allclose(points @ points.T, REFERENCES[name](X, X), rtol=1e-6, atol=1e-8)
    assert features.lost(X) < 1e-8


def test_more_landmarks_lose_less_and_the_features_of_a_landmark_are_exact():
    X = table(200, 4)
    lost = [features_of("rbf", X, np.arange(number)).lost(X) for number in (5, 20, 80, 200)]
    assert lost[0] > lost[1] > lost[2] > lost[3] and lost[3] < 1e-8
    points = features_of("rbf", X, np.arange(20)).of_rows(X, np.float64)
    np.testing.assert_allclose(points[:20] @ points[:20].T, REFERENCES["rbf"](X[:20], X[:20]), atol=1e-8)


def test_a_cholesky_factor_gives_the_same_products(monkeypatch):
    X = table(60)
    exact = features_of("rbf", X, np.arange(60)).of_rows(X, np.float64)
    monkeypatch.setattr("annealed.problems.kernel_features.LARGEST_EIGENPROBLEM", 10)
    found = features_of("rbf", X, np.arange(60)).of_rows(X, np.float64)
    np.testing.assert_allclose(found @ found.T, exact @ exact.T, atol=1e-6)


def test_no_logit_changes_by_more_than_promised_when_small_coefficients_are_left_out():
    X, rng = table(300), np.random.default_rng(2)
    predictor = KernelPredictor(features_of("rbf", X, np.arange(300)))
    dual_coef = rng.normal(size=(3, 300)) * 10.0 ** rng.uniform(-9, 0, 300)
    support = predictor.support(dual_coef)
    assert 50 < len(support) < 250
    logits = predictor.logits(X, {"dual_coef": dual_coef, "intercept": np.zeros(3)}, 1.0)
    assert 0 < np.abs(logits - REFERENCES["rbf"](X, X) @ dual_coef.T).max() <= 1e-5


def test_neighbouring_indicators_of_which_a_row_has_one_are_a_category():
    rng = np.random.default_rng(0)
    first, second = np.eye(3)[rng.integers(0, 3, 50)], np.eye(4)[rng.integers(0, 4, 50)][:, 1:]
    single, number = rng.integers(0, 2, (50, 1)), rng.normal(size=(50, 1))
    X = np.hstack([first, second, number, single, number, first])
    assert categories_of(X) == [slice(0, 3), slice(3, 6), slice(9, 12)]
    assert categories_of(number) == []
