"""Exact Hessians of linear scores, for problems small enough to afford them.

Let z be a row in the coordinates solved in, followed by a one for the intercept. The Hessian of a fit's loss by
differences of scores (`annealed/problems/contrasts.py`) has, for each pair of scores, the block

    sum over rows of weight * covariance of the two scores * z z'

`BlockRows` and `SmallRows` compute `terms` of a stack of fits: loss (n_fits,), gradient and Hessian. `terms_along` has
the Hessian times a vector in place of the Hessian, at a fraction of the cost. `BlockRows` sums over blocks of any
design. `SmallRows` stores the points z and the upper triangle of z z' for all rows, so that a Hessian is a single
matrix product. `ExactHessians` adds the penalty and the imaginary rows of missing classes.

Shapes: table and along (n_fits, n_scores, width). A Hessian is (n_fits, n_differences * width, n_differences * width),
with the coordinates of a difference contiguous.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from annealed.arrays import as_slice
from annealed.lazy import cached_property
from annealed.rows import CsrDesign, DenseDesign
from annealed.rows.coordinates import SMALLEST_EIGENVALUE
from annealed.rows.cost import CALL, MULTIPLY, STORED_BYTES, hessian_time

RIDGES = {np.dtype(kind): (64 * np.finfo(kind).eps) ** np.array([1, 0.75, 0.5, 0]) for kind in (np.float32, np.float64)}


def are_stored(design, coordinates, table) -> bool:
    """Whether the products z z' of all rows fit into memory."""
    n_products = design.n_rows * table.width**2 / 2 * (design.n_fits if coordinates.per_fit else 1)
    return 8 * n_products <= STORED_BYTES and isinstance(design, (DenseDesign, CsrDesign))


class SmallRows:
    """Points z of all rows in memory, and the upper triangles of z z'."""

    def __init__(self, design, coordinates, table):
        contrasts = self.contrasts = table.contrasts
        self.labels, self.weight = design.labels, design.weight
        rows = np.concatenate(list(design.map_blocks(lambda block: block.rows_as_array())))
        self.points = coordinates.from_features(rows)  # with a leading axis of fits if coordinates differ among fits
        if table.fit_intercept:
            self.points = np.concatenate([self.points, np.ones((*self.points.shape[:-1], 1))], axis=-1)
        self.typical = _typical_lengths(coordinates, table.fit_intercept)
        number, n_products = _half_numbers(self.points.shape[-1])
        self._number = number
        pairs = contrasts.numbers[:, None, :, None] * n_products
        self._entries = (pairs + number[:, None, :]).reshape(contrasts.n_differences * len(number), -1)

    def terms(self, table, fits):
        weight = self.weight[:, fits]
        losses, pulled, posterior = self.contrasts.evaluate(self.scores(table, fits), self.labels, weight)
        gradient = self._pulled_back(pulled, fits)
        shares = (self.contrasts.pair_covariance(posterior) * weight[..., None]).transpose(1, 2, 0)
        products = _times(shares, _of_fits(self._half_products, fits))
        hessian = products.reshape(len(table), -1).take(self._entries, axis=1)
        return np.einsum("ns,ns->s", weight, losses), gradient, hessian

    @cached_property
    def _half_products(self):
        """Upper triangle of z z' of each row, (..., n_rows, n_products)."""
        width = self.points.shape[-1]
        products = np.empty((*self.points.shape[:-1], self._number.max() + 1))
        for column, first in enumerate(np.diagonal(self._number).tolist()):
            out = products[..., first : first + width - column]
            np.multiply(self.points[..., column : column + 1], self.points[..., column:], out=out)
        return products

    @cached_property
    def longest(self) -> float:
        """Norm of the longest point, each coordinate divided by its root mean square."""
        return float(np.sqrt(_squares(self.points / self.typical).max()))

    def terms_along(self, table, along, fits):
        weight, n_fits = self.weight[:, fits], len(table)
        twice = fits if self.points.ndim == 2 else np.tile(np.arange(self.weight.shape[1])[fits], 2)
        scores = self.scores(np.concatenate([table, along]), twice)
        losses, pulled, posterior = self.contrasts.evaluate(scores[:, :n_fits], self.labels, weight)
        curved = self.contrasts.curved(posterior, scores[:, n_fits:]) * weight[..., None]
        both = self._pulled_back(np.concatenate([pulled, curved], axis=1), twice)
        return np.einsum("ns,ns->s", weight, losses), both[:n_fits], both[n_fits:]

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

    def __init__(self, design, coordinates, table):
        self.design, self.coordinates = design, coordinates
        self.table, self.contrasts = table, table.contrasts
        self.typical = _typical_lengths(coordinates, table.fit_intercept)

    def terms(self, table, fits):
        coordinates = self.coordinates.of_fits(fits)
        coef, intercept = self._to_features(coordinates, table)

        def kernel(block):
            scores = block.product(coef) + intercept
            losses, pulled, posterior = self.contrasts.evaluate(scores, block.labels, block.weight)
            shares = self.contrasts.pair_covariance(posterior) * block.weight[..., None]
            return (_summed(block, losses), *_pulled_back(block, pulled), *block.moments(shares))

        loss, *gradient, squares, sums, counts = self.design.sum_rows(kernel, fits)
        turn, rank = coordinates.from_features, coordinates.rank
        blocks = np.empty((*counts.shape, *[table.shape[2]] * 2))
        blocks[..., :rank, :rank] = turn(np.swapaxes(turn(squares), -1, -2))
        if self.table.fit_intercept:
            blocks[..., :rank, rank] = blocks[..., rank, :rank] = turn(sums)
            blocks[..., rank, rank] = counts
        return loss, self._from_features(coordinates, *gradient), self.contrasts.whole(blocks)

    @cached_property
    def longest(self) -> float:
        """Norm of the longest point of the final fit, each coordinate divided by its root mean square."""
        turn, typical = self.coordinates.of_final.from_features, self.typical[: self.coordinates.rank]

        def kernel(block):
            return _squares(turn(block.rows_as_array()) / typical).max()

        longest = self.design.map_blocks(kernel, slice(0, 1), n_numbers=self.design.n_features)
        return float(np.sqrt(max(longest) + self.table.fit_intercept))

    def terms_along(self, table, along, fits):
        coordinates = self.coordinates.of_fits(fits)
        coef, intercept = self._to_features(coordinates, table)
        coef_along, intercept_along = self._to_features(coordinates, along)

        def kernel(block):
            scores = block.product(coef) + intercept
            losses, pulled, posterior = self.contrasts.evaluate(scores, block.labels, block.weight)
            curved = self.contrasts.curved(posterior, block.product(coef_along) + intercept_along)
            curved *= block.weight[..., None]
            return (_summed(block, losses), *_pulled_back(block, pulled), *_pulled_back(block, curved))

        loss, *sums = self.design.sum_rows(kernel, fits)
        return loss, *(self._from_features(coordinates, *pair) for pair in (sums[:2], sums[2:]))

    def _to_features(self, coordinates, table):
        """Coefficients of the features and intercepts, from a table."""
        coef, intercept = self.table.split(table)
        return coordinates.to_features(coef), intercept

    def _from_features(self, coordinates, coef, intercept):
        """A table, from derivatives by coefficients of the features and by intercepts."""
        return self.table.of(self.table.join(coordinates.from_features(coef), intercept))


def _half_numbers(width):
    """Index of each entry of z z' within its upper triangle, (width, width), and the size of the triangle."""
    left, right = np.triu_indices(width)
    number = np.empty((width, width), dtype=int)
    number[left, right] = number[right, left] = np.arange(len(left))
    return number, len(left)


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


class ExactHessians:
    """Objective and Hessian of a `PenalizedLinearProblem`, for Newton's method."""

    def __init__(self, problem):
        self.problem, self.scores = problem, problem.scores
        self.table, self.contrasts = problem.scores.table, problem.scores.table.contrasts

    @property
    def size(self) -> int:
        """Number of rows of the Hessian by differences."""
        return self.contrasts.n_differences * self.table.width

    @property
    def time(self) -> float:
        """Estimated time of the Hessians of all fits, in nanoseconds."""
        design, n_pairs = self.scores.design, self.contrasts.n_pairs
        is_stored = are_stored(design, self.scores.coordinates, self.table)
        return self.problem.n_fits * hessian_time(design.n_rows, self.table.width, n_pairs, self.size, is_stored)

    def held_out_logits(self, held_out, points):
        """Logits of held-out rows, (n_points, n_held_out, n_classes), in one small product for all fits.

        None if no points of rows are stored, or if the product takes longer than a call.
        """
        rows, n_fits = self.scores.hessian_rows, self.problem.n_fits
        n_multiplications = len(points) * self.scores.design.n_rows * n_fits * self.table.n_parameters
        if not isinstance(rows, SmallRows) or MULTIPLY[False] * n_multiplications > CALL:
            return None
        scores = rows.scores(self.table.of(np.concatenate(points)), np.tile(np.arange(n_fits), len(points)))
        by_point = scores.reshape(len(scores), len(points), n_fits, -1)
        # In Fortran order, so that rows are contiguous, as in blocks.
        picked = np.asfortranarray(by_point[held_out.rows, :, held_out.fits])
        return self.contrasts.logits(picked).swapaxes(0, 1)

    def terms(self, parameters, temperature, fits):
        """Q_new / T (n_fits,), its gradient, and its Hessian by differences, (n_fits, size, size)."""
        with np.errstate(over="ignore", invalid="ignore"):  # solvers reject trial points whose value is not finite
            loss, gradient, hessian = self.rows.terms(self.table.of(parameters), fits)
        width = self.table.width
        squares = hessian.reshape(len(hessian), self.contrasts.n_differences, width, -1, width)
        self.problem.missing.add_hessian(squares, parameters, fits)
        value, gradient, strength = self._with_penalty(loss, gradient, parameters, temperature, fits)
        score_strength = strength[..., None, None, :width]  # the same for all scores
        np.einsum("faibi->fabi", squares)[...] += score_strength * self.contrasts.square[..., None]
        return value, gradient, hessian

    def along(self, parameters, along, temperature, fits):
        """Q_new / T (n_fits,), its gradient, and its Hessian times `along`, both in the shape of the parameters."""
        with np.errstate(over="ignore", invalid="ignore"):
            loss, gradient, product = self.rows.terms_along(self.table.of(parameters), self.table.of(along), fits)
        product = product.reshape(parameters.shape)
        self.problem.missing.add_product(product, parameters, along, fits)
        value, gradient, strength = self._with_penalty(loss, gradient, parameters, temperature, fits)
        return value, gradient, product + strength * along

    def _with_penalty(self, loss, gradient, parameters, temperature, fits):
        """Q_new / T and its gradient from those of the loss of the rows, and the strength of the penalty."""
        loss, gradient = self.problem.missing.with_loss(loss, gradient.reshape(parameters.shape), parameters, fits)
        strength, _ = self.problem.penalty(temperature, fits)
        pull = strength * parameters
        return loss + 0.5 * np.sum(pull * parameters, axis=1), gradient + pull, strength

    def furthest_moves(self, steps):
        """Upper bound on the change of any row's scores by steps (n_steps, n_parameters), (n_steps,)."""
        return self.rows.longest * np.sqrt(_squares(self.table.of(steps) * self.rows.typical).sum(axis=-1))

    @property
    def rows(self) -> SmallRows | BlockRows:
        if self.scores.hessian_rows is None:
            at = self.scores.design, self.scores.coordinates, self.table
            self.scores.hessian_rows = SmallRows(*at) if are_stored(*at) else BlockRows(*at)
        return self.scores.hessian_rows

    def without_shift(self, parameters):
        """Parameters of the same posterior, with mean zero over scores."""
        return self.contrasts.without_shift(self.table.of(parameters)).reshape(parameters.shape)

    def by_differences(self, gradient):
        """Derivative by the parameters of differences of scores, flattened."""
        return self.contrasts.by_differences(self.table.of(gradient)).reshape(len(gradient), self.size)

    def from_differences(self, differences):
        """Parameters of scores, of mean zero, from those of differences of scores, flattened."""
        table = differences.reshape(len(differences), self.contrasts.n_differences, self.table.width)
        return self.contrasts.from_differences(table).reshape(len(differences), self.table.n_parameters)


def factored(matrix):
    """Lower Cholesky factor of a symmetric matrix of unit diagonal, which is overwritten, with the least of RIDGES.

    The identity if none is enough: the matrix is rounding error then.
    """
    factor = lapack.dpotrf if matrix.dtype == np.float64 else lapack.spotrf
    for ridge in RIDGES[matrix.dtype]:
        matrix.flat[:: len(matrix) + 1] = 1 + ridge
        lower, has_failed = factor(matrix.T, lower=1, overwrite_a=1, clean=0)
        if not has_failed:
            return lower
        intact = np.tril(matrix, -1)
        matrix[...] = intact + intact.T
    return np.eye(len(matrix), dtype=matrix.dtype)
