"""What a walk is made of: who judges and who watches it, and the step that each temperature leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from annealed.objectives import HeldOut, Problem, TrainingSummary


@dataclass(frozen=True)
class Validation:
    """What validation says of one temperature: a score per fold, and the scale at which the posterior speaks.

    penalty : what a log-loss owes to its scale and its certainty, where temperatures are compared
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
    """Validator every temperature (step 5). `sees_final`: by the final fit too, not by folds alone."""

    held_out: HeldOut
    sees_final: bool

    def validate(self, problem: Problem, parameters, temperature) -> Validation: ...

    def validate_all(self, problem: Problem, points, temperatures) -> list[Validation]: ...


class Watch(Protocol):
    """Follows a walk from temperature to temperature, and may end it."""

    def begin(self, temperature: float) -> None: ...

    def end(self, nodes: list[Step]) -> bool:
        """Whether to stop, given every node so far."""


@dataclass(frozen=True)
class Step:
    """One temperature of the walk: what is kept of it. Numbers are those of fit 0, the final fit.

    parameters : of all fits where they may yet predict others, else of the final one alone
    tangent : how they move with the logarithm of the temperature, where the solver says so
    was_far : whether they were interpolated so badly that what lies nearby may be, too
    entropy : of the posterior, where the last look told it
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
