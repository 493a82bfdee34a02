"""Base classes of the storage layer: a `Design` holds (X, labels, weight) and hands out blocks of samples.

Every quantity in the library is a sum over samples of a pure function of a block of samples and a few small
parameters. A backend only has to implement that sum:

    totals = design.sum_rows(kernel)            # kernel(block) -> tuple of arrays, summed over the blocks

Fits are stacked: `weight` has one column per fit (fold mask times sample weight, normalized to sum to one), so one
pass over X computes the sums of every fold and of the final fit.

The rows of X are the samples, its columns the features. Shapes: X (n_rows, n_features), labels (n_rows,),
weight (n_rows, n_fits), coef (n_fits, n_classes, n_features).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from copy import copy
from itertools import chain, pairwise
from typing import Any

import numpy as np
from scipy import linalg

from annealed.arrays import HOST, Place
from annealed.rows.cost import BLOCK_BYTES, THREAD, score_time
from annealed.rows.threads import blas_threads, map_in_order

MANY_BLOCKS = 8  # number of blocks that balances the load of the threads
# Largest |centre| of a feature in mean absolute deviations, by bytes of a number: uncentred products lose few digits.
FARTHEST_CENTER = {8: 100.0, 4: 4.0}
SPREAD_ROWS = 1000  # samples from which the mean absolute deviation is estimated


def even_slices(first: int, last: int, most: int) -> list[slice]:
    """Consecutive slices of about equal length, none longer than `most`: one slice, or an even number of slices."""
    length = last - first
    n_pieces = -(-length // most)
    n_pieces = min(n_pieces + n_pieces % 2, length) if n_pieces > 1 else n_pieces  # none of them is empty
    cuts = [first + length * piece // n_pieces for piece in range(n_pieces)]
    return [slice(*cut) for cut in pairwise([*cuts, last])]


class Block(ABC):
    """Consecutive samples of a design, passed to a kernel.

    fit_positions : positions, within the requested fits, of the fits for which `weight` has a column; None means all.
        Fits that give no weight to any sample of the block are skipped.
    """

    fit_positions: np.ndarray | None = None

    def __init__(self, rows: slice, labels: np.ndarray, weight: np.ndarray):
        self.rows = rows
        self.labels = labels
        self.weight = weight

    @abstractmethod
    def product(self, coef):
        """Scores (n_rows, n_fits, n_classes) of the centred samples under `coef`."""

    @abstractmethod
    def transposed_product(self, residual):
        """Sums (n_fits, n_classes, n_features) over samples of residual times centred sample."""

    def exact_sums(self, weight):
        """Like `transposed_product`, but without cancellation if the centre is far from zero."""
        return self.transposed_product(weight)

    @abstractmethod
    def rows_as_array(self):
        """The centred samples as a dense array."""

    @abstractmethod
    def gram(self, weight):
        """Weighted sum over samples of the outer product of the centred sample with itself."""

    @abstractmethod
    def moments(self, weight):
        """Weighted second moments, sums and total weights of the centred samples.

        `weight` is (n_rows, ...); the entries of each of its columns must have the same sign.
        """

    @abstractmethod
    def column_sums(self, weight):
        """Weighted sum of each centred feature."""

    @abstractmethod
    def column_squares(self, weight):
        """Weighted sum of squares of each centred feature."""

    @abstractmethod
    def row_squares(self, scale):
        """Squared norm of each centred sample, features multiplied by `scale`."""

    @abstractmethod
    def features(self, scale):
        """The samples as a user-defined family receives them: dense ones centred and scaled, CSR ones unchanged."""


class Design(ABC):
    """Samples with labels and one weight per fit; `center` is subtracted from every sample without copying X."""

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
        """The same samples with another centre."""
        recentred = copy(self)
        recentred.center = center
        return recentred

    def without_empty_columns(self) -> tuple[Design, np.ndarray | None]:
        """The design restricted to the features that any sample uses, and their indices, if most features are empty."""
        return self, None

    place: Place = HOST  # of small arrays and of those with an entry per sample
    multiplies_in_double = True  # whether products are in float64 whatever the dtype of X
    lends_rows = False  # whether blocks are views of the stored rows, not copies

    def block_rows(self, n_fits: int, copies_rows=True) -> int:
        """Number of samples of a block, whose temporaries stay within BLOCK_BYTES."""
        n_scores = n_fits * self.n_classes
        if copies_rows or not self.lends_rows:
            return max(256, BLOCK_BYTES // (8 * max(self.n_features, n_scores)))
        balanced = max(self.rows_of_thread(n_fits), self.n_rows // MANY_BLOCKS)
        return max(256, min(BLOCK_BYTES // (8 * n_scores), balanced))

    def rows_of_thread(self, n_fits: int) -> int:
        """Number of samples that justify a thread."""
        return max(1, int(THREAD / (n_fits * self.n_classes * score_time(self.n_features))))

    def map_blocks(self, function: Callable[[Block], Any], fits=slice(None), copies_rows=True, n_numbers=0) -> Iterator:
        """Yield `function(block)` block by block, with the weights of the selected fits.

        copies_rows : whether the function allocates anything as large as the samples of the block
        n_numbers : numbers that the function allocates per sample, if more than scores and features
        """
        weight = self.weight[:, fits]
        most = self.block_rows(weight.shape[1], copies_rows)
        if n_numbers:
            most = min(most, max(256, BLOCK_BYTES // (8 * n_numbers)))
        slices = even_slices(0, self.n_rows, most)
        return map_in_order(lambda rows: function(self._block(rows, self.labels[rows], weight[rows])), slices)

    def map_rows(self, function: Callable[[Block], Any], rows) -> Iterator:
        """Yield `function(block)` over the samples with these indices, block by block, without weights."""
        step = self.block_rows(1)
        parts = [rows[first : first + step] for first in range(0, len(rows), step)]
        return map_in_order(lambda part: function(self._block(part, self.labels[part], None)), parts)

    @abstractmethod
    def _block(self, rows, labels, weight) -> Block: ...

    def sum_rows(self, kernel: Callable[[Block], tuple], fits=slice(None), copies_rows=True) -> tuple:
        """Sum `kernel(block)`, a tuple of arrays, over all blocks.

        If a block contributes to some of the fits only, its arrays have those fits (`fit_positions`) on their first
        axis.
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
        """Inner products (n_rows, n_rows) of the centred samples, features multiplied by `scale`."""

    def product(self, coef):
        """Scores (n_rows, n_fits, n_classes) of all centred samples under `coef`."""
        return np.concatenate(list(self.map_blocks(lambda block: block.product(coef))))

    def combine_rows(self, weights):
        """Linear combinations (n, n_features) of the centred samples; `weights` is (n, n_rows)."""
        columns = weights.T[:, None, :]
        (combined,) = self.sum_rows(lambda block: (block.transposed_product(columns[block.rows]),))
        return combined[0]

    def covariance(self, fit: int = 0) -> np.ndarray:
        """Second moment of the centred samples under one fit's weights."""
        (total,) = self.sum_rows(lambda block: (block.gram(block.weight[:, fit]),))
        return total

    def covariances(self):
        """Second moments of the centred samples under the weights of every fit."""
        return [self.covariance(fit) for fit in range(self.n_fits)]

    def eigh(self, matrix):
        """Eigenvalues in ascending order and eigenvectors of a symmetric matrix, which may be overwritten."""
        with blas_threads(len(matrix)):
            return linalg.eigh(matrix, overwrite_a=True)

    def class_weight_sums(self):
        """Total weight of each class in each fit, (n_fits, n_classes)."""
        shares = np.zeros((self.n_classes, self.n_fits))
        np.add.at(shares, self.labels, self.weight)
        return shares.T

    def class_sums(self):
        """Weighted sums (n_fits, n_classes, n_features) of the centred samples of each class."""

        def kernel(block):
            targets = np.zeros((*block.weight.shape, self.n_classes))
            np.put_along_axis(targets, block.labels[:, None, None], block.weight[..., None], axis=2)
            return (block.exact_sums(targets),)

        return self.sum_rows(kernel)[0]

    def column_mean(self, fit: int = 0):
        """Mean of each centred feature under one fit's weights."""
        (sums,) = self.sum_rows(lambda block: (block.column_sums(block.weight[:, fit]),))
        return sums

    def column_variance(self, fit: int = 0):
        """Mean square of each centred feature under one fit's weights."""
        (squares,) = self.sum_rows(lambda block: (block.column_squares(block.weight[:, fit]),))
        return squares
