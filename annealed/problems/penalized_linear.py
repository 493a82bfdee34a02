"""The penalized free energy (17) of linear scores: multinomial logistic regression with an L2 penalty.

With `coef = lambda / T`, on the scale of logits,

    Q_new / T = mean over rows of [ log_partition(logits) - logit of the true class ] + (l2_strength T / 2) |coef|^2
    gradient  = mean over rows of (posterior - targets) x + l2_strength T coef              (15 and 18, corrected)

The objective is convex and its optimum depends on the product `l2_strength * T` only. |coef| is measured in the units
of `scale`; the intercept is not penalized. Parameters belong to scores (`annealed/problems/contrasts.py`): one score
for two classes, otherwise one per class. Shapes: coef (n_fits, n_scores, rank), intercept (n_fits, n_scores).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import sparse

from annealed.arrays import at_least, reshaped, take
from annealed.problems.base import Features, Objective, check_strength, unit_C
from annealed.problems.contrasts import Contrasts, MissingClasses, ParameterTable, missing_class_weight
from annealed.problems.curvature import Preconditioners
from annealed.problems.hessian import ExactHessians
from annealed.problems.linear import (
    LinearProblem,
    LinearScores,
    check_spread,
    fitted_rows,
    mean_of_columns,
    spans_fewer_than_columns,
    spread_of_columns,
)
from annealed.problems.penalty_scaling import POWERS, Scaling, scaled_coordinates
from annealed.problems.smooth import HOT_LOGIT
from annealed.rows import DenseDesign, Design, SinglePrecisionRows
from annealed.rows.coordinates import WIDEST_EIGENPROBLEM, Coordinates

UNSEEN_WEIGHT = 1e-6  # rows: weight of a class whose rows all weigh 0; with less its intercept would not converge
MOST_SPANNED_SHARE = 0.08  # dense rows per column, up to which the span of the rows gets a basis


class PenalizedScores(LinearScores):
    """Linear scores of a `ParameterTable`, and what is stored of the rows in the coordinates solved in.

    hessian_rows, sample : the rows for exact Hessians, and those for sampled ones, once they are needed
    """

    hessian_rows = sample = None

    def __init__(self, design: Design, coordinates: Coordinates, table: ParameterTable):
        super().__init__(design, coordinates)
        self.table = table

    def forward(self, parameters, temperature, fits, quick=False):
        coef, intercept = self.table.split(parameters)
        if quick and self.float32_rows is not None:
            return coef.astype(np.float32), intercept.astype(np.float32)
        return self.coordinates.of_fits(fits).to_features(coef), intercept

    def class_terms(self, parameters, temperature, fits):
        contrasts = self.table.contrasts
        coef, intercept = self.forward(parameters, temperature, fits)
        return contrasts.to_classes(coef, axis=1), contrasts.to_classes(intercept, axis=1)

    def pull_sums(self, pulled, sums):
        return self.table.contrasts.pull_sums(pulled, sums)

    def logits(self, block, state):
        return self.table.contrasts.logits(super().logits(block, state))

    def pullback(self, block, state, residual):
        return super().pullback(block, state, self.table.contrasts.pull(residual))

    def backward(self, sums, parameters, temperature, fits, quick=False):
        coef_gradient, intercept_gradient = sums
        if not (quick and self.float32_rows is not None):
            coef_gradient = self.coordinates.of_fits(fits).from_features(coef_gradient)
        return self.table.join(coef_gradient, intercept_gradient)

    def make_float32_copy(self):
        if self.coordinates.basis.ndim == 2 and self.float32_copy_pays(self.table.n_scores):
            self.float32_rows = SinglePrecisionRows(self.design, self.coordinates)


class PenalizedLinearProblem(LinearProblem):
    """The penalized free energy (17) of linear scores.

    scaling : the units of the penalty; `ScalingChoices` of `annealed/problems/penalty_scaling.py` changes them
    penalty_weight : factor on the strength of each parameter's penalty, zero for intercepts
    """

    temperature_free = True
    interpolates = True
    takes_last_step = True
    has_certificate = True

    def __init__(self, design: Design, *, l2_strength: float, penalty_scaling: str, fit_intercept: bool):
        self.l2_strength = check_strength(l2_strength)
        if not isinstance(fit_intercept, bool | np.bool_):
            raise ValueError(f"fit_intercept must be True or False. Got {fit_intercept!r}.")
        self.scaling = Scaling.of(penalty_scaling, design)
        contrasts, mean = Contrasts(design.n_classes), mean_of_columns(design)
        if self.scaling.name == "none":
            scale = np.ones(design.n_features)
            with np.errstate(over="ignore", invalid="ignore"):
                check_spread(design.centered(mean).column_variance(), 0.0)
        else:
            scale = spread_of_columns(design, mean)
        center = mean if fit_intercept else np.zeros(design.n_features)
        n_features, (design, used) = design.n_features, design.without_empty_columns()
        if used is not None:
            center, scale = center[used], scale[used]
        features = Features(n_features, used, center, scale)
        rows, features = fitted_rows(design, features, _is_in_span(design, self.scaling))
        super().__init__(rows, features)
        coordinates = scaled_coordinates(rows, features, POWERS.get(self.scaling.name, 0.0), fit_intercept)
        table = ParameterTable(contrasts, coordinates.rank, bool(fit_intercept))
        weight = missing_class_weight(self.class_shares, design.total_weight, UNSEEN_WEIGHT)
        self.missing = MissingClasses(weight, table, self.place)
        self.solve_in(coordinates)

    def solve_in(self, coordinates: Coordinates):
        """Change the coordinates. What was stored in other ones is dropped."""
        table = replace(self.missing.table, rank=coordinates.rank)
        self.scores, self.missing = PenalizedScores(self.design, coordinates, table), replace(self.missing, table=table)
        self.penalty_weight = self.place.wide(table.is_coef)

    @property
    def hessians(self) -> ExactHessians | None:
        return ExactHessians(self) if self.place.is_host else None

    @property
    def preconditioners(self) -> Preconditioners | None:
        return Preconditioners(self) if self.place.is_host else None

    @property
    def last_step_share(self) -> float:  # type: ignore[override]
        """Samples per coordinate, each weighted by its p (1 - p), at most one.

        Where they are few, the direction of a sample that a fold leaves out is flat for the fold but curved for the
        final fit, whose Hessian the fold uses, so the predicted decrease of a step is too small.
        """
        n_curved = self.design.n_rows * float(self.place.xp.sum(self.class_variance[0, :]))
        return min(1.0, n_curved / self.scores.coordinates.rank)

    def start(self, temperature):
        table = self.scores.table
        zeros = self.place.zeros((self.n_fits, table.n_scores, table.rank))
        return table.join(zeros, self.place.wide(self.start_intercept()))

    def start_intercept(self):
        """Log priors as scores, (n_fits, n_scores); zeros without intercepts."""
        table = self.scores.table
        if not table.fit_intercept:
            return np.zeros((self.n_fits, table.n_scores))
        return table.contrasts.from_classes(np.log(self.class_shares + self.missing.weight))

    def loss(self, parameters, temperature, fits=slice(None), quick=False):
        """Loss and gradient, plus an imaginary row at the centre for each class of which a fit has no row."""
        loss, gradient = super().loss(parameters, temperature, fits, quick)
        return self.missing.with_loss(loss, gradient, parameters, fits)

    def penalty(self, temperature, fits):
        return _strength(self, temperature, 2) * self.penalty_weight, 0.0

    def curvature(self, temperature, fits, class_variance=None):
        """The Hessian's diagonal if the class variance p (1 - p) were independent of the features.

        class_variance : by default that of the last evaluation
        """
        variance = self._score_variance(fits, self.class_variance if class_variance is None else class_variance)
        coordinates = self.scores.coordinates.of_fits(fits)
        spectrum = coordinates.spectrum[:, None, :] if coordinates.per_fit else coordinates.spectrum
        return self.scores.table.join(variance[..., None] * spectrum, variance)

    def _score_variance(self, fits, class_variance):
        """Mean curvature of the loss by each score, (n_fits, n_scores)."""
        variance = at_least(take(class_variance, fits) + take(self.missing.placed_weight, fits), 1e-12)
        return self.scores.table.contrasts.variance(variance)

    def precondition(self, vectors, temperature, fits, learned=None):
        """Diagonal solve, improved by `learned` on its coordinates.

        A common shift of all classes leaves the posterior unchanged, so its curvature is the penalty's alone. With a
        learned part, the diagonal of the other coordinates uses the variance of each class under the prior. The
        posterior's variance is smaller, but gives too long steps because the two parts are correlated.
        """
        table, xp = self.scores.table, self.place.xp
        variance = self.class_variance if learned is None else self.class_shares * (1 - self.class_shares)
        diagonal = self.curvature(temperature, fits, variance) + self.penalty(temperature, fits)[0]
        solved = table.of(vectors / at_least(diagonal, self.place.tiny))
        if learned is not None:
            learned.improve(solved, table.of(vectors), self.l2_strength * temperature)
        if table.n_scores > 1:
            solved -= xp.sum(solved, axis=1, keepdims=True) / table.n_scores
            shift = xp.sum(table.of(vectors)[..., : table.rank], axis=1, keepdims=True)
            solved[..., : table.rank] += shift / (table.n_scores * _strength(self, temperature, 3))
        return reshaped(solved, vectors.shape)

    def certificate(self, gradient, value, temperature, fits):
        """|gradient|^2 / (2 l2_strength T) at the best intercept bounds the suboptimality.

        Moving to that intercept changes the coefficients' gradient by a weighted mean of rows times the intercept's
        gradient, and decreases the objective according to the intercept's curvature. The norm of that mean is estimated
        by the root mean square of the rows' norms, and the curvature is that of the last evaluation. If a few outlying
        rows are the only uncertain ones, the norm can be several times larger. The bound is rigorous without an
        intercept, and nearly so if the intercept's gradient is close to zero.
        """
        xp, (coef, intercept) = self.place.xp, self.scores.table.split(gradient)
        length, intercept_gain = xp.sqrt(xp.sum(coef**2, axis=(1, 2))), 0.0
        if self.scores.table.fit_intercept:
            squares = intercept**2
            reach = xp.sum(self.scores.coordinates.of_fits(fits).spectrum, axis=-1)
            length = length + xp.sqrt(reach * xp.sum(squares, axis=1))
            intercept_gain = xp.sum(squares / (2 * self._score_variance(fits, self.class_variance)), axis=1)
        bound = length**2 / (2 * _strength(self, temperature, 1)) + intercept_gain
        return bound / at_least(value, self.place.tiny)

    def entropy_at(self, parameters, value, gradient, temperature, fits):
        """Entropy = loss - <loss gradient, parameters>, because the logits are linear in the parameters.

        The inner product is the mean over rows of the expected logit minus the true one. NaN with imaginary rows.
        """
        strength, _ = self.penalty(temperature, fits)
        entropy = value + self.place.xp.sum((0.5 * strength * parameters - gradient) * parameters, axis=1)
        imaginary = np.where(self.missing.weight[fits].any(axis=1), np.nan, 0.0)
        return at_least(entropy, 0.0) + self.place.wide(imaginary)

    def hot_temperature(self):
        """At high T, coef is -gradient / (l2_strength T): solve for the T at which its logits have size HOT_LOGIT."""
        fits, scores, xp = slice(0, 1), self.scores, self.place.xp
        _, gradient = self.loss(self.start(1.0)[fits, ...], 1.0, fits, quick=not self.place.is_host)
        coef, _ = scores.table.split(gradient)
        features = scores.coordinates.of_fits(fits).to_features(coef)
        largest, unit = map(float, self.place.host(xp.max(xp.abs(coef)), xp.max(xp.abs(features))))
        if largest <= self.gradient_noise():
            return 1.0
        # The unit avoids overflow: the squares are a fourth power of large columns.
        squares = scores.mean_squares(scores.table.contrasts.to_classes(features / unit, axis=1))
        return float(unit * np.sqrt(squares.max()) / (self.l2_strength * HOT_LOGIT))

    def report(self, parameters, temperature, fits=slice(None)):
        coef, intercept = self.scores.table.split(parameters)
        return self.report_scores(self.scores.coordinates.of_fits(fits).to_features(coef), intercept)

    def report_scores(self, coef, intercept):
        """Coefficients and intercepts per class, with mean zero over classes, from those of scores."""
        contrasts = self.scores.table.contrasts
        coef, intercept = contrasts.without_shift(coef), contrasts.without_shift(intercept[..., None])
        coef, intercept = (contrasts.to_classes(part, axis=1) for part in (coef, intercept[..., 0]))
        return self.features.linear(coef, intercept, self.place)


class InnerProduct(Objective):
    """Inner-product discriminants (pADA, eq. 13): scores are `lambda_j'x`, with the penalty of (17).

    Parameters
    ----------
    l2_strength : float, default=1.0
        The paper's epsilon.
    penalty_scaling : {"auto", "cv", "none", "standardize", "half-whiten", "whiten"}, default="auto"
        Units of the penalty; see :class:`annealed.AnnealedLogisticRegression`.
    fit_intercept : bool, default=True
        Whether the scores have a free, unpenalized intercept.
    """

    runs_on_devices = True
    cooling_rate = 0.4  # temperatures in between are interpolated to within the tolerance
    learns_late = True  # directions of small variance enter the fit last

    def __init__(self, *, l2_strength=1.0, penalty_scaling="auto", fit_intercept=True) -> None:
        self.l2_strength = l2_strength
        self.penalty_scaling = penalty_scaling
        self.fit_intercept = fit_intercept

    def unit_C(self, total_weight, n_classes):
        return unit_C(self.l2_strength, total_weight, n_classes)

    def prepare(self, design, random_state=None):
        return PenalizedLinearProblem(
            design, l2_strength=self.l2_strength, penalty_scaling=self.penalty_scaling, fit_intercept=self.fit_intercept
        )


def _strength(problem: PenalizedLinearProblem, temperature, n_axes):
    """The penalty on a coefficient: a number, or an array of `n_axes` axes, the first one of the temperatures."""
    if np.ndim(temperature) == 0:
        return problem.l2_strength * float(temperature)
    strength = problem.place.wide(problem.l2_strength * np.asarray(temperature))
    return reshaped(strength, (-1, *[1] * (n_axes - 1)))


def _is_in_span(design: Design, scaling: Scaling) -> bool:
    """Whether to solve in a basis of the rows' span.

    With many columns, combinations of rows (`annealed/solvers/subspace.py`) are faster. The span is needed for penalty
    scalings in an eigenbasis, among which the choice for few dense rows is.
    """
    is_sparse = sparse.issparse(design.X)
    needs_basis = scaling.name in POWERS or (scaling.asked == "cv" and not is_sparse)
    has_row_form = is_sparse or type(design) is DenseDesign
    if needs_basis or not has_row_form or design.n_features <= WIDEST_EIGENPROBLEM:
        return spans_fewer_than_columns(design)
    is_few = not is_sparse and design.n_rows <= MOST_SPANNED_SHARE * design.n_features
    return is_few and spans_fewer_than_columns(design)
