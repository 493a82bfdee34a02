"""Distance family (dADA, eq. 10): scores are minus the Mahalanobis distance to a soft mean per class.

In coordinates z that whiten the covariance, g_j = -|z - m_j|^2, and up to a term that all classes share the
logits are linear in z with tied intercepts:

    coef_j = 2 m_j / T,   intercept_j = -|m_j|^2 / T = -(T / 4) |coef_j|^2
    d(Q / T) / dcoef_j = mean over rows of (posterior - targets)(z - m_j)         (12), halved by dm = (T / 2) dcoef

The paper's form is (9) alone. Its exact minimum does not depend on temperature, so its result is determined by the
bounded number of inner iterations. With `anchor` > 0 the penalty `anchor / 2 sum_j prior_j |m_j - class mean_j|^2` and
log priors are added, and temperature governs complexity again.

Shapes: coef (n_fits, n_classes, rank). Covariance and class means are estimated for each fit from its training rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from annealed.arrays import ROUNDING, at_least, reshaped, take, to_host
from annealed.problems.base import Features, Objective, check_choice, number_of
from annealed.problems.contrasts import missing_class_weight
from annealed.problems.linear import (
    LinearProblem,
    LinearScores,
    fitted_rows,
    mean_of_columns,
    spans_fewer_than_columns,
    spread_of_columns,
)
from annealed.problems.smooth import HOT_LOGIT
from annealed.rows import ArrayDesign, Design, SinglePrecisionRows
from annealed.rows.coordinates import SMALLEST_VARIANCE, WIDEST_EIGENPROBLEM, Coordinates, TurnedCoordinates
from annealed.rows.whitening import Covariances, variance_share, whitening_coordinates

COVARIANCES = ("auto", "pooled", "total", "diagonal", "identity")
SHRINKAGES = ("oas", "ledoit_wolf")
UNSEEN_WEIGHT, UNSEEN_LOG_PRIOR = 1e-100, -1e10  # of a class whose rows all weigh 0: it is never predicted
LARGEST_FLOAT32_SCORE = 100.0  # largest |mean|^2 / T for float32 passes: beyond it rounding misleads the steps
INITS = ("means", "random", "zero")
WEAK_ANCHOR = 0.01  # below it minima are as hard to find as without an anchor, and take thousands of iterations
STRONGEST_ANCHOR = 1 / np.sqrt(np.finfo(float).eps)  # with it means are the averages to eight digits


class Distance(Objective):
    """Distance discriminants (10) with soft means.

    Parameters
    ----------
    covariance : {"auto", "pooled", "total", "diagonal", "identity"}, default="auto"
        The matrix of (10), estimated in advance from the training samples.
    shrinkage : {"oas", "ledoit_wolf"} or float in [0, 1], default="oas"
        Shrinkage of the covariance towards a multiple of the diagonal of column variances.
    anchor : float, default=1.0
        Strength of the penalty that pulls the soft means to the class means; 0 is the paper's form.
    init : {"means", "random", "zero"}, default="means"
        Where the soft means start.
    """

    runs_on_devices = True

    def __init__(self, *, covariance="auto", shrinkage="oas", anchor=1.0, init="means") -> None:
        self.covariance = covariance
        self.shrinkage = shrinkage
        self.anchor = anchor
        self.init = init

    def prepare(self, design, random_state=None):
        check_choice(self.covariance, "covariance", COVARIANCES)
        check_choice(self.init, "init", INITS)
        if not 0 <= number_of(self.anchor) < np.inf:
            raise ValueError(f"anchor must be a number that is not negative. Got {self.anchor!r}.")
        is_name = isinstance(self.shrinkage, str) and self.shrinkage in SHRINKAGES
        if not is_name and not 0 <= number_of(self.shrinkage) <= 1:
            raise ValueError(f"shrinkage must be one of {SHRINKAGES} or in [0, 1]. Got {self.shrinkage!r}.")
        if self.shrinkage == "ledoit_wolf" and isinstance(design, ArrayDesign):
            raise ValueError('shrinkage="ledoit_wolf" needs rows on the host. Use "oas" or a number on a device.')
        return DistanceProblem(design, self, check_random_state(0 if random_state is None else random_state))


class DistanceScores(LinearScores):
    """Soft means as linear logits with tied intercepts; `log_prior` (n_fits, n_classes)."""

    def __init__(self, design: Design, coordinates, log_prior):
        super().__init__(design, coordinates)
        self.log_prior = design.place.wide(log_prior)
        self.largest_mean = 0.0  # largest squared length of a class mean of the final fit

    def table(self, parameters):
        return reshaped(parameters, (parameters.shape[0], self.log_prior.shape[1], -1))

    def loss(self, parameters, temperature, fits, quick=False):
        """Use the float32 rows only while scores are so small that their differences keep enough digits."""
        if self.float32_rows is not None and self.largest_mean > LARGEST_FLOAT32_SCORE * temperature:
            quick = False
        return super().loss(parameters, temperature, fits, quick)

    def forward(self, parameters, temperature, fits, quick=False):
        coef, xp = self.table(parameters), self.design.place.xp
        squares = xp.sum(coef**2, axis=2)
        intercept = take(self.log_prior, fits) - self.along_fits(temperature, 1) / 4 * squares
        if quick and self.float32_rows is not None:
            turned = self._float32_turns.of_fits(fits).to_frame(coef.astype(np.float32))
            return turned, intercept.astype(np.float32)
        return self.coordinates.of_fits(fits).to_features(coef), intercept

    def backward(self, sums, parameters, temperature, fits, quick=False):
        pulled, residual_sum = sums
        if quick and self.float32_rows is not None:
            gradient = self._float32_turns.of_fits(fits).from_frame(pulled.astype(np.float32)).astype(np.float64)
        else:
            gradient = self.coordinates.of_fits(fits).from_features(pulled)
        gradient = gradient - self.along_fits(temperature, 2) / 2 * self.table(parameters) * residual_sum[..., None]
        return reshaped(gradient, parameters.shape)

    def along_fits(self, temperature, n_axes):
        """A scalar as it is; an array of one temperature per fit with `n_axes` trailing axes of length one."""
        if not isinstance(temperature, np.ndarray):
            return temperature
        return self.design.place.wide(temperature.reshape(-1, *[1] * n_axes))

    def make_float32_copy(self):
        """Copy the rows in the frame, the coordinates that all fits have in common up to a rotation."""
        coordinates = self.host_coordinates
        if isinstance(coordinates, TurnedCoordinates) and self.float32_copy_pays(self.log_prior.shape[1]):
            self.float32_rows = SinglePrecisionRows(self.design, coordinates.frame)
            self._float32_turns = replace(coordinates, turns=coordinates.turns.astype(np.float32))


class DistanceProblem(LinearProblem):
    """Soft means, pulled to the class means.

    `class_means` and parameters are in the whitened coordinates of each fit.
    """

    fits_are_alike = False

    def __init__(self, design: Design, family: Distance, random_state) -> None:
        self.anchor = min(float(family.anchor), STRONGEST_ANCHOR)
        self.extrapolates = self.takes_last_step = self.anchor > 0
        n_features, (design, used) = design.n_features, design.without_empty_columns()
        center = mean_of_columns(design)
        scale = spread_of_columns(design, center, of_constant=0.0)
        n_columns = max(1, np.count_nonzero(scale))  # constant columns count for nothing
        covariance = _named_covariance(family.covariance, design, n_columns)
        scale = np.ones(design.n_features) if covariance == "identity" else np.where(scale > 0, scale, 1.0)
        in_span = covariance != "diagonal" and spans_fewer_than_columns(design)
        rows, features = fitted_rows(design, Features(n_features, used, center, scale), in_span)
        super().__init__(rows, features)
        shares = self.class_shares + missing_class_weight(self.class_shares, rows.total_weight, UNSEEN_WEIGHT)
        self.anchored_shares = shares / shares.sum(axis=1, keepdims=True)  # a missing class is pulled to the centre
        log_prior = np.zeros_like(shares)  # the paper's form has none
        if self.anchor:
            log_prior = np.where(self.class_shares[0] > 0, np.log(self.anchored_shares), UNSEEN_LOG_PRIOR)
        means = rows.class_sums() / np.maximum(self.class_shares, np.finfo(float).tiny)[..., None]
        self._are_columns = covariance in ("diagonal", "identity")
        coordinates = self._coordinates(means, covariance, family.shrinkage, n_columns)
        self.scores = DistanceScores(rows, coordinates, log_prior)
        if isinstance(coordinates, TurnedCoordinates) and not self.scores.float32_copy_pays(self.n_classes):
            self.scores = DistanceScores(rows, coordinates.merged(), log_prior)
        xp = self.place.xp
        self.class_means = self.scores.coordinates.from_features(self.place.wide(means))
        squares = xp.sum(self.class_means[0, ...] ** 2, axis=1)
        self.scores.largest_mean = float(self.place.host(xp.max(squares))[0])
        self.start_means = _start_means(self, family.init, random_state)
        self._flat_shares = self.place.wide(np.repeat(self.anchored_shares, self.scores.coordinates.rank, axis=1))

    def _coordinates(self, means, covariance, shrinkage, n_columns) -> Coordinates | TurnedCoordinates:
        """Coordinates in which the covariance of each fit is the identity."""
        rows, features, shares = self.design, self.features, self.class_shares
        if self._are_columns:
            amount = shrinkage if covariance == "diagonal" else None
            return _column_coordinates(rows, means, shares, features.scale, n_columns, amount)
        column_scale = None if features.span else features.scale
        estimates = Covariances(rows, means, shares, covariance == "pooled", shrinkage, column_scale, n_columns)
        return whitening_coordinates(estimates, all_diagonal=self.anchor == 0)

    def start(self, temperature):
        longest = 2 * self.scores.largest_mean**0.5 / temperature
        if not longest * longest < np.inf:
            raise ValueError(f"temperature must be so high that its square is not zero. Got {temperature}. Raise it.")
        return 2 / temperature * reshaped(self.start_means, (self.n_fits, -1))

    def penalty(self, temperature, fits):
        temperature = self.scores.along_fits(temperature, 1)
        anchor = 2 / temperature * take(reshaped(self.class_means, (self.n_fits, -1)), fits)
        return self.anchor * temperature / 4 * take(self._flat_shares, fits), anchor

    def curvature(self, temperature, fits):
        variance = at_least(take(self.class_variance, fits), 1e-12)
        curvature = variance[..., None] * take(self.scores.coordinates.spectrum, fits)[:, None, :]
        return reshaped(curvature, (curvature.shape[0], -1))

    def hot_temperature(self):
        """At high T an anchored mean tends to `(1 + 2 / anchor)` times its class mean: solve for HOT_LOGIT."""
        spread = self._spread_along_means()
        overshoot = 1 + 2 / self.anchor if self.anchor >= WEAK_ANCHOR else 1.0
        return 2 * overshoot * spread / HOT_LOGIT if spread > ROUNDING else 1.0

    def _spread_along_means(self):
        """Largest root mean square, over the class means of the final fit, of the rows' inner products with a mean."""
        span, xp, final = self.features.span, self.place.xp, self.scores.coordinates.of_fits(slice(0, 1))
        if span is None and not self._are_columns:  # the second moment is diagonal
            squares = xp.sum(final.spectrum * self.class_means[0, ...] ** 2, axis=1)
            return float(np.sqrt(self.place.host(xp.max(squares))[0]))
        coef = final.to_features(self.class_means[:1, ...])
        if span is not None:
            squares = to_host(self.design.weight)[:, 0] @ (span.rows @ to_host(coef)[0].T) ** 2
            return float(np.sqrt(squares.max()))
        unit = max(float(to_host(xp.max(xp.abs(coef)))), np.finfo(float).tiny)  # avoids overflow: a fourth power
        return float(unit * np.sqrt(self.scores.mean_squares(coef / unit).max()))

    def report(self, parameters, temperature, fits=slice(None)):
        means = self.scores.table(SoftMeans(self, temperature).of(parameters, fits))
        coef, intercept = self.scores.forward(parameters, temperature, fits)
        linear = self.features.linear(coef, intercept, self.place)
        means = self.features.expanded(self.place.given(means + self.place.wide(self.features.center)))
        return {**linear, "means": means}


def _start_means(problem: DistanceProblem, init, random_state):
    """The class means, zeros, or random rows, in the coordinates of each fit."""
    if init == "means":
        return problem.class_means
    design, features = problem.design, problem.features
    if init == "zero":
        points = features.span.project(-features.center) if features.span else -features.center
    else:
        picked = np.zeros((design.n_classes, design.n_rows))
        rows = random_state.randint(design.n_rows, size=design.n_classes)
        picked[np.arange(design.n_classes), rows] = 1
        points = design.combine_rows(picked)
    shape = (design.n_fits, design.n_classes, design.n_features)
    return problem.scores.coordinates.from_features(problem.place.wide(np.broadcast_to(points, shape)))


class SoftMeans(NamedTuple):
    """The paper's coordinates: soft means relative to the centre, in the units of the features, flattened."""

    problem: DistanceProblem
    temperature: Any

    def of(self, parameters, fits=slice(None)):
        """Soft means (n_fits, n_classes * n_features) of parameters."""
        scores, span = self.problem.scores, self.problem.features.span
        points = scores.coordinates.of_fits(fits).to_points(self.temperature / 2 * scores.table(parameters))
        points = self.problem.place.wide(span.expand_points(points)) if span else points
        return reshaped(points, (points.shape[0], -1))

    def parameters(self, means, fits=slice(None)):
        """The inverse of `of`."""
        points, span = self.problem.scores.table(means), self.problem.features.span
        points = span.project_stack(points) if span else points
        coordinates = self.problem.scores.coordinates.of_fits(fits)
        return (2 / self.temperature * coordinates.from_features(points)).reshape(len(means), -1)

    def gradient(self, gradient, fits=slice(None)):
        """Gradient of Q by the means, eq. (12), from that of Q / T by the parameters, where means = T / 2 * points."""
        scores, span = self.problem.scores, self.problem.features.span
        pulled = 2 * scores.coordinates.of_fits(fits).to_features(scores.table(gradient))
        pulled = span.expand_coef(pulled) if span else pulled
        return pulled.reshape(len(pulled), -1)


def _named_covariance(name, design, n_columns):
    if name != "auto":
        return name
    is_wide = min(design.n_rows, n_columns) > WIDEST_EIGENPROBLEM
    return "diagonal" if is_wide and sparse.issparse(design.X) else "pooled"


def _column_coordinates(design, means, shares, column_scale, n_columns, shrinkage) -> Coordinates:
    """The columns themselves, divided by each fit's within-class standard deviation unless `shrinkage` is None.

    column_scale : standard deviation over all rows, one for the constant columns, which `n_columns` leaves out
    """
    squares = np.stack([design.column_variance(fit) for fit in range(design.n_fits)])
    if shrinkage is None:
        return Coordinates(np.ones_like(squares), np.ones_like(squares), squares, per_fit=True)
    within = np.maximum(squares - np.einsum("sc,scd->sd", shares, means**2), 0) / column_scale**2
    # A fit with a single row per class has no within-class variance: it takes that of the final fit.
    within = np.where(np.any(within > SMALLEST_VARIANCE, axis=1, keepdims=True), within, within[0])
    mean = within.sum(axis=1) / n_columns
    if isinstance(shrinkage, str):
        shrinkage = variance_share(np.sum(within**2, axis=1) / n_columns, mean, design.total_weight)
    shrunk = (1 - shrinkage) * within.T + shrinkage * mean
    spread = column_scale * np.sqrt(np.where(shrunk.max(axis=0) > 0, np.maximum(shrunk, SMALLEST_VARIANCE), 1)).T
    return Coordinates(1 / spread, spread, squares / spread**2, per_fit=True)
