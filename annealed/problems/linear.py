"""Base class of problems whose logits are linear in the features: pADA, dADA and quadratic scores.

    logits = (x - center) @ coef.T + intercept

If columns outnumber rows, it is solved in a basis of the rows' span (`fitted_rows`).
Shapes: coef (n_fits, n_classes, n_features), intercept (n_fits, n_classes).
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from annealed.arrays import ROUNDING, is_foreign, is_mapped, namespace_of, to_host
from annealed.problems.base import Features, Predictor
from annealed.problems.device_passes import DevicePasses
from annealed.problems.smooth import Scores, SmoothProblem
from annealed.rows import ArrayDesign, DenseDesign, Design, make_design, row_span
from annealed.rows.coordinates import CONSTANT, SMALLEST_ROOT, WIDEST_EIGENPROBLEM

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
    farthest = np.sqrt(np.finfo(scores.dtype).max)
    overflows = ~(np.abs(scores) <= farthest).all(axis=1)
    if overflows.any():
        shrunk = (X[overflows].astype(np.float64) * SMALLEST_ROOT) @ (weights / np.abs(weights).max())
        longest = np.maximum(np.abs(shrunk).max(axis=1, keepdims=True), np.finfo(float).tiny)
        scores[overflows] = farthest * (shrunk / longest)
    return scores


class LinearScores(Scores):
    """Logits `(x - center) @ coef.T + intercept`, with coefficients in `coordinates` of `x - center`.

    host_coordinates : the coordinates before they were moved to a device
    passes : sums over rows on a device
    correction : what makes rounded passes agree with full precision at one point, if anything does
    """

    copies_rows = False
    passes: DevicePasses | None = None
    correction: Correction | None = None

    def __init__(self, design: Design, coordinates):
        super().__init__(design)
        self.host_coordinates, self.coordinates = coordinates, coordinates.on(design.place)
        if isinstance(design, ArrayDesign):
            self.passes = DevicePasses(design)

    def class_terms(self, parameters, temperature, fits):
        """Coefficients (n_fits, n_classes, n_features) and intercepts (n_fits, n_classes) of logits."""
        return self.forward(parameters, temperature, fits)

    def pull_sums(self, pulled, sums):
        """Derivatives by what `forward` returns, from those by what `class_terms` returns."""
        return pulled, sums

    def loss(self, parameters, temperature, fits, quick=False):
        if self.passes is None:
            return super().loss(parameters, temperature, fits, quick)
        (coef, intercept), correction = self.class_terms(parameters, temperature, fits), self.correction
        is_split = correction is not None
        loss, pulled, sums, variance = self.passes.sums(coef, intercept, fits, quick or is_split, is_split)
        gradient = self.backward(self.pull_sums(pulled, sums), parameters, temperature, fits)
        if correction is not None:
            loss, gradient = correction.applied(parameters, loss, gradient)
        return loss, gradient, variance

    def corrected_at(self, first, temperature, fits, loss, gradient) -> LinearScores:
        """Scores whose passes are rounded but agree at one point with its `loss` and `gradient` in full precision.

        Coefficients are split, so that only the rows are rounded: the minimum is that of full precision, up to the
        effect of the rounded rows on the Hessian.
        """
        other = copy(self)
        other.correction = Correction(first, 0.0, 0.0)
        rounded_loss, rounded_gradient, _ = other.loss(first, temperature, fits)
        other.correction = Correction(first, loss - rounded_loss, gradient - rounded_gradient)
        return other

    @property
    def has_quick_rows(self):
        return super().has_quick_rows or (self.passes is not None and self.passes.is_rounded)

    def rounding(self, quick):
        return super().rounding(quick) if self.passes is None else self.passes.rounding(quick)

    def mean_squares(self, coef):
        """Mean square of each logit of the final fit with these coefficients of `class_terms`, (n_classes,)."""
        if self.passes is not None:
            return self.passes.mean_squares(coef)

        def kernel(block):
            return (np.einsum("ns,nsc->sc", block.weight, block.product(coef) ** 2),)

        return self.design.sum_rows(kernel, slice(0, 1))[0]

    def logits(self, block, state):
        coef, intercept = state
        logits = block.product(coef)
        logits += intercept
        return logits

    def pullback(self, block, state, residual):
        return block.transposed_product(residual), residual.sum(axis=0)

    def float32_copy_pays(self, n_scores) -> bool:
        """Whether a float32 copy of the rows saves time.

        No copy is made if X is memory-mapped, or if it is large and float32 itself: the copy takes half the memory of a
        float64 X, but as much as a float32 one.
        """
        n_values = self.design.n_rows * self.design.n_features * max(3, n_scores)
        if type(self.design) is not DenseDesign or n_values < FEWEST_COPIED_VALUES or is_mapped(self.design.X):
            return False
        return bool(self.design.X.dtype == np.float64 or self.design.X.nbytes <= MOST_COPIED_BYTES)


class Correction(NamedTuple):
    """What is added to loss and gradient such that both are exact at the point `first`."""

    first: Any
    loss: Any
    gradient: Any

    def applied(self, parameters, loss, gradient):
        xp = namespace_of(gradient)
        shift = self.loss + xp.sum(self.gradient * (parameters - self.first), axis=1)
        return loss + shift, gradient + self.gradient


class LinearProblem(SmoothProblem):
    """Base class of the families with `LinearScores`."""

    predictor: Predictor = LinearPredictor()

    def gradient_noise(self):
        """A gradient entry is a mean of residual times coordinate: its rounding grows with the coordinate's spread."""
        return ROUNDING * max(1.0, np.sqrt(self.scores.host_coordinates.spectrum.max()))

    def summarize(self, points, entropy=None, value=None):
        if self.place.is_host:
            return super().summarize(points, entropy)
        final = slice(0, 1)
        terms = [self.scores.class_terms(parameters[None, ...], at, final) for parameters, at, _ in points]
        penalties = [penalty_value(self, parameters[None, ...], at, final) for parameters, at, _ in points]
        losses = np.asarray(value) - self.place.host(self.place.xp.concat(penalties))[0]
        entropy = np.full(len(points), np.nan) if entropy is None else entropy
        return self.scores.passes.summaries(terms, [scale for _, _, scale in points], losses, entropy)


def penalty_value(problem: SmoothProblem, parameters, temperature, fits):
    strength, anchor = problem.penalty(temperature, fits)
    return 0.5 * problem.place.xp.sum(strength * (parameters - anchor) ** 2, axis=1)


def refined_at(problem: SmoothProblem, parameters, temperature, fits, value, loss_gradient) -> SmoothProblem:
    """The problem with rounded passes that are corrected by Q / T and the gradient of the loss at one point."""
    loss, other = value - penalty_value(problem, parameters, temperature, fits), copy(problem)
    other.scores = problem.scores.corrected_at(parameters, temperature, fits, loss, loss_gradient)
    return other


def fitted_rows(design: Design, features: Features, in_span: bool) -> tuple[Design, Features]:
    """The centred rows, and the features; with `in_span` in a basis of the span of the rows."""
    centered = design.centered(features.center)
    if not in_span:
        return centered, features
    span = row_span(centered, features.scale)
    weights = design.labels, design.weight, design.total_weight
    rows = make_design(design.place.row(span.rows), *weights, design.n_classes, design.place)
    return rows, replace(features, scale=np.ones(span.rows.shape[1]), span=span)


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
