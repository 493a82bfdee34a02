"""MELDA where LDA fails: more features than samples, constant features, classes of one sample, separable classes."""

import tracemalloc

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from small_problems import gaussian, rare_class, separable, text, wide

from annealed import MELDA, SecondOrderFeatures

COORDINATES = pytest.mark.parametrize("coordinates", ["whitened", "paper", "orthonormal"])


def assert_finite(model, X):
    for array in (model.scalings_, model.offset_, model.transform(X), model.inverse_transform(model.transform(X))):
        assert np.isfinite(array).all()
    for array in model.gaussian_model():
        assert np.isfinite(array).all()
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, atol=1e-12)


@COORDINATES
def test_more_features_than_samples(coordinates):
    table = wide()
    model = MELDA(coordinates=coordinates).fit(table.X, table.y)
    assert model.transform(table.X).shape == (24, 2)
    assert_finite(model, table.X)
    assert model.score(table.X, table.y) > 0.9


def test_products_of_sparse_features_that_far_outnumber_the_samples():
    table = text(n_samples=40, n_words=60)
    model = make_pipeline(SecondOrderFeatures(), MELDA()).fit(table.X, table.y)
    assert model[-1].scalings_.shape == (60 * 61 // 2, 2)
    assert model.score(table.X, table.y) > 0.9


def test_no_matrix_of_features_by_features_is_stored():
    """The shape of the products of DNA: thousands of sparse features, whose Gram matrix would take gigabytes."""
    table = text(n_samples=120, n_words=170)
    X = SecondOrderFeatures().fit_transform(table.X)
    tracemalloc.start()
    model = MELDA().fit(X, table.y)
    model.transform(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * X.shape[1] ** 2 / 10


@COORDINATES
def test_constant_and_duplicated_features(coordinates):
    table = gaussian()
    X = np.column_stack([table.X, np.full(len(table.y), 3.0), table.X[:, 0], np.zeros(len(table.y))])
    model = MELDA(coordinates=coordinates).fit(X, table.y)
    assert model.transform(X).shape == (len(table.y), 2)
    assert_finite(model, X)
    if coordinates != "orthonormal":  # a rotation of raw features mixes them, by rounding
        np.testing.assert_allclose(model.scalings_[[4, 6]], 0, atol=1e-10)
        np.testing.assert_allclose(model.scalings_[5], model.scalings_[0], rtol=1e-6, atol=1e-12)


@COORDINATES
def test_constant_features_alone_give_the_prior(coordinates):
    X, y = np.ones((10, 3)), np.repeat([0, 1, 2], [5, 3, 2])
    model = MELDA(coordinates=coordinates, temperature=0.05).fit(X, y)
    assert_finite(model, X)
    np.testing.assert_allclose(model.predict_proba(X), np.tile([0.5, 0.3, 0.2], (10, 1)), atol=1e-3)


@COORDINATES
def test_class_of_one_sample(coordinates):
    table = rare_class()
    keep = np.concatenate([np.flatnonzero(table.y < 2), np.flatnonzero(table.y == 2)[:1]])
    model = MELDA(coordinates=coordinates).fit(table.X[keep], table.y[keep])
    assert model.transform(table.X).shape == (len(table.y), 2)
    assert_finite(model, table.X)


@COORDINATES
@pytest.mark.parametrize("settings", [{}, {"temperature": 1e-6}], ids=["chosen", "cold"])
def test_perfect_separation(coordinates, settings):
    table = separable()
    model = MELDA(coordinates=coordinates, **settings).fit(table.X, table.y)
    assert_finite(model, table.X)
    assert model.score(table.X, table.y) == 1.0


@pytest.mark.parametrize("weight", [1e300, 1e-300])
@pytest.mark.parametrize("n_components", [1, 2])
def test_the_size_of_weights_and_samples_without_weight_change_nothing(weight, n_components):
    """Sums of large weights overflowed, and scores of samples that are far away."""
    table = gaussian()
    X, y, weights = np.vstack([table.X, np.full((1, 4), 1.7e308)]), np.append(table.y, 0), np.full(len(table.y), weight)
    weighted = MELDA(n_components=n_components).fit(X, y, sample_weight=np.append(weights, 0.0))
    model = MELDA(n_components=n_components).fit(table.X, table.y)
    np.testing.assert_allclose(weighted.scalings_, model.scalings_, rtol=1e-6)
    np.testing.assert_allclose(weighted.explained_information_, model.explained_information_, rtol=1e-6)


@COORDINATES
def test_classes_that_are_single_points(coordinates):
    X, y = np.repeat(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), 6, axis=0), np.repeat([0, 1, 2], 6)
    model = MELDA(coordinates=coordinates).fit(X, y)
    assert_finite(model, X)
    assert model.score(X, y) == 1.0
