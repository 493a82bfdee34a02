"""The default: hot end from the data, geometric cooling, and a stop when nothing more can be gained."""

from __future__ import annotations

from math import isnan, log, sqrt
from numbers import Integral

import numpy as np

from annealed.interpolation import lagrange
from annealed.schedules.base import Schedule, check_temperature

PATIENCE = 1.8  # of log temperature past the best, before "clearly passed" is considered
LONG_PATIENCE = 4.0  # past the best, after which it is taken for passed, however small the fall
COLLAPSE = 0.25  # relative fall of the score by which a path that has learned nothing ends
LEARNT_BY_HEART = 0.5  # share of the hot Q / T below which it ends, too
FLAT = 1e-3  # relative change over PATIENCE that counts as none
NO_GAIN = 1e-5  # share of the hot Q / T, about the nats there are to gain: a score that changes by less counts as flat,
SMALL_GAIN = 0.01  # where that is no more than so much of how far it has come
COLDEST = 1e-10  # share of the hot end below which no temperature is visited
HARD = 1e-5  # share of the hot Q / T below which the posterior is hard and nothing is left to learn


class AdaptiveSchedule(Schedule):
    """Cool from a hot end found in the data until validation has clearly passed its best.

    It stops when the mean validation score has fallen below its best by more than the standard error of their
    fold-by-fold difference (three of them right past the best, or one where a parabola foresees it), when the best lies
    at a temperature fifty times as hot, when the validation score (without validation, Q / T, or Q where decisions have
    become hard) no longer moves, or by some hundred-thousandths of a nat alone, or when the training rows are all but
    certain.

    Parameters
    ----------
    n_temperatures : int, default=80
        The most temperatures visited; a family that interpolates adds others between them to its path.
    cooling_rate : float in (0, 1), default=0.7
        Ratio of one temperature to the one before. ``schedule="auto"`` takes 0.4 where a family interpolates.
    learns_late : bool, default=False
        Whether what matters may come late, as under a penalty, which lets directions in by how much they vary. While
        validation is not clearly better than at the hot end, cooling then goes on until Q / T no longer moves or is
        half of what it was, or the score has fallen by a quarter; but no longer than rows tell more than chance would
        of what is still held back. And where that is clear, and much beside Q / T, it goes on whatever the scores say.
        The inner-product family's default does so.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from annealed import AdaptiveSchedule, AnnealedLogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> model = AnnealedLogisticRegression(schedule=AdaptiveSchedule(n_temperatures=5)).fit(X, y)
    >>> len(model.path_)
    5
    """

    fills_gaps = True

    def __init__(self, *, n_temperatures=80, cooling_rate=0.7, learns_late=False) -> None:
        self.n_temperatures = n_temperatures
        self.cooling_rate = cooling_rate
        self.learns_late = learns_late

    def temperatures(self, hot):
        rate = check_temperature(self.cooling_rate, "cooling_rate")
        if rate >= 1:
            raise ValueError(f"cooling_rate must be below 1 so that the temperature falls. Got {rate!r}.")
        if not isinstance(self.n_temperatures, Integral) or self.n_temperatures < 1:
            raise ValueError(f"n_temperatures must be a whole number of at least 1. Got {self.n_temperatures!r}.")
        start = hot()
        for step in range(self.n_temperatures):
            if rate**step < COLDEST:
                break
            yield start * rate**step

    def should_stop(self, temperatures, validation, value):
        cooled = [log(temperatures[0] / temperature) for temperature in temperatures]
        if cooled[-1] < LONG_PATIENCE:
            return False
        if value[-1] < HARD * value[0]:
            return True
        if validation[-1] is None:
            energy = [own * temperature for own, temperature in zip(value, temperatures, strict=True)]
            return any(_is_flat(own, cooled, PATIENCE) for own in (value, energy))
        scores = np.array(validation)
        mean = _means(scores)
        best = _best(mean)
        if self.learns_late and not _has_learned(scores, best):
            has_collapsed = mean[best] - mean[-1] > COLLAPSE * abs(mean[best])
            is_learnt = value[-1] < LEARNT_BY_HEART * value[0]
            return has_collapsed or is_learnt or _is_flat(value, cooled, LONG_PATIENCE)
        since_best = cooled[-1] - cooled[best]
        no_gain = min(NO_GAIN * value[0], SMALL_GAIN * (mean[best] - mean[0]))
        is_flat = _is_flat(mean, cooled, PATIENCE, no_gain)
        return _is_passed(scores, cooled, best) or since_best >= LONG_PATIENCE or is_flat

    def is_waiting(self, temperatures, validation, value):
        is_hot = log(temperatures[0] / temperatures[-1]) < LONG_PATIENCE
        if not self.learns_late or is_hot or validation[-1] is None or value[-1] < LEARNT_BY_HEART * value[0]:
            return False
        scores = np.array(validation)
        return not _has_learned(scores, _best(_means(scores)))


def _has_learned(scores, best) -> bool:
    """Whether the best is clearly better than the hot end."""
    return _is_below(scores[0], scores[best], 1)


def _means(scores) -> list[float]:
    return (scores.sum(axis=1) / scores.shape[1]).tolist()


def _best(means) -> int:
    """The first of equals; one that is no number is the worst."""
    return max(range(len(means)), key=lambda own: -np.inf if isnan(means[own]) else means[own])


def _is_flat(values, cooled, patience, no_change=0.0) -> bool:
    """Whether the values of the last `patience` of log temperature are all but the same, or differ by `no_change`."""
    recent = [own for own, place in zip(values, cooled, strict=True) if place >= cooled[-1] - patience]
    is_known = not any(isnan(own) for own in recent)
    return is_known and max(recent) - min(recent) <= max(FLAT * max(abs(own) for own in recent), no_change)


def _is_passed(scores, cooled, best) -> bool:
    """Whether the last scores are clearly below the best, or those at the end of PATIENCE are about to be."""
    since_best = cooled[-1] - cooled[best]
    if since_best < PATIENCE / 2:
        return False
    if since_best >= PATIENCE:
        return _is_below(scores[-1], scores[best], 1)
    if _is_below(scores[-1], scores[best], 3):
        return True
    return best > 0 and _is_below(_foreseen(scores, cooled, best), scores[best], 1)


def _foreseen(scores, cooled, best) -> np.ndarray:
    """Scores at the end of PATIENCE: by a parabola through the last, the best, and those as long before it."""
    since_best = cooled[-1] - cooled[best]
    before = min(range(best), key=lambda own: abs(cooled[best] - cooled[own] - since_best))
    known = [before, best, len(scores) - 1]
    return lagrange([cooled[own] for own in known], cooled[best] + PATIENCE) @ scores[known]


def _is_below(score, best, n_errors) -> bool:
    """Whether the mean fall exceeds its standard errors over folds (2 % of the score each, where there is one fold)."""
    fall, n_folds = best - score, len(score)
    if n_folds == 1:
        return bool(fall[0] > n_errors * 0.02 * abs(best[0]))
    mean = float(fall.sum()) / n_folds
    spread = fall - mean
    return mean > n_errors * sqrt(float(spread @ spread) / (n_folds * (n_folds - 1)))
