"""Rows on a device as a pass multiplies them: as they lie, or rounded to the precision that was asked for.

    scores = rows @ coef.T + level,    pulled = residual.T @ rows,    sums = sum of the residual over rows

Rounded products are rough: coefficients are rounded too, anew at every point. Split rows also multiply what the
rounding left of the coefficients. Then only the rows are rounded, the same way in every pass, and the loss is as smooth
a function as in full precision.

Shapes: coef (n_columns, width), level (n_columns,), residual (n_rows, n_columns).
"""

from __future__ import annotations

from copy import copy
from typing import Any

from annealed.design import ArrayDesign

LEVEL_PARTS = 3  # roundings to bfloat16 that hold a number of single precision
ALIGNED_COLUMNS = 8  # of bfloat16, that tensor cores take at once


class RowsAsTheyAre:
    """Rows of the design; coefficients are those of the features."""

    is_turned = False
    residual_dtype = None

    def __init__(self, design: ArrayDesign):
        self.design, self.place, self.width = design, design.place, design.n_features

    def coef(self, of_features, parameters):
        return of_features

    def tables(self, coef, level):
        """What `scores` multiplies with."""
        return self.place.row(coef), self.place.row(level)

    def scores(self, block, tables):
        return block.scores(*tables)

    def pulled(self, block, residual):
        sums = self.place.xp.sum(residual, axis=0)
        return block.pulled(residual, sums), sums


class SplitRows(RowsAsTheyAre):
    """Torch rows whose coefficients come in two parts, each exact where products are rounded to TF32."""

    def tables(self, coef, level):
        coef, level = super().tables(coef, level)
        head = coef.bfloat16().float()
        return head, coef - head, level

    def scores(self, block, tables):
        head, rest, level = tables
        if block.center is not None:
            level = level - rest @ block.center
        return block.scores(head, level).addmm_(block.raw, rest.T)


class TurnedRows:
    """A bfloat16 copy of the centred rows in the coordinates solved in, each rounded after the turn.

    Ones stand beside the coordinates: with them the level, in parts, belongs to one product and the sums to the other.
    Zeros beside them make up a width that tensor cores take.
    """

    is_turned = True
    n_parts = 1

    def __init__(self, design: ArrayDesign, basis):
        place, xp = design.place, design.place.xp
        if not place.is_torch:
            raise ValueError(f'precision="bf16" needs torch. Got arrays of {xp.__name__}.')
        self.place, self.width = place, basis.shape[-1]
        self.residual_dtype = xp.bfloat16
        self.n_columns = -(-(self.width + LEVEL_PARTS) // ALIGNED_COLUMNS) * ALIGNED_COLUMNS
        rows = self._zeros(design.n_rows)

        def fill(block):
            values = block.raw if block.center is None else block.raw - block.center
            rows[block.rows, : self.width] = (values * basis if basis.ndim == 1 else values @ basis).bfloat16()
            rows[block.rows, self.width : self.width + LEVEL_PARTS] = 1.0

        with place.products_in(None):
            list(design.map_blocks(fill, copies_rows=True))
        self.design = ArrayDesign(rows, design.labels, design.weight, design.total_weight, design.n_classes, place)

    def split(self) -> TurnedRows:
        """The same rows, with coefficients in two parts."""
        other = copy(self)
        other.n_parts = 2
        return other

    def coef(self, of_features, parameters):
        return parameters[..., : self.width]

    def _zeros(self, n):
        return self.place.xp.zeros((n, self.n_columns), dtype=self.place.xp.bfloat16, device=self.place.device)

    def tables(self, coef, level):
        parts = _rounded_parts(self.place.row(coef), self.n_parts)
        tables = [self._zeros(coef.shape[0]) for _ in parts]
        for table, part in zip(tables, parts, strict=True):
            table[:, : self.width] = part
        for number, part in enumerate(_rounded_parts(self.place.row(level), LEVEL_PARTS)):
            tables[0][:, self.width + number] = part
        return tables

    def scores(self, block, tables):
        scores = self._multiply(block.raw, tables[0].T)
        for table in tables[1:]:
            scores += self._multiply(block.raw, table.T)
        return scores

    def pulled(self, block, residual):
        pulled = self._multiply(residual.T, block.raw)
        return pulled[:, : self.width], pulled[:, self.width]

    def _multiply(self, left, right):
        """Products of bfloat16, added up in float32."""
        if self.place.is_accelerator:
            return self.place.xp.mm(left, right, out_dtype=self.place.xp.float32)
        return left.float() @ right.float()


def _rounded_parts(values, n_parts) -> list[Any]:
    """Numbers that add up to the values: each the rounding of what the ones before it left."""
    parts = []
    for _ in range(n_parts):
        parts.append(values.bfloat16())
        values = values - parts[-1].float()
    return parts
