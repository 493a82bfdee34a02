"""Parts of an annealing path: validation, callbacks, and the record of every temperature."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from annealed.problems import HeldOut, Problem, TrainingSummary
from annealed.solvers import Solution


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
    awaits_certificate : whether the final fit is solved, but not verified in full precision yet
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
    parameters: Any
    seconds: float
    training_summary: TrainingSummary = NO_SUMMARY
    certificate: float = np.nan
    awaits_certificate: bool = False
    tangent: Any = None
    was_far: bool = False
    entropy: float = np.nan

    @classmethod
    def of(cls, temperature, solution: Solution, validation, seconds, is_node) -> Step:
        """From the solution of all fits, the final one first, or of the final one only."""
        return cls(
            temperature=temperature,
            converged=bool(solution.converged.all()),
            is_node=is_node,
            validation=validation,
            parameters=solution.parameters,
            seconds=seconds,
            tangent=solution.tangent,
            was_far=bool(solution.was_far[0]),
            n_iter=int(solution.n_iter.max()),
            **_of_final(solution),
        )

    def with_final(self, solution: Solution, seconds) -> Step:
        """The step with its final fit solved further."""
        self.parameters[0, ...] = solution.parameters[0, ...]
        return replace(
            self,
            n_iter=self.n_iter + int(solution.n_iter[0]),
            converged=self.converged and bool(solution.converged[0]),
            seconds=self.seconds + seconds,
            **_of_final(solution),
        )


def _of_final(solution: Solution) -> dict[str, Any]:
    numbers = ("value", "gradient_norm", "certificate", "entropy")
    found: dict[str, Any] = {name: float(getattr(solution, name)[0]) for name in numbers}
    return found | {"awaits_certificate": bool(solution.converged[0] and not solution.is_certified[0])}
