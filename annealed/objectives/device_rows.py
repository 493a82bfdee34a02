"""Rows on a device as a pass multiplies them: as they lie, or rounded to the precision that was asked for.

    logits = unit (rows @ coef.T) + level,    pulled = residual.T @ rows

What stands beside the rows is small and added apart: the level, and what the centre takes off both. Rounded products
are rough: coefficients are rounded too, anew at every point. Split rows also multiply what the rounding left of the
coefficients. Then only the rows are rounded, the same way in every pass, and the loss is as smooth a function as in
full precision.

TF32 has a sign, eight bits of exponent and ten of fraction, and is made of four bytes. Half precision has the same ten
bits in two bytes, and a GPU multiplies it twice as fast, across lines of memory four times. Its fewer exponents are
made up for by powers of two: on every column of the rows, every row of the coefficients (`unit` takes those off again)
and every fit's residual (`gain`). So that is how products are rounded to TF32: a block of rows at a time, with no copy
of X. bfloat16 has eight bits, and a copy of the rows, turned to the coordinates solved in before they are rounded.

Shapes: coef (n_columns, width), level and unit (n_columns,), residual (n_rows, n_columns).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np

from annealed.arrays import padded
from annealed.design import ArrayDesign
from annealed.objectives.array_gibbs import fused_kernel

ALIGNED_COLUMNS = 8  # of two bytes, that tensor cores take at once
MOST_PADDING = 1 / 16  # of the width of rows: columns of zeros beside the coefficients, so that lines are whole
FEW_CLASSES = 16  # up to which logits in double precision lie by class on a GPU: see `fused_by_class.py`
HALF_EXPONENT = 15  # of the largest numbers: half precision holds them, and in full what is 2^-29 of them


class Tables:
    """What rows are multiplied with, in parts that add up to it, and what makes logits of the products: their unit, and
    their level, which is found when it is asked for, while the device is busy with the first product.
    """

    def __init__(self, parts: list[Any], n_columns: int, find_level: Callable[[], Any], unit=None):
        self.parts, self.n_columns, self.unit = parts, n_columns, unit
        self._find_level = find_level

    @cached_property
    def level(self):
        return self._find_level()


class RowsAsTheyAre:
    """Rows of the design; coefficients are those of the features, of turned rows those of the coordinates solved in."""

    is_turned = False
    residual_dtype: Any = None

    def __init__(self, design: ArrayDesign):
        self.design, self.place, self.width = design, design.place, design.n_features
        is_double_on_gpu = self.place.is_torch and self.place.is_accelerator and self.place.row_bytes == 8
        self._lies_by_class = is_double_on_gpu and design.n_classes <= FEW_CLASSES

    def tables(self, coef, level) -> Tables:
        """Of coefficients and the level of centred rows: what the centre takes off belongs to the level."""
        coef_of_rows = coef if self._lies_by_class else self._padded(coef, self.width, self.place.row_dtype)
        return self._tables([coef_of_rows], coef, level)

    def _tables(self, parts, coef, level, unit=None):
        def find_level():
            offset, flat = self.design.offset, self.place.xp.reshape(level, (-1,))
            return self.place.row(flat if offset is None else flat - coef @ self.place.wide(offset))

        return Tables(parts, coef.shape[0], find_level, unit)

    def _padded(self, coef, n_columns, dtype):
        """Of a type, with columns of zeros; on a GPU also with rows of them, so that every row of the products begins a
        line of memory.
        """
        place, n_rows = self.place, coef.shape[0]
        more = padded(n_rows, place.row_bytes) - n_rows
        if not (place.is_torch and place.is_accelerator) or more > MOST_PADDING * self.width:
            more = 0
        if more == 0 and n_columns == self.width:
            return place.xp.astype(coef, dtype, copy=False)
        found = place.xp.zeros((n_rows + more, n_columns), dtype=dtype, device=place.device)
        found[:n_rows, : self.width] = coef
        return found

    def products(self, block, tables: Tables):
        """Logits less their level, and before their unit."""
        found = self._product(block, tables.parts[0])
        for part in tables.parts[1:]:
            found = self._product(block, part, found)
        return found if found.shape[1] == tables.n_columns else found[:, : tables.n_columns]

    def _product(self, block, coef, added=None):
        """Products, and what is to be added to them; where they lie by class, the lines of a class are whole."""
        if not self._lies_by_class:
            return block.raw @ coef.T
        found = self.place.aligned((coef.shape[0], block.raw.shape[0]), coef.dtype)
        return self.place.xp.mm(coef, block.raw.T, out=found).T

    def logits(self, block, tables: Tables):
        found = self.products(block, tables)
        return (found if tables.unit is None else found * tables.unit) + tables.level

    @property
    def logit_bytes(self) -> int:
        return self.place.row_bytes

    def gain(self, largest_weight) -> np.ndarray | None:
        """Factors on the residuals of each fit, (n_fits,), that their precision needs, by its largest weight."""
        return None

    def pulled(self, block, residual):
        return (block.raw.T @ residual).T

    def settled(self, pulled, sums):
        """What was pulled of all rows, less what the centre takes off; `sums` are those of the residual."""
        offset = self.design.offset
        return pulled if offset is None else pulled - sums[:, None] * self.place.wide(offset)


class RoundedRows(RowsAsTheyAre):
    """Torch rows of two bytes a number, with products that are added up in float32.

    Zeros beside their columns make up a width that tensor cores take.
    """

    n_parts = 1

    def _prepare(self, place, width, dtype):
        self.place, self.width, self.residual_dtype = place, width, dtype
        self.n_columns = -(-width // ALIGNED_COLUMNS) * ALIGNED_COLUMNS

    def split(self):
        """The same rows, with coefficients in two parts, of which the products lose little or nothing."""
        other = copy(self)
        other.n_parts = 2
        return other

    def _rounded(self, block):
        """The rows of a block."""
        return block.raw

    def _parts(self, coef):
        """Numbers that add up to the coefficients: each the rounding of what the ones before it left."""
        parts = [self._padded(coef, self.n_columns, self.residual_dtype)]
        for _ in range(1, self.n_parts):
            coef = coef - parts[-1][: coef.shape[0], : self.width].to(coef.dtype)
            parts.append(self._padded(coef, self.n_columns, self.residual_dtype))
        return parts

    def tables(self, coef, level):
        return self._tables(self._parts(coef), coef, level)

    def _product(self, block, coef, added=None):
        rows = self._rounded(block)
        if added is None:
            return self._multiply(rows, coef.T)
        if not self.place.is_accelerator:
            return added.add_(self._multiply(rows, coef.T))
        return self.place.xp.addmm(added, rows, coef.T, out_dtype=added.dtype, out=added)

    def pulled(self, block, residual):
        return self._multiply(residual.T, self._rounded(block))[:, : self.width]

    def _multiply(self, left, right):
        if self.place.is_accelerator:
            return self.place.xp.mm(left, right, out_dtype=self.place.xp.float32)
        return left.float() @ right.float()


class HalfRows(RoundedRows):
    """Rows of the design in half precision, a block at a time: rounded as TF32 is."""

    def __init__(self, design: ArrayDesign):
        place = design.place
        if not place.is_torch:
            raise ValueError(f'matmul_precision="tf32" needs torch. Got arrays of {place.xp.__name__}.')
        self.design = design
        self._prepare(place, design.n_features, place.xp.float16)

    @cached_property
    def _factor(self):
        """Powers of two that bring the columns to the size that half precision holds best."""
        sizes = self.design.map_blocks(lambda block: block.raw.abs().amax(0), copies_rows=True)
        (largest,) = self.place.host(self.place.xp.stack(list(sizes)).amax(0))
        return self.place.row(half_factor(largest))

    def tables(self, coef, level):
        xp, scaled = self.place.xp, self.place.row(coef) / self._factor
        unit = xp.exp2(xp.frexp(scaled.abs().amax(1)).exponent - float(HALF_EXPONENT))
        return self._tables(self._parts(scaled / unit[:, None]), coef, level, unit)

    def gain(self, largest_weight):
        return half_factor(largest_weight)

    def _rounded(self, block):
        if block.rounded is None:
            xp, raw = self.place.xp, block.raw
            block.rounded = xp.empty((raw.shape[0], self.n_columns), dtype=xp.float16, device=self.place.device)
            fused = fused_kernel(raw[:, None, :])
            if fused is None:
                block.rounded[:, : self.width], block.rounded[:, self.width :] = raw * self._factor, 0.0
            else:
                fused.copy_scaled(raw, self._factor, block.rounded)
        return block.rounded

    def settled(self, pulled, sums):
        return super().settled(pulled / self._factor, sums)


def half_factor(largest):
    """Powers of two that take numbers up to the largest to the size that half precision holds best."""
    return np.ldexp(1.0, np.where(largest > 0, HALF_EXPONENT - np.frexp(largest)[1], 0))


class TurnedRows(RoundedRows):
    """A bfloat16 copy of the centred rows in the coordinates solved in, each rounded after the turn."""

    is_turned = True

    def __init__(self, design: ArrayDesign, basis):
        place, xp = design.place, design.place.xp
        if not place.is_torch:
            raise ValueError(f'matmul_precision="bf16" needs torch. Got arrays of {xp.__name__}.')
        self._prepare(place, basis.shape[-1], xp.bfloat16)
        rows = xp.zeros((design.n_rows, self.n_columns), dtype=xp.bfloat16, device=place.device)

        def fill(block):
            values = block.raw if block.center is None else block.raw - block.center
            rows[block.rows, : self.width] = (values * basis if basis.ndim == 1 else values @ basis).bfloat16()

        with place.products_in(None):
            list(design.map_blocks(fill, copies_rows=True))
        self.design = ArrayDesign(rows, design.labels, design.weight, design.total_weight, design.n_classes, place)

    def _product(self, block, coef, added=None):
        """Rough logits are rounded too, each by itself: of many rows little is left of that, and less is read."""
        if self.n_parts > 1:
            return super()._product(block, coef, added)
        if self.place.is_accelerator:
            return block.raw @ coef.T
        return self._multiply(block.raw, coef.T).bfloat16()

    @property
    def logit_bytes(self):
        return self.residual_dtype.itemsize if self.n_parts == 1 else super().logit_bytes
