"""Exact Hessians: with stored points of all rows, or summed over blocks of rows."""

import numpy as np
import pytest
from small_problems import badly_scaled, fold_masks, gaussian, rare_class, stack_of, text, two_classes, wide

from annealed.problems import InnerProduct, hessian


def prepared(table, **settings):
    return InnerProduct(**settings).prepare(stack_of(table, fold_masks(len(table.y))))


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("make", [gaussian, badly_scaled, two_classes, rare_class, wide, text])
def test_stored_points_and_blocks_of_rows_agree(make, fit_intercept, monkeypatch):
    small = prepared(make(), fit_intercept=fit_intercept)
    point = small.start(1.0) + 0.1 * np.random.default_rng(0).normal(size=small.start(1.0).shape)
    fits = np.array([2, 0])
    kept = small.hessians.terms(point[fits], 0.3, fits)
    assert isinstance(small.scores.hessian_rows, hessian.SmallRows)
    monkeypatch.setattr(hessian, "STORED_BYTES", 0)
    large = prepared(make(), fit_intercept=fit_intercept)
    added = large.hessians.terms(point[fits], 0.3, fits)
    assert isinstance(large.scores.hessian_rows, hessian.BlockRows)
    for one, other in zip(kept, added, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("is_small", [True, False])
@pytest.mark.parametrize("make", [gaussian, badly_scaled, two_classes, rare_class, wide, text])
def test_evaluations_with_and_without_a_hessian_agree(make, is_small, fit_intercept, monkeypatch):
    if not is_small:
        monkeypatch.setattr(hessian, "STORED_BYTES", 0)
    problem = prepared(make(), fit_intercept=fit_intercept)
    rng = np.random.default_rng(0)
    point = problem.hessians.without_shift(problem.start(1.0) + 0.1 * rng.normal(size=problem.start(1.0).shape))
    along = problem.hessians.without_shift(rng.normal(size=point.shape))
    fits = np.array([2, 0])
    value, gradient, matrix = problem.hessians.terms(point[fits], 0.3, fits)
    seen_value, seen_gradient, product = problem.hessians.along(point[fits], along[fits], 0.3, fits)
    np.testing.assert_allclose(seen_value, value, rtol=1e-12)
    np.testing.assert_allclose(seen_gradient, gradient, rtol=1e-9, atol=1e-12)
    step = 1e-5
    _, ahead, _ = problem.hessians.along(point[fits] + step * along[fits], along[fits], 0.3, fits)
    _, behind, _ = problem.hessians.along(point[fits] - step * along[fits], along[fits], 0.3, fits)
    size = np.abs(product).max()
    np.testing.assert_allclose(product, (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-7 * size)
    # Differences of scores of mean zero: the last score is the reference.
    table = along[fits].reshape(len(fits), problem.scores.table.n_scores, -1)
    differences = table if problem.scores.table.n_scores == 1 else table[:, :-1] - table[:, -1:]
    by_matrix = np.einsum("fpq,fq->fp", matrix, differences.reshape(len(fits), -1))
    np.testing.assert_allclose(problem.hessians.by_differences(product), by_matrix, rtol=1e-8, atol=1e-10 * size)
