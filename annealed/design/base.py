"""Rows of (X, labels, weight), walked in blocks.

Every quantity of the library is a sum over rows of a pure function of a block of rows and small parameters, so
a backend is only a way of summing:

    totals = design.sum_rows(kernel)            # kernel(block) -> tuple of arrays, added up over the blocks

Fits come in stacks: `weight` has one column per fit (fold masks times sample weight, each column summing to
one), so one pass over X serves every fold and the final fit.

Shapes: X (n_rows, n_features), labels (n_rows,), weight (n_rows, n_fits), coef (n_fits, n_classes, n_features).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from copy import copy
from itertools import chain, pairwise
from typing import Any

import numpy as np
from scipy import linalg

from annealed.design.threads import blas_threads, map_in_order

# Of a block's widest temporary: small beside X, large beside the price of a call. Threads hand over the interpreter's
# lock at each, which costs more than the cache that smaller blocks stay in gains.
BLOCK_BYTES = 1 << 22
READ_BYTES = 1 << 24  # of a block whose rows are read where they lie, and not copied
MANY_BLOCKS = 8  # enough of these for threads to share
SHARED_WORK = 1 << 24  # multiplications of a pass that are worth a thread: with fewer it waits longer than it works
SCORE_WORK, FEWEST_SCORES = 64, 4  # columns whose products one score costs beside, and scores that reading rows costs


def even_slices(first: int, last: int, most: int) -> list[slice]:
    """Consecutive pieces of a range, no longer than `most`, alike in length; one, or an even number of them."""
    length = last - first
    n_pieces = -(-length // most)
    n_pieces += n_pieces % 2 if n_pieces > 1 else 0
    cuts = [first + length * piece // n_pieces for piece in range(n_pieces)]
    return [slice(*cut) for cut in pairwise([*cuts, last])]


class Block(ABC):
    """Some consecutive rows of a design, seen by a kernel.

    served : positions, among the fits asked for, of those that `weight` has columns of; None is all. Fits that leave
        every row of a block out are not bothered with it.
    """

    fit_positions: np.ndarray | None = None

    def __init__(self, rows: slice, labels: np.ndarray, weight: np.ndarray):
        self.rows = rows
        self.labels = labels
        self.weight = weight

    @abstractmethod
    def product(self, coef):
        """Scores (n_rows, n_fits, n_classes) of the centred rows under `coef`."""

    @abstractmethod
    def transposed_product(self, residual):
        """Sums over rows (n_fits, n_classes, n_features) of residual times the centred row."""

    def exact_sums(self, weight):
        """As `transposed_product`, with no digit lost to a centre that is far away."""
        return self.transposed_product(weight)

    @abstractmethod
    def rows_as_array(self):
        """The centred rows, dense."""

    @abstractmethod
    def gram(self, weight):
        """Weighted sum over rows of the outer product of the centred row with itself."""

    @abstractmethod
    def moments(self, weight):
        """Second moments, sums and counts of the centred rows under each weight, (n_rows, ...), each of one sign."""

    @abstractmethod
    def column_sums(self, weight):
        """Weighted column sums of the centred rows."""

    @abstractmethod
    def column_squares(self, weight):
        """Weighted column sums of the squares of the centred rows."""

    @abstractmethod
    def row_squares(self, scale):
        """Squared norm of each centred row whose columns are multiplied by `scale`."""

    @abstractmethod
    def features(self, scale):
        """The rows as a family of the user's sees them: centred and multiplied by `scale`."""


class Design(ABC):
    """Rows with labels and a weight per fit; `center` is subtracted from every row without copying X."""

    def __init__(self, X, labels, weight, total_weight, n_classes):
        self.X = X
        self.labels = labels
        self.weight = weight
        self.total_weight = total_weight
        self.n_classes = n_classes
        self.n_rows, self.n_features = X.shape
        self.center = np.zeros(self.n_features)

    @property
    def n_fits(self) -> int:
        return self.weight.shape[1]

    def centered(self, center) -> Design:
        """The same rows with another centre."""
        other = copy(self)
        other.center = center
        return other

    def without_empty_columns(self) -> tuple[Design, np.ndarray | None]:
        """The same rows by the columns that any of them uses, and which these are, where most are used by none."""
        return self, None

    multiplies_in_double = True  # whatever the type of the rows
    lends_rows = False  # whether a block has the rows as they lie, and no copy of its own

    def block_rows(self, n_fits: int, copies_rows=True) -> int:
        n_scores = n_fits * self.n_classes
        width = 8 * max(self.n_features, n_scores)
        if copies_rows or not self.lends_rows:
            return max(256, BLOCK_BYTES // width)
        return max(256, min(READ_BYTES // width, max(self.rows_of_thread(n_fits), self.n_rows // MANY_BLOCKS)))

    def rows_of_thread(self, n_fits: int) -> int:
        """As many as are worth a thread of their own."""
        of_row = max(n_fits * self.n_classes, FEWEST_SCORES) * (self.n_features + SCORE_WORK)
        return max(1, SHARED_WORK // of_row)

    def map_blocks(self, function: Callable[[Block], Any], fits=slice(None), copies_rows=True, n_numbers=0) -> Iterator:
        """`function(block)` of the rows, block by block, with the weights of the named fits.

        copies_rows : whether the function makes anything as large as the block's rows
        n_numbers : that the function makes of a row, where they are more than its scores and columns
        """
        weight = self.weight[:, fits]
        most = self.block_rows(weight.shape[1], copies_rows)
        if n_numbers:
            most = min(most, max(256, BLOCK_BYTES // (8 * n_numbers)))
        slices = even_slices(0, self.n_rows, most)
        return map_in_order(lambda rows: function(self._block(rows, self.labels[rows], weight[rows])), slices)

    def map_rows(self, function: Callable[[Block], Any], rows) -> Iterator:
        """`function(block)` of the rows named by an array of numbers, block by block, without weights."""
        step = self.block_rows(1)
        parts = [rows[first : first + step] for first in range(0, len(rows), step)]
        return map_in_order(lambda part: function(self._block(part, self.labels[part], None)), parts)

    @abstractmethod
    def _block(self, rows, labels, weight) -> Block: ...

    def sum_rows(self, kernel: Callable[[Block], tuple], fits=slice(None), copies_rows=True) -> tuple:
        """Add `kernel(block)`, a tuple of arrays, over all blocks; those of a block that serves a part of the fits
        have the served fits along their first axis.
        """
        parts = self.map_blocks(lambda block: (block.fit_positions, kernel(block)), fits, copies_rows)
        fit_positions, terms = next(parts)
        if fit_positions is None:
            totals = [np.array(term, dtype=np.float64, order="C") for term in terms]
        else:
            n_fits = len(np.arange(self.n_fits)[fits])
            totals = [np.zeros((n_fits, *term.shape[1:])) for term in terms]
            parts = chain([(fit_positions, terms)], parts)
        for fit_positions, terms in parts:
            for total, term in zip(totals, terms, strict=True):
                total[... if fit_positions is None else fit_positions] += term
        return tuple(totals)

    @abstractmethod
    def row_gram(self, scale) -> np.ndarray:
        """Inner products (n_rows, n_rows) of the centred rows, columns multiplied by `scale`."""

    def product(self, coef):
        """Scores (n_rows, n_fits, n_classes) of all centred rows under `coef`."""
        return np.concatenate(list(self.map_blocks(lambda block: block.product(coef))))

    def combine_rows(self, weights):
        """Combinations (n, n_features) of the centred rows; `weights` is (n, n_rows)."""
        columns = weights.T[:, None, :]
        (combined,) = self.sum_rows(lambda block: (block.transposed_product(columns[block.rows]),))
        return combined[0]

    def covariance(self, fit: int = 0) -> np.ndarray:
        """Second moment of the centred rows under one fit's weights."""
        (total,) = self.sum_rows(lambda block: (block.gram(block.weight[:, fit]),))
        return total

    def covariances(self):
        """Second moments of the centred rows under the weights of every fit."""
        return [self.covariance(fit) for fit in range(self.n_fits)]

    def eigh(self, matrix):
        """Eigenvalues, rising, and eigenvectors of a symmetric matrix of the columns, which may be overwritten."""
        with blas_threads(len(matrix)):
            return linalg.eigh(matrix, overwrite_a=True)

    def class_weight_sums(self):
        """Share of each class in each fit, (n_fits, n_classes)."""
        shares = np.zeros((self.n_classes, self.n_fits))
        np.add.at(shares, self.labels, self.weight)
        return shares.T

    def class_sums(self):
        """Weighted sums (n_fits, n_classes, n_features) of the centred rows of each class."""

        def kernel(block):
            targets = np.zeros((*block.weight.shape, self.n_classes))
            np.put_along_axis(targets, block.labels[:, None, None], block.weight[..., None], axis=2)
            return (block.exact_sums(targets),)

        return self.sum_rows(kernel)[0]

    def column_mean(self, fit: int = 0):
        """Mean of each centred column under one fit's weights."""
        (sums,) = self.sum_rows(lambda block: (block.column_sums(block.weight[:, fit]),))
        return sums

    def column_variance(self, fit: int = 0):
        """Mean square of each centred column under one fit's weights."""
        (squares,) = self.sum_rows(lambda block: (block.column_squares(block.weight[:, fit]),))
        return squares
