"""Hessians estimated from sampled rows."""

import numpy as np
import pytest
from small_problems import rare_class, stack_of

from annealed.datasets import make_gaussian_classes
from annealed.problems import InnerProduct, hessian_sample

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
    draws = []
    for seed in range(60):
        uniform = np.random.RandomState(seed).uniform
        with monkeypatch.context() as patched:
            patched.setattr(hessian_sample, "_uniform", lambda size, uniform=uniform: uniform(size=size))
            draws.append(learned_at_some_point(problem).hessian)
    monkeypatch.setattr(hessian_sample, "ROWS_PER_COORDINATE", 400)
    exact = learned_at_some_point(problem).hessian
    assert min(np.linalg.eigvalsh(draw)[0] for draw in draws) >= -1e-12
    error = np.std(draws, axis=0, ddof=1) / np.sqrt(len(draws))
    assert (error > 0).all() and np.mean(np.abs(np.mean(draws, axis=0) - exact) <= 2 * error) >= 0.8


def test_sampled_class_blocks_are_positive_semidefinite_and_unbiased(few_are_sampled, monkeypatch):
    table = make_gaussian_classes(400, 4, 4, separation=3.0, random_state=0)
    problem = InnerProduct().prepare(stack_of(table, n_classes=4))
    point = 0.3 * np.random.RandomState(0).standard_normal(problem.start(1.0).shape)
    draws = []
    for seed in range(60):
        uniform = np.random.RandomState(seed).uniform
        with monkeypatch.context() as patched:
            patched.setattr(hessian_sample, "_uniform", lambda size, uniform=uniform: uniform(size=size))
            draws.append(problem.preconditioners.learn_classes(point[0], TEMPERATURE).blocks)
    monkeypatch.setattr(hessian_sample, "ROWS_PER_COORDINATE", 400)
    exact = problem.preconditioners.learn_classes(point[0], TEMPERATURE).blocks
    assert min(np.linalg.eigvalsh(draw).min() for draw in draws) >= -1e-12
    error = np.std(draws, axis=0, ddof=1) / np.sqrt(len(draws))
    assert (error > 0).all() and np.mean(np.abs(np.mean(draws, axis=0) - exact) <= 2 * error) >= 0.8


def drawn_by(share, n_drawn, monkeypatch):
    """Rows drawn for a block of these shares, and what each represents."""
    monkeypatch.setattr(hessian_sample, "ROWS_PER_COORDINATE", n_drawn)
    posterior = np.ones((len(share), 1))
    return hessian_sample._Sampler(np.ones(len(share)), posterior, n_blocks=1, width=1).draw(0, share)


def test_the_sample_size_is_as_requested_and_rows_of_large_curvature_are_included(monkeypatch):
    share = np.random.RandomState(2).exponential(size=20_000) ** 4
    for n_drawn in (20, 500, 5000):
        drawn, stands_for = drawn_by(share, n_drawn, monkeypatch)
        assert abs(len(drawn) - n_drawn) <= 0.1 * n_drawn + 4 * np.sqrt(n_drawn)
        np.testing.assert_array_equal(stands_for, np.maximum(share[drawn], stands_for.min()))
        assert set(np.flatnonzero(share > 1.0001 * stands_for.min())) <= set(drawn)
        assert abs(stands_for.sum() / share.sum() - 1) <= 4 / np.sqrt(n_drawn)


def test_rows_without_curvature_are_not_sampled(monkeypatch):
    share = np.where(np.arange(20_000) % 100 == 0, 1.0, 0.0)
    drawn, stands_for = drawn_by(share, 1000, monkeypatch)
    np.testing.assert_array_equal(drawn, np.arange(0, 20_000, 100))
    np.testing.assert_array_equal(stands_for, 1.0)


def test_rows_of_negligible_curvature_are_left_out_even_without_sampling(monkeypatch):
    """Products of posteriors that are almost zero are subnormal and slow."""
    share = np.where(np.arange(1000) % 4 == 0, 0.3, 1e-25)
    drawn, stands_for = drawn_by(share, 1000, monkeypatch)
    assert drawn is None
    np.testing.assert_array_equal(stands_for, np.where(share > 0.1, 0.3, 0.0))


def test_a_sample_keeps_all_rows_of_rare_classes_and_represents_all_rows():
    table = rare_class()
    design = stack_of(table)
    rows, weight = hessian_sample._stratified(design, 30)
    rarest = np.argmin(np.bincount(table.y))
    assert set(np.flatnonzero(table.y == rarest)) <= set(rows)
    assert len(rows) < len(table.y)
    shares = np.bincount(table.y[rows], weight)
    np.testing.assert_allclose(shares, np.bincount(table.y) / len(table.y), atol=1e-12)
