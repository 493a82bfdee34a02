"""Closed-form leave-one-out ridge regression against one refit per left-out sample."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from annealed.rows.shrinkage import ridge_cost


def wide_rows(weighted, is_centered, n_rows=15, n_columns=20):
    """Three classes separated along the features of largest variance."""
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(n_rows, n_columns)) * np.geomspace(1, 0.05, n_columns)
    rows[:, :3] += 2 * np.eye(3)[np.arange(n_rows) % 3]
    weight = generator.uniform(0.5, 2, size=n_rows) if weighted else np.ones(n_rows)
    weight /= weight.sum()
    if is_centered:
        rows -= np.average(rows, axis=0, weights=weight)
    return rows, weight, np.eye(3)[np.arange(n_rows) % 3]


def refitted(rows, weight, indicators, ridge, is_centered):
    """Prediction of every sample by a fit without it."""
    predicted = np.empty_like(indicators)
    for row in range(len(rows)):
        others = np.arange(len(rows)) != row
        model = Ridge(ridge, fit_intercept=is_centered, solver="cholesky")
        model.fit(rows[others], indicators[others], sample_weight=weight[others])
        predicted[row] = model.predict(rows[[row]])[0]
    return predicted


@pytest.mark.parametrize("is_centered", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_errors_are_those_of_refits_without_each_row(weighted, is_centered):
    rows, weight, indicators = wide_rows(weighted, is_centered)
    gram = np.sqrt(weight)[:, None] * rows
    eigenvalues = np.linalg.eigvalsh(gram @ gram.T)[int(is_centered) :]
    targets = indicators - (weight @ indicators if is_centered else 0)
    errors = []
    for ridge in (1e-9 * eigenvalues[0], np.median(eigenvalues)):
        predicted = refitted(rows, weight, indicators, ridge, is_centered) - (indicators - targets)
        along, size = (np.sum(weight[:, None] * predicted * part) for part in (targets, predicted))
        errors.append(np.sum(weight[:, None] * targets**2) - max(along, 0) ** 2 / size)
    assert errors[1] < 0.99 * errors[0]
    actual = ridge_cost(rows, weight, indicators, is_centered)
    assert actual == pytest.approx(errors[1] / errors[0] - 1, rel=1e-5)


def test_the_unit_of_the_features_does_not_matter():
    rows, weight, indicators = wide_rows(weighted=True, is_centered=True)
    original, rescaled = (ridge_cost(unit * rows, weight, indicators, True) for unit in (1, 1e3))
    np.testing.assert_allclose(original, rescaled, rtol=1e-9)


def test_a_ridge_has_no_effect_if_nothing_can_be_predicted():
    """Orthogonal samples: every prediction is the mean of the others, which is opposite to the left-out sample."""
    rows, indicators = np.eye(9) - 1 / 9, np.eye(3)[np.arange(9) % 3]
    np.testing.assert_allclose(ridge_cost(rows, np.full(9, 1 / 9), indicators, True), 0.0, atol=1e-12)


def test_a_duplicate_sample_counts_as_a_larger_weight():
    rows, weight, indicators = wide_rows(weighted=True, is_centered=True)
    double = np.r_[0, 0:15, 4, 4]
    share = weight / np.bincount(double)
    actual = ridge_cost(rows[double], share[double], indicators[double], True)
    np.testing.assert_allclose(actual, ridge_cost(rows, weight, indicators, True), rtol=1e-9)


def test_near_duplicates_make_the_effect_unknown():
    rows, weight, indicators = wide_rows(weighted=False, is_centered=False)
    rows[1] = rows[0] + 1e-4 * rows[2]
    assert np.isnan(ridge_cost(rows, weight, indicators, False))
