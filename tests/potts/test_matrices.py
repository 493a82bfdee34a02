"""Diagonal plus low-rank matrices against the same matrices in dense form."""

import numpy as np
import pytest

from annealed.potts.state import DiagonalPlus, dense, diagonal, inner, plus


def positive(seed, n=7, rank=3):
    generator = np.random.default_rng(seed)
    core = generator.normal(size=(rank, rank))
    core = core + core.T
    factors = generator.normal(size=(rank, n))
    size = np.abs(np.linalg.eigvalsh(factors.T @ core @ factors)).max()
    return DiagonalPlus(size + generator.uniform(1, 2, n), factors, core)


@pytest.fixture
def matrix():
    return positive(0)


def test_products_are_those_of_the_dense_matrix(matrix):
    rows = np.random.default_rng(1).normal(size=(4, 7))
    np.testing.assert_allclose(rows @ matrix, rows @ matrix.dense())
    np.testing.assert_allclose((np.float64(0.3) * matrix).dense(), 0.3 * matrix.dense())
    more = matrix.plus(rows[:2], np.diag([2.0, -3.0]))
    np.testing.assert_allclose(more.dense(), matrix.dense() + (rows[:2].T * [2.0, -3.0]) @ rows[:2])
    weights = np.array([2.0, -3.0])
    np.testing.assert_allclose(plus(matrix.dense(), rows[:2], weights), plus(matrix, rows[:2], weights).dense())


def test_the_inverse_and_its_determinant(matrix):
    inverse, log_det = matrix.inverse()
    np.testing.assert_allclose(inverse.dense(), np.linalg.inv(matrix.dense()), atol=1e-12)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(inverse.dense())[1])


def test_the_inverse_without_factors():
    inverse, log_det = DiagonalPlus.of_diagonal(np.array([2.0, 4.0])).inverse()
    np.testing.assert_allclose(inverse.dense(), np.diag([0.5, 0.25]))
    np.testing.assert_allclose(log_det, -np.log(8))


def test_inner_products_of_dense_and_low_rank_forms(matrix):
    other = positive(2, rank=2)
    expected = np.sum(matrix.dense() * other.dense())
    for first, second in [(matrix, other), (matrix.dense(), other), (matrix, other.dense())]:
        np.testing.assert_allclose(inner(first, second), expected)
    np.testing.assert_allclose(diagonal(matrix), np.diag(dense(matrix)))
