"""Parts of an annealing path: validation, callbacks, and the record of every temperature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from annealed.problems import HeldOut, Problem, TrainingSummary


@dataclass(frozen=True)
class Validation:
    """Validation at one temperature: a score per fold, and the calibration factor of the posterior.

    penalty : added to a log-loss when temperatures are compared, for its calibration factor and overconfidence
    """

    scores: np.ndarray | None = None
    scale: float = 1.0
    train_score: float | None = None
    penalty: float = 0.0

    @property
    def compared(self) -> np.ndarray | None:
        return None if self.scores is None else self.scores - self.penalty


NO_SUMMARY = TrainingSummary(np.nan, np.nan)


class Validator(Protocol):
    """Validates every temperature (step 5). `sees_final`: whether it uses the final fit too, not only the folds."""

    held_out: HeldOut
    sees_final: bool

    def validate(self, problem: Problem, parameters, temperature) -> Validation: ...

    def validate_all(self, problem: Problem, points, temperatures) -> list[Validation]: ...


class Watch(Protocol):
    """Follows the path from temperature to temperature, and may end it."""

    def begin(self, temperature: float) -> None: ...

    def end(self, nodes: list[Step]) -> bool:
        """Whether to stop, given all nodes so far."""


@dataclass(frozen=True)
class Step:
    """Record of one temperature. Scalars are those of fit 0, the final fit.

    parameters : of all fits while other temperatures may be interpolated from them, then of the final fit only
    tangent : derivative of the parameters with respect to log temperature, if the solver provides it
    was_far : whether the interpolated start was so poor that those of neighbouring temperatures may be too
    entropy : mean entropy of the posterior, if the last evaluation yielded it
    """

    temperature: float
    value: float
    gradient_norm: float
    n_iter: int
    converged: bool
    is_node: bool
    validation: Validation
    parameters: np.ndarray
    seconds: float
    training_summary: TrainingSummary = NO_SUMMARY
    certificate: float = np.nan
    tangent: np.ndarray | None = None
    was_far: bool = False
    entropy: float = np.nan
