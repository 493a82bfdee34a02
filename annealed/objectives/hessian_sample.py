"""Rows in leading coordinates, from which Hessians of the final fit's loss are drawn.

A row's covariance of scores is a sum over pairs of classes, each with its own share of the curvature:

    diag(p) - p p' = sum over l < r of p_l p_r (e_l - e_r) (e_l - e_r)'

So every pair of classes draws rows of its own, each by its share, most often surely or not at all: where the posterior
is nearly hard, few rows matter to a pair. Whatever is drawn, the sum has no negative curvature, and in the mean it is
that of all rows. The block of a single class, by the variance p (1 - p) of its score, draws rows likewise.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from annealed.design.coordinates import SMALLEST_EIGENVALUE
from annealed.design.threads import map_in_order

FEWEST_PARAMETERS, MOST_PARAMETERS = 1200, 3600  # of the part kept whole, at level 0 and at the last
ALL_LEVELS = 20  # a level at which everything that can be is learned
ROWS_PER_COORDINATE = 20  # drawn for a pair of classes, in the mean over pairs
CLASS_ROWS_PER_COORDINATE = 8  # drawn for a class by itself
MOST_CLASS_ENTRIES = 20_000_000  # of the blocks of all classes
FEWEST_ROWS, USUAL_PAIRS = 2500, 45  # likewise, of so many pairs; of more, fewer
PAIR_TIME = 2.5e5  # nanoseconds, about, that the calls for a pair of classes take, and what is below:
COPY_TIME, DRAW_TIME = 1.5, 3.0  # a number of a row, where all are taken as they lie and where they are drawn
SQUARE_TIME = {True: 0.015, False: 0.03}  # a product of two of them, by whether rows are quick
FACTOR_TIME = 0.05  # a multiplication in the factor of a Hessian
CLASS_TIME, CLASS_FACTORS = 2e5, 6  # the calls for a class by itself, and how often its block is factored
CHEAP_WORK = 4e8  # multiplications for a Hessian, up to which more rows are drawn: rare values count
SAMPLE_PER_PARAMETER, FEW_VALUES = 6, 2_000_000  # rows, or numbers, to draw from where no copy of all rows is at hand
MOST_POSTERIORS = 20_000_000  # rows times classes to draw from
RARE_SHARE = 0.25  # of them, that a pair of rare classes draws at least
SMALLEST_POSTERIOR = 1e-15  # what is less is nothing, and slow to multiply
SMALLEST_SHARE = 1e-10  # of a pair's largest: rows with less are left out
MOST_PICKED = 0.7  # of all rows, up to which they are picked: so many are faster as they lie
SORTED_SHARES = 200_000  # that tell which are drawn surely
SHARED_WORK = 2_000_000  # multiplications for a pair, from which threads share them: calls alone, they would disturb
CHUNK_ROWS = 4096  # multiplied at a time
OFFSET = 101  # rows, by which the uniform of one pair of classes is that of another
DOUBLE_PARAMETERS = 200  # up to which the Hessian and its factor are in double precision
SMALLEST_SPREAD = 1e-150  # whose square is a number still


class HessianSample:
    """Rows in leading coordinates, from which Hessians are drawn.

    rows, weight : their numbers in the design, and weights that stand for all rows of fit 0
    leading : positions of those coordinates among a class's parameters, the intercept last where there is one
    spread : root mean square of each
    """

    def __init__(self, design, coordinates, fit_intercept, n_leading, contrasts, quick=None):
        self.fit_intercept, self.n_leading, self.contrasts = fit_intercept, n_leading, contrasts
        rank = coordinates.rank
        rising = np.argsort(coordinates.spectrum) if quick is None else np.arange(rank)  # as quick rows have them
        kept = np.sort(rising[rank - n_leading :])
        noise = SMALLEST_EIGENVALUE * coordinates.spectrum.max()
        self.leading, self.spread = kept, np.sqrt(np.maximum(coordinates.spectrum[kept], noise))
        if fit_intercept:
            self.leading, self.spread = np.append(kept, coordinates.rank), np.append(self.spread, 1.0)
        self.spread = np.maximum(self.spread, SMALLEST_SPREAD)
        self._widest = self._unit = self.spread[:n_leading].max(initial=SMALLEST_SPREAD)
        self.dtype = np.float64 if contrasts.n_differences * len(self.leading) <= DOUBLE_PARAMETERS else np.float32
        if quick is None:
            n_parameters = contrasts.n_differences * len(self.leading)
            n_sampled = max(SAMPLE_PER_PARAMETER * n_parameters, FEW_VALUES // len(self.leading))
            self.rows, self.weight = _stratified(design, min(design.n_rows, n_sampled))
            along = coordinates.along(kept)
            parts = design.map_rows(lambda block: self._in_units(along(block.rows_as_array())), self.rows)
            self._points, self._unit = np.concatenate(list(parts)), 1.0
        else:
            every = slice(None, None, max(1, design.n_rows * design.n_classes // MOST_POSTERIORS))
            self.rows, weight = quick.order[every], quick.weight[every, 0].astype(np.float64)
            self.weight = weight / max(weight.sum(), np.finfo(float).tiny)
            self._points = quick.X[every, kept[0] : kept[0] + n_leading]  # no copy

    @staticmethod
    def count_leading(coordinates, contrasts, fit_intercept, level):
        most = min(FEWEST_PARAMETERS * 2**level, MOST_PARAMETERS)
        return max(0, min(coordinates.rank, most // contrasts.n_differences - fit_intercept))

    @staticmethod
    def rows_per_pair(n_rows, width, contrasts):
        cheap = int(CHEAP_WORK / (contrasts.n_pairs * width**2))
        few = FEWEST_ROWS * min(1, USUAL_PAIRS / contrasts.n_pairs)
        wanted = int(max(few, ROWS_PER_COORDINATE * width, cheap))
        return n_rows if n_rows <= 2 * wanted else wanted

    @staticmethod
    def time(n_rows, width, contrasts, is_float32):
        """Nanoseconds that a Hessian takes, about, and its factor."""
        n_drawn = HessianSample.rows_per_pair(n_rows, width, contrasts)
        of_number = (DRAW_TIME if n_drawn < n_rows else COPY_TIME) + SQUARE_TIME[is_float32] * width / 2
        return (
            contrasts.n_pairs * (PAIR_TIME + n_drawn * width * of_number)
            + FACTOR_TIME * (contrasts.n_differences * width) ** 3 / 6
        )

    @staticmethod
    def count_in_classes(coordinates, contrasts, fit_intercept):
        return min(coordinates.rank, int(np.sqrt(MOST_CLASS_ENTRIES / contrasts.n_scores)) - fit_intercept)

    @staticmethod
    def rows_per_class(n_rows, width):
        wanted = CLASS_ROWS_PER_COORDINATE * width
        return n_rows if n_rows <= 2 * wanted else wanted

    @staticmethod
    def time_of_classes(n_rows, width, contrasts, is_float32):
        """As `time`, of the blocks of single classes."""
        n_numbers = HessianSample.rows_per_class(n_rows, width) * width
        squares = n_numbers * (DRAW_TIME + SQUARE_TIME[is_float32] * width / 2)
        return contrasts.n_scores * (CLASS_TIME + squares + CLASS_FACTORS * FACTOR_TIME * width**3 / 6)

    def class_blocks(self, posterior):
        """Weighted mean over the rows of the variance of each class's score times z z', z in units of its spread:
        (n_classes, width, width).
        """
        n_rows, n_classes = posterior.shape
        width = len(self.leading)
        blocks = np.empty((n_classes, width, width), self.dtype)
        n_drawn = self.rows_per_class(n_rows, width)
        by_class, weight = posterior.T, self.weight.astype(posterior.dtype)
        by_class[by_class <= SMALLEST_POSTERIOR] = 0
        uniform = _uniform(n_rows + OFFSET * n_classes).astype(posterior.dtype) if n_drawn < n_rows else None

        def fill(turn):
            share = weight * by_class[turn] * (1 - by_class[turn])
            if uniform is None:
                drawn = _all_that_count(share)
            else:
                drawn = _drawn(share, uniform[turn * OFFSET :][:n_rows], _sure_share(_some(share), n_drawn / n_rows))
            blocks[turn] = self._square(*drawn)

        self._share_out(fill, range(n_classes), n_drawn)
        return blocks

    def _share_out(self, fill, turns, n_drawn):
        """Call for each of some turns, in threads where that pays."""
        is_much = n_drawn * len(self.leading) ** 2 >= SHARED_WORK
        list(map_in_order(fill, turns) if is_much else map(fill, turns))

    def hessian(self, posterior, reference):
        """Weighted mean over the rows of the scores' covariance kron z z', z in units of its spread.

        (n_differences * width) square, the width that of `leading`. A pair with the reference is a diagonal block of
        the other class; any other pair is below the diagonal, until all are there.
        """
        width, size = len(self.leading), self.contrasts.n_differences
        hessian = np.zeros((size, width, size, width), self.dtype)
        number = np.full(posterior.shape[1], -1)  # of a class's difference from the reference
        number[self.contrasts.others(reference)] = np.arange(size)
        n_drawn = self.rows_per_pair(len(posterior), width, self.contrasts)
        sampler = _PairSampler(self.contrasts.pair_weight * self.weight, posterior, n_drawn)

        def fill(turn):
            square = self._square(*sampler.draw(turn))
            low, high = sorted((number[sampler.left[turn]], number[sampler.right[turn]]))
            hessian[high, :, low if low >= 0 else high] = square

        self._share_out(fill, range(len(sampler.left)), n_drawn)
        for low, high in combinations(range(size), 2):
            square = hessian[high, :, low].copy()
            hessian[low, :, low] += square
            hessian[high, :, high] += square
            hessian[low, :, high] = hessian[high, :, low] = -square
        return hessian.reshape(size * width, -1)

    def penalty(self, strength):
        """On the square of each of `leading`, in units of its spread; an intercept has none."""
        penalty = strength / self.spread**2
        if self.fit_intercept:
            penalty[-1] = 0
        return penalty

    def _in_units(self, points):
        """Divided by the widest spread, so that single precision holds their squares."""
        return (points / self._widest).astype(self.dtype)

    def _square(self, drawn, share):
        """Sum over the drawn rows of share times z z'; in units of the widest spread, until all are there."""
        root, n_leading = np.sqrt(share), self.n_leading
        weight, root = (root / self._unit).astype(self.dtype), root.astype(self.dtype)
        total = np.zeros((len(self.leading), len(self.leading)), self.dtype)
        for first in range(0, len(root), CHUNK_ROWS):
            chunk = slice(first, first + CHUNK_ROWS)
            points = self._points[chunk if drawn is None else drawn[chunk]]
            is_own = drawn is not None and points.dtype == self.dtype
            points = np.multiply(points, weight[chunk, None], out=points if is_own else None)
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


class _PairSampler:
    """Draws rows for each pair of classes: surely from the share `bar` on, which pairs have in common, and below it by
    chance. It is lower for a pair that would have far fewer than `n_drawn`: its curvature counts for rare classes.
    What is next to nothing in `posterior` is made nothing there.
    """

    def __init__(self, weight, posterior, n_drawn):
        self.n_rows, n_classes = posterior.shape
        self.left, self.right = np.triu_indices(n_classes, 1)
        self.by_class = posterior.T
        self.by_class[self.by_class <= SMALLEST_POSTERIOR] = 0
        self.weight = weight.astype(posterior.dtype)
        self.n_drawn = n_drawn
        if n_drawn < self.n_rows:
            self.uniform = _uniform(self.n_rows + OFFSET * len(self.left)).astype(posterior.dtype)
            some = slice(None, None, max(1, self.n_rows * len(self.left) // SORTED_SHARES))
            shares = self.weight[some] * self.by_class[self.left, some] * self.by_class[self.right, some]
            self.bar = _sure_share(shares, n_drawn / self.n_rows)

    def draw(self, turn):
        """Rows of a pair, and the share that each stands for; None is all rows."""
        share = self.weight * self.by_class[self.left[turn]] * self.by_class[self.right[turn]]
        if self.n_drawn >= self.n_rows:
            return _all_that_count(share)
        bar = min(self.bar, _sure_share(_some(share), RARE_SHARE * self.n_drawn / self.n_rows))
        return _drawn(share, self.uniform[turn * OFFSET :][: self.n_rows], bar)


def _all_that_count(share):
    """Rows whose share is not next to nothing, None being all, and their shares."""
    drawn = np.flatnonzero(share > SMALLEST_SHARE * share.max())
    return (None, share) if len(drawn) > MOST_PICKED * len(share) else (drawn, share[drawn])


def _drawn(share, uniform, bar):
    """Rows that are drawn, surely from the share `bar` on, and the share that each stands for."""
    drawn = np.flatnonzero(share > uniform * bar)
    return drawn, np.maximum(share[drawn], bar)


def _some(share):
    """Enough shares to tell from which on they are drawn surely."""
    return share[:: max(1, len(share) // FEWEST_ROWS)]


def _uniform(size):
    """Numbers between zero and one, the same every time."""
    return np.random.RandomState(0).uniform(size=size)


def _sure_share(shares, part):
    """The share from which rows are drawn surely; with chances in proportion to it, a `part` is drawn in the mean."""
    shares = np.sort(shares, axis=None)[::-1].astype(np.float64)
    n_wanted = part * len(shares)
    rest = np.cumsum(shares[::-1])[::-1]  # of those from here on, drawn by chance if this is the first that is not sure
    n_sure = int(np.searchsorted(np.arange(len(shares)) + rest / np.maximum(shares, np.finfo(float).tiny), n_wanted))
    return rest[n_sure] / (n_wanted - n_sure) if n_sure < n_wanted else 0.0


def _stratified(design, size):
    """Row numbers, rare classes whole, and weights (summing to one) that stand for all rows of fit 0."""
    generator = np.random.RandomState(0)
    quota = size if size >= design.n_rows else -(-size // design.n_classes)
    rows, weights = [], []
    for label in range(design.n_classes):
        own = np.flatnonzero(design.labels == label)
        if not len(own):
            continue
        picked = generator.permutation(own)[:quota]
        rows.append(picked)
        weights.append(design.weight[picked, 0] * len(own) / len(picked))
    weight = np.concatenate(weights)
    return np.concatenate(rows), weight / max(weight.sum(), np.finfo(float).tiny)
