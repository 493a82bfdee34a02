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
from annealed.rows import Design


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
