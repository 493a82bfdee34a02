"""Products with rows on a device, in their dtype or rounded to `matmul_precision`.

    logits = unit (rows @ coef.T) + level,    pulled = residual.T @ rows

The level and the contributions of the centre are small and are added separately. Rounded products also round the
coefficients, differently at every point, so the loss is not a smooth function of them. Split products add the product
with the rounding error of the coefficients. Then only the rows are rounded, in the same way in every pass, and the loss
is as smooth as in full precision.

TF32 numbers have a sign, eight bits of exponent and ten of fraction, in four bytes. Half precision has the same ten
bits of fraction in two bytes, and a GPU multiplies it twice as fast (four times with strided operands). Its
smaller range of exponents is compensated by powers of two on every column of the rows, every row of the coefficients
(undone by `unit`) and the residual of every fit (`gain`). Products in TF32 precision are therefore computed in half
precision, one block of rows at a time and without a copy of X. bfloat16 has eight bits, and uses a copy of the rows,
which is rotated to the coordinates solved in before it is rounded.

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

ALIGNED_COLUMNS = 8  # columns, of two bytes each, that tensor cores load at once: widths are padded to a multiple
MOST_PADDING = 1 / 16  # padding rows of zeros that align the products, as a share of the width of the rows
FEW_CLASSES = 16  # classes up to which float64 logits are stored class by class on a GPU: see `fused_by_class.py`
HALF_EXPONENT = 15  # exponent of the largest scaled number: half precision then holds 2^-29 of it with all bits


class Tables:
    """Coefficients in parts whose sum they are, and the unit and level that turn products into logits.

    The level is computed when it is first needed, while the device computes the first product.
    """

    def __init__(self, parts: list[Any], n_columns: int, find_level: Callable[[], Any], unit=None):
        self.parts, self.n_columns, self.unit = parts, n_columns, unit
        self._find_level = find_level

    @cached_property
    def level(self):
        return self._find_level()


class RowsAsTheyAre:
    """Rows of the design in their own dtype.

    Coefficients are those of the features; if `is_turned`, those of the coordinates solved in.
    """

    is_turned = False
    residual_dtype: Any = None

    def __init__(self, design: ArrayDesign):
        self.design, self.place, self.width = design, design.place, design.n_features
        is_double_on_gpu = self.place.is_torch and self.place.is_accelerator and self.place.row_bytes == 8
        self._lies_by_class = is_double_on_gpu and design.n_classes <= FEW_CLASSES

    def tables(self, coef, level) -> Tables:
        """Tables of coefficients and the level of centred rows; the centre's part of the products is in the level."""
        coef_of_rows = coef if self._lies_by_class else self._padded(coef, self.width, self.place.row_dtype)
        return self._tables([coef_of_rows], coef, level)

    def _tables(self, parts, coef, level, unit=None):
        def find_level():
            offset, flat = self.design.offset, self.place.xp.reshape(level, (-1,))
            return self.place.row(flat if offset is None else flat - coef @ self.place.wide(offset))

        return Tables(parts, coef.shape[0], find_level, unit)

    def _padded(self, coef, n_columns, dtype):
        """Coefficients in a dtype, padded to `n_columns` by zeros.

        On a GPU rows of zeros are added too, so that every row of the products begins a line of memory.
        """
        place, n_rows = self.place, coef.shape[0]
        more = padded(n_rows, place.row_bytes) - n_rows
        if not (place.is_torch and place.is_accelerator) or more > MOST_PADDING * self.width:
            more = 0
        if more == 0 and n_columns == self.width:
            return place.xp.astype(coef, dtype, copy=False)
        padded_coef = place.xp.zeros((n_rows + more, n_columns), dtype=dtype, device=place.device)
        padded_coef[:n_rows, : self.width] = coef
        return padded_coef

    def products(self, block, tables: Tables):
        """Logits before the unit and the level are applied."""
        found = self._product(block, tables.parts[0])
        for part in tables.parts[1:]:
            found = self._product(block, part, found)
        return found if found.shape[1] == tables.n_columns else found[:, : tables.n_columns]

    def _product(self, block, coef, added=None):
        """Products plus `added`; if they are stored class by class, each class begins a line of memory."""
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
        """Factors (n_fits,) on the residuals that keep them in the range of their dtype; None if not needed."""
        return None

    def pulled(self, block, residual):
        return (block.raw.T @ residual).T

    def settled(self, pulled, sums):
        """`pulled` summed over all rows, minus the centre's part; `sums` are the sums of the residual."""
        offset = self.design.offset
        return pulled if offset is None else pulled - sums[:, None] * self.place.wide(offset)


class RoundedRows(RowsAsTheyAre):
    """Torch rows of two bytes per number, with products accumulated in float32.

    Columns are padded by zeros to a width that tensor cores support.
    """

    n_parts = 1

    def _prepare(self, place, width, dtype):
        self.place, self.width, self.residual_dtype = place, width, dtype
        self.n_columns = -(-width // ALIGNED_COLUMNS) * ALIGNED_COLUMNS

    def split(self):
        """The same rows, with coefficients in two parts, so that their rounding error is negligible."""
        other = copy(self)
        other.n_parts = 2
        return other

    def _rounded(self, block):
        """The rows of a block in two bytes per number."""
        return block.raw

    def _parts(self, coef):
        """Arrays whose sum is the coefficients: each is the rounded difference to the sum of the ones before."""
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
    """Rows of the design in half precision, one block at a time: with the precision of TF32."""

    def __init__(self, design: ArrayDesign):
        place = design.place
        if not place.is_torch:
            raise ValueError(f'matmul_precision="tf32" needs torch. Got arrays of {place.xp.__name__}.')
        self.design = design
        self._prepare(place, design.n_features, place.xp.float16)

    @cached_property
    def _factor(self):
        """Powers of two that scale the columns to the range of half precision."""
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
    """Powers of two that scale numbers, given their largest absolute value, to the range of half precision."""
    return np.ldexp(1.0, np.where(largest > 0, HALF_EXPONENT - np.frexp(largest)[1], 0))


class TurnedRows(RoundedRows):
    """A bfloat16 copy of the centred rows in the coordinates solved in, rounded after the rotation."""

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
        """Without a second part the logits are rounded too: errors average out over many rows, and less is read."""
        if self.n_parts > 1:
            return super()._product(block, coef, added)
        if self.place.is_accelerator:
            return block.raw @ coef.T
        return self._multiply(block.raw, coef.T).bfloat16()

    @property
    def logit_bytes(self):
        return self.residual_dtype.itemsize if self.n_parts == 1 else super().logit_bytes
