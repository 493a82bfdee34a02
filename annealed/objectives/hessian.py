"""Exact Hessians of linear scores, for problems small enough to afford them.

With points z (a one last for the intercept) the Hessian of a fit's loss by differences of scores
(`annealed/objectives/contrasts.py`) has, for each pair of them, the block

    sum over rows of weight * covariance of the two scores * z z'

`BlockRows` and `SmallRows` give `Terms` of a stack of fits, and at a fraction of the price `TermsAlong`, with the
Hessian times a vector in its place. `BlockRows` adds them up over blocks of any design. `SmallRows` keeps the points
and one half of their products z z' of all rows: a Hessian is then a single product of matrices, in single precision
where a step does with it. `ExactHessian` adds the penalty, and the imaginary rows of missing classes.
Shapes: table and along (n_fits, n_scores, width); pairs are those of `Contrasts.pairs`; a Hessian has the differences
one after the other, the width of each innermost.
"""

from __future__ import annotations

from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from annealed.arrays import as_slice
from annealed.design import CsrDesign, DenseDesign
from annealed.design.coordinates import SMALLEST_EIGENVALUE
from annealed.objectives import gibbs
from annealed.objectives.contrasts import Contrasts
from annealed.objectives.hessian_sample import SMALLEST_POSTERIOR

MOST_PRODUCTS = 5_000_000  # entries of z z' over all rows, up to which one half of them is kept
MOST_OF_FITS = 20_000_000  # likewise over all fits, where each has its own coordinates
FEW_MULTIPLICATIONS = 2_000_000  # of held-out rows with all fits, up to which one product of all is fastest
ROUGH_STRENGTH = 1e-6  # of a penalty beside the widest coordinate's variance, from which Hessians for steps are rough
FEWEST_ROUGH = 100_000  # multiplications for that of one fit: with fewer it would take no less time


class Terms(NamedTuple):
    """loss (n_fits,), gradient (n_fits, n_scores, width), and the Hessian of the loss by differences, square."""

    loss: np.ndarray
    gradient: np.ndarray
    hessian: np.ndarray


class TermsAlong(NamedTuple):
    """loss (n_fits,), gradient (n_fits, n_scores, width), and the Hessian of the loss times vectors of that shape."""

    loss: np.ndarray
    gradient: np.ndarray
    product: np.ndarray


def hessian_rows(design, coordinates, contrasts, fit_intercept):
    """The rows as whichever class suits them."""
    n_products = design.n_rows * (coordinates.rank + fit_intercept) ** 2
    is_small = n_products <= MOST_PRODUCTS and not (coordinates.per_fit and design.n_fits * n_products > MOST_OF_FITS)
    kind = SmallRows if is_small and isinstance(design, (DenseDesign, CsrDesign)) else BlockRows
    return kind(design, coordinates, contrasts, fit_intercept)


class SmallRows:
    def __init__(self, design, coordinates, contrasts, fit_intercept):
        self.contrasts, self.labels, self.weight = contrasts, design.labels, design.weight
        rows = np.concatenate(list(design.map_blocks(lambda block: block.rows_as_array())))
        self.points = coordinates.from_features(rows)  # with a leading axis of fits where each has its own
        if fit_intercept:
            self.points = np.concatenate([self.points, np.ones((*self.points.shape[:-1], 1))], axis=-1)
        self.typical = _typical_lengths(coordinates, fit_intercept)
        number, n_products = _half_numbers(self.points.shape[-1])
        self._half_products = cache(partial(_half_products, self.points, number))
        pairs = contrasts.numbers[:, None, :, None] * n_products
        self._entries = (pairs + number[:, None, :]).reshape(contrasts.n_differences * len(number), -1)

    def terms(self, table, fits, dtype=np.float64) -> Terms:
        """Hessians are added up in `dtype`."""
        weight = self.weight[:, fits]
        losses, pulled, posterior = self.contrasts.evaluate(self.scores(table, fits), self.labels, weight)
        gradient = self._pulled_back(pulled, fits)
        if dtype == np.float32:
            posterior *= posterior >= SMALLEST_POSTERIOR
        shares = (self.contrasts.pair_covariance(posterior) * weight[..., None]).transpose(1, 2, 0)
        products = _times(shares.astype(dtype, copy=False), _of_fits(self._half_products(dtype), fits))
        hessian = products.astype(np.float64, copy=False).reshape(len(table), -1).take(self._entries, axis=1)
        return Terms(np.einsum("ns,ns->s", weight, losses), gradient, hessian)

    @cached_property
    def longest(self) -> float:
        """Length of the longest point, each coordinate in units of its usual length."""
        return float(np.sqrt(_squares(self.points / self.typical).max()))

    def terms_along(self, table, along, fits) -> TermsAlong:
        weight, n_fits = self.weight[:, fits], len(table)
        twice = fits if self.points.ndim == 2 else np.tile(np.arange(self.weight.shape[1])[fits], 2)
        scores = self.scores(np.concatenate([table, along]), twice)
        losses, pulled, posterior = self.contrasts.evaluate(scores[:, :n_fits], self.labels, weight)
        curved = self.contrasts.curved(posterior, scores[:, n_fits:]) * weight[..., None]
        both = self._pulled_back(np.concatenate([pulled, curved], axis=1), twice)
        return TermsAlong(np.einsum("ns,ns->s", weight, losses), both[:n_fits], both[n_fits:])

    def scores(self, table, fits):
        """(n_rows, n_fits, n_scores), rows innermost in memory."""
        return _times(table, np.swapaxes(_of_fits(self.points, fits), -1, -2)).transpose(2, 0, 1)

    def _pulled_back(self, values, fits):
        """Sums over rows of (n_rows, n_fits, n_scores) times their points."""
        return _times(values.transpose(1, 2, 0), _of_fits(self.points, fits))


def _of_fits(values, fits):
    """What some fits have: the same for all where there is no axis of fits, or where one fit is meant throughout."""
    if values.ndim == 2:
        return values
    numbers = np.arange(len(values))[fits]
    return values[numbers[0]] if (numbers == numbers[0]).all() else values[as_slice(numbers)]


def _times(tables, matrices):
    """Products of (n_fits, height, width) with one matrix, in one product, or with one for each fit."""
    if matrices.ndim == 3:
        return tables @ matrices
    n_fits, height, width = tables.shape
    return (tables.reshape(-1, width) @ matrices).reshape(n_fits, height, -1)


class BlockRows:
    def __init__(self, design, coordinates, contrasts, fit_intercept):
        self.design, self.coordinates = design, coordinates
        self.contrasts, self.fit_intercept = contrasts, fit_intercept
        self.typical = _typical_lengths(coordinates, fit_intercept)

    def terms(self, table, fits, dtype=np.float64) -> Terms:
        """Hessians are added up in double precision, as blocks are, whatever `dtype`."""
        coordinates = self.coordinates.of_fits(fits)
        coef, intercept = self._to_features(coordinates, table)

        def kernel(block):
            losses, pulled, posterior = self.contrasts.evaluate(
                block.product(coef) + intercept, block.labels, block.weight
            )
            shares = self.contrasts.pair_covariance(posterior) * block.weight[..., None]
            return (_summed(block, losses), *_pulled_back(block, pulled), *block.moments(shares))

        loss, *gradient, squares, sums, counts = self.design.sum_rows(kernel, fits)
        turn, rank = coordinates.from_features, coordinates.rank
        blocks = np.empty((*counts.shape, *[table.shape[2]] * 2))
        blocks[..., :rank, :rank] = turn(np.swapaxes(turn(squares), -1, -2))
        if self.fit_intercept:
            blocks[..., :rank, rank] = blocks[..., rank, :rank] = turn(sums)
            blocks[..., rank, rank] = counts
        return Terms(loss, self._from_features(coordinates, *gradient), self.contrasts.whole(blocks))

    @cached_property
    def longest(self) -> float:
        """Length of the longest point, each coordinate of the final fit in units of its usual length."""
        turn, typical = self.coordinates.of_final.from_features, self.typical[: self.coordinates.rank]

        def kernel(block):
            return _squares(turn(block.rows_as_array()) / typical).max()

        of_blocks = self.design.map_blocks(kernel, slice(0, 1), n_numbers=self.design.n_features)
        return float(np.sqrt(max(of_blocks) + self.fit_intercept))

    def terms_along(self, table, along, fits) -> TermsAlong:
        coordinates = self.coordinates.of_fits(fits)
        coef, intercept = self._to_features(coordinates, table)
        coef_along, intercept_along = self._to_features(coordinates, along)

        def kernel(block):
            losses, pulled, posterior = self.contrasts.evaluate(
                block.product(coef) + intercept, block.labels, block.weight
            )
            curved = self.contrasts.curved(posterior, block.product(coef_along) + intercept_along)
            curved *= block.weight[..., None]
            return (_summed(block, losses), *_pulled_back(block, pulled), *_pulled_back(block, curved))

        loss, *sums = self.design.sum_rows(kernel, fits)
        return TermsAlong(loss, *(self._from_features(coordinates, *own) for own in (sums[:2], sums[2:])))

    def _to_features(self, coordinates, table):
        """Coefficients and intercepts."""
        rank = coordinates.rank
        return coordinates.to_features(table[..., :rank]), table[..., rank:].sum(axis=-1)

    def _from_features(self, coordinates, coef, intercept):
        """A table, from derivatives by coefficients and intercepts."""
        coef = coordinates.from_features(coef)
        return np.concatenate([coef, intercept[..., None]], axis=2) if self.fit_intercept else coef


def _half_numbers(width):
    """The number of each entry of z z' in one half of it, and how many there are."""
    left, right = np.triu_indices(width)
    number = np.empty((width, width), dtype=int)
    number[left, right] = number[right, left] = np.arange(len(left))
    return number, len(left)


def _half_products(points, number, dtype):
    """One half of z z' of each row."""
    width = points.shape[-1]
    points, products = points.astype(dtype, copy=False), np.empty((*points.shape[:-1], number.max() + 1), dtype)
    for own, first in enumerate(np.diagonal(number).tolist()):
        np.multiply(points[..., own : own + 1], points[..., own:], out=products[..., first : first + width - own])
    return products


def _typical_lengths(coordinates, fit_intercept):
    """The spread of each coordinate of the final fit, and the one of an intercept."""
    variance = coordinates.of_final.spectrum
    spread = np.sqrt(np.maximum(variance, SMALLEST_EIGENVALUE * variance.max()))
    spread = np.where(spread > 0, spread, 1.0)
    return np.append(spread, 1.0) if fit_intercept else spread


def _squares(points):
    return np.einsum("...k,...k->...", points, points)


def _pulled_back(block, values):
    return block.transposed_product(values), values.sum(axis=0)


def _summed(block, losses):
    return np.einsum("ns,ns->s", block.weight, losses)


class ExactHessian:
    """What Newton's method asks of a penalized problem of linear scores."""

    has_hessian = True
    design: Any
    coordinates: Any
    contrasts: Contrasts
    fit_intercept: bool
    missing: np.ndarray
    held_out: Any
    n_fits: int
    n_scores: int
    n_parameters: Any
    l2_strength: float
    penalty: Any
    _width: Any
    _table: Any
    _split: Any
    _with_missing: Any
    _class_intercept: Any
    _hessian_rows: SmallRows | BlockRows | None

    @property
    def hessian_size(self):
        """Of the Hessian by differences: its rows."""
        return self.contrasts.n_differences * self._width

    @property
    def hessian_work(self):
        """What Hessians of all fits cost beside looks: multiplications a score, and a quarter of those of factors."""
        return self.n_fits * (self._square_work / self.n_scores + self.hessian_size**3 / 24)

    @property
    def _square_work(self):
        """Multiplications for the Hessian of one fit."""
        return self.design.n_rows * self.contrasts.n_pairs * self._width**2 / 2

    def held_out_logits(self, parameters, temperature):
        if self._rows_at_hand(1) is None:
            return super().held_out_logits(parameters, temperature)  # type: ignore[misc]
        return self.held_out_logits_of([parameters], [temperature])[0]

    def held_out_logits_of(self, points, temperatures):
        """Of few rows at hand, all logits of all fits are one small product."""
        rows = self._rows_at_hand(len(points))
        if rows is None:
            return super().held_out_logits_of(points, temperatures)  # type: ignore[misc]
        fits = np.tile(np.arange(self.n_fits), len(points))
        scores = rows.scores(self._table(np.concatenate(points)), fits)
        by_point = scores.reshape(len(scores), len(points), self.n_fits, -1)
        picked = np.asfortranarray(by_point[self.held_out.rows, :, self.held_out.fits])  # rows innermost, as in blocks
        return self.contrasts.logits(picked).swapaxes(0, 1)

    def _rows_at_hand(self, n_points) -> SmallRows | None:
        """Where all scores of so many points take few multiplications."""
        rows = self._hessian_rows
        n_multiplications = n_points * self.design.n_rows * self.n_fits * self.n_parameters
        return rows if isinstance(rows, SmallRows) and n_multiplications <= FEW_MULTIPLICATIONS else None

    def objective_and_hessian(self, parameters, temperature, fits, for_step=False):
        """Q_new / T (n_fits,), its gradient, and its Hessian by differences, (n_fits, hessian_size, hessian_size).

        for_step : whether all that is asked of the Hessian is where to go. Single precision will do then, while the
            penalty is so strong that what it rounds off is little beside the least curvature.
        """
        dtype = np.float32 if for_step and self._is_rough_enough(temperature) else np.float64
        with np.errstate(over="ignore", invalid="ignore"):  # a trial point out of bounds is refused by its value
            loss, gradient, hessian = self._rows_of_hessians().terms(self._table(parameters), fits, dtype)
        loss, gradient = self._with_missing(loss, gradient.reshape(parameters.shape), parameters, fits)
        squares = hessian.reshape(len(hessian), self.contrasts.n_differences, self._width, -1, self._width)
        if self.fit_intercept and self.missing[fits].any():
            squares[..., -1, :, -1] += self._missing_covariance(parameters, fits)
        strength, _ = self.penalty(temperature, fits)
        pull = strength * parameters
        own = strength[..., None, None, : self._width]  # alike for all scores
        np.einsum("faibi->fabi", squares)[...] += own * self.contrasts.square[..., None]
        return loss + 0.5 * np.sum(pull * parameters, axis=1), gradient + pull, hessian

    def _is_rough_enough(self, temperature) -> bool:
        strength = self.l2_strength * np.min(temperature)
        is_strong = strength >= ROUGH_STRENGTH * self.coordinates.spectrum.max()
        return bool(is_strong and self._square_work >= FEWEST_ROUGH)

    def objective_along(self, parameters, along, temperature, fits):
        """Q_new / T (n_fits,), its gradient, and its Hessian times `along`, shaped as parameters are."""
        with np.errstate(over="ignore", invalid="ignore"):
            terms = self._rows_of_hessians().terms_along(self._table(parameters), self._table(along), fits)
        loss, gradient, product = terms.loss, *(part.reshape(parameters.shape) for part in terms[1:])
        loss, gradient = self._with_missing(loss, gradient, parameters, fits)
        if self.fit_intercept and self.missing[fits].any():
            self._table(product)[..., -1] += self._missing_product(parameters, along, fits)
        strength, _ = self.penalty(temperature, fits)
        pull = strength * parameters
        return loss + 0.5 * np.sum(pull * parameters, axis=1), gradient + pull, product + strength * along

    def furthest_moves(self, steps):
        """The most that any row's score may move by steps of the parameters, (n_steps, n_parameters)."""
        rows = self._rows_of_hessians()
        return rows.longest * np.sqrt(_squares(self._table(steps) * rows.typical).sum(axis=-1))

    def _rows_of_hessians(self):
        if self._hessian_rows is None:
            self._hessian_rows = hessian_rows(self.design, self.coordinates, self.contrasts, self.fit_intercept)
        return self._hessian_rows

    def without_shift(self, parameters):
        """The same posterior by parameters of mean zero over scores."""
        return self.contrasts.without_shift(self._table(parameters)).reshape(parameters.shape)

    def by_differences(self, gradient):
        """Derivative by the parameters of differences of scores, flat."""
        return self.contrasts.by_differences(self._table(gradient)).reshape(len(gradient), self.hessian_size)

    def from_differences(self, differences):
        """Parameters of scores, of mean zero, from those of their differences, flat."""
        table = differences.reshape(len(differences), self.contrasts.n_differences, self._width)
        return self.contrasts.from_differences(table).reshape(len(differences), self.n_parameters)

    def _missing_covariance(self, parameters, fits):
        """Hessian in the intercepts of the imaginary rows of missing classes."""
        covariance = self.contrasts.pair_covariance(gibbs.posterior(self._class_intercept(parameters)))
        return self.missing[fits].sum(axis=1)[:, None, None] * covariance[:, self.contrasts.numbers]

    def _missing_product(self, parameters, along, fits):
        """That Hessian times the intercepts of `along`."""
        curved = self.contrasts.curved(gibbs.posterior(self._class_intercept(parameters)), self._split(along)[1])
        return self.missing[fits].sum(axis=1)[:, None] * curved
