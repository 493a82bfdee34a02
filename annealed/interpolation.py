"""Polynomials in log temperature: where a smooth path lies next, and what lies between its points."""

from __future__ import annotations

import numpy as np

N_POINTS = 6  # around a place; more gain nothing at the spacing of a path
WIDEST_STEP = 1.0  # of log temperature: beyond it a polynomial may swing, a straight line cannot


def lagrange(places, target) -> np.ndarray:
    """Weights of values at `places` in the polynomial through them, at `target`."""
    places = np.asarray(places)
    to_target, apart = np.broadcast_to(target - places, (len(places),) * 2).copy(), places[:, None] - places
    np.fill_diagonal(to_target, 1)
    np.fill_diagonal(apart, 1)
    return np.prod(to_target / apart, axis=1)


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
