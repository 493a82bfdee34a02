"""Storage of X in a torch, CuPy or other array-API array: blocks are summed on the device of the array.

The sums are accumulated on the device in float64 and returned as small NumPy arrays; X and every array with one entry
per sample stay on the device. If X does not fit into the memory of the device, it stays in NumPy and its blocks are
transferred whenever they are used (streaming).

Shapes: X (n_rows, n_features), labels (n_rows,), weight (n_rows, n_fits), coef (n_fits, n_classes, n_features).
"""

from __future__ import annotations

import numpy as np
from sklearn.utils import gen_batches

from annealed.arrays import Place, is_foreign, to_host
from annealed.lazy import cached_property
from annealed.rows.base import FARTHEST_CENTER, SPREAD_ROWS, Block, Design
from annealed.rows.cost import BLOCK_BYTES

DEVICE_BLOCK_BYTES = 1 << 29  # of a block's largest temporary; half if rows are copied, as several coexist then


def row_batches(n_rows, width, place: Place):
    """Slices of rows whose temporaries, with `width` numbers a row, stay within the byte limit of a place."""
    bytes_of_block = DEVICE_BLOCK_BYTES if place.is_accelerator else BLOCK_BYTES
    return gen_batches(n_rows, max(64, bytes_of_block // (8 * width)))


class ArrayBlock(Block):
    """`raw` are rows on the device; `center`, if given, has not been subtracted from them yet."""

    def __init__(self, place: Place, raw, rows, labels, weight, center=None):
        super().__init__(rows, labels, weight)
        self.place, self.xp, self.raw, self.center = place, place.xp, raw, center

    @cached_property
    def values(self):
        """The centred samples in float64."""
        values = self.place.wide(self.raw)
        return values if self.center is None else values - self.place.wide(self.center)

    def product(self, coef):
        n_fits, n_classes, n_features = coef.shape
        flat = self.xp.reshape(self.place.row(coef), (-1, n_features))
        scores = self.scores(flat, self.xp.zeros(flat.shape[0], dtype=flat.dtype, device=self.place.device))
        return self.xp.reshape(scores, (-1, n_fits, n_classes))

    def transposed_product(self, residual):
        n_rows, n_fits, n_classes = residual.shape
        flat = self.xp.reshape(self.place.row(residual), (n_rows, -1))
        return self.xp.reshape(self.pulled(flat), (n_fits, n_classes, -1))

    def exact_sums(self, weight):
        n_rows, n_fits, n_classes = weight.shape
        return self.xp.reshape(self.xp.reshape(weight, (n_rows, -1)).T @ self.values, (n_fits, n_classes, -1))

    def scores(self, flat, level):
        """`rows @ flat.T + level`, (n_rows, n_columns); the centre's contribution is moved into `level`."""
        if self.center is not None:
            level = level - flat @ self.center
        if self.place.is_torch and self.place.row_bytes == 4:  # in float64, addmm is slower than product and sum
            return self.xp.addmm(level, self.raw, flat.T)
        scores = self.raw @ flat.T
        scores += level
        return scores

    def pulled(self, flat):
        """`flat.T @ rows`, (n_columns, n_features)."""
        pulled = (self.raw.T @ flat).T
        if self.center is None:
            return pulled
        return pulled - self.xp.sum(flat, axis=0)[:, None] * self.center

    def rows_as_array(self):
        return self.values

    def _weights(self, weight):
        return self.place.wide(weight)

    def gram(self, weight):
        return (self.values * self._weights(weight)[:, None]).T @ self.values

    def moments(self, weight):
        flat = self.xp.reshape(self._weights(weight), (weight.shape[0], -1))
        squares = self.xp.stack([self.gram(flat[:, column]) for column in range(flat.shape[1])])
        shape = weight.shape[1:]
        sums = flat.T @ self.values
        return (
            self.xp.reshape(squares, (*shape, *squares.shape[1:])),
            self.xp.reshape(sums, (*shape, -1)),
            self.xp.sum(self._weights(weight), axis=0),
        )

    def column_sums(self, weight):
        return self._weights(weight) @ self.values

    def column_squares(self, weight):
        return self._weights(weight) @ self.values**2

    def row_squares(self, scale):
        return self.xp.sum((self.values * self.place.wide(scale)) ** 2, axis=1)

    def features(self, scale):
        return self.values * self.place.wide(scale)


class ArrayDesign(Design):
    """X is an array on the device, or a NumPy array whose blocks are streamed to the device."""

    multiplies_in_double = False
    matmul_precision: str | None = None  # of products whose rounding errors are corrected in the end

    def __init__(self, X, labels, weight, total_weight, n_classes, place: Place | None = None):
        super().__init__(X, labels, weight, total_weight, n_classes)
        self.place = Place.of(X) if place is None else place

    @cached_property
    def is_streamed(self) -> bool:
        return not is_foreign(self.X)

    def block_rows(self, n_fits: int, copies_rows: bool = False) -> int:
        """Rows per block, such that logits, and a copy of the rows if there is one, stay within the byte limit."""
        copies_rows = copies_rows or self.is_streamed or not (self._is_centered or self._center_is_near)
        bytes_of_block = DEVICE_BLOCK_BYTES // (1 + copies_rows) if self.place.is_accelerator else BLOCK_BYTES
        width = max(self.n_features if copies_rows else 1, n_fits * self.n_classes)
        return max(256, bytes_of_block // (self.place.row_bytes * width))

    @cached_property
    def _is_centered(self) -> bool:
        return not np.any(self.center)

    def centered(self, center):
        recentred = super().centered(center)
        for name in ("_center_is_near", "_device_center", "_is_centered"):
            recentred.__dict__.pop(name, None)
        return recentred

    @cached_property
    def _device_center(self):
        return self.place.row(self.center)

    @cached_property
    def _center_is_near(self) -> bool:
        """Whether uncentred rows can be multiplied without losing digits to the centre."""
        step = max(1, self.n_rows // SPREAD_ROWS)
        sample = self.place.wide(self.X[::step, :])
        (distance,) = self.place.host(
            self.place.xp.mean(self.place.xp.abs(sample - self.place.wide(self.center)), axis=0)
        )
        return bool(np.all(np.abs(self.center) <= FARTHEST_CENTER[self.place.row_bytes] * distance))

    def rows_of(self, rows):
        """Rows on the device, selected by a slice or by indices on the device."""
        if self.is_streamed:
            part = self.X[rows if isinstance(rows, slice) else to_host(rows)]
            if self.place.is_accelerator and part.flags.writeable:  # transferred without a host copy
                return self.place.xp.asarray(part, device=self.place.device)
            return self.place.row(part)
        if isinstance(rows, slice):
            return self.X[rows, :]
        return self.place.xp.take(self.X, rows, axis=0)

    def slices(self, n_fits, copies_rows=False):
        step = self.block_rows(n_fits, copies_rows)
        return [slice(first, min(first + step, self.n_rows)) for first in range(0, self.n_rows, step)]

    def map_blocks(self, function, fits=slice(None), copies_rows=False, n_fits=None):
        """Yield `function(block)` with the weights of the selected fits.

        copies_rows : whether the function copies the rows, which shortens blocks if rows are wider than logits
        n_fits : number of fits evaluated, if fewer than selected; fewer fits permit longer blocks
        """
        weight = self.weight[:, fits]
        for rows in self.slices(n_fits or weight.shape[1], copies_rows):
            yield function(self._block(rows, self.labels[rows], weight[rows, :]))

    def map_rows(self, function, rows, n_fits=1):
        step = self.block_rows(n_fits)
        for first in range(0, rows.shape[0], step):
            part = rows[first : min(first + step, rows.shape[0])]
            yield function(self._block(part, self.place.xp.take(self.labels, part), None))

    @property
    def offset(self):
        """The centre on the device if blocks must still subtract it, else None."""
        return None if self._is_centered or not self._center_is_near else self._device_center

    def _block(self, rows, labels, weight):
        raw = self.rows_of(rows)
        if not self._is_centered and not self._center_is_near:
            raw = raw - self._device_center
        return ArrayBlock(self.place, raw, rows, labels, weight, self.offset)

    def sum_rows(self, kernel, fits=slice(None), copies_rows=True):
        """Sums over blocks, as small NumPy arrays."""
        return tuple(self.place.host(*self.sum_on_device(kernel, fits, copies_rows=copies_rows)))

    def sum_on_device(self, kernel, fits=slice(None), n_fits=None, copies_rows=False):
        totals: list = []
        for terms in self.map_blocks(kernel, fits, copies_rows, n_fits):
            if not totals:
                totals = [self.place.xp.astype(term, self.place.wide_dtype, copy=True) for term in terms]
                continue
            for total, term in zip(totals, terms, strict=True):
                total += term
        return totals

    def eigh(self, matrix):
        """On the device if it is a GPU, which is about ten times as fast."""
        if not self.place.is_accelerator:
            return super().eigh(matrix)
        return tuple(self.place.host(*self.place.xp.linalg.eigh(self.place.wide(matrix))))

    def targets(self, labels):
        """One-hot labels, (n, n_classes), as booleans."""
        xp = self.place.xp
        return labels[:, None] == xp.arange(self.n_classes, dtype=labels.dtype, device=self.place.device)[None, :]

    def class_weight_sums(self):
        """Total weight of each class in each fit.

        A label is split into two digits in base sqrt(n_classes), so that its one-hot encoding needs 2 sqrt(n_classes)
        numbers per sample rather than n_classes.
        """
        base = int(np.ceil(np.sqrt(self.n_classes)))
        digits = self.place.xp.arange(base, dtype=self.labels.dtype, device=self.place.device)[None, :]

        def kernel(block):
            first, second = (
                self.place.wide(digit[:, None] == digits) for digit in (block.labels // base, block.labels % base)
            )
            weighted = block._weights(block.weight)[:, :, None] * first[:, None, :]
            return (self.place.xp.reshape(weighted, (weighted.shape[0], -1)).T @ second,)

        sums = self.sum_rows(kernel)[0].reshape(self.n_fits, -1)
        return sums[:, : self.n_classes]

    def class_sums(self):
        def kernel(block):
            targets = self.place.wide(self.targets(block.labels))
            return (block.exact_sums(targets[:, None, :] * self.place.wide(block.weight)[:, :, None]),)

        return self.sum_rows(kernel)[0]

    def combine_rows(self, weights):
        columns = self.place.row(weights).T
        (combined,) = self.sum_rows(lambda block: (block.pulled(columns[block.rows, :]),))
        return combined

    def product(self, coef):
        """In NumPy; called only for problems that are solved in the span of few samples."""
        return np.concatenate([to_host(part) for part in self.map_blocks(lambda block: block.product(coef))])

    def row_gram(self, scale):
        values = self.place.wide(self.rows_of(slice(0, self.n_rows)))
        scaled = (values - self.place.wide(self.center)) * self.place.wide(scale)
        return np.asarray(to_host(scaled @ scaled.T), dtype=np.float64)
