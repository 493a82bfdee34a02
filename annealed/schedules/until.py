"""A schedule that is cut off at a given temperature."""

from __future__ import annotations

from annealed.schedules.base import Schedule, check_temperature


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
