"""A curve of the size of a word, as inline SVG in the colour of the surrounding text, for light and dark pages."""

from __future__ import annotations

from html import escape

import numpy as np
from sklearn.utils import estimator_html_repr

WIDTH, HEIGHT, ROOM = 180, 36, 5
CHOSEN_COLOUR = "#D55E00"  # from the palette of Okabe and Ito, as in the displays


def diagram_with_path(estimator, path) -> str:
    """scikit-learn's HTML diagram of an estimator and, once it is fitted, the score along its path."""
    diagram = estimator_html_repr(estimator)
    if path is None:
        return diagram
    is_loss = path.score_name.startswith("neg_")
    score = path.train_score if path.validation_score is None else path.validation_score.mean(axis=1)
    name = path.score_name.removeprefix("neg_").replace("_", " ")
    which = "train" if path.validation_score is None else "validation"
    return diagram + sparkline(path.temperatures, -score if is_loss else score, path.best_index, f"{which} {name}")


def sparkline(temperatures, values, best_index: int, name: str) -> str:
    """A curve over log temperature, hot to cold; the chosen point is marked, and its values are written beside it.

    Parameters
    ----------
    temperatures : array-like of shape (n_temperatures,)
        Decreasing temperatures.
    values : array-like of shape (n_temperatures,)
    best_index : int
        Index of the chosen temperature.
    name : str
        Name of the values, such as "log loss".

    Returns
    -------
    html : str
    """
    x = _scaled(-np.log(temperatures), WIDTH)
    y = HEIGHT - _scaled(np.asarray(values, dtype=float), HEIGHT)
    points = " ".join(f"{left:.1f},{top:.1f}" for left, top in zip(x, y, strict=True))
    chosen = f"{name} {values[best_index]:.4g} at the chosen temperature {temperatures[best_index]:.3g}"
    label = escape(f"{chosen}; {len(x)} temperatures, hot to cold", quote=True)
    return (
        '<div style="display: flex; align-items: center; gap: 0.8em; font-size: 0.85em; margin: 0.4em 0">'
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{label}">'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
        f'<circle cx="{x[best_index]:.1f}" cy="{y[best_index]:.1f}" r="3.5" fill="{CHOSEN_COLOUR}"/></svg>'
        f"<span>{label}</span></div>"
    )


def _scaled(values, size):
    """Values scaled to the range from ROOM to size - ROOM; all in the middle if they are equal."""
    low, spread = values.min(), np.ptp(values)
    share = (values - low) / spread if spread > 0 else np.full(len(values), 0.5)
    return ROOM + share * (size - 2 * ROOM)
