"""Geometric cooling in inverse temperatures, as in the slides of PottsDA: `beta <- growth * beta`."""

from __future__ import annotations

import sys

from annealed.schedules.base import Schedule, check_temperature


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
