"""The default: hot end from the data, geometric cooling, and a stop when nothing more can be gained."""

from __future__ import annotations

import numpy as np

from annealed.schedules.base import Schedule, check_temperature

PATIENCE = 6  # temperatures past the best before "clearly passed" is considered
FLAT = 1e-4  # relative change that counts as none


class AdaptiveSchedule(Schedule):
    """Cool from a hot end found in the data until validation has clearly passed its best.

    It stops when the mean validation score has fallen below its best by more than the standard error of their
    fold-by-fold difference, or the validation score, or without validation the training loss, no longer moves.

    Parameters
    ----------
    n_temperatures : int, default=50
        The most temperatures visited.
    cooling_rate : float in (0, 1), default=0.7
        Ratio of one temperature to the one before.
    """

    def __init__(self, *, n_temperatures=50, cooling_rate=0.7):
        self.n_temperatures = n_temperatures
        self.cooling_rate = cooling_rate

    def temperatures(self, hot):
        rate = check_temperature(self.cooling_rate, "cooling_rate")
        if rate >= 1:
            raise ValueError(f"cooling_rate must be below 1 so that the temperature falls. Got {rate!r}.")
        start = hot()
        for step in range(self.n_temperatures):
            yield start * rate**step

    def should_stop(self, validation, train_loss):
        if len(train_loss) < 2 * PATIENCE:
            return False
        if validation[-1] is None:
            return _is_flat(np.asarray(train_loss[-PATIENCE:]))
        scores = np.stack(validation)
        mean = scores.mean(axis=1)
        best = int(np.argmax(mean))
        if len(mean) - 1 - best < PATIENCE:
            return _is_flat(mean[-PATIENCE:])
        return _is_flat(mean[-PATIENCE:]) or _clearly_below(scores[-1], scores[best])


def _is_flat(values):
    return np.ptp(values) <= FLAT * np.abs(values).max()


def _clearly_below(score, best):
    """Whether the mean fall exceeds its standard error over folds (2 % of the score where there is one fold)."""
    fall = best - score
    if len(fall) == 1:
        return fall[0] > 0.02 * np.abs(best[0])
    return fall.mean() > fall.std(ddof=1) / np.sqrt(len(fall))
