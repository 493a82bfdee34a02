"""Rows on a device as a pass multiplies them: as they lie, or rounded to the precision that was asked for.

    products = rows @ coef.T,    pulled = residual.T @ rows

What stands beside the rows is small and added apart: the level of the scores, and what the centre takes off both.
Rounded products are rough: coefficients are rounded too, anew at every point. Split rows also multiply what the
rounding left of the coefficients. Then only the rows are rounded, the same way in every pass, and the loss is as smooth
a function as in full precision.

A GPU multiplies TF32 quickly where the rows' numbers are added up along a line of memory, as in the scores, and at half
that rate across lines, as in what is pulled. Half precision it takes either way, and its numbers have as many bits as
TF32's; the fewer exponents are made up for by powers of two, on every column of X and on the residual.

Shapes: coef (n_columns, width), level (n_columns,), residual (n_rows, n_columns).
"""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import Any

import numpy as np

from annealed.arrays import padded
from annealed.design import ArrayDesign
from annealed.objectives.array_gibbs import fused_kernel

ALIGNED_COLUMNS = 8  # of bfloat16, that tensor cores take at once
MOST_PADDING = 1 / 16  # of the width of rows: columns of zeros beside the coefficients, so that lines are whole
HALF_EXPONENT = 15  # of the largest numbers: half precision holds them, and in full what is 2^-29 of them


class RowsAsTheyAre:
    """Rows of the design; coefficients are those of the features, of turned rows those of the coordinates solved in."""

    is_turned = False
    residual_dtype: Any = None

    def __init__(self, design: ArrayDesign):
        self.design, self.place, self.width = design, design.place, design.n_features

    def tables(self, coef, level):
        """What `products` multiplies with, and the level of the scores, less what the centre takes off."""
        if self.design.offset is not None:
            level = level - coef @ self.place.wide(self.design.offset)
        return self._parts(self.place.row(self._padded(coef))), self.place.row(level)

    def _parts(self, coef) -> list[Any]:
        return [coef]

    def _padded(self, coef):
        """On a GPU with rows of zeros, so that every row of the products begins a line of memory."""
        place, xp = self.place, self.place.xp
        more = padded(coef.shape[0], place.row_bytes) - coef.shape[0]
        if not (place.is_torch and place.is_accelerator) or more > MOST_PADDING * self.width:
            return coef
        return xp.concat([coef, place.zeros((more, coef.shape[1]))])

    def products(self, block, parts, n_columns):
        found = self._product(block.raw, parts[0])
        for part in parts[1:]:
            found = self._product(block.raw, part, found)
        return found if found.shape[1] == n_columns else found[:, :n_columns]

    def _product(self, rows, coef, added=None):
        """Products, and what is to be added to them."""
        return rows @ coef.T if added is None else added.addmm_(rows, coef.T)

    def scores(self, block, tables):
        parts, level = tables
        return self.products(block, parts, level.shape[0]) + level

    def gain(self, largest_weight) -> np.ndarray | None:
        """Factors on the residuals of each fit, (n_fits,), that their precision needs, by its largest weight."""
        return None

    def pulled(self, block, residual):
        return (block.raw.T @ residual).T

    def settled(self, pulled, sums):
        """What was pulled of all rows, less what the centre takes off; `sums` are those of the residual."""
        offset = self.design.offset
        return pulled if offset is None else pulled - sums[:, None] * self.place.wide(offset)


class SplittableRows(RowsAsTheyAre):
    """Torch rows that are rounded as they are multiplied."""

    n_parts = 1

    def split(self):
        """The same rows, with coefficients in two parts, of which the products lose little or nothing."""
        other = copy(self)
        other.n_parts = 2
        return other


class RoundedRows(SplittableRows):
    """Products are rounded to TF32: of the rows as they lie, and on a GPU in half precision where that is faster."""

    def __init__(self, design: ArrayDesign):
        super().__init__(design)
        self.is_halved = self.place.is_accelerator
        self.residual_dtype = self.place.xp.float16 if self.is_halved else None

    def _parts(self, coef):
        if self.n_parts == 1:
            return [coef]
        head = coef.bfloat16().float()
        return [head, coef - head]

    @cached_property
    def _factor(self):
        """Powers of two that bring the columns to the size that half precision holds best."""
        sizes = self.design.map_blocks(lambda block: block.raw.abs().amax(0), copies_rows=True)
        (largest,) = self.place.host(self.place.xp.stack(list(sizes)).amax(0))
        return self.place.row(_half_factor(largest))

    def gain(self, largest_weight):
        return _half_factor(largest_weight) if self.is_halved else None

    def pulled(self, block, residual):
        if not self.is_halved:
            return super().pulled(block, residual)
        xp = self.place.xp
        rows = xp.empty(block.raw.shape, dtype=xp.float16, device=self.place.device)
        fused = fused_kernel(block.raw[:, None, :])
        if fused is None:
            xp.mul(block.raw, self._factor, out=rows)
        else:
            fused.copy_halved(block.raw, self._factor, rows)
        return xp.mm(residual.T, rows, out_dtype=xp.float32)

    def settled(self, pulled, sums):
        return super().settled(pulled / self._factor if self.is_halved else pulled, sums)


def _half_factor(largest):
    """Powers of two that take numbers up to the largest to the size that half precision holds best."""
    return np.ldexp(1.0, np.where(largest > 0, HALF_EXPONENT - np.frexp(largest)[1], 0))


class TurnedRows(SplittableRows):
    """A bfloat16 copy of the centred rows in the coordinates solved in, each rounded after the turn.

    Zeros beside the coordinates make up a width that tensor cores take.
    """

    is_turned = True

    def __init__(self, design: ArrayDesign, basis):
        place, xp = design.place, design.place.xp
        if not place.is_torch:
            raise ValueError(f'precision="bf16" needs torch. Got arrays of {xp.__name__}.')
        self.place, self.width = place, basis.shape[-1]
        self.residual_dtype = xp.bfloat16
        self.n_columns = -(-self.width // ALIGNED_COLUMNS) * ALIGNED_COLUMNS
        rows = xp.zeros((design.n_rows, self.n_columns), dtype=xp.bfloat16, device=place.device)

        def fill(block):
            values = block.raw if block.center is None else block.raw - block.center
            rows[block.rows, : self.width] = (values * basis if basis.ndim == 1 else values @ basis).bfloat16()

        with place.products_in(None):
            list(design.map_blocks(fill, copies_rows=True))
        self.design = ArrayDesign(rows, design.labels, design.weight, design.total_weight, design.n_classes, place)

    def _parts(self, coef):
        """Numbers that add up to the coefficients: each the rounding of what the ones before it left."""
        values = self.place.xp.zeros((coef.shape[0], self.n_columns), dtype=coef.dtype, device=self.place.device)
        values[:, : self.width] = coef
        parts = [values.bfloat16()]
        for _ in range(1, self.n_parts):
            values = values - parts[-1].float()
            parts.append(values.bfloat16())
        return parts

    def _product(self, rows, coef, added=None):
        if added is None or not self.place.is_accelerator:
            found = self._multiply(rows, coef.T)
            return found if added is None else found.add_(added)
        return self.place.xp.addmm(added, rows, coef.T, out_dtype=added.dtype, out=added)

    def pulled(self, block, residual):
        return self._multiply(residual.T, block.raw)[:, : self.width]

    def _multiply(self, left, right):
        """Products of bfloat16, added up in float32."""
        if self.place.is_accelerator:
            return self.place.xp.mm(left, right, out_dtype=self.place.xp.float32)
        return left.float() @ right.float()
