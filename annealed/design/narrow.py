"""Products of many rows with few vectors, piece by piece.

Before it multiplies, BLAS copies both factors into an order of its own. With few vectors that takes longer than the
multiplications; on x86 small products are made without it. So rows are cut into pieces of that size there, multiplied
in one call. On other processors a product as it stands is the faster, by a tenth to a quarter.
"""

from __future__ import annotations

import platform

import numpy as np

HAS_SMALL_PRODUCTS = platform.machine().lower() in ("x86_64", "amd64")
MOST_WORK = 1_000_000  # multiplications of a piece
MOST_SCORES = 1200  # of a piece
FEWEST_ROWS, MOST_ROWS = 32, 256  # of a piece, for the pieces to pay
FEWEST_COLUMNS = 32  # likewise
MOST_BYTES = 128  # of the vectors' entries in one column, likewise
MANY_COLUMNS = 256  # from which single precision is faster with rows as the left factor, a copy of the scores included


def scores_of(vectors, rows):
    """`vectors @ rows.T`, (n_vectors, n_rows)."""
    n_vectors = len(vectors)
    pieces = _pieces(rows, n_vectors, MOST_SCORES // n_vectors)
    if pieces is None and HAS_SMALL_PRODUCTS and rows.dtype == np.float32 and rows.shape[1] >= MANY_COLUMNS:
        return np.ascontiguousarray((rows @ vectors.T).T)
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
    pays = rows.dtype == np.float32 and n_vectors * rows.size > MOST_WORK  # in double precision they do not
    pieces = _pieces(rows, n_vectors, MOST_ROWS) if pays else None
    if pieces is None:
        return np.dot(weights, rows)  # `@` would keep other threads waiting where the result is small
    n_pieces, length, _ = pieces.shape
    inside, rest = weights[:, : n_pieces * length], slice(n_pieces * length, None)
    sums = np.matmul(inside.reshape(n_vectors, n_pieces, length).transpose(1, 0, 2), pieces).sum(axis=0)
    sums += np.dot(weights[:, rest], rows[rest])
    return sums


def _pieces(rows, n_vectors, most_rows):
    """Rows in pieces (n_pieces, length, n_columns), less a rest; None where they would not pay."""
    n_columns = rows.shape[1]
    length = min(most_rows, MOST_ROWS, MOST_WORK // (n_vectors * n_columns))
    is_narrow = 1 < n_vectors <= MOST_BYTES // rows.itemsize and n_columns >= FEWEST_COLUMNS
    if not (HAS_SMALL_PRODUCTS and is_narrow) or length < FEWEST_ROWS or len(rows) < 2 * length:
        return None
    n_pieces = len(rows) // length
    return rows[: n_pieces * length].reshape(n_pieces, length, n_columns)
