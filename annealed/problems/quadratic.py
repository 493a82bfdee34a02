"""Quadratic family: scores are `coef @ [x, x_i x_j for i <= j] + intercept`, the discriminative counterpart of QDA.

This is the inner-product family on second-order features of the standardized rows. The features of a block are computed
when the block is read, so the whole wide table is never in memory.
Shapes: X (n_rows, d), second-order features (n_rows, d + d (d + 1) / 2).
"""

from __future__ import annotations

import numpy as np

from annealed.problems.linear import LinearPredictor, mean_of_columns, spread_of_columns
from annealed.problems.penalized_linear import InnerProduct
from annealed.rows import DenseDesign
from annealed.rows.base import even_slices
from annealed.rows.cost import BLOCK_BYTES

FEWEST_ROWS = 16  # smallest number of rows whose features are computed at once, however wide they are
FARTHEST = float(np.cbrt(np.finfo(float).max))  # new rows are clipped to it: sums of squares of more may overflow


class Quadratic(InnerProduct):
    """Quadratic discriminants with the penalty of (17) on second-order features.

    Columns are standardized before they are multiplied, so units do not matter. Sparse X is refused: products of
    centred columns are dense.

    Parameters
    ----------
    l2_strength : float, default=1.0
        The paper's epsilon.
    penalty_scaling : {"auto", "cv", "none", "standardize", "half-whiten", "whiten"}, default="auto"
        Units of the penalty on the second-order features; see :class:`annealed.AnnealedLogisticRegression`.
    fit_intercept : bool, default=True
        Whether the scores have a free, unpenalized intercept.
    """

    accepts_sparse = runs_on_devices = False

    def prepare(self, design, random_state=None):
        center = mean_of_columns(design)
        scale = spread_of_columns(design, center, of_constant=np.inf)  # so that their rounding errors become zero
        problem = super().prepare(SecondOrderDesign(design, center, scale))
        problem.predictor = QuadraticPredictor(center, scale)
        return problem


class QuadraticPredictor(LinearPredictor):
    """Logits are linear in the second-order features of the standardized rows."""

    def __init__(self, center, scale) -> None:
        self.center = center
        self.scale = scale

    def logits(self, X, arrays, temperature):
        n_classes, n_features = arrays["coef"].shape
        logits = np.empty((X.shape[0], n_classes))
        for rows in even_slices(0, X.shape[0], max(FEWEST_ROWS, BLOCK_BYTES // (8 * n_features))):
            logits[rows] = super().logits(second_order(self._standardized(X[rows])), arrays, temperature)
        return logits

    def _standardized(self, X):
        with np.errstate(over="ignore"):
            rows = (np.asarray(X, dtype=np.float64) - self.center) / self.scale
        return np.clip(rows, -FARTHEST, FARTHEST, out=rows)


def second_order(X, columns=slice(None)):
    """A slice of the columns x_i followed by x_i x_j for i <= j; by default all of them.

    The result is in Fortran order: products of whole columns take a fraction of the time of those within a row.
    """
    by_column = np.ascontiguousarray(X.T)
    width = len(by_column)
    first, last, _ = columns.indices(n_second_order(width))
    features = np.empty((last - first, X.shape[0]))
    start = 0
    for factor in (
        None,
        *range(width),
    ):  # the columns, then x_factor times each column from x_factor on
        begin = factor or 0
        low, high = max(first, start), min(last, start + width - begin)
        if low < high:
            others = by_column[begin + low - start : begin + high - start]
            products = features[low - first : high - first]
            np.multiply(others, 1.0 if factor is None else by_column[factor], out=products)
        start += width - begin
    return features.T


def n_second_order(width) -> int:
    """Number of second-order features of `width` columns."""
    return width + width * (width + 1) // 2


class _SecondOrderRows:
    """Rows of second-order features, computed when sliced; a design keeps it in place of X."""

    def __init__(self, X, center, scale):
        self.X, self.center, self.scale = X, center, scale
        self.shape = (len(X), n_second_order(X.shape[1]))

    def __getitem__(self, key):
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        return np.ascontiguousarray(second_order((self.X[rows] - self.center) / self.scale, columns))


class SecondOrderDesign(DenseDesign):
    """A dense design whose columns are second-order features of another's."""

    def __init__(self, design, center, scale) -> None:
        rows = _SecondOrderRows(design.X, center, scale)
        super().__init__(rows, design.labels, design.weight, design.total_weight, design.n_classes)
