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
from functools import cached_property
from numbers import Real

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from annealed.arrays import to_host
from annealed.problems.base import Objective
from annealed.problems.linear import (
    LinearProblem,
    mean_of_columns,
    missing_class_weight,
    spans_fewer_than_columns,
    spread_of_columns,
)
from annealed.problems.smooth import HOT_LOGIT, ROUNDING
from annealed.rows import ArrayDesign, Design, SinglePrecisionRows
from annealed.rows.coordinates import WIDEST_EIGENPROBLEM, Coordinates, TurnedCoordinates
from annealed.rows.whitening import SMALLEST_VARIANCE, Covariances, whitening_coordinates

COVARIANCES = ("auto", "pooled", "total", "diagonal", "identity")
SHRINKAGES = ("oas", "ledoit_wolf")
UNSEEN_WEIGHT, UNSEEN_LOG_PRIOR = 1e-100, -1e10  # of a class whose rows all weigh 0: it is never predicted
LARGEST_FLOAT32_SCORE = 100.0  # largest |mean|^2 / T for float32 passes: beyond it rounding misleads the steps
INITS = ("means", "random", "zero")


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
        if self.covariance not in COVARIANCES:
            raise ValueError(f"covariance must be one of {COVARIANCES}. Got {self.covariance!r}.")
        if self.init not in INITS:
            raise ValueError(f"init must be one of {INITS}. Got {self.init!r}.")
        if not isinstance(self.anchor, Real) or not 0 <= float(self.anchor) < np.inf:
            raise ValueError(f"anchor must be a number that is not negative. Got {self.anchor!r}.")
        is_fraction = isinstance(self.shrinkage, Real) and 0 <= float(self.shrinkage) <= 1
        if self.shrinkage not in SHRINKAGES and not is_fraction:
            raise ValueError(f"shrinkage must be one of {SHRINKAGES} or in [0, 1]. Got {self.shrinkage!r}.")
        if self.shrinkage == "ledoit_wolf" and isinstance(design, ArrayDesign):
            raise ValueError('shrinkage="ledoit_wolf" needs rows on the host. Use "oas" or a number on a device.')
        return DistanceProblem(design, self, check_random_state(random_state))


class DistanceProblem(LinearProblem):
    """Soft means as linear logits with tied intercepts.

    `class_means` and parameters are in the whitened coordinates of each fit.
    """

    fits_are_alike = False

    def __init__(self, design: Design, family: Distance, random_state) -> None:
        self.anchor = float(family.anchor)
        self.extrapolates = self.takes_last_step = self.anchor > 0
        center = mean_of_columns(design)
        centered = design.centered(center)
        covariance = _named_covariance(family.covariance, centered)
        scale = np.ones(design.n_features) if covariance == "identity" else spread_of_columns(design, center)
        in_span = covariance != "diagonal" and spans_fewer_than_columns(centered)
        super().__init__(design, center, scale, in_span)
        shares = self.class_shares + missing_class_weight(self.class_shares, self.design.total_weight, UNSEEN_WEIGHT)
        self.anchored_shares = shares / shares.sum(axis=1, keepdims=True)  # a missing class is pulled to the centre
        self.log_prior = self._log_prior()
        means = self.design.class_sums() / np.maximum(self.class_shares, np.finfo(float).tiny)[..., None]
        self._are_columns = covariance in ("diagonal", "identity")
        self.coordinates = self._coordinates(means, covariance, family.shrinkage)
        self.class_means = self.coordinates.from_features(means)
        self.start_means = self._start_means(family.init, random_state)

    def _coordinates(self, means, covariance, shrinkage) -> Coordinates | TurnedCoordinates:
        """Coordinates in which the covariance of each fit is the identity."""
        if self._are_columns:
            return _column_coordinates(self.design, means, self.class_shares, self.scale, covariance == "diagonal")
        column_scale = None if self.span else self.scale
        estimates = Covariances(
            self.design, means, self.class_shares, covariance == "pooled", shrinkage, column_scale, self.n_columns
        )
        coordinates = whitening_coordinates(estimates, all_diagonal=self.anchor == 0)
        if isinstance(coordinates, TurnedCoordinates) and not self._copy_pays(self.n_classes):
            return coordinates.merged()
        return coordinates

    def _log_prior(self):
        """Log priors; zeros in the paper's form, which has none."""
        if not self.anchor:
            return np.zeros_like(self.anchored_shares)
        return np.where(self.class_shares[0] > 0, np.log(self.anchored_shares), UNSEEN_LOG_PRIOR)

    def _start_means(self, init, random_state):
        if init == "means":
            return self.class_means
        if init == "zero":
            points = self.span.project(-self.center) if self.span else -self.center
        else:
            picked = np.zeros((self.n_classes, self.design.n_rows))
            rows = random_state.randint(self.design.n_rows, size=self.n_classes)
            picked[np.arange(self.n_classes), rows] = 1
            points = self.design.combine_rows(picked)
        shape = (self.n_fits, self.n_classes, self.design.n_features)
        return self.coordinates.from_features(np.broadcast_to(points, shape))

    def make_float32_copy(self):
        """Copy the rows in the frame, the coordinates that all fits have in common up to a rotation."""
        if isinstance(self.coordinates, TurnedCoordinates) and self._copy_pays(self.n_classes):
            self._float32_rows = SinglePrecisionRows(self.design, self.coordinates.frame)
            self._float32_turns = replace(self.coordinates, turns=self.coordinates.turns.astype(np.float32))

    def rows_and_forward(self, quick):
        return (
            (self._float32_rows, self._float32_forward)
            if quick and self._float32_rows
            else super().rows_and_forward(quick)
        )

    def loss(self, parameters, temperature, fits=slice(None), quick=False):
        """Use the float32 rows only while scores are so small that their differences keep enough digits."""
        is_precise = quick and np.sum(self.class_means[0] ** 2, axis=1).max() <= LARGEST_FLOAT32_SCORE * temperature
        return super().loss(parameters, temperature, fits, is_precise)

    def _table(self, parameters):
        return parameters.reshape(len(parameters), self.n_classes, -1)

    def start(self, temperature):
        return (2 / temperature * self.start_means).reshape(self.n_fits, -1)

    def forward(self, parameters, temperature, fits):
        coef = self._table(parameters)
        return self.coordinates.of_fits(fits).to_features(coef), self._intercept(coef, temperature, fits)

    def _float32_forward(self, parameters, temperature, fits):
        coef = self._table(parameters)
        turned = self._float32_turns.of_fits(fits).to_frame(coef.astype(np.float32))
        return turned, self._intercept(coef, temperature, fits).astype(np.float32)

    # -- the paper's coordinates: soft means relative to the centre, in the units of the features ----------------

    def means_of(self, parameters, temperature, fits=slice(None)):
        """Soft means (n_fits, n_classes * n_features) of parameters."""
        points = self.coordinates.of_fits(fits).to_points(temperature / 2 * self._table(parameters))
        points = self.span.expand_points(points) if self.span else points
        return points.reshape(len(points), -1)

    def parameters_of_means(self, means, temperature, fits=slice(None)):
        """The inverse of `means_of`."""
        points = means.reshape(len(means), self.n_classes, -1)
        points = self.span.project_stack(points) if self.span else points
        return (2 / temperature * self.coordinates.of_fits(fits).from_features(points)).reshape(len(means), -1)

    def gradient_of_means(self, gradient, fits=slice(None)):
        """Gradient of Q by the means, eq. (12), from that of Q / T by the parameters, where means = T / 2 * points."""
        pulled = 2 * self.coordinates.of_fits(fits).to_features(self._table(gradient))
        pulled = self.span.expand_coef(pulled) if self.span else pulled
        return pulled.reshape(len(pulled), -1)

    def _intercept(self, coef, temperature, fits):
        return self.log_prior[fits] - _along_fits(temperature, 1) / 4 * np.sum(coef**2, axis=2)

    def backward(self, sums, parameters, temperature, fits, quick=False):
        pulled, residual_sum = sums
        coef = self._table(parameters)
        if quick and self._float32_rows:
            gradient = self._float32_turns.of_fits(fits).from_frame(pulled.astype(np.float32)).astype(np.float64)
        else:
            gradient = self.coordinates.of_fits(fits).from_features(pulled)
        gradient -= _along_fits(temperature, 2) / 2 * coef * residual_sum[..., None]
        return gradient.reshape(len(parameters), -1)

    def penalty(self, temperature, fits):
        temperature = _along_fits(temperature, 1)
        return self.anchor * temperature / 4 * self._flat_shares[fits], 2 / temperature * self._flat_means[fits]

    @cached_property
    def _flat_shares(self):
        """The class share in the strength of each parameter; cached, because every evaluation uses it several times."""
        return np.repeat(self.anchored_shares, self.coordinates.rank, axis=1)

    @cached_property
    def _flat_means(self):
        return self.class_means.reshape(self.n_fits, -1)

    def curvature(self, temperature, fits):
        variance = np.maximum(self.class_variance[fits], 1e-12)
        spectrum = self.coordinates.spectrum[fits][:, None]
        return (variance[..., None] * spectrum).reshape(len(variance), -1)

    def hot_temperature(self):
        """At high T an anchored mean tends to `(1 + 2 / anchor)` times its class mean: solve for HOT_LOGIT."""
        spread = self._spread_along_means()
        overshoot = 1 + 2 / self.anchor if self.anchor else 1.0
        return 2 * overshoot * spread / HOT_LOGIT if spread > ROUNDING else 1.0

    def _spread_along_means(self):
        """Largest root mean square, over the class means of the final fit, of the rows' inner products with a mean."""
        final = self.coordinates.of_fits(slice(0, 1))
        if self.span is None and not self._are_columns:  # the second moment is diagonal
            return np.sqrt(np.sum(final.spectrum * self.class_means[0] ** 2, axis=1).max())
        coef = final.to_features(self.class_means[:1])
        if self.span is None:
            return self._spread_of_scores(coef)
        return np.sqrt((to_host(self.design.weight)[:, 0] @ (self.span.rows @ coef[0].T) ** 2).max())

    def _spread_of_scores(self, coef):
        """The same for any coefficients (1, n_classes, n_features), in one pass over the rows."""
        unit = max(np.abs(coef).max(), np.finfo(float).tiny)  # avoids overflow: a fourth power of large columns
        coef = coef / unit

        def kernel(block):
            return (block.weight[:, 0] @ block.product(coef)[:, 0, :] ** 2,)

        (squares,) = self.design.sum_rows(kernel, slice(0, 1), self.copies_rows)
        return unit * np.sqrt(squares.max())

    def report(self, parameters, temperature, fits=slice(None)):
        points = self.coordinates.of_fits(fits).to_points(temperature / 2 * self._table(parameters))
        means = self.span.expand_points(points) if self.span else points
        linear = self.report_linear(*self.forward(parameters, temperature, fits))
        return {**linear, "means": means + self.center}


def _along_fits(temperature, n_axes):
    """A scalar as it is; an array of one temperature per fit with `n_axes` trailing axes of length one."""
    return temperature.reshape(-1, *[1] * n_axes) if isinstance(temperature, np.ndarray) else temperature


def _named_covariance(name, design):
    if name != "auto":
        return name
    is_wide = min(design.n_rows, design.n_features) > WIDEST_EIGENPROBLEM
    return "diagonal" if is_wide and sparse.issparse(design.X) else "pooled"


def _column_coordinates(design, means, shares, column_scale, is_scaled) -> Coordinates:
    """The columns themselves, if `is_scaled` divided by each fit's within-class standard deviation.

    column_scale : standard deviation over all rows, one for constant columns
    """
    squares = np.stack([design.column_variance(fit) for fit in range(design.n_fits)])
    within = squares - np.einsum("sc,scd->sd", shares, means**2)
    largest, rounding = squares.max(axis=0), SMALLEST_VARIANCE * column_scale**2
    floor = np.where(largest > rounding, SMALLEST_VARIANCE * largest, column_scale**2)
    # A fit with a single row per class has no within-class variance: it takes that of the final fit.
    within = np.where(np.any(within > floor, axis=1, keepdims=True), within, within[0])
    spread = np.sqrt(np.maximum(within, floor))
    if not is_scaled:
        spread = np.ones_like(spread)
    return Coordinates(1 / spread, spread, squares / spread**2, per_fit=True)
