"""Schedules: which temperatures, from hot to cold (table 1, step 3), and when to stop."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from reprlib import repr as shown

import numpy as np
from sklearn.base import BaseEstimator

from annealed.arrays import ROUNDING
from annealed.problems.base import number_of


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
    if str(value) in ("True", "False") or not 0 < number_of(value) < np.inf:
        raise ValueError(f"{name} must be a positive number. Got {value!r}.")
    return float(value)


class ExponentialSchedule(Schedule):
    """Geometric cooling: temperatures `start, cooling_rate * start, ...` down to `stop`.

    Parameters
    ----------
    start : float, default=None
        The hottest temperature. None finds it from the data, such that the posterior is nearly the prior.
    cooling_rate : float in (0, 1), default=0.9
        Ratio of each temperature to the one before.
    stop : float, default=1e-3
        Lower bound of the temperatures.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from annealed import ExponentialSchedule, AnnealedLogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> schedule = ExponentialSchedule(10.0, cooling_rate=0.1, stop=0.01)
    >>> AnnealedLogisticRegression(schedule=schedule).fit(X, y).path_.temperatures.round(3).tolist()
    [10.0, 1.0, 0.1, 0.01]
    """

    def __init__(self, start=None, *, cooling_rate=0.9, stop=1e-3) -> None:
        self.start = start
        self.cooling_rate = cooling_rate
        self.stop = stop

    def temperatures(self, hot):
        stop = check_temperature(self.stop, "stop")
        rate = check_temperature(self.cooling_rate, "cooling_rate")
        if rate >= 1:
            raise ValueError(f"cooling_rate must be below 1 so that the temperature falls. Got {rate!r}.")
        start = hot() if self.start is None else check_temperature(self.start, "start")
        if start < stop:
            raise ValueError(f"start must not be colder than stop. Got start={start!r}, stop={stop!r}.")
        step = 0
        while (temperature := start * rate**step) >= stop * (1 - 1e-12):
            yield temperature
            step += 1


class InverseTemperatureSchedule(Schedule):
    """Geometric cooling in inverse temperatures beta = 1 / T: `start, growth * start, ...` up to `stop`.

    Parameters
    ----------
    start : float, default=0.5
        The smallest beta.
    growth : float above 1, default=1.2
        Ratio of each beta to the one before.
    stop : float, default=1000.0
        Upper bound of beta.

    Examples
    --------
    >>> from annealed import InverseTemperatureSchedule, PottsDA
    >>> from annealed.datasets import make_mixed_strips
    >>> X, y = make_mixed_strips(random_state=0)
    >>> schedule = InverseTemperatureSchedule(0.5, growth=2.0, stop=4.0)
    >>> PottsDA(n_prototypes=4, schedule=schedule).fit(X, y).path_.temperatures.tolist()
    [2.0, 1.0, 0.5, 0.25]
    """

    def __init__(self, start=0.5, *, growth=1.2, stop=1000.0) -> None:
        self.start = start
        self.growth = growth
        self.stop = stop

    def temperatures(self, hot):
        start, stop = check_temperature(self.start, "start"), check_temperature(self.stop, "stop")
        growth = check_temperature(self.growth, "growth")
        if growth <= 1:
            raise ValueError(f"growth must be above 1 so that the temperature falls. Got {growth!r}.")
        if start > stop:
            raise ValueError(f"start must not be colder than stop. Got start={start!r}, stop={stop!r}.")
        step, beta, coldest = 0, start, min(stop * (1 + 1e-12), sys.float_info.max)
        while beta <= coldest:
            yield 1 / beta
            step += 1
            try:
                beta = start * growth**step
            except OverflowError:  # only the power overflows: times a small start, it may be finite
                beta *= growth


class FixedSchedule(Schedule):
    """The given temperatures, from hot to cold, each once.

    ``schedule=[10.0, 1.0, 0.1]`` is the same as ``schedule=FixedSchedule([10.0, 1.0, 0.1])``.

    Parameters
    ----------
    values : array-like of positive numbers
        Temperatures in any order.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from annealed import FixedSchedule, AnnealedLogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> AnnealedLogisticRegression(schedule=FixedSchedule([0.1, 10.0, 1.0])).fit(X, y).path_.temperatures.tolist()
    [10.0, 1.0, 0.1]
    """

    def __init__(self, values) -> None:
        self.values = values

    def temperatures(self, hot):
        try:
            values = np.asarray(self.values, dtype=float).ravel()
        except (TypeError, ValueError) as error:
            raise ValueError(f"schedule must hold temperatures, positive numbers. Got {shown(self.values)}.") from error
        if not len(values):
            raise ValueError("schedule must hold at least one temperature. Got an empty list.")
        for value in values:
            check_temperature(float(value), "every temperature of the schedule")
        last = np.inf
        for value in np.unique(values)[::-1].tolist():
            if value < (1 - ROUNDING) * last:
                yield value
                last = value


class UntilSchedule(Schedule):
    """The temperatures of another schedule that are hotter than `last`, and then `last`."""

    def __init__(self, schedule, last) -> None:
        self.schedule = schedule
        self.last = last

    @property
    def fills_gaps(self) -> bool:  # type: ignore[override]
        return self.schedule.fills_gaps

    def temperatures(self, hot):
        last = check_temperature(self.last)
        for temperature in self.schedule.temperatures(hot):
            if temperature <= last * (1 + 1e-12):
                break
            yield temperature
        yield last


NOT_DEFINED = (
    "schedule must be given in temperatures for a model whose penalty is not an L2 norm of its coefficients: C is not "
    "defined for it. Got {schedule!r}. Give temperatures, or use AnnealedLogisticRegression."
)


class CGrid(Schedule):
    """The given values of C, scikit-learn's inverse regularization strength, visited from the smallest to the largest.

    Each C is converted to the temperature ``T = 1 / (l2_strength * C * n_samples)``, twice that for two classes, so the
    final fit has the coefficients of ``LogisticRegression(C=C)`` on the same features, scaled as ``penalty_scaling``
    says. ``n_samples`` is the sum of the weights, ``sample_weight`` times ``class_weight``, as scikit-learn counts
    them.

    For models whose penalty is an L2 norm of coefficients: :class:`annealed.AnnealedLogisticRegression`,
    :class:`annealed.MELDA`, and :class:`annealed.AnnealedClassifier` with ``InnerProduct`` or ``Quadratic``.

    Parameters
    ----------
    Cs : int or array-like of positive numbers, default=10
        Values of C in any order. A whole number is that many values from 1e-4 to 1e4, evenly spaced on a logarithmic
        scale, as in scikit-learn's ``LogisticRegressionCV``.

    Notes
    -----
    Folds are fitted at the same temperatures as the final fit. A fold trains on fewer samples, and the temperature
    weighs their mean loss, where C weighs their sum. The scores of folds therefore differ a little from those of
    ``LogisticRegressionCV``, whose folds share C instead.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from annealed import AnnealedLogisticRegression, CGrid
    >>> X, y = load_iris(return_X_y=True)
    >>> model = AnnealedLogisticRegression(schedule=CGrid([0.01, 1.0, 100.0]), penalty_scaling="none").fit(X, y)
    >>> model.path_.C.round(6).tolist()
    [0.01, 1.0, 100.0]
    """

    def __init__(self, Cs=10) -> None:
        self.Cs = Cs

    def values(self) -> np.ndarray:
        """The values of C, ascending."""
        Cs = self.Cs
        if isinstance(Cs, Integral) and str(Cs) not in ("True", "False"):
            if Cs < 1:
                raise ValueError(f"Cs must be a whole number of at least 1, or values of C. Got {Cs!r}.")
            return np.logspace(-4, 4, int(Cs))
        try:
            values = np.asarray(Cs, dtype=float)
        except (TypeError, ValueError) as error:
            raise ValueError(f"Cs must be a whole number, or a list of positive numbers. Got {shown(Cs)}.") from error
        if values.ndim != 1 or not len(values) or not ((values > 0) & (values < np.inf)).all():
            raise ValueError(f"Cs must be a whole number, or a list of positive numbers. Got {shown(Cs)}.")
        return np.sort(values)

    def in_temperatures(self, unit_C: float | None) -> list[float]:
        """The temperatures, falling, given the C of temperature one; None: C is not defined for the model."""
        values = self.values()
        if unit_C is None:
            raise ValueError(NOT_DEFINED.format(schedule=self))
        with np.errstate(over="ignore"):  # the path refuses temperatures that are not finite
            return (unit_C / values).tolist()

    def temperatures(self, hot):
        raise TypeError(
            "CGrid gives temperatures only as the `schedule` of an estimator, which knows the number of samples. "
            f"Got {self!r} elsewhere. Pass it as schedule=, or give temperatures."
        )
