"""A curve the size of a word, as inline SVG: it takes the colour of the text around it, in light and in dark."""

from __future__ import annotations

from html import escape

import numpy as np

WIDTH, HEIGHT, ROOM = 180, 36, 5
CHOSEN_COLOUR = "#D55E00"  # of Okabe and Ito, as in the displays


def sparkline(temperatures, values, best_index: int, name: str) -> str:
    """A curve over log temperature, hot to cold, with the chosen point marked and told in words.

    Parameters
    ----------
    temperatures : array-like of shape (n_temperatures,)
        Falling.
    values : array-like of shape (n_temperatures,)
    best_index : int
    name : str
        What the values are.

    Returns
    -------
    html : str
    """
    across = _scaled(-np.log(temperatures), WIDTH)
    down = HEIGHT - _scaled(np.asarray(values, dtype=float), HEIGHT)
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True))
    words = f"{name} {values[best_index]:.4g} at temperature {temperatures[best_index]:.3g}"
    label = escape(f"{words}, of {len(across)} hot to cold", quote=True)
    return (
        '<div style="display: flex; align-items: center; gap: 0.8em; font-size: 0.85em; margin: 0.4em 0">'
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{label}">'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
        f'<circle cx="{across[best_index]:.1f}" cy="{down[best_index]:.1f}" r="3.5" fill="{CHOSEN_COLOUR}"/></svg>'
        f"<span>{label}</span></div>"
    )


def _scaled(values, size):
    """Values between ROOM and size - ROOM, or in the middle where they are all the same."""
    low, spread = values.min(), np.ptp(values)
    share = (values - low) / spread if spread > 0 else np.full(len(values), 0.5)
    return ROOM + share * (size - 2 * ROOM)
