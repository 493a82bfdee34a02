"""The penalized free energy (17) of linear scores: multinomial logistic regression with an L2 penalty.

With `coef = lambda / T`, on the scale of logits,

    Q_new / T = mean over rows of [ log_partition(logits) - logit of the true class ] + (l2_strength T / 2) |coef|^2
    gradient  = mean over rows of (posterior - targets) x + l2_strength T coef              (15 and 18, corrected)

The objective is convex and its optimum depends on the product `l2_strength * T` only. |coef| is measured in the units
of `scale`; the intercept is not penalized. Parameters belong to scores (`annealed/problems/contrasts.py`): one score
for two classes, otherwise one per class. Shapes: coef (n_fits, n_scores, rank), intercept (n_fits, n_scores).
"""

from __future__ import annotations

from functools import cached_property, partial

import numpy as np
from scipy import sparse

from annealed.arrays import to_host
from annealed.problems.base import Evidence, check_strength
from annealed.problems.contrasts import Contrasts
from annealed.problems.hessian import ExactHessian
from annealed.problems.hessian_sample import ALL_LEVELS, HessianSample
from annealed.problems.learning import CurvatureLearning
from annealed.problems.leave_one_out import MOST_EXACT_WORK, ExactBlocks, ProbedBlocks, leave_out
from annealed.problems.linear import (
    LinearProblem,
    mean_of_columns,
    missing_class_weight,
    spans_fewer_than_columns,
    spread_of_columns,
)
from annealed.problems.penalty_scaling import PENALTY_SCALINGS, POWERS, WHITENING, ScalingChoices
from annealed.problems.smooth import HOT_LOGIT
from annealed.rows import DenseDesign, Design, SinglePrecisionRows
from annealed.rows.class_points import class_point_coordinates
from annealed.rows.coordinates import (
    WIDEST_EIGENPROBLEM,
    Coordinates,
    coordinates_of_fits,
    diagonal_coordinates,
    principal_coordinates,
)

UNSEEN_WEIGHT = 1e-6  # rows: weight of a class whose rows all weigh 0; with less its intercept would not converge
MOST_SPANNED_ROWS = 600  # sparse rows up to which the span of the rows gets a basis (else combinations of rows)
MOST_SPANNED_SHARE = 0.2  # the same for dense rows, per column
OF_TWO_CLASSES = 0.4  # factor on both for two classes: with one score, combinations of rows cost less
TESTED_SHARE = 0.2  # tested parameters per row, up to which the score test is valid
STRICT_LAST_STEP = 0.1  # factor on the last step's share: tighten tenfold when few samples carry curvature
FEW_CURVED = 1.0  # samples per coordinate, each weighted by its p (1 - p), up to which that is the case


class PenalizedLinearProblem(ScalingChoices, CurvatureLearning, ExactHessian, LinearProblem):
    """The penalized free energy (17) of linear scores."""

    temperature_free = True
    interpolates = True
    takes_last_step = True
    has_certificate = True

    def __init__(self, design: Design, *, l2_strength: float, penalty_scaling: str, fit_intercept: bool):
        self.l2_strength = check_strength(l2_strength)
        if fit_intercept not in (True, False):
            raise ValueError(f"fit_intercept must be True or False. Got {fit_intercept!r}.")
        if penalty_scaling not in PENALTY_SCALINGS:
            raise ValueError(f"penalty_scaling must be one of {PENALTY_SCALINGS}. Got {penalty_scaling!r}.")
        is_sparse = sparse.issparse(design.X)
        self._offers_all, self._may_change_scaling = penalty_scaling == "cv", penalty_scaling == "auto"
        if penalty_scaling in ("auto", "cv"):
            penalty_scaling = "none" if is_sparse else "standardize"
        self.penalty_scaling = penalty_scaling
        self.given = design
        self.fit_intercept = fit_intercept
        self.contrasts = Contrasts(design.n_classes)
        self.n_scores = self.contrasts.n_scores
        mean = mean_of_columns(design)
        scale = np.ones(design.n_features) if penalty_scaling == "none" else spread_of_columns(design, mean)
        center = mean if fit_intercept else np.zeros(design.n_features)
        self.original, used = design.without_empty_columns()
        if used is not None:
            center, scale = center[used], scale[used]
        super().__init__(self.original, center, scale, in_span=self._is_in_span(self.original))
        self.n_columns, self.used = design.n_features, used
        self._solve_in(self._coordinates(POWERS.get(penalty_scaling, 0.0)))
        self.missing = missing_class_weight(self.class_shares, design.total_weight, UNSEEN_WEIGHT)

    def _is_in_span(self, design: Design) -> bool:
        """Whether to solve in a basis of the rows' span.

        With many columns and more than a few rows, combinations of rows (`annealed/solvers/subspace.py`) are faster,
        unless the penalty scaling needs the eigenbasis.
        """
        is_sparse = sparse.issparse(design.X)
        needs_basis = self.penalty_scaling in POWERS or (self._offers_all and not is_sparse)
        has_row_form = is_sparse or type(design) is DenseDesign
        if needs_basis or not has_row_form or design.n_features <= WIDEST_EIGENPROBLEM:
            return spans_fewer_than_columns(design)
        most = MOST_SPANNED_ROWS if is_sparse else MOST_SPANNED_SHARE * design.n_features
        if self.n_scores == 1:
            most *= OF_TWO_CLASSES
        return design.n_rows <= most and spans_fewer_than_columns(design)

    def _solve_in(self, coordinates: Coordinates):
        """Set the coordinates and clear everything that was computed in other ones."""
        self.coordinates = coordinates
        penalized = np.arange(self._width) < coordinates.rank
        self._is_penalized = np.tile(penalized, self.n_scores).astype(np.float64)
        self._sample: HessianSample | None = None
        self._float32_rows = None
        self._hessian_rows = None

    @property
    def last_step_share(self) -> float:  # type: ignore[override]
        """Smaller when few samples carry curvature: columns outnumber samples, or most posteriors are certain.

        The direction of a sample that a fold leaves out is then flat for the fold but curved for the final fit, whose
        Hessian the fold uses, so the predicted decrease of a step is too small.
        """
        n_curved = self.design.n_rows * self.class_variance[0].sum()
        is_strict = self.span or n_curved <= FEW_CURVED * self.coordinates.rank
        return (STRICT_LAST_STEP if is_strict else 1.0) * super().last_step_share

    def make_float32_copy(self):
        if self.coordinates.basis.ndim == 2 and self._copy_pays(self.n_scores):
            self._float32_rows = SinglePrecisionRows(self.design, self.coordinates)

    def _coordinates(self, power) -> Coordinates:
        if self.span and not power:  # the basis of the span is already the eigenbasis
            return diagonal_coordinates(self.scale, self.design.column_variance())
        if self.span and self.design.n_fits > 1:
            points = self.class_points if power == WHITENING else None
            return points or coordinates_of_fits(self.design, power, is_centered=self.fit_intercept)
        return principal_coordinates(self.design, self.scale, power)

    @cached_property
    def class_points(self) -> Coordinates | None:
        """Coordinates in which, after whitening, all rows of a class are one point; None if that is not so."""
        return class_point_coordinates(self.design, self.fit_intercept) if self.span else None

    # -- parameters: coef and intercept of each score, flattened ------------------------------------------------

    @property
    def _width(self):
        return self.coordinates.rank + self.fit_intercept

    @property
    def n_parameters(self):
        return self.n_scores * self._width

    def _table(self, parameters):
        return parameters.reshape(-1, self.n_scores, self._width)

    def _split(self, parameters):
        table = self._table(parameters)
        if self.fit_intercept:
            return table[..., :-1], table[..., -1]
        return table, np.zeros(table.shape[:2])

    def _join(self, coef, intercept):
        table = np.concatenate([coef, intercept[..., None]], axis=2) if self.fit_intercept else coef
        return table.reshape(len(table), -1)

    def start(self, temperature):
        coef = np.zeros((self.n_fits, self.n_scores, self.coordinates.rank))
        return self._join(coef, self.start_intercept())

    def start_intercept(self):
        """Log priors as scores, (n_fits, n_scores); zeros without intercepts."""
        if not self.fit_intercept:
            return np.zeros((self.n_fits, self.n_scores))
        return self.contrasts.from_classes(np.log(self.class_shares + self.missing))

    def forward(self, parameters, temperature, fits):
        coef, intercept = self._split(parameters)
        return self.coordinates.of_fits(fits).to_features(coef), intercept

    def block_logits(self, block, state):
        return self.contrasts.logits(super().block_logits(block, state))

    def block_pullback(self, block, state, residual):
        return super().block_pullback(block, state, self.contrasts.pull(residual))

    def backward(self, sums, parameters, temperature, fits, quick=False):
        coef_gradient, intercept_gradient = sums
        if not (quick and self.has_float32_rows):
            coef_gradient = self.coordinates.of_fits(fits).from_features(coef_gradient)
        return self._join(coef_gradient, intercept_gradient)

    def rows_and_forward(self, quick):
        if quick and self._float32_rows is not None:
            return self._float32_rows, lambda parameters, *_: tuple(
                part.astype(np.float32) for part in self._split(parameters)
            )
        return super().rows_and_forward(quick)

    def loss(self, parameters, temperature, fits=slice(None), quick=False):
        """Loss and gradient, plus an imaginary row at the centre for each class of which a fit has no row."""
        loss, gradient = super().loss(parameters, temperature, fits, quick)
        return self._with_missing(loss, gradient, parameters, fits)

    def _with_missing(self, loss, gradient, parameters, fits):
        missing = self.missing[fits]
        if not (self.fit_intercept and missing.any()):
            return loss, gradient
        intercept = self._class_intercept(parameters)
        log_partition = np.logaddexp.reduce(intercept, axis=1, keepdims=True)
        evidence = missing.sum(axis=1, keepdims=True) * np.exp(intercept - log_partition) - missing
        coef, intercept_gradient = self._split(gradient)
        gradient = self._join(coef, intercept_gradient + self.contrasts.pull(evidence))
        return loss + np.sum(missing * (log_partition - intercept), axis=1), gradient

    def _class_intercept(self, parameters):
        return self.contrasts.to_classes(self._split(parameters)[1], axis=1)

    def penalty(self, temperature, fits):
        return np.multiply.outer(self.l2_strength * np.asarray(temperature), self._is_penalized), np.zeros(1)

    def curvature(self, temperature, fits):
        return self._diagonal_curvature(self.class_variance, fits)

    def _diagonal_curvature(self, class_variance, fits):
        """The Hessian's diagonal if the class variance p (1 - p) were independent of the features."""
        variance = self._score_variance(class_variance, fits)
        spectrum = self.coordinates.of_fits(fits).spectrum
        if self.coordinates.per_fit:
            spectrum = spectrum[:, None]
        return self._join(variance[..., None] * spectrum, variance)

    def _score_variance(self, class_variance, fits):
        """Mean curvature of the loss by each score, (n_fits, n_scores)."""
        return self.contrasts.variance(np.maximum(class_variance[fits] + self.missing[fits], 1e-12))

    def precondition(self, vectors, temperature, fits, learned=None):
        """Diagonal solve, improved by `learned` on its coordinates.

        A common shift of all classes leaves the posterior unchanged, so its curvature is the penalty's alone. With a
        learned part, the diagonal of the other coordinates uses the variance of each class under the prior. The
        posterior's variance is smaller, but gives too long steps because the two parts are correlated.
        """
        shape = len(vectors), self.n_scores, self._width
        strength = self.l2_strength * temperature
        variance = self.class_variance if learned is None else self.prior_variance
        diagonal = self._diagonal_curvature(variance, fits) + self.penalty(temperature, fits)[0]
        solved = (vectors / np.maximum(diagonal, np.finfo(float).tiny)).reshape(shape)
        if learned is not None:
            learned.improve(solved, vectors.reshape(shape), strength)
        if self.n_scores > 1:
            rank = self.coordinates.rank
            solved -= solved.sum(axis=1, keepdims=True) / self.n_scores
            shift = vectors.reshape(shape)[..., :rank].sum(axis=1, keepdims=True)
            solved[..., :rank] += shift / (self.n_scores * strength)
        return solved.reshape(len(vectors), -1)

    def leave_one_out(self, parameters, temperature):
        """Logits of every row from a fit without it, approximated (`annealed/problems/leave_one_out.py`)."""
        final = parameters[:1]
        blocks, n_numbers = self._inverse_blocks(final, temperature)
        state, strength = self.forward(final, temperature, slice(0, 1)), self.l2_strength * temperature

        def kernel(block):
            inverse, pull = blocks(block)
            scores = LinearProblem.block_logits(self, block, state)[:, 0]
            left = leave_out(self.contrasts, scores, block.labels, block.weight[:, 0], inverse, strength * pull)
            return self.contrasts.logits(left.scores), left.leverage

        parts = list(self.design.map_blocks(kernel, slice(0, 1), n_numbers=n_numbers))
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    def _inverse_blocks(self, final, temperature):
        """A function from a block of rows to their blocks of the inverse Hessian, and their number of entries per row.

        The blocks are exact if the Hessian of all rows is cheap; otherwise they are estimated from random probes.
        """
        theta = final[0] * (self.penalty(temperature, slice(0, 1))[0] > 0)
        if self.design.n_rows * self.n_parameters**2 <= MOST_EXACT_WORK:
            _, _, hessian = self.objective_and_hessian(final, temperature, slice(0, 1))
            exact = ExactBlocks(hessian[0], self.contrasts, theta)
            return lambda block: exact(self._points(block)), exact.inverse.size // self._width
        learned = self.learn_curvature(final[0], temperature, ALL_LEVELS)
        solve = partial(self.precondition, temperature=temperature, fits=slice(0, 1), learned=learned)
        root = partial(self._inverse_root, temperature, learned)
        probed = ProbedBlocks(root, solve, self.design.n_rows, theta)
        state = self.forward(probed.vectors, temperature, slice(0, 1))
        return lambda block: probed(LinearProblem.block_logits(self, block, state)), len(probed.vectors) * self.n_scores

    def _points(self, block):
        """Rows in the coordinates of the final fit, with a column of ones for the intercept."""
        points = self.coordinates.of_final.from_features(block.rows_as_array())
        return np.column_stack([points, np.ones(len(points))]) if self.fit_intercept else points

    def _inverse_root(self, temperature, learned, noise):
        """Rows of `noise` times a square root of the preconditioner."""
        shape = len(noise), self.n_scores, self._width
        diagonal = self.curvature(temperature, slice(0, 1)) + self.penalty(temperature, slice(0, 1))[0]
        rooted = (noise / np.sqrt(np.maximum(diagonal, np.finfo(float).tiny))).reshape(shape)
        learned.improve_root(rooted, noise.reshape(shape), self.l2_strength * temperature)
        return rooted

    def certificate(self, gradient, value, temperature, fits):
        """|gradient|^2 / (2 l2_strength T) at the best intercept bounds the suboptimality.

        Moving to that intercept changes the coefficients' gradient by a weighted mean of rows times the intercept's
        gradient, and decreases the objective according to the intercept's curvature. The norm of that mean is estimated
        by the root mean square of the rows' norms, and the curvature is that of the last evaluation. If a few outlying
        rows are the only uncertain ones, the norm can be several times larger. The bound is rigorous without an
        intercept, and nearly so if the intercept's gradient is close to zero.
        """
        coef, intercept = self._split(gradient)
        length = np.sqrt(np.einsum("fsk,fsk->f", coef, coef))
        intercept_gain = 0.0
        if self.fit_intercept:
            squares = intercept**2
            reach = self.coordinates.of_fits(fits).spectrum.sum(axis=-1)
            length = length + np.sqrt(reach * squares.sum(axis=1))
            intercept_gain = (squares / (2 * self._score_variance(self.class_variance, fits))).sum(axis=1)
        bound = length**2 / (2 * self.l2_strength * temperature) + intercept_gain
        return bound / np.maximum(value, np.finfo(float).tiny)

    def entropy_at(self, parameters, value, gradient, temperature, fits):
        """Entropy = loss - <loss gradient, parameters>, because the logits are linear in the parameters.

        The inner product is the mean over rows of the expected logit minus the true one. NaN with imaginary rows.
        """
        strength, _ = self.penalty(temperature, fits)
        entropy = value + np.sum((0.5 * strength * parameters - gradient) * parameters, axis=1)
        return np.where(self.missing[fits].any(axis=1), np.nan, np.maximum(entropy, 0))

    def hot_temperature(self):
        """At high T, coef is -gradient / (l2_strength T): solve for the T at which its logits have size HOT_LOGIT."""
        fits = slice(0, 1)
        _, gradient = self.loss(self.start(1.0)[fits], 1.0, fits)
        coef, _ = self._split(gradient)
        if np.abs(coef).max() <= self.gradient_noise():
            return 1.0
        features = self.coordinates.of_fits(fits).to_features(coef)
        unit = np.abs(features).max()  # avoids overflow: the squares are a fourth power of large columns
        features = features / unit
        (squares,) = self.design.sum_rows(
            lambda block: (np.einsum("ns,nsc->sc", block.weight, self.contrasts.logits(block.product(features)) ** 2),),
            fits,
        )
        return unit * np.sqrt(squares.max()) / (self.l2_strength * HOT_LOGIT)

    def evidence_held_back(self, parameters, temperature, class_variance=None, narrowest=0.0):
        """Score test of the directions that the penalty suppresses.

        The statistic is the sum of squared gradients of the loss over their variance if nothing were left to learn. At
        the minimum the gradient of the loss is minus that of the penalty. Directions of small variance enter the fit
        last, however informative they are; those whose penalty exceeds the curvature of the loss are tested. With as
        many parameters as rows the test has no power, and the result is NaN.

        narrowest : spread relative to the largest one, below which a coordinate is rounding error
        """
        final, strength = slice(0, 1), self.l2_strength * temperature
        variance = self._class_variance_at(parameters, temperature) if class_variance is None else class_variance
        curvature, _ = self._split(self._diagonal_curvature(variance, final))
        coef, _ = self._split(parameters[None])
        spectrum = self.coordinates.of_fits(final).spectrum.reshape(-1)
        is_tested = (curvature < strength) & (spectrum > narrowest**2 * spectrum.max())
        n_rows, n_tested = 1 / np.sum(to_host(self.design.weight)[:, 0] ** 2), int(is_tested.sum())
        if n_tested > TESTED_SHARE * n_rows:
            return Evidence(np.nan, np.nan)
        squares = (strength * coef[is_tested]) ** 2 / np.maximum(curvature[is_tested], np.finfo(float).tiny)
        excess = float(n_rows * squares.sum() - n_tested)
        return Evidence(excess / np.sqrt(2 * max(n_tested, 1)), excess / (2 * n_rows))

    def _class_variance_at(self, parameters, temperature):
        """Class variance of the final fit there; evaluations with a Hessian do not update `class_variance`."""
        self.loss(parameters[None], temperature, slice(0, 1), quick=True)
        return self.class_variance

    def report(self, parameters, temperature, fits=slice(None)):
        coef, intercept = self._split(parameters)
        return self.report_scores(self.coordinates.of_fits(fits).to_features(coef), intercept)

    def report_scores(self, coef, intercept):
        """Coefficients and intercepts per class, with mean zero over classes, from those of scores."""
        coef, intercept = self.contrasts.without_shift(coef), self.contrasts.without_shift(intercept[..., None])
        return self.report_linear(*(self.contrasts.to_classes(part, axis=1) for part in (coef, intercept[..., 0])))
