"""Annealing: the path of a stack of fits from hot to cold temperatures, its schedules and its record."""

from annealed.path.adaptive import AdaptiveSchedule, make_schedule
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
