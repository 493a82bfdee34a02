"""Hessians of the final fit's loss, estimated from sampled rows in leading coordinates.

The covariance of a row's scores is a sum over pairs of classes:

    diag(p) - p p' = sum over l < r of p_l p_r (e_l - e_r) (e_l - e_r)'

Rows are therefore sampled separately for every pair, with probability proportional to the share w p_l p_r, up to one.
Where the posterior is nearly hard, few rows matter to a pair, and these are included with certainty. The estimate is
positive semidefinite for any sample, and unbiased. The block of a single class is sampled in the same way, by the share
w p (1 - p), the variance of its score.

Shapes: posterior (n_rows, n_classes), Hessian (n_differences * width, n_differences * width), class blocks (n_classes,
width, width); width counts the leading coordinates and the intercept.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from annealed.rows.coordinates import SMALLEST_EIGENVALUE
from annealed.rows.cost import BLOCK, factor_time, squares_time
from annealed.rows.threads import map_in_order

FEWEST_PARAMETERS, MOST_PARAMETERS = 1200, 3600  # of the full part of the Hessian, at level 0 and at the last level
ALL_LEVELS = 20  # a level at which all parameters up to MOST_PARAMETERS are included
ROWS_PER_COORDINATE = 48  # rows sampled for the block of a pair or a class: accuracy against time
MOST_CLASS_ENTRIES = 20_000_000  # entries of the blocks of all classes
CLASS_FACTORS = 6  # number of times that the blocks of single classes are factored
FEW_VALUES = 4_000_000  # entries of the rows to sample from if there is no float32 copy of all rows
MOST_POSTERIORS = 20_000_000  # rows times classes to sample from
SMALLEST_POSTERIOR = 1e-15  # smaller probabilities become zero: negligible, and their products are slow
SMALLEST_SHARE = 1e-10  # shares smaller than this part of a block's largest become zero: products with them are slow
SHARED_WORK = 2_000_000  # multiplications for a pair from which threads pay
CHUNK_ROWS = 4096  # rows multiplied at a time, so that they stay in cache
SORTED_SHARES = 2500  # shares that are sorted to find the threshold of inclusion with certainty
OFFSET = 101  # rows by which the random numbers of one block are shifted to give those of the next
DOUBLE_PARAMETERS = 200  # parameters up to which the Hessian and its factor are in float64
SMALLEST_SPREAD = 1e-150  # smallest spread whose square does not underflow


class HessianSample:
    """Rows in leading coordinates, from which Hessians are sampled.

    rows, weight : indices of the rows in the design, and weights (summing to one) that represent all rows of fit 0
    leading : positions of the leading coordinates among a score's parameters, the intercept last if there is one
    spread : root mean square of each
    """

    def __init__(self, design, coordinates, table, n_leading, float32_rows=None):
        self.fit_intercept, self.n_leading, self.contrasts = table.fit_intercept, n_leading, table.contrasts
        rank = table.rank
        is_sorted = float32_rows is not None  # its columns are in ascending order of variance
        ascending = np.arange(rank) if is_sorted else np.argsort(coordinates.spectrum)
        kept = np.sort(ascending[rank - n_leading :])
        noise = SMALLEST_EIGENVALUE * coordinates.spectrum.max()
        self.leading, self.spread = kept, np.sqrt(np.maximum(coordinates.spectrum[kept], noise))
        if self.fit_intercept:
            self.leading, self.spread = np.append(kept, rank), np.append(self.spread, 1.0)
        self.spread = np.maximum(self.spread, SMALLEST_SPREAD)
        self._widest = self._unit = self.spread[:n_leading].max(initial=SMALLEST_SPREAD)
        n_parameters = self.contrasts.n_differences * len(self.leading)
        self.dtype = np.float64 if n_parameters <= DOUBLE_PARAMETERS else np.float32
        if float32_rows is None:
            self.rows, self.weight = _stratified(design, min(design.n_rows, FEW_VALUES // len(self.leading)))
            along = coordinates.along(kept)
            parts = design.map_rows(lambda block: self._in_units(along(block.rows_as_array())), self.rows)
            self._points, self._unit = np.concatenate(list(parts)), 1.0
        else:
            every = slice(None, None, max(1, design.n_rows * design.n_classes // MOST_POSTERIORS))
            self.rows, weight = float32_rows.order[every], float32_rows.weight[every, 0].astype(np.float64)
            self.weight = weight / max(weight.sum(), np.finfo(float).tiny)
            self._points = float32_rows.X[every, kept[0] : kept[0] + n_leading]  # a view, not a copy

    @staticmethod
    def count_leading(table, level):
        """Number of leading coordinates in the full part of the Hessian at a level."""
        most = min(FEWEST_PARAMETERS * 2**level, MOST_PARAMETERS)
        return max(0, min(table.rank, most // table.contrasts.n_differences - table.fit_intercept))

    @staticmethod
    def n_sampled(n_rows, width):
        """Number of rows sampled for a block, the block of a pair or of a class."""
        wanted = ROWS_PER_COORDINATE * width
        return n_rows if n_rows <= 2 * wanted else wanted

    @staticmethod
    def time(n_rows, n_leading, table, is_float32):
        """Estimated time, in nanoseconds, of a Hessian and its factor."""
        contrasts, width = table.contrasts, n_leading + table.fit_intercept
        squares = squares_time(HessianSample.n_sampled(n_rows, width), width, is_float32)
        return contrasts.n_pairs * (BLOCK + squares) + factor_time(contrasts.n_differences * width)

    @staticmethod
    def count_in_classes(table):
        """Number of leading coordinates in the blocks of single classes."""
        return min(table.rank, int(np.sqrt(MOST_CLASS_ENTRIES / table.n_scores)) - table.fit_intercept)

    @staticmethod
    def time_of_classes(n_rows, table, is_float32):
        """As `time`, for the blocks of single classes."""
        width = HessianSample.count_in_classes(table) + table.fit_intercept
        squares = squares_time(HessianSample.n_sampled(n_rows, width), width, is_float32)
        return table.n_scores * (BLOCK + squares + CLASS_FACTORS * factor_time(width))

    def class_blocks(self, posterior):
        """Weighted mean over rows of the variance of each class's score times z z', (n_classes, width, width).

        Each coordinate of z is divided by its spread.
        """
        n_classes, width = posterior.shape[1], len(self.leading)
        blocks = np.empty((n_classes, width, width), self.dtype)
        sampler = _Sampler(self.weight, posterior, n_classes, width)

        def fill(label):
            share = sampler.by_class[label] * (1 - sampler.by_class[label])
            blocks[label] = self._square(*sampler.draw(label, share))

        self._for_each(fill, range(n_classes), sampler.n_drawn)
        return blocks

    def _for_each(self, fill, numbers, n_drawn):
        """Call `fill` with each number, in threads if that saves time."""
        is_much = n_drawn * len(self.leading) ** 2 >= SHARED_WORK
        list(map_in_order(fill, numbers) if is_much else map(fill, numbers))

    def hessian(self, posterior, reference):
        """Weighted mean over rows of the scores' covariance kron z z', by differences from the reference score.

        Each coordinate of z is divided by its spread. The block of a pair with the reference belongs on the diagonal,
        at the other class. Blocks of other pairs are stored below the diagonal first, and added when all are computed.
        """
        width, size = len(self.leading), self.contrasts.n_differences
        hessian = np.zeros((size, width, size, width), self.dtype)
        number = np.full(posterior.shape[1], -1)  # index of each class's difference from the reference
        number[self.contrasts.others(reference)] = np.arange(size)
        pairs = list(combinations(range(posterior.shape[1]), 2))
        sampler = _Sampler(self.contrasts.pair_weight * self.weight, posterior, len(pairs), width)

        def fill(pair):
            left, right = pairs[pair]
            square = self._square(*sampler.draw(pair, sampler.by_class[left] * sampler.by_class[right]))
            low, high = sorted((number[left], number[right]))
            hessian[high, :, low if low >= 0 else high] = square

        self._for_each(fill, range(len(pairs)), sampler.n_drawn)
        for low, high in combinations(range(size), 2):
            square = hessian[high, :, low].copy()
            hessian[low, :, low] += square
            hessian[high, :, high] += square
            hessian[low, :, high] = hessian[high, :, low] = -square
        return hessian.reshape(size * width, -1)

    def penalty(self, strength):
        """Penalty on the square of each leading coordinate divided by its spread; zero for the intercept."""
        penalty = strength / self.spread**2
        if self.fit_intercept:
            penalty[-1] = 0
        return penalty

    def _in_units(self, points):
        """Points divided by the largest spread, so that their squares do not overflow in float32."""
        return (points / self._widest).astype(self.dtype)

    def _square(self, drawn, share):
        """Sum over the sampled rows of share times z z', with each coordinate of z divided by its spread.

        drawn : indices of the rows, None for all of them; share : the share that each represents
        """
        root, n_leading = np.sqrt(share), self.n_leading
        weight, root = (root / self._unit).astype(self.dtype), root.astype(self.dtype)
        total = np.zeros((len(self.leading), len(self.leading)), self.dtype)
        for first in range(0, len(root), CHUNK_ROWS):
            chunk = slice(first, first + CHUNK_ROWS)
            points = self._points[chunk if drawn is None else drawn[chunk]]
            is_copy = drawn is not None and points.dtype == self.dtype
            points = np.multiply(points, weight[chunk, None], out=points if is_copy else None)
            total[:n_leading, :n_leading] += np.dot(points.T, points)
            if self.fit_intercept:
                total[-1, :n_leading] += root[chunk] @ points
        scale = self._widest / self.spread
        if self.fit_intercept:
            total[:n_leading, -1], total[-1, -1], scale[-1] = total[-1, :n_leading], share.sum(), 1.0
        scale = scale.astype(self.dtype)
        total *= scale
        total *= scale[:, None]
        return total


class _Sampler:
    """Samples rows for every block of a Hessian, by their shares in it.

    Rows whose share is at least a threshold are included with certainty; others with probability share / threshold.
    Negligible entries of `posterior` are set to zero in place.
    """

    def __init__(self, weight, posterior, n_blocks, width):
        self.n_rows = len(posterior)
        self.by_class = posterior.T
        self.by_class[self.by_class <= SMALLEST_POSTERIOR] = 0
        self.weight = weight.astype(posterior.dtype)
        self.n_drawn = HessianSample.n_sampled(self.n_rows, width)
        if self.n_drawn < self.n_rows:
            self.uniform = _uniform(self.n_rows + OFFSET * n_blocks).astype(posterior.dtype)

    def draw(self, block, share):
        """Indices of the rows sampled for a block, None for all of them, and the share that each represents."""
        share = self.weight * share
        if self.n_drawn >= self.n_rows:
            return None, np.where(share > SMALLEST_SHARE * share.max(), share, 0)
        threshold = _threshold(share[:: max(1, self.n_rows // SORTED_SHARES)], self.n_drawn / self.n_rows)
        drawn = np.flatnonzero(share > self.uniform[block * OFFSET :][: self.n_rows] * threshold)
        return drawn, np.maximum(share[drawn], threshold)


def _uniform(size):
    """Random numbers between zero and one, the same in every call."""
    return np.random.RandomState(0).uniform(size=size)


def _threshold(shares, part):
    """The threshold for which min(1, share / threshold) is on average `part`, the share of rows to be sampled."""
    shares = np.sort(shares, axis=None)[::-1].astype(np.float64)
    n_wanted = part * len(shares)
    rest = np.cumsum(shares[::-1])[::-1]  # sums of the smallest shares, those sampled at random
    n_sure = int(np.searchsorted(np.arange(len(shares)) + rest / np.maximum(shares, np.finfo(float).tiny), n_wanted))
    return rest[n_sure] / (n_wanted - n_sure) if n_sure < n_wanted else 0.0


def _stratified(design, size):
    """Indices of rows, with all rows of rare classes, and weights (summing to one) that represent all rows of fit 0."""
    generator = np.random.RandomState(0)
    quota = size if size >= design.n_rows else -(-size // design.n_classes)
    rows, weights = [], []
    for label in range(design.n_classes):
        class_rows = np.flatnonzero(design.labels == label)
        if not len(class_rows):
            continue
        picked = generator.permutation(class_rows)[:quota]
        rows.append(picked)
        weights.append(design.weight[picked, 0] * len(class_rows) / len(picked))
    weight = np.concatenate(weights)
    return np.concatenate(rows), weight / max(weight.sum(), np.finfo(float).tiny)
