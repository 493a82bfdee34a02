"""Matrix products of many rows with few vectors, computed in pieces.

Before multiplying, BLAS copies both factors into a blocked layout (packing), which takes longer than the
multiplications if the vectors are few. On x86, BLAS multiplies small matrices without packing; there, rows are cut into
pieces of that size and multiplied in one batched call. On other processors the plain product is faster by 10 to 25 %.
"""

from __future__ import annotations

import platform

import numpy as np

HAS_SMALL_PRODUCTS = platform.machine().lower() in ("x86_64", "amd64")
MOST_WORK = 1_000_000  # largest number of multiplications in a piece
MOST_SCORES = 1200  # largest number of scores in a piece
FEWEST_ROWS, MOST_ROWS = 32, 256  # rows of a piece, for pieces to be faster
FEWEST_COLUMNS = 32  # columns, for pieces to be faster
MOST_BYTES = 128  # bytes of one column of the vectors, for pieces to be faster


def scores_of(vectors, rows):
    """`vectors @ rows.T`, (n_vectors, n_rows)."""
    n_vectors = len(vectors)
    pieces = _pieces(rows, n_vectors, MOST_SCORES // n_vectors)
    if pieces is None:
        return vectors @ rows.T
    n_pieces, length, _ = pieces.shape
    scores = np.empty((n_vectors, len(rows)), np.result_type(vectors, rows))
    inside, rest = scores[:, : n_pieces * length], slice(n_pieces * length, None)
    np.matmul(vectors, pieces.transpose(0, 2, 1), out=inside.reshape(n_vectors, n_pieces, length).transpose(1, 0, 2))
    np.matmul(vectors, rows[rest].T, out=scores[:, rest])
    return scores


def sums_of(weights, rows):
    """`weights @ rows`, (n_vectors, n_columns)."""
    n_vectors = len(weights)
    pays = rows.dtype == np.float32 and n_vectors * rows.size > MOST_WORK  # in float64 pieces are not faster
    pieces = _pieces(rows, n_vectors, MOST_ROWS) if pays else None
    if pieces is None:
        return np.dot(weights, rows)  # `@` would hold the interpreter lock if the result is small
    n_pieces, length, _ = pieces.shape
    inside, rest = weights[:, : n_pieces * length], slice(n_pieces * length, None)
    sums = np.matmul(inside.reshape(n_vectors, n_pieces, length).transpose(1, 0, 2), pieces).sum(axis=0)
    sums += np.dot(weights[:, rest], rows[rest])
    return sums


def _pieces(rows, n_vectors, most_rows):
    """Rows in pieces (n_pieces, length, n_columns), without the remainder; None if pieces would not be faster."""
    n_columns = rows.shape[1]
    length = min(most_rows, MOST_ROWS, MOST_WORK // (n_vectors * n_columns))
    is_narrow = 1 < n_vectors <= MOST_BYTES // rows.itemsize and n_columns >= FEWEST_COLUMNS
    if not (HAS_SMALL_PRODUCTS and is_narrow) or length < FEWEST_ROWS or len(rows) < 2 * length:
        return None
    n_pieces = len(rows) // length
    return rows[: n_pieces * length].reshape(n_pieces, length, n_columns)
