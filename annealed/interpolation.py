"""Polynomials in log temperature: where a smooth path lies next, and what lies between its points."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from math import log, prod

import numpy as np

N_POINTS = 6  # around a place; more gain nothing at the spacing of a path
WIDEST_STEP = 1.0  # of log temperature: beyond it a polynomial may swing, a straight line cannot
CLOSEST = 0.01  # likewise: of points closer together one is taken, as their difference is mostly error


def lagrange(places, target) -> np.ndarray:
    """Weights of values at `places` in the polynomial through them, at `target`."""
    known = [float(place) for place in places]  # a handful: numbers one by one take less time than arrays

    def weight(number):
        own, others = known[number], known[:number] + known[number + 1 :]
        return prod([(target - other) / (own - other) for other in others])

    return np.array([weight(number) for number in range(len(known))])


def hermite(places, target) -> tuple[np.ndarray, np.ndarray]:
    """Weights of values and of slopes at one or two `places`, in the polynomial that has them all, at `target`."""
    if len(places) == 1:
        return np.ones(1), np.array([target - places[0]])
    length = places[1] - places[0]
    share = (target - places[0]) / length
    left = 1 - share
    values = np.array([left**2 * (1 + 2 * share), share**2 * (1 + 2 * left)])
    return values, length * share * left * np.array([left, -share])


def nearest_parabola(places, target) -> np.ndarray:
    """Weights of values at `places` in the parabola nearest to them, at `target`; later places count for more."""
    offset = np.asarray(places) - target
    trust = 1 / np.maximum(np.abs(offset), np.finfo(float).tiny)
    powers = offset[:, None] ** np.arange(3)
    return np.linalg.pinv(powers * trust[:, None])[0] * trust


def between(temperatures, temperature) -> tuple[np.ndarray, slice]:
    """Weights and window of the nearest temperatures (falling), or of the two around where they lie far apart."""
    places, target = [-log(own) for own in temperatures], -log(temperature)
    window = _window(places, target, N_POINTS)
    if any(colder - hotter > WIDEST_STEP for hotter, colder in pairwise(places[window])):
        window = _window(places, target, 2)
    near, weights = places[window], np.zeros(len(places[window]))
    taken = _apart(near, target)
    weights[taken] = lagrange([near[number] for number in taken], target)
    return weights, window


def _apart(places, target) -> list[int]:
    """Numbers of places, rising, that lie apart from one another; the nearest to the target first."""
    taken: list[int] = []
    for number in sorted(range(len(places)), key=lambda own: abs(places[own] - target)):
        if all(abs(places[number] - places[other]) >= CLOSEST for other in taken):
            taken.append(number)
    return sorted(taken)


def _window(places, target, size) -> slice:
    first = max(0, min(bisect_left(places, target) - size // 2, len(places) - size))
    return slice(first, first + size)
