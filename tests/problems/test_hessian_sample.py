"""Hessians estimated from sampled rows."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from small_problems import rare_class, stack_of

from annealed.datasets import make_gaussian_classes
from annealed.problems import InnerProduct, hessian_sample
from annealed.problems.hessian_sample import systematic_sample

TEMPERATURE = 0.05


def learned_at_some_point(problem):
    point = problem.start(TEMPERATURE) + 0.3 * np.random.RandomState(0).standard_normal(problem.start(1.0).shape)
    return problem.preconditioners.learn(point[0], TEMPERATURE, 0)


@pytest.fixture
def few_are_sampled(monkeypatch):
    monkeypatch.setattr(hessian_sample, "ROWS_PER_COORDINATE", 8)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_sampled_hessians_are_positive_semidefinite_and_unbiased(n_classes, few_are_sampled, monkeypatch):
    table = make_gaussian_classes(400, 4, n_classes, separation=3.0, random_state=0)
    problem = InnerProduct().prepare(stack_of(table, n_classes=n_classes))
    draws, sample = [], hessian_sample.systematic_sample
    for start in (np.arange(60) + 0.5) / 60:
        with monkeypatch.context() as patched:
            patched.setattr(hessian_sample, "systematic_sample", partial(sample, start=start))
            draws.append(learned_at_some_point(problem).hessian)
    monkeypatch.setattr(hessian_sample, "ROWS_PER_COORDINATE", 400)
    exact = learned_at_some_point(problem).hessian
    assert min(np.linalg.eigvalsh(draw)[0] for draw in draws) >= -1e-6
    error = np.std(draws, axis=0, ddof=1) / np.sqrt(len(draws))
    assert np.mean(error > 1e-4) > 0.5 and np.mean(np.abs(np.mean(draws, axis=0) - exact) <= 2 * error + 1e-6) >= 0.8


def test_sampled_class_blocks_are_positive_semidefinite_and_unbiased(few_are_sampled, monkeypatch):
    table = make_gaussian_classes(400, 4, 4, separation=3.0, random_state=0)
    problem = InnerProduct().prepare(stack_of(table, n_classes=4))
    point = 0.3 * np.random.RandomState(0).standard_normal(problem.start(1.0).shape)
    draws, sample = [], hessian_sample.systematic_sample
    for start in (np.arange(60) + 0.5) / 60:
        with monkeypatch.context() as patched:
            patched.setattr(hessian_sample, "systematic_sample", partial(sample, start=start))
            draws.append(problem.preconditioners.learn_classes(point[0], TEMPERATURE).blocks)
    monkeypatch.setattr(hessian_sample, "ROWS_PER_COORDINATE", 400)
    exact = problem.preconditioners.learn_classes(point[0], TEMPERATURE).blocks
    assert min(np.linalg.eigvalsh(draw).min() for draw in draws) >= -1e-6
    error = np.std(draws, axis=0, ddof=1) / np.sqrt(len(draws))
    assert np.mean(error > 1e-4) > 0.5 and np.mean(np.abs(np.mean(draws, axis=0) - exact) <= 2 * error + 1e-6) >= 0.8


def test_the_sample_size_is_as_requested_and_rows_of_large_curvature_are_included():
    share = np.random.RandomState(2).exponential(size=20_000) ** 2
    for n_drawn in (20, 500, 5000):
        drawn, stands_for = systematic_sample(share, n_drawn)
        assert 0.6 * n_drawn <= len(drawn) <= n_drawn
        np.testing.assert_array_equal(stands_for, np.maximum(share[drawn], stands_for.min()))
        assert set(np.flatnonzero(share > 1.0001 * stands_for.min())) <= set(drawn)
        assert abs(stands_for.sum() / share.sum() - 1) <= 2 / np.sqrt(n_drawn)


def test_the_curvature_of_a_column_that_is_rarely_nonzero_is_known():
    """If no such row were drawn, the penalty alone would scale the step along this column: far too long."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(20_000, 3)), rng.permutation(20_000) < 5])
    table = SimpleNamespace(X=sparse.csr_array(X), y=rng.permutation(20_000) % 2)
    problem = InnerProduct(penalty_scaling="standardize").prepare(stack_of(table, n_classes=2))
    learned = problem.preconditioners.learn(problem.start(1e-4)[0], 1e-4, 0)
    assert len(learned.sample.rows) > 100 * hessian_sample.ROWS_PER_COORDINATE
    diagonal = np.diag(learned.hessian)  # p (1 - p) times variances of one
    np.testing.assert_allclose(diagonal, diagonal[-1], rtol=0.1)


def test_rows_without_curvature_are_not_sampled():
    share = np.where(np.arange(20_000) % 100 == 0, 1.0, 0.0)
    drawn, stands_for = systematic_sample(share, 1000)
    np.testing.assert_array_equal(drawn, np.arange(0, 20_000, 100))
    np.testing.assert_array_equal(stands_for, 1.0)
    drawn, _ = systematic_sample(np.zeros(10), 5)
    assert len(drawn) == 0


def test_rows_of_negligible_curvature_are_left_out_even_without_sampling():
    """Products of posteriors that are almost zero are subnormal and slow."""
    share = np.where(np.arange(1000) % 4 == 0, 0.3, 1e-25)
    drawn, stands_for = hessian_sample.sampled(share, np.ones(1000), width=100)
    assert drawn is None
    np.testing.assert_array_equal(stands_for, np.where(share > 0.1, 0.3, 0.0))


def test_a_sample_keeps_all_rows_of_rare_classes_and_represents_all_rows():
    table = rare_class()
    design = stack_of(table)
    rows, weight = hessian_sample._representatives(design, 30)
    rarest = np.argmin(np.bincount(table.y))
    assert set(np.flatnonzero(table.y == rarest)) <= set(rows)
    assert len(rows) < len(table.y)
    shares = np.bincount(table.y[rows], weight)
    np.testing.assert_allclose(shares, np.bincount(table.y) / len(table.y), atol=0.05)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_hessians_of_sparse_rows_are_those_of_dense_ones(fit_intercept, monkeypatch):
    """Sparse rows are not densified; a column far from zero keeps its digits."""
    draw = np.random.default_rng(0)
    X = sparse.random_array((300, 40), density=0.1, rng=draw, format="csr").toarray()
    X[:, 3] = 1e6 + draw.normal(size=300)
    table = SimpleNamespace(X=sparse.csr_array(X), y=draw.integers(3, size=300))
    family = InnerProduct(fit_intercept=fit_intercept, penalty_scaling="standardize")
    monkeypatch.setattr("annealed.rows.coordinates.WIDEST_EIGENPROBLEM", 10)

    def found(is_sparse):
        monkeypatch.setattr(hessian_sample, "_are_kept_sparse", lambda *_: is_sparse)
        problem = family.prepare(stack_of(table, n_classes=3))
        assert problem.scores.coordinates.basis.ndim == 1
        point = 0.3 * np.random.RandomState(0).standard_normal(problem.start(1.0).shape)[0]
        learned = problem.preconditioners.learn(point, TEMPERATURE, 0)
        return learned.hessian, problem.preconditioners.learn_classes(point, TEMPERATURE).blocks

    for of_sparse, of_dense in zip(found(True), found(False), strict=True):
        np.testing.assert_allclose(of_sparse, of_dense, rtol=1e-6, atol=1e-9)


def test_rows_are_kept_sparse_where_that_is_faster():
    draw = np.random.default_rng(0)
    for density, is_faster in ((0.002, True), (0.5, False)):
        X = sparse.random_array((500, 1500), density=density, rng=draw, format="csr")
        problem = InnerProduct().prepare(stack_of(SimpleNamespace(X=X, y=draw.integers(3, size=500)), n_classes=3))
        at = problem.design, problem.scores.coordinates
        assert hessian_sample._are_kept_sparse(*at, 700) == is_faster
