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
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from annealed.arrays import HOST, Place, as_slice
from annealed.lazy import cached_property
from annealed.rows import Design, RowSpan
from annealed.rows.threads import map_in_order


@dataclass(frozen=True)
class TrainingSummary:
    """Training loss and entropy of the final fit at one temperature.

    calibrated_loss : mean negative log-likelihood of the logits times the calibrated posterior scale
    entropy : mean entropy of the posterior before calibration
    """

    calibrated_loss: float
    entropy: float


def number_of(value) -> float:
    """The value as a float: NaN if it is no number, infinite if it is a whole number that no float can hold."""
    try:
        return float(value) if isinstance(value, Real) else np.nan
    except OverflowError:
        return np.inf if value > 0 else -np.inf


def check_choice(value, name, known):
    """Raise ValueError if a parameter is not one of the known strings; an array is compared as a whole."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} must be one of {known}. Got {value!r}.")


def check_strength(value) -> float:
    """Return the penalty's strength as a float; raise ValueError if it is not a positive number."""
    if not 0 < number_of(value) < np.inf:
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
    keeps_rows = False  # whether the model refers to rows by their indices, so that none may be left out
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
    """What a fitted estimator keeps of a family: it computes logits of new rows from reported arrays.

    needs_digits : whether the arrays must stay in double precision, whatever the dtype of X
    """

    needs_digits = False

    @abstractmethod
    def logits(self, X, arrays: dict[str, np.ndarray], temperature: float) -> np.ndarray:
        """Logits (n_rows, n_classes) of X under one point of the path."""


@dataclass(frozen=True)
class Features:
    """The user's features, and how the columns of the design that is solved in are made from them.

    number : how many there are
    used : indices of those that the design has if it leaves out columns of zeros, else None
    center, scale : of the features used; None where the family needs none
    span : basis of the span of the rows, if the design holds rows in it
    """

    number: int
    used: np.ndarray | None = None
    center: Any = None
    scale: Any = None
    span: RowSpan | None = None

    def linear(self, coef, intercept, place: Place = HOST) -> dict[str, Any]:
        """Coefficients and intercepts in the user's features, from those of the centred features (or of the span)."""
        if self.span:
            coef = place.wide(self.span.expand_coef(coef))
        intercept = intercept - coef @ place.wide(self.center)
        return {"coef": self.expanded(place.given(coef)), "intercept": place.given(intercept)}

    def expanded(self, array):
        """An array with an entry per used feature on its last axis, with zeros for the others."""
        if self.used is None:
            return array
        full = np.zeros((*array.shape[:-1], self.number))
        full[..., self.used] = array
        return full


class Problem(ABC):
    """A family bound to rows: a stack of fits with a minimum at every temperature.

    `temperature_free` : the loss part of the objective, as a function of the parameters, is the same at every
    temperature. `extrapolates` : minima move smoothly enough with temperature to be predicted. `interpolates` : minima
    are unique and lie on one smooth curve, so that a few nodes determine all of it. `hessians` computes exact Hessians,
    None if the family has none. Small arrays, such as parameters, are arrays of `place`.
    """

    hessians: Any = None
    temperature_free = False
    extrapolates = True
    interpolates = False
    visits_all = False  # whether every temperature is solved although `interpolates`: without folds that costs little
    predictor: Predictor

    def __init__(self, design: Design, features: Features):
        self.design, self.features, self.place = design, features, design.place
        self.n_fits = design.n_fits
        self.n_classes = design.n_classes
        self.class_shares = design.class_weight_sums()

    @abstractmethod
    def start(self, temperature: float) -> np.ndarray:
        """Parameters before the first temperature."""

    def logits_of(self, rows, parameters, temperature, fits) -> np.ndarray:
        """Logits (n, n_fits, n_classes) of some rows; those on a device are validated by `HeldOutOnDevice` instead."""
        raise NotImplementedError

    @abstractmethod
    def summarize(self, points, entropy=None, value=None) -> list[TrainingSummary]:
        """Training loss and entropy of the final fit at each of `points`: (parameters, temperature, posterior scale).

        entropy : the entropy at each point if it is known, which saves time; None or NaN if it is not
        value : Q / T at each point, needed on a device
        """

    @abstractmethod
    def report(self, parameters, temperature, fits=slice(None)) -> dict[str, np.ndarray]:
        """Named arrays in the user's units with a leading axis of fits, e.g. coef and intercept of the logits."""

    @abstractmethod
    def hot_temperature(self) -> float:
        """A temperature at which every posterior is near the prior."""


@dataclass(frozen=True)
class HeldOut:
    """Held-out rows in ascending order: `rows[i]` is scored by the fit `fits[i]`, which was trained without it."""

    rows: np.ndarray
    fits: np.ndarray

    @cached_property
    def positions(self) -> dict:
        """Positions in `rows` of the rows of each fit."""
        return {fit: as_slice(np.flatnonzero(self.fits == fit)) for fit in np.unique(self.fits)}


NOTHING_HELD_OUT = HeldOut(np.empty(0, dtype=int), np.empty(0, dtype=int))


def held_out_logits(problem: Problem, held_out: HeldOut, points, temperatures) -> np.ndarray:
    """Logits (n_points, n_held_out, n_classes) of the held-out rows at several points.

    If logits do not depend on the temperature, there is one product per fold for all points.
    """
    if problem.hessians is not None:
        logits = problem.hessians.held_out_logits(held_out, points)
        if logits is not None:
            return logits
    if len(points) > 1 and not problem.temperature_free:
        each = [
            held_out_logits(problem, held_out, [point], [at]) for point, at in zip(points, temperatures, strict=True)
        ]
        return np.concatenate([logits.swapaxes(1, 2) for logits in each]).swapaxes(1, 2)
    return _by_fold(problem, held_out, np.stack(points), temperatures[0])


def _by_fold(problem, held_out, points, temperature):
    """One product per fold; points (n_points, n_fits, n_parameters)."""
    rows, all_logits = held_out.rows, None

    def logits_of_fold(fit):
        positions, fits = held_out.positions[fit], np.full(len(points), fit)
        return positions, problem.logits_of(rows[positions], points[:, fit], temperature, fits)

    most_threads = len(rows) // problem.design.rows_of_thread(len(points))
    for positions, logits in map_in_order(logits_of_fold, held_out.positions, most_threads):
        if all_logits is None:
            all_logits = np.empty((len(points), problem.n_classes, len(rows)), logits.dtype).swapaxes(1, 2)
        all_logits[:, positions] = logits.swapaxes(0, 1)
    return all_logits
