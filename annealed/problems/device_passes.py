"""Passes of linear scores over rows on a device.

    loss = sum_i w_i [ log_partition(logits_i) - logit of the true class ]
    logits_i = (x_i - center) @ coef.T + intercept

Everything else about a problem is computed on the host and on a device by the same code; here are the sums over rows
and what is computed from blocks of them. Nothing but small sums is transferred to the host. If the design has a
`matmul_precision`, passes with `quick` multiply in half precision with sums in float32
(`annealed/problems/device_rows.py`); split coefficients are rounded so little that only the rows are rounded.

Shapes: coef (n_fits, n_classes, n_features), intercept (n_fits, n_classes); a score of two classes is two columns here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from annealed.arrays import take
from annealed.lazy import cached_property
from annealed.problems import array_gibbs
from annealed.problems.base import HeldOut, TrainingSummary
from annealed.problems.device_rows import HalfRows, PlainRows
from annealed.problems.smooth import Rounding
from annealed.rows import ArrayDesign
from annealed.rows.array_api import DEVICE_BLOCK_BYTES

INSPECTED_ROWS = 1 << 15  # rows from which the change of the loss by the posterior scale is estimated
FEW_COLUMNS = 64  # columns of a product that cost about as much as one, because reading the rows dominates
TEMPORARIES = 2  # temporary arrays as large as the held-out logits: their blocks are shorter by this factor
VALUE_ROUNDING = 30.0  # error of a mean loss, in roundings of an entry of X
DECREASE_ROUNDING = 0.01  # predicted relative decrease, in roundings of an entry of X, below which progress ends
HALF_ROUNDING = float(np.finfo(np.float16).eps)  # of an entry that is multiplied in half precision, or in TF32


class HeldOutPart(NamedTuple):
    """Held-out rows of one block: deviations from the true class's logit, and weight and fold of each row."""

    deviation: Any
    weight: Any
    fold: Any


class DevicePasses:
    """Sums over the rows of a design on a device."""

    def __init__(self, design: ArrayDesign):
        self.design, self.place, self.xp = design, design.place, design.place.xp
        self.plain_rows = PlainRows(design)

    @cached_property
    def half_rows(self) -> HalfRows:
        return HalfRows(self.design)

    @property
    def is_rounded(self) -> bool:
        """Whether passes with `quick` multiply in half precision."""
        return self.design.matmul_precision is not None

    def rounding(self, quick) -> Rounding:
        unit = self.place.rounding
        is_half = quick and self.is_rounded
        return Rounding(VALUE_ROUNDING * unit, DECREASE_ROUNDING * (HALF_ROUNDING if is_half else unit))

    def _rows(self, quick) -> Any:
        return self.half_rows if quick and self.is_rounded else self.plain_rows

    def _products_in(self, quick):
        return self.place.products_in(self.design.matmul_precision if quick else None)

    def sums(self, coef, intercept, fits, quick=False, is_split=False):
        """Loss (n_fits,), its derivatives by coef and by intercept, and the variance p (1 - p) of each class.

        The variance is that of the first of the fits, over all rows alike. is_split : whether coefficients are split
        """
        xp, shape, rows = self.xp, intercept.shape, self._rows(quick)
        table = rows.table(xp.reshape(coef, (-1, coef.shape[-1])), xp.reshape(intercept, (-1,)), is_split)
        level = xp.reshape(table.level, shape)
        unit = None if table.unit is None else xp.reshape(table.unit, shape)
        gain = None if rows.gain is None else take(rows.gain, fits)
        learn = bool(np.arange(self.design.n_fits)[fits][0] == 0)

        def kernel(block):
            values = rows.of_block(block)
            logits = xp.reshape(rows.products(values, table), (-1, *shape))
            found = array_gibbs.loss_and_residual(
                self.place, logits, level, block.labels, take(block.weight.T, fits).T,
                unit=unit, dtype=rows.residual_dtype, gain=gain, learn=learn,
            )  # fmt: skip
            return found.sums, rows.pulled(values, xp.reshape(found.values, (found.values.shape[0], -1)))

        with self._products_in(quick):
            totals, pulled = rows.design.sum_on_device(kernel, n_fits=shape[0])
        sums, loss = totals[:, : shape[1]], totals[:, shape[1]]
        if gain is not None:
            pulled = pulled / xp.reshape(xp.broadcast_to(gain[:, None], shape), (-1, 1))
        pulled = xp.reshape(rows.centered(pulled, xp.reshape(sums, (-1,))), coef.shape)
        return loss, pulled, sums, totals[0, shape[1] + 1 :] / self.design.n_rows if learn else None

    def mean_squares(self, coef):
        """Mean square of each logit of the final fit without intercept, (n_classes,), on the host."""
        rows = self._rows(quick=True)

        def kernel(block):
            scores = rows.logits(rows.of_block(block), table)
            scores *= scores
            scores *= block.weight[:, :1]
            return (self.xp.sum(scores, axis=0),)

        with self._products_in(quick=True):
            table = rows.table(coef[0, ...], coef[0, :, 0] * 0.0)
            (squares,) = rows.design.sum_rows(kernel)
        return squares

    # -- summaries of final fits, given as (coef (1, n_classes, n_features), intercept (1, n_classes)) --------------

    def summaries(self, terms, scales, losses, entropy) -> list[TrainingSummary]:
        """Unknown entropies are computed; the effect of the scale on the loss is estimated from sampled rows."""
        step = max(1, self.design.n_rows // INSPECTED_ROWS)
        sample = self.place.whole(np.arange(0, self.design.n_rows, step))
        size = max(1, DEVICE_BLOCK_BYTES // (8 * self.place.row_bytes * sample.shape[0] * self.design.n_classes))
        blocks = list(self.design.map_rows(lambda block: block, sample, TEMPORARIES * min(size, len(terms))))
        groups = [slice(first, first + size) for first in range(0, len(terms), size)]
        gains = np.concatenate([self._gains(blocks, terms[part], scales[part]) for part in groups])
        entropy, unknown = np.array(entropy, dtype=float), np.flatnonzero(~np.isfinite(entropy))
        size = max(1, FEW_COLUMNS // self.design.n_classes)
        for first in range(0, len(unknown), size):
            few = unknown[first : first + size]
            entropy[few] = self._entropy([terms[number] for number in few])
        return [TrainingSummary(*map(float, pair)) for pair in zip(losses + gains, entropy, strict=True)]

    def _gains(self, blocks, terms, scales):
        """Changes of the mean loss of the blocks' rows by posterior scales, at several points."""
        flat, level = self._side_by_side(terms)
        gains, total, scales = 0.0, 0.0, self.place.row(np.array(scales)[:, None, None])
        with self._products_in(quick=True):
            for block in blocks:
                logits = self.xp.stack(self._columns(block, flat, level))
                deviation = array_gibbs.deviations(self.place, logits, block.labels)
                losses = [array_gibbs.scaled_losses(self.place, factor, deviation) for factor in (scales, 1.0)]
                weight = self.place.wide(self.xp.take(self.design.weight[:, 0], block.rows))
                gains, total = gains + (losses[0] - losses[1]) @ weight, total + self.xp.sum(weight)
        return self.place.host(gains / total)[0]

    def _side_by_side(self, terms):
        """Coefficients and intercepts of several points."""
        return [self.place.row(self.xp.concat([pair[part][0, ...] for pair in terms])) for part in (0, 1)]

    def _columns(self, block, flat, level):
        """The logits of a block at each of several points."""
        logits, n_classes = block.scores(flat, level), self.design.n_classes
        return [logits[:, first : first + n_classes] for first in range(0, logits.shape[1], n_classes)]

    def _entropy(self, terms):
        """Mean entropy at several points, in one pass."""
        place, (flat, level) = self.place, self._side_by_side(terms)

        def kernel(block):
            each = (array_gibbs.scaled_moments(place, 1.0, logits) for logits in self._columns(block, flat, level))
            entropy = self.xp.stack([moments[0, ...] - moments[1, ...] for moments in each])
            return (entropy @ place.wide(block.weight[:, 0]),)

        with self._products_in(quick=False):
            return self.design.sum_rows(kernel, slice(0, 1))[0]


class HeldOutOnDevice:
    """Held-out rows on a device, each with the fit that was trained without it; they are scored in parts."""

    def __init__(self, problem, held_out: HeldOut):
        self.problem, self.design, self.place = problem, problem.design, problem.place
        n_folds = problem.n_fits - 1
        self._fold_of_row: Any = None
        is_once = len(held_out.rows) > 0 and np.bincount(held_out.rows).max() == 1 and held_out.fits.min() > 0
        if is_once and n_folds * problem.n_classes <= FEW_COLUMNS:
            fold = np.full(problem.design.n_rows, -1)
            fold[held_out.rows] = held_out.fits - 1
            self._fold_of_row = self.place.whole(fold)
        else:
            parts = ((int(fit), held_out.rows[positions]) for fit, positions in held_out.positions.items())
            self._rows_of_fit = [(fit, self.place.whole(rows)) for fit, rows in parts]

    def parts(self, parameters, temperature, weight):
        """Yield the held-out rows in parts, each with the logits of its fold's fit; `weight` (n_rows,) of all rows."""
        with self.place.products_in(self.design.matmul_precision):
            few_columns = self._fold_of_row is not None
            yield from (self._of_all if few_columns else self._by_fold)(parameters, temperature, weight)

    def _terms(self, parameters, temperature, fits):
        """Flat coefficients and intercepts of the fits, in the dtype of the rows."""
        coef, intercept = self.problem.scores.class_terms(parameters[fits, ...], temperature, fits)
        flat = self.place.xp.reshape(coef, (-1, coef.shape[-1]))
        return self.place.row(flat), self.place.row(self.place.xp.reshape(intercept, (-1,)))

    def _of_all(self, parameters, temperature, weight):
        """Few columns: one product for all folds, from which each row takes those of its fold; others get weight 0."""
        problem, xp, place = self.problem, self.place.xp, self.place
        fits, shape = slice(1, problem.n_fits), (-1, problem.n_fits - 1, problem.n_classes)
        flat, level = self._terms(parameters, temperature, fits)

        def part(block):
            fold = self._fold_of_row[block.rows]
            logits = block.scores(flat, level)
            known = xp.where(fold < 0, fold * 0, fold)
            index = xp.broadcast_to(known[:, None, None], (fold.shape[0], 1, problem.n_classes))
            scores = xp.take_along_axis(xp.reshape(logits, shape), index, axis=1)[:, 0, :]
            deviation = array_gibbs.deviations(place, scores, block.labels)
            return HeldOutPart(deviation, weight[block.rows] * place.wide(fold >= 0), fold)

        yield from self.design.map_blocks(part, fits)

    def _by_fold(self, parameters, temperature, weight):
        xp, place = self.place.xp, self.place
        for fit, rows in self._rows_of_fit:
            flat, level = self._terms(parameters, temperature, slice(fit, fit + 1))

            def part(block, flat=flat, level=level, fit=fit):
                deviation = array_gibbs.deviations(place, block.scores(flat, level), block.labels)
                return HeldOutPart(deviation, place.wide(xp.take(weight, block.rows)), block.labels * 0 + (fit - 1))

            yield from self.design.map_rows(part, rows, TEMPORARIES)
