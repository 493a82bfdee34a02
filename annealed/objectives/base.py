"""Base classes: the objective of a family of discriminant functions at a temperature.

With scores g_j(x; theta) and logits g_j / T, the paper's objective (9) and its penalized form (17) are

    Q(theta; T) / T = mean over rows of [ log_partition(logits) - logit of the true class ] + penalty / T

So Q is T times the mean negative log-likelihood, plus the penalty. Parameters are solved on the scale of logits
(theta / T): there pADA is convex and the gradient of Q / T equals dQ / dtheta.

An `Objective` is the family with its settings. `prepare(design)` binds it to rows and returns a `Problem`: the stack of
fits (the final fit first, then the folds) that a solver minimizes. Shapes: parameters (n_fits, n_parameters), flat for
the solver; logits (n_rows, n_fits, n_classes).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from annealed.arrays import as_slice
from annealed.design import Block, Design
from annealed.design.threads import map_in_order
from annealed.objectives import gibbs

ROUNDING = 256 * np.finfo(np.float64).eps
SUMMARIZED_TOGETHER = 8  # points evaluated in one matrix product by `summarize`
SUMMARIZED_LOGITS = 60_000  # logits of one such product if all rows are one block: more do not fit into the cache
FEW_LOGITS = 20_000  # logits of all held-out rows under all fits: below this, one call for all fits has less overhead
LAST_STEP_SHARE = 0.03  # of `tol`: a fold takes its last step unevaluated if a smaller relative decrease is predicted
HOT_LOGIT = 0.1  # root mean square logit at the hot end of an automatic schedule
LEAST_RISE = 1.01  # smallest ratio of the logits' spread between two trial temperatures that counts as a response


@dataclass(frozen=True)
class HeldOut:
    """Held-out rows in ascending order: `rows[i]` is scored by the fit `fits[i]`, which was trained without it."""

    rows: np.ndarray
    fits: np.ndarray


NOTHING_HELD_OUT = HeldOut(np.empty(0, dtype=int), np.empty(0, dtype=int))


@dataclass(frozen=True)
class TrainingSummary:
    """Training loss and entropy of the final fit at one temperature.

    calibrated_loss : mean negative log-likelihood of the logits times the calibrated posterior scale
    entropy : mean entropy of the posterior before calibration
    """

    calibrated_loss: float
    entropy: float


def calibrated_loss_and_entropy(logits, labels, weight, scale, knows_entropy=False):
    """Weighted sums over rows of the calibrated loss and, unless it is known, of the entropy: each (n_points,).

    logits : (n_rows, n_points, n_classes), overwritten
    scale : posterior scale of each point, (n_points, 1)
    """
    entropy = () if knows_entropy else (weight @ gibbs.entropy(logits),)
    logits *= scale
    return weight @ gibbs.negative_log_likelihood(logits, labels), *entropy


def check_strength(value) -> float:
    """Return the penalty's strength as a float; raise ValueError if it is not a positive number."""
    if not isinstance(value, Real) or not 0 < float(value) < np.inf:
        raise ValueError(f"l2_strength must be a positive number. Got {value!r}.")
    return float(value)


def unit_C(l2_strength, total_weight, n_classes) -> float:
    """The C that means `l2_strength / 2 sum_j |coef_j|^2` beside the mean loss: 1 / (l2_strength * total_weight).

    Scikit-learn minimizes `C * (sum of losses) + |coef|^2 / 2`. Of two classes it has one vector of coefficients, the
    difference of the two here, which are -coef / 2 and coef / 2: their squares add up to half of its |coef|^2. That
    doubles C.
    """
    return (2.0 if n_classes == 2 else 1.0) / check_strength(l2_strength) / float(total_weight)


class Objective(BaseEstimator, ABC):
    """A family of discriminant functions with its settings.

    `cooling_rate` and `learns_late` are defaults of the schedule: the ratio of successive temperatures, small enough
    that the path between them is known, and whether a path whose score has not improved yet may improve later.
    """

    accepts_sparse = True
    runs_on_devices = False  # whether rows may be arrays on a device
    cooling_rate = 0.7
    learns_late = False

    @abstractmethod
    def prepare(self, design: Design, random_state) -> Problem:
        """Bind the family to rows."""

    def unit_C(self, total_weight: float, n_classes: int) -> float | None:
        """The C of scikit-learn's `LogisticRegression` that means the penalty at temperature one.

        At other temperatures it is `unit_C / T`. None: the penalty is not an L2 norm of coefficients, so that C is not
        defined.

        total_weight : sum of the weights of the samples
        """
        return None


class Predictor(ABC):
    """What a fitted estimator keeps of a family: it computes logits of new rows from reported arrays. Holds no rows."""

    @abstractmethod
    def logits(self, X, arrays: dict[str, np.ndarray], temperature: float) -> np.ndarray:
        """Logits (n_rows, n_classes) of X under one point of the path."""


class Evidence(NamedTuple):
    """Score test: excess of the statistic over its expectation under chance.

    errors : the excess in standard errors
    nats : the excess in nats per row
    """

    errors: float
    nats: float


class Problem(ABC):
    """A family bound to rows: a stack of fits with a minimum at every temperature.

    `temperature_free` : the loss part of the objective, as a function of the parameters, is the same at every
    temperature. `extrapolates` : minima move smoothly enough with temperature to be predicted. `interpolates` : minima
    are unique and lie on one smooth curve, so that a few nodes determine all of it.
    """

    temperature_free = False
    extrapolates = True
    interpolates = False
    visits_all = False  # whether every temperature is solved although `interpolates`: without folds that costs little
    used: np.ndarray | None = None  # indices of the columns in `design` if it leaves out columns of zeros, else None
    predictor: Predictor

    def __init__(self, design: Design):
        self.design = design
        self.n_fits = design.n_fits
        self.n_classes = design.n_classes
        self.n_columns = design.n_features  # of the user's X
        self.class_shares = design.class_weight_sums()
        self.watch(NOTHING_HELD_OUT)

    @abstractmethod
    def start(self, temperature: float) -> np.ndarray:
        """Parameters before the first temperature."""

    def watch(self, held_out: HeldOut):
        """Set the held-out rows whose logits `held_out_logits` returns."""
        self.held_out = held_out
        self.held_out_of_fit = {fit: as_slice(np.flatnonzero(held_out.fits == fit)) for fit in np.unique(held_out.fits)}

    @abstractmethod
    def held_out_logits(self, parameters, temperature) -> np.ndarray:
        """Logits (n_picks, n_classes) of the watched rows."""

    def held_out_logits_of(self, points, temperatures) -> np.ndarray:
        """Logits at several points, (n_points, n_picks, n_classes)."""
        logits = [self.held_out_logits(*point).T for point in zip(points, temperatures, strict=True)]
        return np.stack(logits).swapaxes(1, 2)

    @abstractmethod
    def summarize(self, points, entropy=None) -> list[TrainingSummary]:
        """Training loss and entropy of the final fit at each of `points`: (parameters, temperature, posterior scale).

        entropy : the entropy at each point if it is known, which saves time; None or NaN if it is not
        """

    @abstractmethod
    def report(self, parameters, temperature, fits=slice(None)) -> dict[str, np.ndarray]:
        """Named arrays in the user's units with a leading axis of fits, e.g. coef and intercept of the logits."""

    def reported(self, points) -> dict[str, Any] | None:
        """The final fit's arrays at every (parameters, temperature), in the type of X; None if only `report` can."""
        return None

    @abstractmethod
    def hot_temperature(self) -> float:
        """A temperature at which every posterior is near the prior."""

    def chosen(self) -> dict[str, Any]:
        """Settings that the family or validation chose, by name; the estimator exposes them with an underscore."""
        return {}

    def initial_scaling(self) -> Problem:
        """The same rows in the penalty scaling to start with, if the user left it open and the rows are independent."""
        return self

    def alternatives(self) -> Iterable[Problem]:
        """The same rows in other penalty scalings, for validation to choose from; each is made when it is needed."""
        return ()

    def with_perturbed_scaling(self, parameters, temperature, value) -> Problem | None:
        """The same problem in a scaling a small step towards `with_alternative_scaling`.

        Validation uses it to estimate whether the alternative would improve the score. The penalty of the final fit's
        parameters is unchanged. None if there is no alternative, or if it cannot help.
        """
        return None

    def evidence_held_back(self, parameters, temperature) -> Evidence:
        """Score test of the directions that the penalty suppresses in the final fit; NaN if a family has none."""
        return Evidence(np.nan, np.nan)

    def always_tries_alternative(self, score: float) -> bool:
        """Whether to try `with_alternative_scaling` without the perturbation; `score` is minus the best log-loss."""
        return False

    def with_alternative_scaling(self) -> Problem:
        """The same rows in the scaling towards which `with_perturbed_scaling` goes."""
        raise NotImplementedError

    def leave_one_out(self, parameters, temperature) -> tuple[np.ndarray, np.ndarray]:
        """Logits (n_rows, n_classes) of every row from a fit without it, and each row's leverage on the fit."""
        raise ValueError('selection="loo" needs the inner-product or the quadratic family. Use selection="cv".')

    def carry(self, parameters, temperature, new_temperature):
        """Parameters with the same scores at another temperature; if `temperature_free`, with the same logits."""
        return parameters if self.temperature_free else parameters * (temperature / new_temperature)


class SmoothProblem(Problem):
    """A stack of penalized mean negative log-likelihoods with gradients.

    The objective of fit s is `loss_s + 1/2 sum_k strength_k (parameter_k - anchor_k)^2`. Solvers may treat the two
    terms separately.
    """

    has_hessian = False  # whether there is a method `objective_and_hessian`

    def __init__(self, design: Design):
        super().__init__(design)
        self.prior_variance = self.class_shares * (1 - self.class_shares)  # share (1 - share), (n_fits, n_classes)
        self.class_variance = self.prior_variance  # mean of p (1 - p) under the posterior that was evaluated last

    # -- what a family defines ------------------------------------------------------------------------------

    @abstractmethod
    def forward(self, parameters, temperature, fits) -> Any:
        """Small arrays that a pass over the rows needs, computed once per pass."""

    @abstractmethod
    def block_logits(self, block: Block, state) -> np.ndarray:
        """Logits (n_rows, n_fits, n_classes) of a block."""

    @abstractmethod
    def block_pullback(self, block: Block, state, residual) -> tuple:
        """Arrays that are summed over blocks, from which `backward` computes the gradient; may overwrite `residual`."""

    @abstractmethod
    def backward(self, sums: tuple, parameters, temperature, fits, quick=False) -> np.ndarray:
        """Gradient of the loss part (n_fits, n_parameters)."""

    @abstractmethod
    def penalty(self, temperature, fits) -> tuple[np.ndarray, np.ndarray]:
        """Strength and anchor of the quadratic penalty, each broadcastable to (n_fits, n_parameters)."""

    @abstractmethod
    def curvature(self, temperature, fits) -> np.ndarray:
        """Approximate diagonal of the loss part's Hessian, (n_fits, n_parameters)."""

    def precondition(self, vectors, temperature, fits, learned=None):
        """Apply an approximate inverse Hessian to vectors (n_fits, n_parameters): by its diagonal, or by `learned`."""
        strength, _ = self.penalty(temperature, fits)
        return vectors / np.maximum(self.curvature(temperature, fits) + strength, np.finfo(float).tiny)

    def learning_cost(self, level: int) -> float:
        """Cost of `learn_curvature` in passes over the rows; infinite if the family cannot learn.

        Each level includes more coordinates than the one before, until all are included.
        """
        return np.inf

    def learn_curvature(self, parameters, temperature, level: int):
        """A Hessian for `precondition`, at the final fit's parameters; it is accurate enough for the folds too."""
        raise NotImplementedError

    def class_learning_cost(self) -> float:
        """Cost of `learn_classes` in passes; infinite if the family has none, or if it is not cheaper."""
        return np.inf

    def learn_classes(self, parameters, temperature):
        """As `learn_curvature`, with the diagonal blocks of single classes only, at a fraction of the cost."""
        raise NotImplementedError

    has_certificate = False

    def certificate(self, gradient, value, temperature, fits) -> np.ndarray:
        """Upper bound on the relative suboptimality of each fit; zero if the family has none."""
        return np.zeros(len(value))

    def entropy_at(self, parameters, value, gradient, temperature, fits) -> np.ndarray:
        """Mean entropy of the posterior if it follows from value and gradient of Q / T, else NaN."""
        return np.full(len(value), np.nan)

    @property
    def n_parameters(self) -> int:
        return self.start(1.0).shape[1]

    def gradient_noise(self) -> float:
        """Rounding error of a gradient entry whose exact value is zero."""
        return ROUNDING

    fits_are_alike = True  # all fits have the same coordinates: folds can use the final fit's steps and curvature
    takes_last_step = False  # whether the last step to a minimum may go unevaluated, because a penalty bounds it
    last_step_share = LAST_STEP_SHARE
    copies_rows = True  # whether a pass allocates anything as large as the rows of a block
    has_float32_rows = False  # whether `rows_and_forward(quick=True)` returns float32 rows

    def make_float32_copy(self):
        """Copy the rows in float32 if the family supports it, for folds and for most steps at a loose tolerance."""

    # -- what every family inherits --------------------------------------------------------------------------

    def rows_and_forward(self, quick: bool):
        """The rows of a pass and the matching `forward`; with `quick` the float32 rows, if there are any."""
        return self.design, self.forward

    def loss(self, parameters, temperature, fits=slice(None), quick=False):
        """Loss (n_fits,) and its gradient (n_fits, n_parameters) in one pass.

        A pass that includes the final fit also updates `class_variance`.
        """
        design, forward = self.rows_and_forward(quick)
        full_state = forward(parameters, temperature, fits)
        has_final = np.arange(self.n_fits)[fits][0] == 0

        def kernel(block):
            positions = block.fit_positions
            state = full_state if positions is None else tuple(part[positions] for part in full_state)
            losses, residual = gibbs.loss_and_residual(self.block_logits(block, state), block.labels)
            variance = (gibbs.class_variance(residual[:, 0], block.weight[:, 0]),) if has_final else ()
            residual *= block.weight[..., None]
            loss = np.einsum("ns,ns->s", block.weight, losses, dtype=np.float64)
            return (loss, *self.block_pullback(block, state, residual), *variance)

        loss, *sums = design.sum_rows(kernel, fits, self.copies_rows)
        if has_final:
            variance = sums.pop()
            if np.isfinite(loss[0]):
                self.class_variance = np.broadcast_to(variance, self.class_shares.shape)
        return loss, self.backward(tuple(sums), parameters, temperature, fits, quick)

    def objective(self, parameters, temperature, fits=slice(None), quick=False):
        """Q / T (n_fits,), its gradient, and the gradient of the loss part alone."""
        with np.errstate(over="ignore", invalid="ignore"):  # solvers reject trial points whose value is not finite
            loss, loss_gradient = self.loss(parameters, temperature, fits, quick)
        strength, anchor = self.penalty(temperature, fits)
        offset = parameters - anchor
        pull = strength * offset
        return loss + 0.5 * np.sum(pull * offset, axis=1), loss_gradient + pull, loss_gradient

    def held_out_logits(self, parameters, temperature):
        """Logits of each fit's held-out rows; of few rows, one product for all fits costs less than one per fold."""
        held_out = self.held_out
        if len(held_out.rows) * self.n_fits * self.n_classes <= FEW_LOGITS:
            logits = self._logits_of(held_out.rows, parameters, temperature, slice(None))
            return logits[np.arange(len(held_out.rows)), held_out.fits]
        return self._held_out_by_fold(parameters[None], temperature)[0]

    def held_out_logits_of(self, points, temperatures):
        """One product per fold for all points, if logits do not depend on the temperature."""
        if not self.temperature_free:
            return super().held_out_logits_of(points, temperatures)
        return self._held_out_by_fold(np.stack(points), temperatures[0])

    def _held_out_by_fold(self, points, temperature):
        """Logits (n_points, n_picks, n_classes) of parameters (n_points, n_fits, n_parameters); in memory the axis of
        rows is contiguous.
        """
        rows, all_logits = self.held_out.rows, None

        def logits_of_fold(fit):
            positions = self.held_out_of_fit[fit]
            fold_rows, fits = rows[positions], np.full(len(points), fit)
            return positions, self._logits_of(fold_rows, points[:, fit], temperature, fits)

        most_threads = len(rows) // self.design.rows_of_thread(len(points))
        for positions, logits in map_in_order(logits_of_fold, self.held_out_of_fit, most_threads):
            if all_logits is None:
                all_logits = np.empty((len(points), self.n_classes, len(rows)), logits.dtype).swapaxes(1, 2)
            all_logits[:, positions] = logits.swapaxes(0, 1)
        return all_logits

    def _logits_of(self, rows, parameters, temperature, fits):
        """Logits (n, n_fits, n_classes) of some rows; in memory the axis of rows is contiguous, as in blocks."""
        design, forward = self.rows_and_forward(quick=True)
        state = forward(parameters, temperature, fits)
        parts = design.map_rows(lambda block: self.block_logits(block, state).transpose(1, 2, 0), rows)
        return np.concatenate(list(parts), axis=2).transpose(2, 0, 1)

    def summarize(self, points, entropy=None):
        """One pass over the rows for all points."""
        is_known = entropy is not None and bool(np.isfinite(entropy).all())
        design, forward = self.rows_and_forward(quick=True)
        is_one_block = design.n_rows <= design.block_rows(1)
        most = SUMMARIZED_LOGITS // (design.n_rows * self.n_classes) if is_one_block else SUMMARIZED_TOGETHER
        size, groups = max(1, min(SUMMARIZED_TOGETHER, most)) if self.temperature_free else 1, []
        for first in range(0, len(points), size):
            parameters, temperatures, scales = zip(*points[first : first + size], strict=True)
            state = forward(np.stack(parameters), temperatures[0], np.zeros(len(parameters), dtype=int))
            groups.append((state, np.array(scales)[:, None]))

        def kernel(block):
            weight = block.weight[:, 0]
            logits = ((self.block_logits(block, state), scales) for state, scales in groups)
            sums = [calibrated_loss_and_entropy(part, block.labels, weight, scale, is_known) for part, scale in logits]
            return (np.concatenate(sums, axis=1),)

        (sums,) = design.sum_rows(kernel, slice(0, 1))
        columns = [*sums, entropy] if is_known else sums
        return [TrainingSummary(*map(float, values)) for values in zip(*columns, strict=True)]

    def hot_temperature(self) -> float:
        """A temperature at which every posterior is close to the prior: one step from the start gives tiny logits.

        If the start is already a minimum, or nearly, the logits stay tiny at any temperature; then 1.0 is returned.
        """
        fits = slice(0, 1)
        temperature, before = 1.0, np.inf
        for _ in range(60):
            spread = self._response_spread(temperature, fits)
            if 0.5 * HOT_LOGIT <= spread <= HOT_LOGIT:
                break
            if temperature < 1 and spread <= LEAST_RISE * before < 0.5 * HOT_LOGIT:
                return 1.0
            temperature *= np.clip(spread / (0.75 * HOT_LOGIT), 1e-2, 1e2)
            before = spread
        return temperature

    def _response_spread(self, temperature, fits):
        """Root mean square over rows of the logits after one preconditioned step from the start."""
        start = self.start(temperature)[fits]
        _, gradient, _ = self.objective(start, temperature, fits)
        strength, _ = self.penalty(temperature, fits)
        state = self.forward(start - gradient / (self.curvature(temperature, fits) + strength), temperature, fits)

        def kernel(block):
            logits = self.block_logits(block, state)
            logits -= logits.mean(axis=2, keepdims=True)
            return (np.einsum("ns,nsc->sc", block.weight, logits**2),)

        return np.sqrt(self.design.sum_rows(kernel, fits)[0]).max()
