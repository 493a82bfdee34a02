"""Problems whose logits are linear in the features: what pADA, dADA and quadratic scores share.

`LinearProblem` keeps the centre, the span of the rows where columns outnumber rows, and the coordinates solved in.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy import sparse

from annealed.arrays import is_foreign, is_mapped, to_host
from annealed.design import DenseDesign, Design, SinglePrecisionRows, make_design, row_span
from annealed.design.coordinates import CONSTANT, WIDEST_EIGENPROBLEM, Coordinates, TurnedCoordinates
from annealed.objectives.base import ROUNDING, Predictor, SmoothProblem

SMALLEST_ROOT = 1e-150  # numbers below it have squares that are zero, or have no digits
NEARER = 1e-100  # a factor on rows whose products may be infinite
FARTHEST_LOGIT = 1e-8  # of the largest number: what their largest logit is taken for
MISSING_CLASS_WEIGHT = 0.5  # rows' worth of evidence for a class that a fit has no row of
MOST_ROWS = 1e12  # that weights are taken for
FEWEST_COPIED_VALUES = 600_000  # entries of X times scores, no fewer than three, whose copy in single precision pays
MOST_COPIED_BYTES = 1 << 32  # of X in single precision, up to which it is copied too


class LinearPredictor(Predictor):
    """Logits are `X @ coef.T + intercept`."""

    def logits(self, X, arrays, temperature):
        if is_foreign(X):
            return X @ arrays["coef"].T + arrays["intercept"]
        return scores_of_rows(X, arrays["coef"].T, arrays["intercept"])


def scores_of_rows(X, weights, offset):
    """`X @ weights + offset`, and where rows lie so far out that it may be infinite, the farthest numbers of their
    direction, beside which offsets are nothing.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        scores = np.asarray(X @ weights + offset)
    farthest = FARTHEST_LOGIT * np.finfo(scores.dtype).max
    is_lost = ~(np.abs(scores) <= farthest).all(axis=1)
    if is_lost.any():
        near = (X[is_lost].astype(np.float64) * NEARER) @ weights
        scores[is_lost] = farthest * (near / np.abs(near).max(axis=1, keepdims=True))
    return scores


class LinearProblem(SmoothProblem):
    """Logits `(x - center) @ coef + intercept`, solved in coordinates of `x - center`."""

    predictor: Predictor = LinearPredictor()
    coordinates: Coordinates | TurnedCoordinates
    copies_rows = False
    _quick: SinglePrecisionRows | None = None

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
    def has_quick_rows(self) -> bool:  # type: ignore[override]
        return self._quick is not None

    def _copy_pays(self, n_scores) -> bool:
        """Whether rows in single precision would.

        Not where X is mapped from a file, or is large and single itself: the copy is half the size of a float64 X, but
        as large as a float32 one.
        """
        n_values = self.design.n_rows * self.design.n_features * max(3, n_scores)
        if type(self.design) is not DenseDesign or n_values < FEWEST_COPIED_VALUES or is_mapped(self.design.X):
            return False
        return bool(self.design.X.dtype == np.float64 or self.design.X.nbytes <= MOST_COPIED_BYTES)

    def gradient_noise(self):
        """A mean of residual times coordinate, each at most about the coordinate's spread."""
        return ROUNDING * max(1.0, np.sqrt(self.coordinates.spectrum.max()))

    @property
    def varies(self) -> bool:
        """Whether any column does."""
        return bool(self.coordinates.spectrum.max() > (CONSTANT * np.abs(self.center).max()) ** 2)

    def report_linear(self, coef, intercept):
        """Coefficients and intercepts of x itself."""
        if self.span:
            coef = self.span.expand_coef(coef)
        intercept = intercept - coef @ self.center
        if self.used is not None:
            of_used, coef = coef, np.zeros((*coef.shape[:-1], self.n_columns))
            coef[..., self.used] = of_used
        return {"coef": coef, "intercept": intercept}


def mean_of_columns(design: Design):
    """Weighted mean of each column, to the last digit: the sum of many rows alone leaves constant columns a spread.

    Columns whose squares are infinite may have none; `spread_of_columns` says so.
    """
    mean = design.column_mean() + design.center
    with np.errstate(over="ignore", invalid="ignore"):
        return mean + design.centered(mean).column_mean()


def spread_of_columns(design: Design, mean, of_constant=1.0):
    """Weighted standard deviation of each column about its mean; `of_constant` where a column is constant."""
    with np.errstate(over="ignore", invalid="ignore"):
        spread = np.sqrt(design.centered(mean).column_variance())
    check_spread(spread, mean)
    constant = spread <= CONSTANT * np.abs(mean)
    return np.where(constant, of_constant, spread)


def check_spread(spread, mean):
    """An error for columns whose squares are no numbers."""
    vanishes = (spread == 0) & (mean != 0) & (np.abs(mean) < SMALLEST_ROOT)
    for is_wrong, what in (
        (~np.isfinite(spread), "large that their squares are infinite"),
        (vanishes, "small that their squares are zero"),
    ):
        if is_wrong.any():
            raise ValueError(
                f"Column {int(np.argmax(is_wrong))} of X holds numbers so {what}. Divide it, say by its largest."
            )


def spans_fewer_than_columns(design: Design) -> bool:
    """Whether to solve in the span of the rows: columns outnumber unlike rows and the Gram matrix is affordable.

    Rows that repeat, as in bootstrap samples, count once, and those without weight not at all.
    """
    if design.n_rows > WIDEST_EIGENPROBLEM:
        return False
    weighty = np.flatnonzero(to_host(design.weight[:, 0]))
    if len(weighty) < design.n_features:
        return True
    unlike = set()
    for row in _rows_as_bytes(design.X, weighty):
        unlike.add(row)
        if len(unlike) >= design.n_features:
            return False
    return True


def _rows_as_bytes(X, rows):
    """Alike for equal rows, whatever the sign of a zero, and where sparse rows store some."""
    if sparse.issparse(X):
        X = X[rows]
        X.sum_duplicates()
        X.eliminate_zeros()
        return (X.indices[first:last].tobytes() + X.data[first:last].tobytes() for first, last in pairwise(X.indptr))
    return ((row + 0.0).tobytes() for row in to_host(X[:, :])[rows])


def missing_class_weight(class_shares, total_weight, unweighted):
    """Weight (n_fits, n_classes) of an imaginary row where a fit has no row of a class, zero elsewhere.

    unheard : rows' worth of evidence where the final fit, the first, has none either: next to nothing, as it shall win
        no row
    """
    weight = np.where(class_shares[0] > 0, MISSING_CLASS_WEIGHT, unweighted)
    return np.where(class_shares > 0, 0, weight / np.minimum(total_weight, MOST_ROWS)[:, None])
