"""Plot of mean ranks with bars that join methods without a significant difference in a Nemenyi test (Demsar 2006)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import studentized_range

OURS_COLOUR, PEER_COLOUR = "#D55E00", "#4D4D4D"
MANY = 1e6  # degrees of freedom, in place of infinity


def critical_difference(n_methods: int, n_tables: int, level: float = 0.05) -> float:
    """Smallest significant difference of two mean ranks in a Nemenyi test."""
    quantile = studentized_range.ppf(1 - level, n_methods, MANY) / np.sqrt(2)
    return float(quantile * np.sqrt(n_methods * (n_methods + 1) / (6 * n_tables)))


def groups(ranks: np.ndarray, distance: float) -> list[tuple[int, int]]:
    """Maximal runs (first, last) of sorted ranks that lie within a distance."""
    found: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = int(np.searchsorted(ranks, rank + distance, side="right")) - 1
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found


def draw_ranks(ranks: dict[str, pd.Series], n_tables: int, ours: list[str], path: Path) -> Path:
    """One panel per measure with one line per method, best on top, ours in colour."""
    from matplotlib.figure import Figure

    n_methods = len(next(iter(ranks.values())))
    distance = critical_difference(n_methods, n_tables)
    figure = Figure(figsize=(5.2 * len(ranks), 0.8 + 0.28 * n_methods), layout="constrained")
    for ax, (measure, means) in zip(figure.subplots(1, len(ranks), squeeze=False)[0], ranks.items(), strict=True):
        means = means.sort_values()
        places = np.arange(n_methods)
        colours = [OURS_COLOUR if name in ours else PEER_COLOUR for name in means.index]
        ax.scatter(means, places, color=colours, zorder=3)
        for number, (first, last) in enumerate(groups(means.to_numpy(), distance)):
            column = n_methods + 0.5 + 0.25 * number
            ax.plot([column] * 2, [first - 0.2, last + 0.2], color="black", linewidth=2.5, solid_capstyle="butt")
        ax.set_yticks(places, means.index)
        for label, colour in zip(ax.get_yticklabels(), colours, strict=True):
            label.set_color(colour)
        ax.invert_yaxis()
        ax.set_xlabel(f"mean rank in {measure}, {n_tables} tables")
        ax.set_title(f"bars join methods that differ by less than {distance:.2f}", loc="left", fontsize=8)
        ax.grid(axis="x", alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path
