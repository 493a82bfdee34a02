"""Base class of linear families whose rows and parameters are on a device.

The host problem of the family (`problems/penalized_linear.py`, `problems/distance.py`) computes the small arrays:
centre, scale, coordinates, class shares. The problems here copy them to the device and sum by blocks

    loss     = sum_i w_i [ log_partition(logits_i) - logit of the true class ]
    gradient = sum_i w_i (posterior - targets) x_i

with logits `(x - center) @ coef.T + intercept`. Only scalars are transferred to the host, once per pass. With
`matmul_precision="tf32"` the products of passes with `quick=True` are rounded, with sums in float32
(`annealed/problems/device_rows.py`). With `fine=True` such a pass rounds the rows only, not the coefficients.

Shapes: parameters (n_fits, n_classes, width), on the device, in its widest float.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from annealed.arrays import to_host
from annealed.problems import array_gibbs
from annealed.problems.base import Problem, TrainingSummary
from annealed.problems.device_rows import HalfRows, PlainRows
from annealed.problems.held_out import HeldOut
from annealed.rows import ArrayDesign

INSPECTED_ROWS = 1 << 15  # rows from which the change of the loss by the posterior scale is estimated
FEW_COLUMNS = 64  # columns of a product that cost about as much as one, because reading the rows dominates
TEMPORARIES = 2  # temporary arrays as large as the held-out logits: their blocks are shorter by this factor
KEPT_BYTES = 1 << 31  # bytes of held-out logits up to which they are kept between evaluations: memory against time
SMALLEST_VARIANCE = 1e-12  # floor on the variance p (1 - p) of a class


class Evaluation(NamedTuple):
    """One pass: Q / T (n_fits,), its gradient, value and gradient of the loss part, and <logits, residual>."""

    value: Any
    gradient: Any
    loss: Any
    loss_gradient: Any
    slope: Any


class HeldOutPart(NamedTuple):
    """Held-out rows of one block: deviations from the true class's logit, and weight and fold of each row."""

    deviation: Any
    weight: Any
    fold: Any


class ArrayProblem(Problem):
    """Base class of the families on a device; `host` is the host problem of the family, bound to the same rows."""

    design: ArrayDesign
    width: int  # parameters per class
    returns_numpy = False  # whether reported arrays are converted to NumPy, because the user's X was NumPy

    def __init__(self, host, matmul_precision: str | None = None):
        super().__init__(host.design, host.features)
        self.host, self.predictor = host, host.predictor
        # Rows in a basis of their span are few: they are not rounded.
        self.matmul_precision = None if host.features.span else matmul_precision
        self.temperature_free, self.extrapolates = host.temperature_free, host.extrapolates
        self.interpolates, self.fits_are_alike = host.interpolates, host.fits_are_alike
        place = self.place = self.design.place
        self.xp = place.xp
        coordinates = host.scores.coordinates
        self.basis, inverse = place.wide(coordinates.basis), place.wide(coordinates.inverse)
        self.basis_across, self.inverse_across = (
            self.xp.matrix_transpose(matrix) if matrix.ndim > 1 + coordinates.per_fit else matrix
            for matrix in (self.basis, inverse)
        )
        self.spectrum = place.wide(np.broadcast_to(coordinates.spectrum, (self.n_fits, coordinates.rank)))
        self.rank, self.per_fit = coordinates.rank, coordinates.per_fit
        self.class_variance = place.wide(host.class_shares * (1 - host.class_shares))
        self.center = place.wide(self.design.center)
        self._plain_rows = PlainRows(self.design)
        self._seen: dict[float, tuple[float, float]] = {}
        self.visits_all = self.n_fits == 1
        self.n_passes = 0

    # -- coordinates ------------------------------------------------------------------------------------------

    def of_fits(self, table, fits):
        """Entries of a table for some fits: a slice or a list of indices."""
        if isinstance(fits, slice):
            return table[fits, ...]
        return self.xp.take(table, self.place.whole(fits), axis=0)

    def _turned(self, vectors, factor, fits):
        """Vectors (n_fits, n_classes, ...) times a change of coordinates: a diagonal or a matrix, common or per fit."""
        matrix = self.of_fits(factor, fits) if self.per_fit else factor
        if matrix.ndim == (2 if self.per_fit else 1):
            return vectors * (matrix[:, None, :] if self.per_fit else matrix)
        return vectors @ matrix

    def to_features(self, coef, fits):
        return self._turned(coef, self.basis_across, fits)

    def from_features(self, gradient, fits):
        return self._turned(gradient, self.basis, fits)

    # -- what a family defines --------------------------------------------------------------------------------

    def terms(self, parameters, temperature, fits):
        """Coefficients (n_fits, n_classes, rank) in the coordinates solved in, and intercepts (n_fits, n_classes)."""
        raise NotImplementedError

    def forward(self, parameters, temperature, fits):
        """Coefficients (n_fits, n_classes, n_features) of the centred rows, and intercepts (n_fits, n_classes)."""
        coef, intercept = self.terms(parameters, temperature, fits)
        return self.to_features(coef, fits), intercept

    def backward(self, pulled, residual_sum, parameters, temperature, fits):
        """Gradient by the parameters from `pulled` and `residual_sum`, the derivatives by what `terms` returns."""
        raise NotImplementedError

    def penalty(self, temperature, fits):
        """Strength and anchor of the quadratic penalty, each broadcastable to the parameters."""
        raise NotImplementedError

    def precondition(self, vectors, temperature, fits):
        """An approximate inverse Hessian applied to vectors (n_fits, ..., n_classes, width)."""
        raise NotImplementedError

    def certificate(self, gradient, temperature, fits):
        """Upper bound (n_fits,) on the suboptimality of Q / T; zero if the family has none."""
        return self.xp.sum(gradient, axis=(1, 2)) * 0.0

    # -- one pass ---------------------------------------------------------------------------------------------

    @property
    def has_quick_rows(self) -> bool:
        """Whether products of passes with `quick=True` are rounded."""
        return self.matmul_precision is not None

    def objective(self, parameters, temperature, fits, quick=False, learn=False, fine=False) -> Evaluation:
        """Value and gradients of some fits in one pass over the rows; nothing is transferred to the host.

        quick : whether to use rounded products; fine : whether such a pass rounds the rows only
        learn : whether to update `class_variance`, which `precondition` uses, from the first of the fits
        """
        with self.place.products_in(self.matmul_precision if quick else None):
            loss, slope, loss_gradient = self._loss(parameters, temperature, fits, quick, learn, fine)
        strength, anchor = self.penalty(temperature, fits)
        offset = parameters - anchor
        pull = strength * offset
        value = loss + 0.5 * self.xp.sum(pull * offset, axis=(1, 2))
        return Evaluation(value, loss_gradient + pull, loss, loss_gradient, slope)

    def _loss(self, parameters, temperature, fits, quick, learn, fine=False):
        xp = self.xp
        coef, intercept = self.forward(parameters, temperature, fits)
        shape = intercept.shape
        rows = self._half_rows if quick else self._plain_rows
        table = rows.table(xp.reshape(coef, (-1, coef.shape[-1])), xp.reshape(intercept, (-1,)), fine)
        level = xp.reshape(table.level, shape)
        unit = None if table.unit is None else xp.reshape(table.unit, shape)
        gain = None if rows.gain is None else self.of_fits(rows.gain, fits)

        def kernel(block):
            values = rows.of_block(block)
            logits = xp.reshape(rows.products(values, table), (-1, *shape))
            found = array_gibbs.loss_and_residual(
                self.place, logits, level, block.labels, self.of_fits(block.weight.T, fits).T,
                unit=unit, dtype=rows.residual_dtype, gain=gain, learn=learn,
            )  # fmt: skip
            return found.sums, rows.pulled(values, xp.reshape(found.values, (found.values.shape[0], -1)))

        totals, pulled = rows.design.sum_on_device(kernel, n_fits=shape[0])
        sums, loss, variance = totals[:, : shape[1]], totals[:, shape[1]], totals[0, shape[1] + 1 :]
        self.n_passes += 1
        if gain is not None:
            pulled = pulled / xp.reshape(xp.broadcast_to(gain[:, None], shape), (-1, 1))
        pulled = xp.reshape(rows.centered(pulled, xp.reshape(sums, (-1,))), coef.shape)
        if learn:
            share = xp.maximum(variance / self.design.n_rows, variance * 0.0 + SMALLEST_VARIANCE)
            self.class_variance = xp.broadcast_to(share[None, :], (self.n_fits, self.n_classes))
        slope = xp.sum(coef * pulled, axis=(1, 2)) + xp.sum(intercept * sums, axis=1)
        return loss, slope, self.backward(self.from_features(pulled, fits), sums, parameters, temperature, fits)

    @cached_property
    def _half_rows(self) -> HalfRows:
        return HalfRows(self.design)

    # -- reports, for the path --------------------------------------------------------------------------------

    def one_fit(self, parameters, temperature, fits):
        """Coefficients and intercepts of the first of `fits`, in the dtype of the rows."""
        coef, intercept = self.forward(parameters, temperature, fits)
        return self.place.row(coef[0, ...]), self.place.row(intercept[0, ...])

    def note(self, temperature, loss, slope):
        """Store loss and slope of the final fit's last pass at a temperature: its mean entropy is `loss - slope`."""
        self._seen[temperature] = loss, slope

    def summarize(self, points, entropy=None):
        """Loss and entropy of the last pass; the effect of the scale on the loss is estimated from a sample of rows."""
        step = max(1, self.design.n_rows // INSPECTED_ROWS)
        sample = self.place.whole(np.arange(0, self.design.n_rows, step))
        weight = self.place.wide(self.xp.take(self.design.weight[:, 0], sample))
        total = self.xp.sum(weight)
        blocks = list(self.design.map_rows(lambda block: block, sample, TEMPORARIES))
        gains = [self._gain(blocks, weight, total, *point) for point in points]
        numbers = self.place.host(self.xp.stack(gains))[0]
        last = [self._seen[temperature] for _, temperature, _ in points]
        return [
            TrainingSummary(loss + float(gain), loss - slope) for (loss, slope), gain in zip(last, numbers, strict=True)
        ]

    def _gain(self, blocks, weight, total, parameters, temperature, scale):
        """Change of the mean loss of the blocks' rows by a posterior scale."""
        flat, level = self.one_fit(parameters[None, ...], temperature, slice(0, 1))
        gain, done = total * 0.0, 0
        with self.place.products_in(self.matmul_precision):
            for block in blocks:
                deviation = array_gibbs.deviations(self.place, block.scores(flat, level), block.labels)
                block_weight = weight[done : done + deviation.shape[0]]
                done += deviation.shape[0]
                calibrated, plain = (
                    array_gibbs.scaled_losses(self.place, factor, deviation) for factor in (scale, 1.0)
                )
                gain = gain + block_weight @ (calibrated - plain)
        return gain / total

    def report(self, parameters, temperature, fits=slice(None)):
        arrays = self._on_device(parameters, temperature, fits)
        return {name: to_host(array) for name, array in arrays.items()} if self.returns_numpy else arrays

    def _on_device(self, parameters, temperature, fits):
        if self.features.span:
            flat = self.place.host(parameters)[0].reshape(parameters.shape[0], -1)
            arrays = self.host.report(self.as_host(flat), temperature, fits)
            return {name: self.place.wide(array) for name, array in arrays.items()}
        return self._report(parameters, temperature, fits)

    def as_host(self, flat):
        """Parameters for the host problem."""
        return flat

    def _report(self, parameters, temperature, fits):
        coef, intercept = self.forward(parameters, temperature, fits)
        return {"coef": coef, "intercept": intercept - coef @ self.center}

    def final_arrays(self, parameters, temperature):
        """The final fit's arrays on the device, in the dtype of X, with a leading axis of length one."""
        arrays = self._on_device(parameters[:1, ...], temperature, slice(0, 1))
        return {name: self.place.row(array) for name, array in arrays.items()}

    def reported(self, points):
        """The final fit's arrays at every (parameters, temperature), of the type of X, with an axis of points."""
        parts: dict[str, list] = {}
        for parameters, temperature in points:
            for name, array in self.final_arrays(parameters[None, ...], temperature).items():
                parts.setdefault(name, []).append(array)
        arrays = {name: self.xp.concat(rows) for name, rows in parts.items()}
        return {name: to_host(array) for name, array in arrays.items()} if self.returns_numpy else arrays

    def of_host(self, host):
        """The device counterpart of another host problem."""
        other = type(self)(host, self.matmul_precision)
        other.returns_numpy = self.returns_numpy
        return other


class HeldOutOnDevice:
    """Held-out rows on a device, each with the fit that was trained without it; they are scored in parts."""

    def __init__(self, problem: ArrayProblem, held_out: HeldOut):
        self.problem = problem
        place, n_folds = problem.place, problem.n_fits - 1
        self._fold_of_row: Any = None
        is_once = len(held_out.rows) > 0 and np.bincount(held_out.rows).max() == 1 and held_out.fits.min() > 0
        if is_once and n_folds * problem.n_classes <= FEW_COLUMNS:
            fold = np.full(problem.design.n_rows, -1)
            fold[held_out.rows] = held_out.fits - 1
            self._fold_of_row = place.whole(fold)
        else:
            parts = ((int(fit), held_out.rows[positions]) for fit, positions in held_out.positions.items())
            self._rows_of_fit = [(fit, place.whole(rows)) for fit, rows in parts]

    def parts(self, parameters, temperature, weight):
        """Yield the held-out rows in parts, each with the logits of its fold's fit; `weight` (n_rows,) of all rows."""
        with self.problem.place.products_in(self.problem.matmul_precision):
            few_columns = self._fold_of_row is not None
            yield from (self._of_all if few_columns else self._by_fold)(parameters, temperature, weight)

    def _of_all(self, parameters, temperature, weight):
        """Few columns: one product for all folds, from which each row takes those of its fold; others get weight 0."""
        problem, xp, place = self.problem, self.problem.xp, self.problem.place
        fits = slice(1, problem.n_fits)
        coef, intercept = problem.forward(parameters[fits, ...], temperature, fits)
        flat = place.row(xp.reshape(coef, (-1, coef.shape[-1])))
        level = place.row(xp.reshape(intercept, (-1,)))

        def part(block):
            fold = self._fold_of_row[block.rows]
            logits = block.scores(flat, level)
            known = xp.where(fold < 0, fold * 0, fold)
            index = xp.broadcast_to(known[:, None, None], (fold.shape[0], 1, problem.n_classes))
            scores = xp.take_along_axis(xp.reshape(logits, (-1, *intercept.shape)), index, axis=1)[:, 0, :]
            deviation = array_gibbs.deviations(place, scores, block.labels)
            return HeldOutPart(deviation, weight[block.rows] * place.wide(fold >= 0), fold)

        yield from problem.design.map_blocks(part, fits)

    def _by_fold(self, parameters, temperature, weight):
        problem, xp, place = self.problem, self.problem.xp, self.problem.place
        for fit, rows in self._rows_of_fit:
            flat, level = problem.one_fit(parameters[fit : fit + 1, ...], temperature, slice(fit, fit + 1))

            def part(block, flat=flat, level=level, fit=fit):
                deviation = array_gibbs.deviations(place, block.scores(flat, level), block.labels)
                return HeldOutPart(deviation, place.wide(xp.take(weight, block.rows)), block.labels * 0 + (fit - 1))

            yield from problem.design.map_rows(part, rows, TEMPORARIES)
