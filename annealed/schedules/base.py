"""The interface of schedules: which temperatures, from hot to cold (table 1, step 3), and when to stop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from numbers import Real

import numpy as np
from sklearn.base import BaseEstimator


class Schedule(BaseEstimator, ABC):
    """Base class of schedules. A subclass defines `temperatures`, and `should_stop` if it can end early.

    fills_gaps : whether the path may add temperatures between those of the schedule
    learns_late : whether a path whose scores do not improve yet continues while a score test finds signal in directions
        that the penalty suppresses
    """

    fills_gaps = False
    learns_late = False

    @abstractmethod
    def temperatures(self, hot: Callable[[], float]) -> Iterator[float]:
        """Yield falling temperatures. `hot()` finds a hot start from the data, for schedules that need one."""

    def should_stop(
        self, temperatures: Sequence[float], validation: Sequence[np.ndarray | None], value: Sequence[float]
    ) -> bool:
        """Whether to stop after the temperatures so far, given their fold scores and Q / T.

        It is called twice: with the scores, and with the penalized scores by which temperatures are compared.
        """
        return False

    def is_waiting(
        self, temperatures: Sequence[float], validation: Sequence[np.ndarray | None], value: Sequence[float]
    ) -> bool:
        """Whether scores have not improved yet but may do so. The path then ends when a score test finds no signal in
        the directions that the penalty suppresses.
        """
        return False


def falling(temperatures: Iterator[float]) -> Iterator[float]:
    """The temperatures of a schedule, checked: at least one, all positive, each lower than the one before."""
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
    """Check the `temperature` of an estimator, which must be "auto" or a positive number."""
    if is_auto(value):
        return
    if isinstance(value, str):
        raise ValueError(f'temperature must be "auto" or a positive number. Got {value!r}.')
    check_temperature(value)


def check_temperature(value, name="temperature") -> float:
    """The value as a float if it is a positive, finite number; else raise an error that shows it."""
    is_number = isinstance(value, Real) and str(value) not in ("True", "False")
    if not is_number or not 0 < float(value) < np.inf:
        raise ValueError(f"{name} must be a positive number. Got {value!r}.")
    return float(value)
