"""Annealing: the path of a stack of fits from hot to cold temperatures, its schedules and its record."""

import numpy as np

from annealed.path.adaptive import AdaptiveSchedule
from annealed.path.base import Step, Validation, Validator, Watch
from annealed.path.cooling import anneal, concluded
from annealed.path.record import AnnealingPath
from annealed.path.schedules import (
    CGrid,
    ExponentialSchedule,
    FixedSchedule,
    InverseTemperatureSchedule,
    Schedule,
    UntilSchedule,
    check_given_temperature,
    check_temperature,
    falling,
    is_auto,
)

__all__ = [
    "AdaptiveSchedule",
    "AnnealingPath",
    "CGrid",
    "ExponentialSchedule",
    "FixedSchedule",
    "InverseTemperatureSchedule",
    "Schedule",
    "Step",
    "UntilSchedule",
    "Validation",
    "Validator",
    "Watch",
    "anneal",
    "check_given_temperature",
    "check_temperature",
    "concluded",
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
