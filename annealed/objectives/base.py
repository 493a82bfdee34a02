"""A family's free energy at a temperature, as a solver and a path see it.

With scores g_j(x; theta) and logits g_j / T, the paper's objective (9) and its penalized form (17) are

    Q(theta; T) / T = mean over rows of [ log_partition(logits) - logit of the true class ] + penalty / T

`Q = T * mean negative log-likelihood` is the identity everything here rests on. Parameters are solved in the
scale of logits (theta / T): there pADA is convex and the gradient of Q / T equals dQ / dtheta.

An `Objective` is the family with its settings; `prepare(design)` binds it to rows and gives a `Problem`, the
stack of fits that a solver minimizes. Shapes: parameters (n_fits, n_parameters), flat for the solver.
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
INSPECTED_TOGETHER = 8  # points, in one product
INSPECTED_LOGITS = 60_000  # of all these, where rows are one block: with more than fast memory holds, each takes longer
FEW_LOGITS = 20_000
LAST_STEP_SHARE = 0.03  # of `tol`: a fold whose next step promises a smaller relative fall takes it without a look
HOT_LOGIT = 0.1  # root mean square logit at the hot end of an automatic schedule
LEAST_RISE = 1.01  # of that of a fit's first response as it cools: with less it stands still


@dataclass(frozen=True)
class HeldOut:
    """Rows to be scored by a fit that did not see them, in row order: `rows[i]` by the fit `fits[i]`."""

    rows: np.ndarray
    fits: np.ndarray


NOTHING_HELD_OUT = HeldOut(np.empty(0, dtype=int), np.empty(0, dtype=int))


@dataclass(frozen=True)
class TrainingSummary:
    """What the final fit looks like at one temperature.

    spoken_loss : mean negative log-likelihood with the logits at the posterior's own scale
    entropy : mean entropy of the posterior as fitted
    """

    calibrated_loss: float
    entropy: float


def look_at(logits, labels, weight, scale, knows_entropy=False):
    """An inspection's numbers over some rows: spoken loss, and entropy unless that is known, summed with their weights.
    Of logits (n_rows, n_points, n_classes), which are overwritten, and scales (n_points, 1), those of every point.
    """
    entropy = () if knows_entropy else (weight @ gibbs.entropy(logits),)
    logits *= scale
    return weight @ gibbs.negative_log_likelihood(logits, labels), *entropy


def check_strength(value) -> float:
    """Of a penalty: a positive number, or an error that shows what came instead."""
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

    `cooling_rate` and `learns_late` are those of the default schedule: how far apart temperatures may lie for the path
    to be known, and whether a path that has learned nothing yet may still do so.
    """

    accepts_sparse = True
    runs_on_devices = False  # whether rows may be arrays of a device
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
    """What is kept of a family after fitting: turns reported arrays into logits of new rows. Holds no rows."""

    @abstractmethod
    def logits(self, X, arrays: dict[str, np.ndarray], temperature: float) -> np.ndarray:
        """Logits (n_rows, n_classes) of X under one point of the path."""


class Evidence(NamedTuple):
    """By how many standard errors rows tell more than chance would, and by how much more, in nats a row."""

    errors: float
    nats: float


class Problem(ABC):
    """A family bound to rows, as a path sees it: a stack of fits with a minimum at every temperature.

    `temperature_free` says that the loss part of the objective, as a function of the parameters, is the same at
    every temperature; `extrapolates` that minima move smoothly enough with temperature to be predicted;
    `interpolates` that they are unique and lie on one smooth curve, so that few of them give all of it.
    """

    temperature_free = False
    extrapolates = True
    interpolates = False
    visits_all = False  # whether every temperature is a node all the same: where there are no folds to save on
    used: np.ndarray | None = None  # columns that `design` holds, where it leaves out those that no row uses
    predictor: Predictor

    def __init__(self, design: Design):
        self.design = design
        self.n_fits = design.n_fits
        self.n_classes = design.n_classes
        self.n_columns = design.n_features  # of X as it was given
        self.class_shares = design.class_weight_sums()
        self.watch(NOTHING_HELD_OUT)

    @abstractmethod
    def start(self, temperature: float) -> np.ndarray:
        """Parameters before the first temperature."""

    def watch(self, held_out: HeldOut):
        """Name the held-out rows whose logits `held_out_logits` will be asked for."""
        self.held_out = held_out
        self.held_out_of_fit = {fit: as_slice(np.flatnonzero(held_out.fits == fit)) for fit in np.unique(held_out.fits)}

    @abstractmethod
    def held_out_logits(self, parameters, temperature) -> np.ndarray:
        """Logits (n_picks, n_classes) of the watched rows."""

    def held_out_logits_of(self, points, temperatures) -> np.ndarray:
        """Those of several temperatures, (n_temperatures, n_picks, n_classes)."""
        seen = [self.held_out_logits(*point).T for point in zip(points, temperatures, strict=True)]
        return np.stack(seen).swapaxes(1, 2)

    @abstractmethod
    def summarize(self, points, entropy=None) -> list[TrainingSummary]:
        """A look over all rows at the final fit, at each of `points`: (parameters, temperature, posterior scale).

        entropy : as it is known at each of them, which saves time; NaN or None is not known
        """

    @abstractmethod
    def report(self, parameters, temperature, fits=slice(None)) -> dict[str, np.ndarray]:
        """Named arrays in the user's units with a leading axis of fits, e.g. coef and intercept of the logits."""

    def reported(self, points) -> dict[str, Any] | None:
        """The final fit's arrays at every (parameters, temperature), of the type of X; None: ask `report` for each."""
        return None

    @abstractmethod
    def hot_temperature(self) -> float:
        """A temperature at which every posterior is near the prior."""

    def chosen(self) -> dict[str, Any]:
        """Settings that the family or validation settled, by name; the estimator shows them with an underscore."""
        return {}

    def initial_scaling(self) -> Problem:
        """The same rows under the setting to begin with, where that is left open and rows are independent."""
        return self

    def alternatives(self) -> Iterable[Problem]:
        """The same rows under other settings, for validation to choose among; each is asked for when it is needed."""
        return ()

    def with_perturbed_scaling(self, parameters, temperature, value) -> Problem | None:
        """The same problem a little on the way to `with_alternative_scaling`, for validation to say where that
        leads; as heavily penalized at the final fit's parameters. None where no such setting exists or would help.
        """
        return None

    def evidence_held_back(self, parameters, temperature) -> Evidence:
        """What rows tell of what a penalty still holds back from the final fit there, where a family can say."""
        return Evidence(np.nan, np.nan)

    def always_tries_alternative(self, score: float) -> bool:
        """Whether to try `with_alternative_scaling` anyway, given this setting's best score, minus a log-loss."""
        return False

    def with_alternative_scaling(self) -> Problem:
        """The same rows under the setting that `with_perturbed_scaling` leads to."""
        raise NotImplementedError

    def leave_one_out(self, parameters, temperature) -> tuple[np.ndarray, np.ndarray]:
        """Logits (n_rows, n_classes) of every row from a fit without it, and each row's leverage on the fit."""
        raise ValueError('selection="loo" needs the inner-product or the quadratic family. Use selection="cv".')

    def carry(self, parameters, temperature, new_temperature):
        """The same scores at another temperature; families free of temperature keep the same logits instead."""
        return parameters if self.temperature_free else parameters * (temperature / new_temperature)


class SmoothProblem(Problem):
    """A stack of penalized mean log-likelihoods with gradients, as a solver sees it.

    The objective of fit s is `loss_s + 1/2 sum_k strength_k (parameter_k - anchor_k)^2`; a solver may treat the
    two parts apart.
    """

    has_hessian = False  # whether `objective_and_hessian` is there

    def __init__(self, design: Design):
        super().__init__(design)
        self.prior_variance = self.class_shares * (1 - self.class_shares)  # of each class
        self.class_variance = self.prior_variance  # likewise under the posterior where it was last seen

    # -- what a family defines ------------------------------------------------------------------------------

    @abstractmethod
    def forward(self, parameters, temperature, fits) -> Any:
        """Small arrays that one pass over the rows needs, made once a pass."""

    @abstractmethod
    def block_logits(self, block: Block, state) -> np.ndarray:
        """Logits (n_rows, n_fits, n_classes) of a block."""

    @abstractmethod
    def block_pullback(self, block: Block, state, residual) -> tuple:
        """Arrays, summed over blocks, from which `backward` makes the gradient; may overwrite `residual`."""

    @abstractmethod
    def backward(self, sums: tuple, parameters, temperature, fits, quick=False) -> np.ndarray:
        """Gradient of the loss part (n_fits, n_parameters)."""

    @abstractmethod
    def penalty(self, temperature, fits) -> tuple[np.ndarray, np.ndarray]:
        """Strength and anchor of the quadratic penalty, each broadcastable to (n_fits, n_parameters)."""

    @abstractmethod
    def curvature(self, temperature, fits) -> np.ndarray:
        """A rough diagonal of the loss part's Hessian, (n_fits, n_parameters)."""

    def precondition(self, vectors, temperature, fits, learned=None):
        """An approximate inverse Hessian applied to vectors (n_fits, n_parameters): its diagonal, or as learned."""
        strength, _ = self.penalty(temperature, fits)
        return vectors / np.maximum(self.curvature(temperature, fits) + strength, np.finfo(float).tiny)

    def learning_cost(self, level: int) -> float:
        """Passes over the rows that `learn_curvature` costs; infinite where there is nothing to learn.

        Each level learns more than the one before; from some level on they are all the same.
        """
        return np.inf

    def learn_curvature(self, parameters, temperature, level: int):
        """What `precondition` can use of the Hessian at fit 0's parameters, which folds share well enough."""
        raise NotImplementedError

    def class_learning_cost(self) -> float:
        """Passes that `learn_classes` costs; infinite where it is not for this family, or no cheaper."""
        return np.inf

    def learn_classes(self, parameters, temperature):
        """What it can use of the blocks of single classes, for a fraction of what all of the Hessian costs."""
        raise NotImplementedError

    has_certificate = False

    def certificate(self, gradient, value, temperature, fits) -> np.ndarray:
        """Bound on the relative suboptimality where the family has one; zero where it does not."""
        return np.zeros(len(value))

    def entropy_at(self, parameters, value, gradient, temperature, fits) -> np.ndarray:
        """Mean entropy of the posterior, where value and gradient of Q / T tell it; else NaN."""
        return np.full(len(value), np.nan)

    @property
    def n_parameters(self) -> int:
        return self.start(1.0).shape[1]

    def gradient_noise(self) -> float:
        """What rounding leaves of a gradient entry that should be zero."""
        return ROUNDING

    fits_are_alike = True  # in the same coordinates, so that a fold can use the final fit's moves and curvature
    takes_last_step = False  # whether steps near a minimum can be trusted without a look: a penalty bounds them
    last_step_share = LAST_STEP_SHARE
    copies_rows = True  # whether a pass makes anything as large as the rows of a block
    has_quick_rows = False  # whether `rows_and_forward` knows quick rows, of less precision

    def make_float32_copy(self):
        """Prepare what makes folds and most steps cheaper at a loose tolerance, where a family has it."""

    # -- what every family gets -----------------------------------------------------------------------------

    def rows_and_forward(self, quick: bool):
        """The rows to pass over and their `forward`; quick ones where the family has them and they are good enough."""
        return self.design, self.forward

    def loss(self, parameters, temperature, fits=slice(None), quick=False):
        """Loss (n_fits,) and its gradient (n_fits, n_parameters) in one pass.

        A pass over the final fit also learns the class variances.
        """
        design, forward = self.rows_and_forward(quick)
        of_all = forward(parameters, temperature, fits)
        learns = np.arange(self.n_fits)[fits][0] == 0

        def kernel(block):
            state = of_all if block.fit_positions is None else tuple(part[block.fit_positions] for part in of_all)
            losses, residual = gibbs.loss_and_residual(self.block_logits(block, state), block.labels)
            variance = (gibbs.class_variance(residual[:, 0], block.weight[:, 0]),) if learns else ()
            residual *= block.weight[..., None]
            loss = np.einsum("ns,ns->s", block.weight, losses, dtype=np.float64)
            return (loss, *self.block_pullback(block, state, residual), *variance)

        loss, *sums = design.sum_rows(kernel, fits, self.copies_rows)
        if learns:
            variance = sums.pop()
            if np.isfinite(loss[0]):
                self.class_variance = np.broadcast_to(variance, self.class_shares.shape)
        return loss, self.backward(tuple(sums), parameters, temperature, fits, quick)

    def objective(self, parameters, temperature, fits=slice(None), quick=False):
        """Q / T (n_fits,), its gradient, and the gradient of the loss part alone."""
        with np.errstate(over="ignore", invalid="ignore"):  # a trial point out of bounds is refused by its value
            loss, loss_gradient = self.loss(parameters, temperature, fits, quick)
        strength, anchor = self.penalty(temperature, fits)
        offset = parameters - anchor
        pull = strength * offset
        return loss + 0.5 * np.sum(pull * offset, axis=1), loss_gradient + pull, loss_gradient

    def held_out_logits(self, parameters, temperature):
        """Each fit sees its own held-out rows alone, unless rows are so few that one call for all costs less."""
        held_out = self.held_out
        if len(held_out.rows) * self.n_fits * self.n_classes <= FEW_LOGITS:
            seen = self._logits_of(held_out.rows, parameters, temperature, slice(None))
            return seen[np.arange(len(held_out.rows)), held_out.fits]
        return self._held_out_by_fold(parameters[None], temperature)[0]

    def held_out_logits_of(self, points, temperatures):
        """In one product for each fold, where a point's logits do not depend on the temperature."""
        if not self.temperature_free:
            return super().held_out_logits_of(points, temperatures)
        return self._held_out_by_fold(np.stack(points), temperatures[0])

    def _held_out_by_fold(self, points, temperature):
        """Logits (n_points, n_picks, n_classes) of parameters (n_points, n_fits, n_parameters), rows innermost."""
        rows, picked = self.held_out.rows, None

        def of_fold(fit):
            own = self.held_out_of_fit[fit]
            return own, self._logits_of(rows[own], points[:, fit], temperature, np.full(len(points), fit))

        for own, logits in map_in_order(
            of_fold, self.held_out_of_fit, len(rows) // self.design.rows_of_thread(len(points))
        ):
            if picked is None:
                picked = np.empty((len(points), self.n_classes, len(rows)), logits.dtype).swapaxes(1, 2)
            picked[:, own] = logits.swapaxes(0, 1)
        return picked

    def _logits_of(self, rows, parameters, temperature, fits):
        """Logits (n, n_fits, n_classes) of some rows, which lie innermost in memory, as in blocks."""
        design, forward = self.rows_and_forward(quick=True)
        state = forward(parameters, temperature, fits)
        parts = design.map_rows(lambda block: self.block_logits(block, state).transpose(1, 2, 0), rows)
        return np.concatenate(list(parts), axis=2).transpose(2, 0, 1)

    def summarize(self, points, entropy=None):
        """One reading of the rows for all points."""
        is_known = entropy is not None and bool(np.isfinite(entropy).all())
        design, forward = self.rows_and_forward(quick=True)
        is_one_block = design.n_rows <= design.block_rows(1)
        most = INSPECTED_LOGITS // (design.n_rows * self.n_classes) if is_one_block else INSPECTED_TOGETHER
        size, groups = max(1, min(INSPECTED_TOGETHER, most)) if self.temperature_free else 1, []
        for first in range(0, len(points), size):
            own, temperatures, scales = zip(*points[first : first + size], strict=True)
            state = forward(np.stack(own), temperatures[0], np.zeros(len(own), dtype=int))
            groups.append((state, np.array(scales)[:, None]))

        def kernel(block):
            seen = ((self.block_logits(block, state), scales) for state, scales in groups)
            numbers = [look_at(logits, block.labels, block.weight[:, 0], scales, is_known) for logits, scales in seen]
            return (np.concatenate(numbers, axis=1),)

        (numbers,) = design.sum_rows(kernel, slice(0, 1))
        seen = [*numbers, entropy] if is_known else numbers
        return [TrainingSummary(*map(float, own)) for own in zip(*seen, strict=True)]

    def hot_temperature(self) -> float:
        """A temperature at which every posterior is near the prior: the fit's first response gives tiny logits.

        Where the start is a minimum, or all but one, they are tiny however cold it is.
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
        """Root mean square, over rows, of the logits after one preconditioned step from the start."""
        start = self.start(temperature)[fits]
        _, gradient, _ = self.objective(start, temperature, fits)
        strength, _ = self.penalty(temperature, fits)
        state = self.forward(start - gradient / (self.curvature(temperature, fits) + strength), temperature, fits)

        def kernel(block):
            logits = self.block_logits(block, state)
            logits -= logits.mean(axis=2, keepdims=True)
            return (np.einsum("ns,nsc->sc", block.weight, logits**2),)

        return np.sqrt(self.design.sum_rows(kernel, fits)[0]).max()
