"""Which temperatures, hot to cold."""

import numpy as np

from annealed.schedules.adaptive import AdaptiveSchedule
from annealed.schedules.base import Schedule, check_given_temperature, check_temperature, falling, is_auto
from annealed.schedules.exponential import ExponentialSchedule
from annealed.schedules.fixed import FixedSchedule
from annealed.schedules.inverse import InverseTemperatureSchedule
from annealed.schedules.until import UntilSchedule

__all__ = [
    "AdaptiveSchedule",
    "ExponentialSchedule",
    "FixedSchedule",
    "InverseTemperatureSchedule",
    "Schedule",
    "UntilSchedule",
    "check_given_temperature",
    "check_temperature",
    "falling",
    "is_auto",
    "make_schedule",
]


def make_schedule(schedule, **settings) -> Schedule:
    """A schedule from "auto", adaptive with these settings, an array of temperatures, or the schedule itself."""
    if isinstance(schedule, Schedule):
        return schedule
    if isinstance(schedule, str):
        if schedule != "auto":
            raise ValueError(f'schedule must be "auto", temperatures or a Schedule. Got {schedule!r}.')
        return AdaptiveSchedule(**settings)
    if np.ndim(schedule) != 1:
        raise ValueError(f'schedule must be "auto", a list of temperatures or a Schedule. Got {schedule!r}.')
    return FixedSchedule(schedule)
