"""Figure 1 of Wang, Zhang and Lochovsky, "Annealed Discriminant Analysis": pages of university departments."""

from __future__ import annotations

from experiments import ada_figure
from experiments.text_corpora import load_webkb

TITLE = "dADA and pADA on WebKB, figure 1 of Wang, Zhang and Lochovsky"
OPTIONS = ada_figure.OPTIONS
FIGURE = ada_figure.Figure("ada_webkb", "WebKB", load_webkb, n_columns=500)


def run(options) -> None:
    """Measure, print and draw figure 1."""
    ada_figure.run(FIGURE, options)
