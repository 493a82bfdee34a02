"""Polynomials in log temperature: where a smooth path lies next, and what lies between its points."""

from __future__ import annotations

from math import prod

import numpy as np

N_POINTS = 6  # around a place; more gain nothing at the spacing of a path
WIDEST_STEP = 1.0  # of log temperature: beyond it a polynomial may swing, a straight line cannot


def lagrange(places, target) -> np.ndarray:
    """Weights of values at `places` in the polynomial through them, at `target`."""
    known = [float(place) for place in places]  # a handful: numbers one by one take less time than arrays

    def weight(number):
        others = known[:number] + known[number + 1 :]
        return prod((target - other) / (known[number] - other) for other in others)

    return np.array([weight(number) for number in range(len(known))])


def nearest_parabola(places, target) -> np.ndarray:
    """Weights of values at `places` in the parabola nearest to them, at `target`; later places count for more."""
    offset = np.asarray(places) - target
    trust = 1 / np.maximum(np.abs(offset), np.finfo(float).tiny)
    powers = offset[:, None] ** np.arange(3)
    return np.linalg.pinv(powers * trust[:, None])[0] * trust


def between(temperatures, temperature) -> tuple[np.ndarray, slice]:
    """Weights and window of the nearest temperatures (falling), or of the two around where they lie far apart."""
    places, target = np.log(temperatures), np.log(temperature)
    window = _window(places, target, N_POINTS)
    if np.diff(-places[window]).max(initial=0) > WIDEST_STEP:
        window = _window(places, target, 2)
    return lagrange(places[window], target), window


def _window(places, target, size) -> slice:
    below = np.searchsorted(-places, -target)
    first = int(np.clip(below - size // 2, 0, max(len(places) - size, 0)))
    return slice(first, first + size)
