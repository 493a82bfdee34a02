"""Schedules: which temperatures are solved, from hot to cold."""

import numpy as np

from annealed.schedules.adaptive import AdaptiveSchedule
from annealed.schedules.base import Schedule, check_given_temperature, check_temperature, falling, is_auto
from annealed.schedules.c_grid import CGrid
from annealed.schedules.exponential import ExponentialSchedule
from annealed.schedules.fixed import FixedSchedule
from annealed.schedules.inverse import InverseTemperatureSchedule
from annealed.schedules.until import UntilSchedule

__all__ = [
    "AdaptiveSchedule",
    "CGrid",
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


def make_schedule(schedule, unit_C: float | None = None, **settings) -> Schedule:
    """A schedule in temperatures, from "auto", an array of temperatures, or a schedule.

    unit_C : the C of temperature one, if it is defined for the model
    settings : parameters of the adaptive schedule that "auto" means
    """
    if isinstance(schedule, CGrid):
        return FixedSchedule(schedule.in_temperatures(unit_C))
    if isinstance(schedule, Schedule):
        return schedule
    if isinstance(schedule, str):
        if schedule != "auto":
            raise ValueError(f'schedule must be "auto", temperatures or a Schedule. Got {schedule!r}.')
        return AdaptiveSchedule(**settings)
    if np.ndim(schedule) != 1:
        raise ValueError(f'schedule must be "auto", a list of temperatures or a Schedule. Got {schedule!r}.')
    return FixedSchedule(schedule)
