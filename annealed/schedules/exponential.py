"""Geometric cooling, the schedule of the paper: `T <- cooling_rate * T`."""

from __future__ import annotations

from annealed.schedules.base import Schedule, check_temperature


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
