"""Temperatures given as a list."""

from __future__ import annotations

from reprlib import repr as shown

import numpy as np

from annealed.schedules.base import Schedule, check_temperature

SAME = 1e-9  # relative difference up to which two temperatures are equal apart from rounding


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
            if value < (1 - SAME) * last:
                yield value
                last = value
