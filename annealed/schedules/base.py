"""Which temperatures a path visits, hot to cold (step 3 of the algorithm), and when it may stop by itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from numbers import Real

import numpy as np
from sklearn.base import BaseEstimator


class Schedule(BaseEstimator, ABC):
    """A ladder of falling temperatures; `fills_gaps` lets the path add temperatures of its own between them."""

    fills_gaps = False
    learns_late = False  # whether a path that has learned nothing goes on while rows have more to tell

    @abstractmethod
    def temperatures(self, hot: Callable[[], float]) -> Iterator[float]:
        """Temperatures, hot to cold; `hot()` finds a hot start from the data for schedules that want one."""

    def should_stop(
        self, temperatures: Sequence[float], validation: Sequence[np.ndarray | None], value: Sequence[float]
    ) -> bool:
        """Whether to stop after the temperatures seen so far, given each one's fold scores and Q / T.

        It is asked twice: by the scores themselves, and less what they owe to the posterior's scale and certainty, as
        temperatures are compared.
        """
        return False

    def is_waiting(
        self, temperatures: Sequence[float], validation: Sequence[np.ndarray | None], value: Sequence[float]
    ) -> bool:
        """Whether validation has learned nothing so far, but may: the path then ends where rows have nothing to tell
        that is still held back.
        """
        return False


def falling(temperatures: Iterator[float]) -> Iterator[float]:
    """What a schedule gives, or an error where that is nothing, no temperature, or does not fall."""
    last = np.inf
    for temperature in temperatures:
        if not check_temperature(temperature, "every temperature of the schedule") < last:
            raise ValueError(f"Temperatures of a schedule must fall. Got {temperature!r} after {last!r}.")
        last = temperature
        yield temperature
    if last == np.inf:
        raise ValueError("schedule must give at least one temperature. Got none.")


def is_auto(value) -> bool:
    return isinstance(value, str) and value == "auto"


def check_given_temperature(value):
    """An estimator's `temperature`: "auto", or a positive number."""
    if is_auto(value):
        return
    if isinstance(value, str):
        raise ValueError(f'temperature must be "auto" or a positive number. Got {value!r}.')
    check_temperature(value)


def check_temperature(value, name="temperature") -> float:
    """A positive finite number, or an error that shows what came instead."""
    is_number = isinstance(value, Real) and str(value) not in ("True", "False")
    if not is_number or not 0 < float(value) < np.inf:
        raise ValueError(f"{name} must be a positive number. Got {value!r}.")
    return float(value)
