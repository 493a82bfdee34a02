"""Leave-one-out least squares against one refit a row."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from annealed.design import shrinkage
from annealed.design.shrinkage import excess_without_ridge


def wide_rows(weighted, is_centered, n_rows=15, n_columns=20):
    """Three classes apart along what varies most."""
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(n_rows, n_columns)) * np.geomspace(1, 0.05, n_columns)
    rows[:, :3] += 2 * np.eye(3)[np.arange(n_rows) % 3]
    weight = generator.uniform(0.5, 2, size=n_rows) if weighted else np.ones(n_rows)
    weight /= weight.sum()
    if is_centered:
        rows -= np.average(rows, axis=0, weights=weight)
    return rows, weight, np.eye(3)[np.arange(n_rows) % 3]


def refitted(rows, weight, indicators, ridge, is_centered):
    """Every row as predicted without it."""
    predicted = np.empty_like(indicators)
    for row in range(len(rows)):
        others = np.arange(len(rows)) != row
        model = Ridge(ridge, fit_intercept=is_centered, solver="cholesky")
        model.fit(rows[others], indicators[others], sample_weight=weight[others])
        predicted[row] = model.predict(rows[[row]])[0]
    return predicted


@pytest.mark.parametrize("is_centered", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_errors_are_those_of_refits_without_each_row(weighted, is_centered, monkeypatch):
    rows, weight, indicators = wide_rows(weighted, is_centered)
    monkeypatch.setattr(shrinkage, "N_RIDGES", 6)
    gram = np.sqrt(weight)[:, None] * rows
    eigenvalues = np.linalg.eigvalsh(gram @ gram.T)[int(is_centered) :]
    ridges = [1e-9 * eigenvalues[0], *np.geomspace(0.1 * eigenvalues[0], eigenvalues[-1], 6)]
    wanted = indicators - (weight @ indicators if is_centered else 0)
    errors = []
    for ridge in ridges:
        predicted = refitted(rows, weight, indicators, ridge, is_centered) - (indicators - wanted)
        along, size = (np.sum(weight[:, None] * predicted * own) for own in (wanted, predicted))
        errors.append(np.sum(weight[:, None] * wanted**2) - max(along, 0) ** 2 / size)
    assert min(errors) < 0.99 * errors[0]
    assert excess_without_ridge(rows, weight, indicators, is_centered) == pytest.approx(
        errors[0] / min(errors), rel=1e-5
    )


def test_the_unit_of_rows_does_not_matter():
    rows, weight, indicators = wide_rows(weighted=True, is_centered=True)
    here = excess_without_ridge(rows, weight, indicators, True)
    assert here == pytest.approx(excess_without_ridge(1e3 * rows, weight, indicators, True), rel=1e-9)


def test_what_cannot_be_predicted_needs_no_ridge():
    """Rows that have nothing in common: every prediction is the mean of the others, which goes against the left-out."""
    rows, indicators = np.eye(9) - 1 / 9, np.eye(3)[np.arange(9) % 3]
    assert excess_without_ridge(rows, np.full(9, 1 / 9), indicators, True) == pytest.approx(1.0)
