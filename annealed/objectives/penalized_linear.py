"""The penalized free energy (17) of linear scores, in `coef = lambda / T`, the scale of logits:

    Q_new / T = mean over rows of [ log_partition(logits) - logit of the true class ] + (l2_strength T / 2) |coef|^2
    gradient  = mean over rows of (posterior - targets) x + l2_strength T coef              (15 and 18, corrected)

It is convex; the optimum depends on `l2_strength * T` alone; |coef| is measured in the units of `scale` and the
intercept is free. Parameters belong to scores (`annealed/objectives/contrasts.py`), one for two classes and one a class
for more. Shapes: coef (n_fits, n_scores, rank), intercept (n_fits, n_scores).
"""

from __future__ import annotations

from functools import cached_property, partial

import numpy as np
from scipy import sparse

from annealed.arrays import to_host
from annealed.design import DenseDesign, Design, SinglePrecisionRows
from annealed.design.class_points import class_point_coordinates
from annealed.design.coordinates import (
    WIDEST_EIGENPROBLEM,
    Coordinates,
    coordinates_of_fits,
    diagonal_coordinates,
    principal_coordinates,
)
from annealed.objectives.base import HOT_LOGIT, Evidence, check_strength
from annealed.objectives.contrasts import Contrasts
from annealed.objectives.hessian import ExactHessian
from annealed.objectives.hessian_sample import ALL_LEVELS, HessianSample
from annealed.objectives.learning import CurvatureLearning
from annealed.objectives.leave_one_out import MOST_EXACT_WORK, ExactBlocks, ProbedBlocks, leave_out
from annealed.objectives.linear import (
    LinearProblem,
    mean_of_columns,
    missing_class_weight,
    spans_fewer_than_columns,
    spread_of_columns,
)
from annealed.objectives.penalty_scaling import PENALTY_SCALINGS, POWERS, WHITENING, ScalingChoices

UNHEARD_WEIGHT = 1e-6  # of a class whose rows all weigh nothing; with less its intercept would be out of reach
MOST_SPANNED_ROWS, MOST_SPANNED_SHARE = 600, 0.2  # sparse rows, and dense ones per column, whose span gets a basis
OF_TWO_CLASSES = 0.4  # of either: combinations of rows cost less where each has one score
TESTED_SHARE = 0.2  # of the rows: so many coordinates and scores at most are asked whether they have more to tell
BARE_SHARE = 0.1  # of the last step's own share, in the span of the rows, or where those that curve the loss are few:
FEW_CURVING = 1.0  # a coordinate, counted by the variance of their class under the posterior


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
        self.missing = missing_class_weight(self.class_shares, design.total_weight, UNHEARD_WEIGHT)

    def _is_in_span(self, design: Design) -> bool:
        """Whether to solve in a basis of the rows' span. Of many columns and more than a few rows, combinations of rows
        are faster (`annealed/solvers/subspace.py`), unless a metric needs the eigenbasis.
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
        """Take these coordinates, and forget what was made of the rows in others."""
        self.coordinates = coordinates
        penalized = np.arange(self._width) < coordinates.rank
        self._is_penalized = np.tile(penalized, self.n_scores).astype(np.float64)
        self._sample: HessianSample | None = None
        self._quick = None
        self._hessian_rows = None

    @property
    def last_step_share(self) -> float:  # type: ignore[override]
        """Less where few rows curve the loss, as columns outnumber them or most of them are certain: the direction of
        one that a fold leaves out is flat for the fold, but curved for the final fit, whose Hessian the fold uses. Its
        steps promise too little.
        """
        n_curving = self.design.n_rows * self.class_variance[0].sum()
        is_bare = self.span or n_curving <= FEW_CURVING * self.coordinates.rank
        return (BARE_SHARE if is_bare else 1.0) * super().last_step_share

    def make_float32_copy(self):
        if self.coordinates.basis.ndim == 2 and self._copy_pays(self.n_scores):
            self._quick = SinglePrecisionRows(self.design, self.coordinates)

    def _coordinates(self, power) -> Coordinates:
        if self.span and not power:  # the span's own basis is already the eigenbasis
            return diagonal_coordinates(self.scale, self.design.column_variance())
        if self.span and self.design.n_fits > 1:
            points = self.class_points if power == WHITENING else None
            return points or coordinates_of_fits(self.design, power, is_centered=self.fit_intercept)
        return principal_coordinates(self.design, self.scale, power)

    @cached_property
    def class_points(self) -> Coordinates | None:
        """Coordinates of the points that classes are when whitened, where they are."""
        return class_point_coordinates(self.design, self.fit_intercept) if self.span else None

    # -- parameters: coef and intercept of each score, flat ---------------------------------------------------

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
        """Log priors as scores, (n_fits, n_scores), where there are intercepts."""
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
        if not (quick and self.has_quick_rows):
            coef_gradient = self.coordinates.of_fits(fits).from_features(coef_gradient)
        return self._join(coef_gradient, intercept_gradient)

    def rows_and_forward(self, quick):
        if quick and self._quick is not None:
            return self._quick, lambda parameters, *_: tuple(
                part.astype(np.float32) for part in self._split(parameters)
            )
        return super().rows_and_forward(quick)

    def loss(self, parameters, temperature, fits=slice(None), quick=False):
        """As for every family, plus an imaginary row at the centre for a class that a fit has no row of."""
        loss, gradient = super().loss(parameters, temperature, fits, quick)
        return self._with_missing(loss, gradient, parameters, fits)

    def _with_missing(self, loss, gradient, parameters, fits):
        missing = self.missing[fits]
        if not (self.fit_intercept and missing.any()):
            return loss, gradient
        intercept = self._class_intercept(parameters)
        log_partition = np.logaddexp.reduce(intercept, axis=1, keepdims=True)
        evidence = missing.sum(axis=1, keepdims=True) * np.exp(intercept - log_partition) - missing
        coef, own = self._split(gradient)
        gradient = self._join(coef, own + self.contrasts.pull(evidence))
        return loss + np.sum(missing * (log_partition - intercept), axis=1), gradient

    def _class_intercept(self, parameters):
        return self.contrasts.to_classes(self._split(parameters)[1], axis=1)

    def penalty(self, temperature, fits):
        return np.multiply.outer(self.l2_strength * np.asarray(temperature), self._is_penalized), np.zeros(1)

    def curvature(self, temperature, fits):
        return self._diagonal_curvature(self.class_variance, fits)

    def _diagonal_curvature(self, class_variance, fits):
        """What it would be if the variance of a class did not depend on where a row lies."""
        variance = self._score_variance(class_variance, fits)
        spectrum = self.coordinates.of_fits(fits).spectrum
        if self.coordinates.per_fit:
            spectrum = spectrum[:, None]
        return self._join(variance[..., None] * spectrum, variance)

    def _score_variance(self, class_variance, fits):
        """Mean curvature of the loss by each score, (n_fits, n_scores)."""
        return self.contrasts.variance(np.maximum(class_variance[fits] + self.missing[fits], 1e-12))

    def precondition(self, vectors, temperature, fits, learned=None):
        """A common shift of all classes moves no posterior: the penalty is all that it meets.

        Beside a learned part the others are by the prior's variance of each class. The posterior's is less; but steps
        by it are too long, as what is learned and what is not are not independent.
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
        """Every row's logits from a fit without it, roughly (`annealed/objectives/leave_one_out.py`)."""
        final = parameters[:1]
        blocks, n_numbers = self._inverse_blocks(final, temperature)
        state, strength = self.forward(final, temperature, slice(0, 1)), self.l2_strength * temperature

        def kernel(block):
            seen, pull = blocks(block)
            scores = LinearProblem.block_logits(self, block, state)[:, 0]
            left = leave_out(self.contrasts, scores, block.labels, block.weight[:, 0], seen, strength * pull)
            return self.contrasts.logits(left.scores), left.leverage

        parts = list(self.design.map_blocks(kernel, slice(0, 1), n_numbers=n_numbers))
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    def _inverse_blocks(self, final, temperature):
        """Exact where the Hessian of all rows is cheap, else from probes of a learned one: a function of a block of
        rows, and how many numbers it makes of each.
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
        looks = self.forward(probed.vectors, temperature, slice(0, 1))
        return lambda block: probed(LinearProblem.block_logits(self, block, looks)), len(probed.vectors) * self.n_scores

    def _points(self, block):
        """Rows in the coordinates of the final fit, with a one for the intercept."""
        points = self.coordinates.of_final.from_features(block.rows_as_array())
        return np.column_stack([points, np.ones(len(points))]) if self.fit_intercept else points

    def _inverse_root(self, temperature, learned, noise):
        """Rows of `noise` times a root of the preconditioner."""
        shape = len(noise), self.n_scores, self._width
        diagonal = self.curvature(temperature, slice(0, 1)) + self.penalty(temperature, slice(0, 1))[0]
        rooted = (noise / np.sqrt(np.maximum(diagonal, np.finfo(float).tiny))).reshape(shape)
        learned.improve_root(rooted, noise.reshape(shape), self.l2_strength * temperature)
        return rooted

    def certificate(self, gradient, value, temperature, fits):
        """|gradient|^2 / (2 l2_strength T) at the best intercept bounds the suboptimality.

        Going there changes the coefficients' gradient by a weighted mean of rows times the intercept's gradient, and
        gains what the intercept's own curvature allows. The mean is taken as long as the rows are in the root mean
        square, the curvature as it was last seen. Where a few outlying rows are all that is uncertain the mean may be
        several times as long: without an intercept, or where its gradient is next to none, nothing is left to that.
        """
        coef, intercept = self._split(gradient)
        length = np.sqrt(np.einsum("fsk,fsk->f", coef, coef))
        own = 0.0
        if self.fit_intercept:
            squares = intercept**2
            reach = self.coordinates.of_fits(fits).spectrum.sum(axis=-1)
            length = length + np.sqrt(reach * squares.sum(axis=1))
            own = (squares / (2 * self._score_variance(self.class_variance, fits))).sum(axis=1)
        return (length**2 / (2 * self.l2_strength * temperature) + own) / np.maximum(value, np.finfo(float).tiny)

    def entropy_at(self, parameters, value, gradient, temperature, fits):
        """The loss, less what it exceeds the entropy by: the mean over rows of the posterior's logit less the true one,
        which is the loss's gradient times the parameters, as logits are linear in these. Not with imaginary rows.
        """
        strength, _ = self.penalty(temperature, fits)
        entropy = value + np.sum((0.5 * strength * parameters - gradient) * parameters, axis=1)
        return np.where(self.missing[fits].any(axis=1), np.nan, np.maximum(entropy, 0))

    def hot_temperature(self):
        """Hot, coef is -gradient / (l2_strength T): the temperature at which its logits are HOT_LOGIT in size."""
        fits = slice(0, 1)
        _, gradient = self.loss(self.start(1.0)[fits], 1.0, fits)
        coef, _ = self._split(gradient)
        if np.abs(coef).max() <= self.gradient_noise():
            return 1.0
        features = self.coordinates.of_fits(fits).to_features(coef)
        unit = np.abs(features).max()  # a fourth power of large columns would be no number
        features = features / unit
        (squares,) = self.design.sum_rows(
            lambda block: (np.einsum("ns,nsc->sc", block.weight, self.contrasts.logits(block.product(features)) ** 2),),
            fits,
        )
        return unit * np.sqrt(squares.max()) / (self.l2_strength * HOT_LOGIT)

    def evidence_held_back(self, parameters, temperature, class_variance=None, narrowest=0.0):
        """A score test: squares of the loss's gradient by what chance would make of each, were nothing left to learn.
        At the minimum the gradient is the penalty's.

        The penalty lets in last what varies least, however much that tells: what it weighs more than the rows do is
        asked. Of as many coordinates as rows the test says nothing. `narrowest` is the spread beside the widest one's
        below which a coordinate is rounding.
        """
        final, strength = slice(0, 1), self.l2_strength * temperature
        variance = self._class_variance_at(parameters, temperature) if class_variance is None else class_variance
        curvature, _ = self._split(self._diagonal_curvature(variance, final))
        coef, _ = self._split(parameters[None])
        spectrum = self.coordinates.of_fits(final).spectrum.reshape(-1)
        is_held = (curvature < strength) & (spectrum > narrowest**2 * spectrum.max())
        n_rows, n_held = 1 / np.sum(to_host(self.design.weight)[:, 0] ** 2), int(is_held.sum())
        if n_held > TESTED_SHARE * n_rows:
            return Evidence(np.nan, np.nan)
        squares = (strength * coef[is_held]) ** 2 / np.maximum(curvature[is_held], np.finfo(float).tiny)
        beyond_chance = float(n_rows * squares.sum() - n_held)
        return Evidence(beyond_chance / np.sqrt(2 * max(n_held, 1)), beyond_chance / (2 * n_rows))

    def _class_variance_at(self, parameters, temperature):
        """Of the final fit there: looks with a Hessian leave what was last seen as it was, at the hot end."""
        self.loss(parameters[None], temperature, slice(0, 1), quick=True)
        return self.class_variance

    def report(self, parameters, temperature, fits=slice(None)):
        coef, intercept = self._split(parameters)
        return self.report_scores(self.coordinates.of_fits(fits).to_features(coef), intercept)

    def report_scores(self, coef, intercept):
        """Coefficients and intercepts of each class, of mean zero over classes, from those of scores."""
        coef, intercept = self.contrasts.without_shift(coef), self.contrasts.without_shift(intercept[..., None])
        return self.report_linear(*(self.contrasts.to_classes(part, axis=1) for part in (coef, intercept[..., 0])))
