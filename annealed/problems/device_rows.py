"""Products with rows on a device, in their dtype or in half precision.

    logits = unit (rows @ coef.T) + level,    pulled = residual.T @ rows

Products of half precision have ten bits of fraction, like TF32, and a GPU computes them twice as fast. Powers of two on
every column of the rows (`factor`), every row of the coefficients (`unit`) and the residual of every fit (`gain`) keep
the numbers within its smaller range of exponents. Rounded coefficients differ at every point, so that the loss is not a
smooth function of them. Coefficients in two parts, the second one being the rounding error of the first, are as good as
unrounded ones. Then only the rows are rounded, in the same way in every pass, and the loss is smooth.

Shapes: coef (n_columns, width), level and unit (n_columns,), residual (n_rows, n_columns).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from annealed.arrays import SHARE_OF_MEMORY, aligned_width
from annealed.rows import ArrayDesign

HALF_EXPONENT = int(np.finfo(np.float16).maxexp) - 1  # of the largest scaled number: 2^-29 of it keeps all bits


class Table(NamedTuple):
    """Coefficients in parts whose sum they are, and the unit and level that turn products into logits."""

    parts: list[Any]
    level: Any
    unit: Any = None


class PlainRows:
    """Rows of the design in their own dtype; the centre's part of the logits is in their level."""

    residual_dtype: Any = None
    gain: Any = None

    def __init__(self, design: ArrayDesign):
        self.design, self.place = design, design.place

    def table(self, coef, level, is_split=False) -> Table:
        offset = self.design.offset
        level = level if offset is None else level - coef @ self.place.wide(offset)
        return Table([self.place.row(coef)], self.place.row(level))

    def of_block(self, block):
        """The rows of a block, as the products below take them."""
        return block.raw

    def products(self, rows, table: Table):
        """Logits before the unit and the level are applied."""
        return rows @ table.parts[0].T

    def logits(self, rows, table: Table):
        found = self.products(rows, table)
        return (found if table.unit is None else found * table.unit) + table.level

    def pulled(self, rows, residual):
        return (rows.T @ residual).T

    def centered(self, pulled, sums):
        """`pulled` summed over all rows, minus the centre's part; `sums` are the sums of the residual."""
        offset = self.design.offset
        return pulled if offset is None else pulled - sums[:, None] * self.place.wide(offset)


class HalfRows:
    """Centred torch rows in half precision, with products accumulated in float32.

    They are copied if the copy fits into the memory of the device, and otherwise rounded a block at a time. The factor
    of a block's columns and the gain, which multiplies the residuals of each fit, are powers of two.
    """

    def __init__(self, design: ArrayDesign):
        place, xp = design.place, design.place.xp
        self.design, self.place, self.residual_dtype = design, place, xp.float16
        self.n_features, self.width = design.n_features, aligned_width(design.n_features)
        sizes = design.map_blocks(lambda block: xp.abs(_centered(block)).amax(0), copies_rows=True)
        largest, weight = place.host(xp.stack(list(sizes)).amax(0), design.weight.amax(0))
        self.factor, self.gain = place.row(half_factor(largest)), place.row(half_factor(weight))
        self.is_copied = 2 * design.n_rows * self.width <= SHARE_OF_MEMORY * place.free_bytes()
        if self.is_copied:
            rows = self._empty(design.n_rows)
            list(design.map_blocks(lambda block: self._round(block, rows[block.rows, :]), copies_rows=True))
            weights = design.labels, design.weight, design.total_weight
            self.design = ArrayDesign(rows, *weights, design.n_classes, place)

    def _empty(self, n_rows):
        return self.place.xp.empty((n_rows, self.width), dtype=self.residual_dtype, device=self.place.device)

    def _round(self, block, rows):
        rows[:, : self.n_features], rows[:, self.n_features :] = _centered(block) * self.factor, 0.0
        return rows

    def of_block(self, block):
        return block.raw if self.is_copied else self._round(block, self._empty(block.raw.shape[0]))

    def table(self, coef, level, is_split=False) -> Table:
        """Coefficients in half precision, padded by zeros; if `is_split`, in two parts."""
        xp, coef = self.place.xp, self.place.row(coef) / self.factor
        unit = xp.exp2(xp.frexp(xp.abs(coef).amax(1)).exponent - float(HALF_EXPONENT))
        rest = xp.zeros((aligned_width(coef.shape[0]), self.width), dtype=coef.dtype, device=self.place.device)
        rest[: coef.shape[0], : self.n_features] = coef / unit[:, None]
        parts = [rest.half()]
        if is_split:
            parts.append((rest - parts[0]).half())
        return Table(parts, self.place.row(level), unit)

    def products(self, rows, table: Table):
        found = self._multiply(rows, table.parts[0].T)
        for part in table.parts[1:]:
            found += self._multiply(rows, part.T)
        return found[:, : len(table.level)]

    def logits(self, rows, table: Table):
        return self.products(rows, table) * table.unit + table.level

    def pulled(self, rows, residual):
        return self._multiply(residual.T, rows)[:, : self.n_features]

    def centered(self, pulled, sums):
        return pulled / self.factor

    def _multiply(self, left, right):
        if self.place.is_accelerator:
            return self.place.xp.mm(left, right, out_dtype=self.place.xp.float32)
        return left.float() @ right.float()


def half_factor(largest):
    """Powers of two that scale numbers, given their largest absolute value, to the range of half precision."""
    return np.ldexp(1.0, np.where(largest > 0, HALF_EXPONENT - np.frexp(largest)[1], 0))


def _centered(block):
    return block.raw if block.center is None else block.raw - block.center
