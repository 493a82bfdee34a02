"""The posterior of labelled prototypes and the gradient of its log-loss."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from annealed.potts import LabelledRows
from annealed.potts.refinement import CalibratedPosterior, PrototypePosterior, loss_and_gradient


@pytest.fixture
def rows():
    generator = np.random.default_rng(0)
    return LabelledRows(
        generator.normal(size=(60, 3)), generator.integers(3, size=60), generator.uniform(0.5, 2.0, 60), 3
    )


@pytest.fixture
def point():
    generator = np.random.default_rng(1)
    shapes = [(5, 3), (3, 3), (5, 3)]
    return PrototypePosterior(*(generator.normal(size=shape) for shape in shapes))


def metric_of(point):
    return point.root @ point.root.T


def log_posterior(X, point):
    return CalibratedPosterior(point.prototypes, metric_of(point), point.label_logits).log_proba(X)


def test_the_gradient_agrees_with_finite_differences(rows, point):
    gradient = loss_and_gradient(rows, point)[1].flat()
    slopes = approx_fprime(point.flat(), lambda flat: loss_and_gradient(rows, point.like(flat))[0], 1e-6)
    np.testing.assert_allclose(gradient, slopes, atol=1e-6)


def test_the_loss_is_that_of_the_posterior(rows, point):
    log_proba = log_posterior(rows.X, point)
    np.testing.assert_allclose(np.exp(log_proba).sum(axis=1), 1)
    of_true_class = log_proba[np.arange(len(rows.X)), rows.labels]
    np.testing.assert_allclose(loss_and_gradient(rows, point)[0], -rows.weight @ of_true_class / rows.total)


def test_the_posterior_mixes_labels_by_distance(point):
    x = np.array([0.3, -0.2, 0.5])
    offset = x - point.prototypes
    closeness = np.exp(-0.5 * np.einsum("kd,de,ke->k", offset, metric_of(point), offset))
    labels = np.exp(point.label_logits) / np.exp(point.label_logits).sum(axis=1, keepdims=True)
    expected = closeness @ labels / closeness.sum()
    np.testing.assert_allclose(np.exp(log_posterior(x[None], point))[0], expected)


def test_single_precision_is_accurate(rows, point):
    narrow = LabelledRows(rows.X.astype(np.float32), rows.labels, rows.weight, 3)
    loss, gradient = loss_and_gradient(narrow, point)
    exact, slopes = loss_and_gradient(rows, point)
    assert abs(loss - exact) < 1e-5
    np.testing.assert_allclose(gradient.flat(), slopes.flat(), atol=1e-4)
