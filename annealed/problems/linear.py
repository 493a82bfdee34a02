"""Base class of problems whose logits are linear in the features: pADA, dADA and quadratic scores.

    logits = (x - center) @ coef.T + intercept

`LinearProblem` holds the centre, the coordinates in which a subclass solves and, if columns outnumber rows, a basis of
the rows' span. Shapes: coef (n_fits, n_classes, n_features), intercept (n_fits, n_classes).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy import sparse

from annealed.arrays import is_foreign, is_mapped, to_host
from annealed.problems.base import Predictor
from annealed.problems.smooth import ROUNDING, SmoothProblem
from annealed.rows import DenseDesign, Design, SinglePrecisionRows, make_design, row_span
from annealed.rows.coordinates import CONSTANT, WIDEST_EIGENPROBLEM, Coordinates, TurnedCoordinates

SMALLEST_ROOT = 1e-150  # smaller numbers have squares that underflow or lose their digits
SHRINKAGE = 1e-100  # factor on rows whose products may overflow
FARTHEST_LOGIT = 1e-8  # largest logit of such rows, as a share of the largest number of the dtype
MISSING_CLASS_WEIGHT = 0.5  # weight, in rows, of the imaginary row for a class that a fit lacks
MOST_ROWS = 1e12  # upper bound on the total weight, in rows
FEWEST_COPIED_VALUES = 600_000  # entries of X times scores (at least three) from which a float32 copy saves time
MOST_COPIED_BYTES = 1 << 32  # largest float32 X, in bytes, that is copied: its copy takes as much memory again


class LinearPredictor(Predictor):
    """Logits are `X @ coef.T + intercept`."""

    def logits(self, X, arrays, temperature):
        if is_foreign(X):
            return X @ arrays["coef"].T + arrays["intercept"]
        return scores_of_rows(X, arrays["coef"].T, arrays["intercept"])


def scores_of_rows(X, weights, offset):
    """`X @ weights + offset`; for rows so large that it overflows, large finite scores in the same proportion.

    The offset is negligible for such rows.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        scores = np.asarray(X @ weights + offset)
    farthest = FARTHEST_LOGIT * np.finfo(scores.dtype).max
    overflows = ~(np.abs(scores) <= farthest).all(axis=1)
    if overflows.any():
        shrunk = (X[overflows].astype(np.float64) * SHRINKAGE) @ weights
        scores[overflows] = farthest * (shrunk / np.abs(shrunk).max(axis=1, keepdims=True))
    return scores


class LinearProblem(SmoothProblem):
    """Logits `(x - center) @ coef.T + intercept`, solved in coordinates of `x - center`."""

    predictor: Predictor = LinearPredictor()
    coordinates: Coordinates | TurnedCoordinates
    copies_rows = False
    _float32_rows: SinglePrecisionRows | None = None

    def __init__(self, design: Design, center, scale, in_span: bool):
        self.center, self.scale, self.span = center, scale, None
        centered = design.centered(center)
        if in_span:
            self.span = row_span(centered, scale)
            self.scale = np.ones(self.span.rows.shape[1])
            centered = make_design(self.span.rows, design.labels, design.weight, design.total_weight, design.n_classes)
        super().__init__(centered)
        self.n_columns = design.n_features

    def block_logits(self, block, state):
        coef, intercept = state
        logits = block.product(coef)
        logits += intercept
        return logits

    def block_pullback(self, block, state, residual):
        return block.transposed_product(residual), residual.sum(axis=0)

    @property
    def has_float32_rows(self) -> bool:  # type: ignore[override]
        return self._float32_rows is not None

    def _copy_pays(self, n_scores) -> bool:
        """Whether a float32 copy of the rows saves time.

        No copy is made if X is memory-mapped, or if it is large and float32 itself: the copy takes half the memory of a
        float64 X, but as much as a float32 one.
        """
        n_values = self.design.n_rows * self.design.n_features * max(3, n_scores)
        if type(self.design) is not DenseDesign or n_values < FEWEST_COPIED_VALUES or is_mapped(self.design.X):
            return False
        return bool(self.design.X.dtype == np.float64 or self.design.X.nbytes <= MOST_COPIED_BYTES)

    def gradient_noise(self):
        """A gradient entry is a mean of residual times coordinate: its rounding grows with the coordinate's spread."""
        return ROUNDING * max(1.0, np.sqrt(self.coordinates.spectrum.max()))

    @property
    def varies(self) -> bool:
        """Whether any column is not constant."""
        return bool(self.coordinates.spectrum.max() > (CONSTANT * np.abs(self.center).max()) ** 2)

    def report_linear(self, coef, intercept):
        """Coefficients and intercepts in the user's features, from those of the centred features (or of the span)."""
        if self.span:
            coef = self.span.expand_coef(coef)
        intercept = intercept - coef @ self.center
        if self.used is not None:
            used_coef, coef = coef, np.zeros((*coef.shape[:-1], self.n_columns))
            coef[..., self.used] = used_coef
        return {"coef": coef, "intercept": intercept}


def mean_of_columns(design: Design):
    """Weighted mean of each column, exact to the last digit.

    One sum over many rows is less exact, and would give constant columns a positive spread. Columns whose squares
    overflow may have no finite mean; `spread_of_columns` raises an error for them.
    """
    mean = design.column_mean() + design.center
    with np.errstate(over="ignore", invalid="ignore"):
        return mean + design.centered(mean).column_mean()


def spread_of_columns(design: Design, mean, of_constant=1.0):
    """Weighted standard deviation of each column about its mean; `of_constant` for constant columns."""
    with np.errstate(over="ignore", invalid="ignore"):
        spread = np.sqrt(design.centered(mean).column_variance())
    check_spread(spread, mean)
    constant = spread <= CONSTANT * np.abs(mean)
    return np.where(constant, of_constant, spread)


def check_spread(spread, mean):
    """Raise ValueError for columns whose squares overflow or underflow."""
    vanishes = (spread == 0) & (mean != 0) & (np.abs(mean) < SMALLEST_ROOT)
    for is_wrong, what in (
        (~np.isfinite(spread), "large that their squares are infinite"),
        (vanishes, "small that their squares are zero"),
    ):
        if is_wrong.any():
            column = int(np.argmax(is_wrong))
            raise ValueError(f"Column {column} of X holds numbers so {what}. Divide it by its largest absolute value.")


def spans_fewer_than_columns(design: Design) -> bool:
    """Whether columns outnumber distinct rows and the Gram matrix of the rows is affordable.

    Rows that repeat, as in bootstrap samples, count once; rows of zero weight do not count.
    """
    if design.n_rows > WIDEST_EIGENPROBLEM:
        return False
    weighted = np.flatnonzero(to_host(design.weight[:, 0]))
    if len(weighted) < design.n_features:
        return True
    distinct = set()
    for row in _rows_as_bytes(design.X, weighted):
        distinct.add(row)
        if len(distinct) >= design.n_features:
            return False
    return True


def _rows_as_bytes(X, rows):
    """Bytes that are equal for equal rows, whatever the sign of a zero and however many zeros a sparse row stores."""
    if sparse.issparse(X):
        X = X[rows]
        X.sum_duplicates()
        X.eliminate_zeros()
        return (X.indices[first:last].tobytes() + X.data[first:last].tobytes() for first, last in pairwise(X.indptr))
    return ((row + 0.0).tobytes() for row in to_host(X[:, :])[rows])


def missing_class_weight(class_shares, total_weight, unweighted):
    """Weight (n_fits, n_classes) of an imaginary row for each class of which a fit has no row, else zero.

    unweighted : its weight, in rows, if the final fit (the first) has no row of the class either. It is tiny, so
        that the class is never predicted.
    """
    weight = np.where(class_shares[0] > 0, MISSING_CLASS_WEIGHT, unweighted)
    return np.where(class_shares > 0, 0, weight / np.minimum(total_weight, MOST_ROWS)[:, None])
