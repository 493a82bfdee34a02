"""The default: hot end from the data, geometric cooling, and a stop when nothing more can be gained."""

from __future__ import annotations

import numpy as np

from annealed.schedules.base import Schedule, check_temperature

PATIENCE = 6  # temperatures past the best before "clearly passed" is considered
LONG_PATIENCE = 12  # temperatures past the best after which it is taken for passed, however small the fall
FLAT = 1e-3  # relative change over PATIENCE temperatures that counts as none
HARD = 1e-5  # share of the hot training loss below which the posterior is hard and nothing is left to learn


class AdaptiveSchedule(Schedule):
    """Cool from a hot end found in the data until validation has clearly passed its best.

    It stops when the mean validation score has fallen below its best by more than the standard error of their
    fold-by-fold difference, when the best lies a dozen temperatures back, when the validation score (without
    validation, the training loss) no longer moves, or when the training rows are all but certain.

    Parameters
    ----------
    n_temperatures : int, default=80
        The most temperatures visited.
    cooling_rate : float in (0, 1), default=0.7
        Ratio of one temperature to the one before.
    """

    def __init__(self, *, n_temperatures=80, cooling_rate=0.7):
        self.n_temperatures = n_temperatures
        self.cooling_rate = cooling_rate

    def temperatures(self, hot):
        rate = check_temperature(self.cooling_rate, "cooling_rate")
        if rate >= 1:
            raise ValueError(f"cooling_rate must be below 1 so that the temperature falls. Got {rate!r}.")
        if self.n_temperatures < 1:
            raise ValueError(f"n_temperatures must be at least 1. Got {self.n_temperatures!r}.")
        start = hot()
        for step in range(self.n_temperatures):
            yield start * rate**step

    def should_stop(self, validation, train_loss):
        if len(train_loss) < 2 * PATIENCE:
            return False
        if train_loss[-1] < HARD * train_loss[0]:
            return True
        if validation[-1] is None:
            return _is_flat(np.asarray(train_loss[-PATIENCE:]))
        scores = np.stack(validation)
        mean = scores.mean(axis=1)
        best = int(np.argmax(mean))
        since_best = len(mean) - 1 - best
        is_passed = since_best >= PATIENCE and _clearly_below(scores[-1], scores[best])
        return is_passed or since_best >= LONG_PATIENCE or _is_flat(mean[-PATIENCE:])


def _is_flat(values):
    return np.ptp(values) <= FLAT * np.abs(values).max()


def _clearly_below(score, best):
    """Whether the mean fall exceeds its standard error over folds (2 % of the score where there is one fold)."""
    fall = best - score
    if len(fall) == 1:
        return fall[0] > 0.02 * np.abs(best[0])
    return fall.mean() > fall.std(ddof=1) / np.sqrt(len(fall))
