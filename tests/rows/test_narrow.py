"""Products with few vectors, computed in pieces, equal plain matrix products."""

import numpy as np
import pytest

from annealed.rows import dense
from annealed.rows.dense import scores_of, sums_of


def arrays(n_vectors, n_rows, n_columns, dtype=np.float64, order="C"):
    generator = np.random.default_rng(0)
    vectors, weights, rows = (
        generator.normal(size=shape) for shape in ((n_vectors, n_columns), (n_vectors, n_rows), (n_rows, n_columns))
    )
    return vectors.astype(dtype), weights.astype(dtype), np.asarray(rows, dtype, order=order)


@pytest.mark.parametrize("has_small_products", [False, True])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "shape",
    [
        (1, 900, 70),
        (2, 900, 70),
        (10, 5000, 32),
        (11, 1797, 64),
        (16, 601, 31),
        (32, 700, 300),
        (50, 700, 300),
        (3, 0, 40),
    ],
)
def test_products_in_pieces_equal_plain_products(shape, dtype, order, has_small_products, monkeypatch):
    monkeypatch.setattr(dense, "HAS_SMALL_PRODUCTS", has_small_products)
    vectors, weights, rows = arrays(*shape, dtype, order)
    tol = {"rtol": 1e-4, "atol": 1e-3} if dtype == np.float32 else {"rtol": 1e-10, "atol": 1e-10}

    scores, sums = scores_of(vectors, rows), sums_of(weights, rows)

    assert scores.dtype == sums.dtype == dtype
    assert scores.flags.c_contiguous
    np.testing.assert_allclose(scores, vectors @ rows.T, **tol)
    np.testing.assert_allclose(sums, weights @ rows, **tol)


def test_only_products_with_few_vectors_are_cut_into_pieces(monkeypatch):
    monkeypatch.setattr(dense, "HAS_SMALL_PRODUCTS", True)
    _, _, rows = arrays(2, 1000, 64)

    pieces = dense._pieces(rows, 5)

    np.testing.assert_array_equal(pieces.reshape(-1, 64), rows[:960])
    assert np.shares_memory(pieces, rows)
    assert dense._pieces(rows, 1) is None
    assert dense._pieces(rows, 40) is None
    assert dense._pieces(rows[:, :20], 5) is None
    assert dense._pieces(rows[:300], 5) is None
