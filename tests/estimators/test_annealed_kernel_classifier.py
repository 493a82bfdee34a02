"""Kernel logistic regression compared with other formulations of it, and the choice of its kernel."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_iris, load_wine, make_circles, make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import cross_val_score
from small_problems import make_everything_wide

from annealed import AnnealedKernelClassifier, AnnealedLogisticRegression, CGrid

PLAIN = {"scale": "none", "n_landmarks": "all", "calibrate": False, "schedule": CGrid([0.1, 1.0, 10.0])}


def noisy(n_samples=250, n_noise=4):
    """Two moons beside columns of noise."""
    X, y = make_moons(n_samples, noise=0.2, random_state=0)
    return np.column_stack([X, np.random.default_rng(0).normal(size=(n_samples, n_noise))]), y


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_the_whole_path_is_that_of_logistic_regression_on_explicit_features(load):
    X, y = load(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = AnnealedKernelClassifier(gamma=0.2, tol=1e-7, **PLAIN).fit(X, y)
    values, vectors = np.linalg.eigh(rbf_kernel(X, gamma=0.2))
    features = vectors * np.sqrt(np.maximum(values, 0))
    for C in (0.1, 1.0, 10.0):
        reference = LogisticRegression(C=C, tol=1e-10, max_iter=10_000).fit(features, y)
        np.testing.assert_allclose(model.at(C=C).predict_proba(X), reference.predict_proba(features), atol=1e-5)


@pytest.mark.parametrize("kernel", ["linear", "precomputed"])
def test_a_linear_kernel_is_the_linear_estimator(kernel):
    X, y = load_iris(return_X_y=True)
    rows = X @ X.T if kernel == "precomputed" else X
    model = AnnealedKernelClassifier("precomputed" if kernel == "precomputed" else _linear, tol=1e-7, **PLAIN)
    linear = AnnealedLogisticRegression(
        penalty_scaling="none", calibrate=False, schedule=PLAIN["schedule"], tol=1e-7
    ).fit(X, y)
    np.testing.assert_allclose(model.fit(rows, y).predict_proba(rows), linear.predict_proba(X), atol=1e-5)
    assert model.temperature_ == linear.temperature_


def _linear(rows, others):
    return rows @ others.T


def test_many_landmarks_are_solved_in_combinations_of_samples(monkeypatch):
    X, y = make_moons(120, noise=0.3, random_state=0)
    settings = {"gamma": 1.0, "n_landmarks": "all", "tol": 1e-7}
    expected = AnnealedKernelClassifier(**settings).fit(X, y)
    make_everything_wide(monkeypatch)
    model = AnnealedKernelClassifier(**settings).fit(X, y)
    assert model.path_.plan.startswith("Subspace") and not expected.path_.plan.startswith("Subspace")
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), atol=1e-5)


def test_predictions_approach_the_exact_ones_with_more_landmarks():
    X, y = make_moons(300, noise=0.3, random_state=0)
    settings = {"gamma": 1.0, "scale": "standardize", "temperature": 1e-3}
    exact = AnnealedKernelClassifier(n_landmarks="all", **settings).fit(X, y).predict_proba(X)
    far = []
    for number in (10, 40, 160):
        model = AnnealedKernelClassifier(n_landmarks=number, **settings).fit(X, y)
        far.append(np.abs(model.predict_proba(X) - exact).max())
    assert far[0] > far[1] > 10 * far[2]
    assert model.n_landmarks_ == 160 and len(model.landmarks_) == 160


def test_what_is_chosen_is_shown_and_every_temperature_is_certified():
    X, y = noisy()
    model = AnnealedKernelClassifier(scale="standardize").fit(X, y)
    assert model.path_.converged.all() and model.path_.certificate.max() <= 1e-6
    assert model.score(X, y) > 0.93
    best = max(model.tried_kernels_, key=lambda tried: tried.validation_score.max())
    assert (best.gamma, best.n_landmarks) == (model.gamma_, model.n_landmarks_)
    np.testing.assert_allclose(best.validation_score.max(), model.path_.compared_score.max(), rtol=1e-6)
    assert len({tried.gamma for tried in model.tried_kernels_}) > 1
    assert 0 <= model.approximation_error_ < 0.5
    assert set(model.support_) <= set(model.landmarks_) and model.n_support_ == len(model.support_)
    assert model.dual_coef_.shape == (1, model.n_landmarks_)


def test_relevant_columns_are_found():
    X, y = noisy()
    model = AnnealedKernelClassifier(scale="ard").fit(X, y)
    weight = X.std(axis=0) / model.scale_
    assert weight[:2].min() > 2 * weight[2:].max()
    plain = AnnealedKernelClassifier(scale="standardize").fit(X, y)
    np.testing.assert_allclose(plain.scale_, X.std(axis=0))
    scores = [each.path_.validation_score.mean(axis=1).max() for each in (model, plain)]
    assert scores[0] > 0.8 * scores[1]  # less than four fifths of the log-loss


def test_curved_boundaries_are_learned_where_straight_ones_cannot():
    X, y = make_circles(120, noise=0.1, factor=0.4, random_state=0)
    for kernel in ("rbf", "laplacian", "polynomial"):
        assert cross_val_score(AnnealedKernelClassifier(kernel), X, y, cv=3).mean() > 0.9


def test_columns_of_a_category_weigh_as_one_and_constant_ones_do_not_matter():
    rng = np.random.default_rng(0)
    category, y = rng.integers(0, 4, 80), rng.integers(0, 2, 80)
    X = np.column_stack([np.eye(4)[category], rng.normal(size=80), np.full(80, 3.0)])
    model = AnnealedKernelClassifier(gamma=1.0, scale="standardize", temperature=0.01).fit(X, y)
    np.testing.assert_allclose(model.scale_[:4], np.sqrt(np.eye(4)[category].var(axis=0).sum()))
    assert model.scale_[4] == pytest.approx(X[:, 4].std()) and np.isinf(model.scale_[5])
    without = AnnealedKernelClassifier(gamma=1.0, scale="standardize", temperature=0.01).fit(X[:, :5], y)
    np.testing.assert_allclose(without.predict_proba(X[:, :5]), model.predict_proba(X), atol=1e-12)


def test_sparse_rows_give_the_model_of_dense_ones():
    X, y = load_wine(return_X_y=True)
    X = np.where(X > np.median(X, axis=0), X / X.max(axis=0), 0)
    for kernel in ("rbf", "laplacian", "polynomial"):
        dense = AnnealedKernelClassifier(kernel, scale="standardize", gamma=0.05).fit(X, y)
        thin = AnnealedKernelClassifier(kernel, scale="standardize", gamma=0.05).fit(sparse.csr_array(X), y)
        if kernel != "polynomial":  # its products depend on the origin
            np.testing.assert_allclose(thin.predict_proba(sparse.csr_array(X)), dense.predict_proba(X), atol=1e-6)
        assert thin.score(sparse.csr_array(X), y) > 0.95


@pytest.mark.parametrize("settings", [{"selection": "loo"}, {"selection": "holdout"}, {"scoring": "accuracy"}])
def test_other_ways_to_choose(settings):
    X, y = make_moons(150, noise=0.2, random_state=0)
    model = AnnealedKernelClassifier(**settings).fit(X, y)
    assert model.score(X, y) > 0.9 and model.tried_kernels_
    given = AnnealedKernelClassifier(temperature=0.01).fit(X, y)
    assert given.tried_kernels_ == [] and given.temperature_ == 0.01


def test_a_validation_set_chooses_the_kernel():
    X, y = make_moons(300, noise=0.2, random_state=0)
    model = AnnealedKernelClassifier(selection="holdout").fit(X[:200], y[:200], X_val=X[200:], y_val=y[200:])
    assert model.score(X, y) > 0.95


def test_two_fits_and_a_pickle_agree_to_the_last_bit():
    X, y = noisy(150)
    first, second = (AnnealedKernelClassifier(random_state=3).fit(X, y) for _ in range(2))
    expected = first.predict_proba(X).tobytes()
    assert second.predict_proba(X).tobytes() == pickle.loads(pickle.dumps(first)).predict_proba(X).tobytes() == expected


def test_predictions_of_a_precomputed_kernel_read_its_support_only():
    X, y = make_moons(80, noise=0.2, random_state=0)
    table = rbf_kernel(X, gamma=2.0)
    model = AnnealedKernelClassifier("precomputed", n_landmarks=30).fit(table, y)
    scaled = AnnealedKernelClassifier("precomputed", n_landmarks=30).fit(9 * table, y)
    assert 0 < model.approximation_error_ < 1
    np.testing.assert_allclose(scaled.approximation_error_, model.approximation_error_, rtol=1e-6)
    changed = np.full_like(table, 7.0)
    changed[:, model.support_] = table[:, model.support_]
    np.testing.assert_array_equal(model.predict_proba(changed), model.predict_proba(table))


SQUARE = np.eye(6)
LABELS = [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("settings", "X", "message"),
    [
        ({"kernel": "sigmoid"}, SQUARE, "kernel must be one of"),
        ({"gamma": 0}, SQUARE, 'gamma must be "cv" or a positive number. Got 0'),
        ({"gamma": "auto"}, SQUARE, "gamma must be"),
        ({"degree": 1.5}, SQUARE, "degree must be a whole number"),
        ({"scale": "ranks"}, SQUARE, "scale must be one of"),
        ({"n_landmarks": 0}, SQUARE, "n_landmarks must be"),
        ({"kernel": "precomputed", "scale": "ard"}, SQUARE, 'scale="ard" needs one of the kernels'),
        ({"kernel": "precomputed"}, SQUARE[:, :4], "square matrix of the kernel"),
        ({"kernel": "precomputed"}, SQUARE + np.eye(6, k=1), "must be symmetric"),
        ({"kernel": "precomputed"}, -SQUARE + 0.1, "positive semi-definite"),
        ({"kernel": lambda X, Z: np.ones(3)}, SQUARE, "one number for each pair of rows"),
        ({"kernel": lambda X, Z: np.full((len(X), len(Z)), np.nan)}, SQUARE, "finite numbers"),
    ],
)
def test_bad_input_is_refused(settings, X, message):
    with pytest.raises(ValueError, match=message):
        AnnealedKernelClassifier(**settings, cv=3).fit(X, LABELS)


def test_too_many_samples_for_an_exact_fit_are_refused(monkeypatch):
    monkeypatch.setattr("annealed.problems.kernel.MOST_ROWS", 5)
    with pytest.raises(ValueError, match='n_landmarks="all" is for at most 5 samples'):
        AnnealedKernelClassifier(n_landmarks="all", cv=3).fit(SQUARE, LABELS)
