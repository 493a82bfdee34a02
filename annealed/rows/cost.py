"""Cost model: what an ordinary machine does in which time, from which plans and the sizes of arrays are computed.

Times are those of one core, in nanoseconds. Only ratios matter, and roughly: a plan that misjudges one by half costs
little. What is multiplied, and how often, follows from shapes.
"""

from __future__ import annotations

from scipy import sparse

CALL = 5.4e5  # overhead of a pass over the rows: calls of Python and NumPy
BLOCK = 2.4e5  # overhead of each further group of rows
ENTRY = 2.5  # an entry of a row that is copied, or combined with another one
THREAD = 1.6e6  # work that repays a thread: with less, it waits longer than it computes
SCORE = 4.0  # the posterior of a row under one score
MULTIPLY = {True: 0.03, False: 0.1}  # a multiplication of rows with a few vectors, in float32 and in float64
SQUARE = {True: 0.015, False: 0.03}  # a multiplication in products of rows with themselves
FACTOR = 0.05  # a multiplication in a Cholesky factor

# Bytes of the largest temporary array of a block: small relative to X, large relative to the overhead of a call.
# Smaller blocks would stay in cache, but threads exchange the interpreter lock at every block, which costs more.
BLOCK_BYTES = 1 << 22
STORED_BYTES = 1 << 26  # of an array that is kept beside X to save time


def row_length(X) -> float:
    """Columns of a dense row whose product with a vector takes as long as that of a row of X."""
    n_rows, n_features = X.shape
    return min(n_features, X.nnz / max(1, n_rows) * ENTRY / MULTIPLY[False]) if sparse.issparse(X) else n_features


def score_time(n_features, is_float32=False) -> float:
    """One score of a row."""
    return SCORE + MULTIPLY[is_float32] * n_features


def pass_time(n_rows, n_features, n_scores, is_float32=False, n_blocks=1) -> float:
    """Loss and gradient by `n_scores` scores of all fits together."""
    overhead = CALL + BLOCK * (n_blocks - 1)
    return overhead + n_rows * n_scores * score_time(n_features, is_float32)


def squares_time(n_rows, width, is_float32=False) -> float:
    """The weighted sum of z z' over rows z of a width."""
    return n_rows * (ENTRY * width + SQUARE[is_float32] * width**2 / 2)


def sparse_squares_time(n_rows, n_entries, width) -> float:
    """The same over sparse rows with so many entries each."""
    return ENTRY * (n_rows * n_entries**2 + width**2)


def factor_time(size) -> float:
    """The Cholesky factor of a matrix."""
    return FACTOR * size**3 / 6


def hessian_time(n_rows, width, n_pairs, size, is_stored) -> float:
    """The Hessian of a fit and its factor; `is_stored`: from products of columns, which few pairs only read."""
    if is_stored:
        of_row = ENTRY * n_pairs + max(MULTIPLY[False], SQUARE[False] * n_pairs) * width**2 / 2
    else:
        of_row = n_pairs * (ENTRY * width + SQUARE[False] * width**2 / 2)
    return n_rows * of_row + factor_time(size)
