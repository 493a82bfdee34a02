"""Categories among the columns of a table: runs of indicator columns of which a row has at most one."""

from __future__ import annotations

import numpy as np

from annealed.rows.base import even_slices
from annealed.rows.cost import BLOCK_BYTES


def categories_of(X) -> list[slice]:
    """Runs of two or more columns that hold 0 and 1 only, at most one 1 in a row; a dense array on the host."""
    categories, first, taken = [], 0, None
    for column, is_indicator in enumerate(np.append(_holds_indicators(X), False)):
        is_one = X[:, column] == 1 if is_indicator else None
        if taken is not None and (is_one is None or (taken & is_one).any()):
            if column - first > 1:
                categories.append(slice(first, column))
            taken = None
        if is_one is not None:
            first = column if taken is None else first
            taken = is_one if taken is None else taken | is_one
    return categories


def _holds_indicators(X) -> np.ndarray:
    found = np.full(X.shape[1], True)
    for rows in even_slices(0, X.shape[0], max(1, BLOCK_BYTES // max(1, X.shape[1]))):
        found &= ((X[rows] == 0) | (X[rows] == 1)).all(axis=0)
        if not found.any():
            break
    return found
