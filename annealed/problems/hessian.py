"""Exact Hessians of linear scores, for problems small enough to afford them.

Let z be a row in the coordinates solved in, followed by a one for the intercept. The Hessian of a fit's loss by
differences of scores (`annealed/problems/contrasts.py`) has, for each pair of scores, the block

    sum over rows of weight * covariance of the two scores * z z'

`BlockRows` and `SmallRows` compute `Terms` of a stack of fits and, at a fraction of the cost, `TermsAlong`, with the
Hessian times a vector instead of the Hessian. `BlockRows` sums over blocks of any design. `SmallRows` stores the points
z and the upper triangle of z z' for all rows, so that a Hessian is a single matrix product, in float32 where that is
accurate enough for a step. `ExactHessian` adds the penalty and the imaginary rows of missing classes.

Shapes: table and along (n_fits, n_scores, width). A Hessian is (n_fits, n_differences * width, n_differences * width),
with the coordinates of a difference contiguous.
"""

from __future__ import annotations

from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from annealed.arrays import as_slice
from annealed.problems import gibbs
from annealed.problems.contrasts import Contrasts
from annealed.problems.hessian_sample import SMALLEST_POSTERIOR
from annealed.rows import CsrDesign, DenseDesign
from annealed.rows.coordinates import SMALLEST_EIGENVALUE

MOST_PRODUCTS = 5_000_000  # entries of z z' over all rows up to which they are stored: time against memory
MOST_OF_FITS = 20_000_000  # the same over all fits, if every fit has its own coordinates
FEW_MULTIPLICATIONS = 2_000_000  # for scores of all rows under all fits, up to which one product is fastest
ROUGH_STRENGTH = 1e-6  # penalty over the largest variance of a coordinate from which float32 Hessians are accurate
FEWEST_ROUGH = 100_000  # multiplications for the Hessian of one fit: with fewer, float32 saves no time


class Terms(NamedTuple):
    """loss (n_fits,), gradient (n_fits, n_scores, width), and the Hessian of the loss by differences of scores."""

    loss: np.ndarray
    gradient: np.ndarray
    hessian: np.ndarray


class TermsAlong(NamedTuple):
    """loss (n_fits,), gradient (n_fits, n_scores, width), and the Hessian of the loss times vectors of that shape."""

    loss: np.ndarray
    gradient: np.ndarray
    product: np.ndarray


def hessian_rows(design, coordinates, contrasts, fit_intercept):
    """`SmallRows` if the products z z' of all rows fit into memory, else `BlockRows`."""
    n_products = design.n_rows * (coordinates.rank + fit_intercept) ** 2
    is_small = n_products <= MOST_PRODUCTS and not (coordinates.per_fit and design.n_fits * n_products > MOST_OF_FITS)
    kind = SmallRows if is_small and isinstance(design, (DenseDesign, CsrDesign)) else BlockRows
    return kind(design, coordinates, contrasts, fit_intercept)


class SmallRows:
    """Points z of all rows in memory, and the upper triangles of z z'."""

    def __init__(self, design, coordinates, contrasts, fit_intercept):
        self.contrasts, self.labels, self.weight = contrasts, design.labels, design.weight
        rows = np.concatenate(list(design.map_blocks(lambda block: block.rows_as_array())))
        self.points = coordinates.from_features(rows)  # with a leading axis of fits if coordinates differ among fits
        if fit_intercept:
            self.points = np.concatenate([self.points, np.ones((*self.points.shape[:-1], 1))], axis=-1)
        self.typical = _typical_lengths(coordinates, fit_intercept)
        number, n_products = _half_numbers(self.points.shape[-1])
        self._half_products = cache(partial(_half_products, self.points, number))
        pairs = contrasts.numbers[:, None, :, None] * n_products
        self._entries = (pairs + number[:, None, :]).reshape(contrasts.n_differences * len(number), -1)

    def terms(self, table, fits, dtype=np.float64) -> Terms:
        """Loss, gradient and Hessian; the Hessian is summed in `dtype`."""
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
        """Norm of the longest point, each coordinate divided by its root mean square."""
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
        """Scores (n_rows, n_fits, n_scores), in memory with rows contiguous."""
        return _times(table, np.swapaxes(_of_fits(self.points, fits), -1, -2)).transpose(2, 0, 1)

    def _pulled_back(self, values, fits):
        """Sums over rows of values (n_rows, n_fits, n_scores) times points, (n_fits, n_scores, width)."""
        return _times(values.transpose(1, 2, 0), _of_fits(self.points, fits))


def _of_fits(values, fits):
    """Select fits along the first axis; a single matrix if there is no such axis, or if all `fits` are the same."""
    if values.ndim == 2:
        return values
    numbers = np.arange(len(values))[fits]
    return values[numbers[0]] if (numbers == numbers[0]).all() else values[as_slice(numbers)]


def _times(tables, matrices):
    """Products of tables (n_fits, height, width) with one matrix per fit, or with a common one in a single product."""
    if matrices.ndim == 3:
        return tables @ matrices
    n_fits, height, width = tables.shape
    return (tables.reshape(-1, width) @ matrices).reshape(n_fits, height, -1)


class BlockRows:
    """Rows of any design, summed over blocks; nothing is stored between passes."""

    def __init__(self, design, coordinates, contrasts, fit_intercept):
        self.design, self.coordinates = design, coordinates
        self.contrasts, self.fit_intercept = contrasts, fit_intercept
        self.typical = _typical_lengths(coordinates, fit_intercept)

    def terms(self, table, fits, dtype=np.float64) -> Terms:
        """Loss, gradient and Hessian; the Hessian is summed in float64 whatever `dtype`, as blocks are."""
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
        """Norm of the longest point of the final fit, each coordinate divided by its root mean square."""
        turn, typical = self.coordinates.of_final.from_features, self.typical[: self.coordinates.rank]

        def kernel(block):
            return _squares(turn(block.rows_as_array()) / typical).max()

        longest = self.design.map_blocks(kernel, slice(0, 1), n_numbers=self.design.n_features)
        return float(np.sqrt(max(longest) + self.fit_intercept))

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
        return TermsAlong(loss, *(self._from_features(coordinates, *pair) for pair in (sums[:2], sums[2:])))

    def _to_features(self, coordinates, table):
        """Coefficients of the features and intercepts, from a table."""
        rank = coordinates.rank
        return coordinates.to_features(table[..., :rank]), table[..., rank:].sum(axis=-1)

    def _from_features(self, coordinates, coef, intercept):
        """A table, from derivatives by coefficients of the features and by intercepts."""
        coef = coordinates.from_features(coef)
        return np.concatenate([coef, intercept[..., None]], axis=2) if self.fit_intercept else coef


def _half_numbers(width):
    """Index of each entry of z z' within its upper triangle, (width, width), and the size of the triangle."""
    left, right = np.triu_indices(width)
    number = np.empty((width, width), dtype=int)
    number[left, right] = number[right, left] = np.arange(len(left))
    return number, len(left)


def _half_products(points, number, dtype):
    """Upper triangle of z z' of each row, (..., n_rows, n_products)."""
    width = points.shape[-1]
    points, products = points.astype(dtype, copy=False), np.empty((*points.shape[:-1], number.max() + 1), dtype)
    for column, first in enumerate(np.diagonal(number).tolist()):
        out = products[..., first : first + width - column]
        np.multiply(points[..., column : column + 1], points[..., column:], out=out)
    return products


def _typical_lengths(coordinates, fit_intercept):
    """Root mean square of each coordinate of the final fit, and one for an intercept."""
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
    """Mixin of a penalized problem of linear scores: objective and Hessian for Newton's method."""

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
        """Number of rows of the Hessian by differences."""
        return self.contrasts.n_differences * self._width

    @property
    def hessian_work(self):
        """Cost of the Hessians of all fits: multiplications per score, and a quarter of those of their factors."""
        return self.n_fits * (self._square_work / self.n_scores + self.hessian_size**3 / 24)

    @property
    def _square_work(self):
        """Multiplications to sum the Hessian of one fit."""
        return self.design.n_rows * self.contrasts.n_pairs * self._width**2 / 2

    def held_out_logits(self, parameters, temperature):
        if self._stored_rows(1) is None:
            return super().held_out_logits(parameters, temperature)  # type: ignore[misc]
        return self.held_out_logits_of([parameters], [temperature])[0]

    def held_out_logits_of(self, points, temperatures):
        """If few points are stored, one small product gives all logits of all fits."""
        rows = self._stored_rows(len(points))
        if rows is None:
            return super().held_out_logits_of(points, temperatures)  # type: ignore[misc]
        fits = np.tile(np.arange(self.n_fits), len(points))
        scores = rows.scores(self._table(np.concatenate(points)), fits)
        by_point = scores.reshape(len(scores), len(points), self.n_fits, -1)
        # In Fortran order, so that rows are contiguous, as in blocks.
        held_out = np.asfortranarray(by_point[self.held_out.rows, :, self.held_out.fits])
        return self.contrasts.logits(held_out).swapaxes(0, 1)

    def _stored_rows(self, n_points) -> SmallRows | None:
        """The stored rows, if there are any and their scores at `n_points` points take few multiplications."""
        rows = self._hessian_rows
        n_multiplications = n_points * self.design.n_rows * self.n_fits * self.n_parameters
        return rows if isinstance(rows, SmallRows) and n_multiplications <= FEW_MULTIPLICATIONS else None

    def objective_and_hessian(self, parameters, temperature, fits, for_step=False):
        """Q_new / T (n_fits,), its gradient, and its Hessian by differences, (n_fits, hessian_size, hessian_size).

        for_step : whether the Hessian is only used for the direction of a step. It is then computed in float32, as long
            as the penalty is so strong that the rounding error is small compared with the least curvature.
        """
        dtype = np.float32 if for_step and self._is_rough_enough(temperature) else np.float64
        with np.errstate(over="ignore", invalid="ignore"):  # solvers reject trial points whose value is not finite
            loss, gradient, hessian = self._rows_of_hessians().terms(self._table(parameters), fits, dtype)
        loss, gradient = self._with_missing(loss, gradient.reshape(parameters.shape), parameters, fits)
        squares = hessian.reshape(len(hessian), self.contrasts.n_differences, self._width, -1, self._width)
        if self.fit_intercept and self.missing[fits].any():
            squares[..., -1, :, -1] += self._missing_covariance(parameters, fits)
        strength, _ = self.penalty(temperature, fits)
        pull = strength * parameters
        score_strength = strength[..., None, None, : self._width]  # the same for all scores
        np.einsum("faibi->fabi", squares)[...] += score_strength * self.contrasts.square[..., None]
        return loss + 0.5 * np.sum(pull * parameters, axis=1), gradient + pull, hessian

    def _is_rough_enough(self, temperature) -> bool:
        """Whether a float32 Hessian is accurate enough for a step, and saves time."""
        strength = self.l2_strength * np.min(temperature)
        is_strong = strength >= ROUGH_STRENGTH * self.coordinates.spectrum.max()
        return bool(is_strong and self._square_work >= FEWEST_ROUGH)

    def objective_along(self, parameters, along, temperature, fits):
        """Q_new / T (n_fits,), its gradient, and its Hessian times `along`, both in the shape of the parameters."""
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
        """Upper bound on the change of any row's scores by steps (n_steps, n_parameters), (n_steps,)."""
        rows = self._rows_of_hessians()
        return rows.longest * np.sqrt(_squares(self._table(steps) * rows.typical).sum(axis=-1))

    def _rows_of_hessians(self):
        if self._hessian_rows is None:
            self._hessian_rows = hessian_rows(self.design, self.coordinates, self.contrasts, self.fit_intercept)
        return self._hessian_rows

    def without_shift(self, parameters):
        """Parameters of the same posterior, with mean zero over scores."""
        return self.contrasts.without_shift(self._table(parameters)).reshape(parameters.shape)

    def by_differences(self, gradient):
        """Derivative by the parameters of differences of scores, flattened."""
        return self.contrasts.by_differences(self._table(gradient)).reshape(len(gradient), self.hessian_size)

    def from_differences(self, differences):
        """Parameters of scores, of mean zero, from those of differences of scores, flattened."""
        table = differences.reshape(len(differences), self.contrasts.n_differences, self._width)
        return self.contrasts.from_differences(table).reshape(len(differences), self.n_parameters)

    def _missing_covariance(self, parameters, fits):
        """Hessian of the imaginary rows of missing classes, by differences of intercepts."""
        covariance = self.contrasts.pair_covariance(gibbs.posterior(self._class_intercept(parameters)))
        return self.missing[fits].sum(axis=1)[:, None, None] * covariance[:, self.contrasts.numbers]

    def _missing_product(self, parameters, along, fits):
        """The same Hessian, by intercepts of scores, times the intercepts of `along`."""
        curved = self.contrasts.curved(gibbs.posterior(self._class_intercept(parameters)), self._split(along)[1])
        return self.missing[fits].sum(axis=1)[:, None] * curved
