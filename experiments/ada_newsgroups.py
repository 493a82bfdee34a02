"""Figure 2 of Wang, Zhang and Lochovsky, "Annealed Discriminant Analysis": articles of twenty newsgroups."""

from __future__ import annotations

from experiments import ada_figure
from experiments.ada_panels import Range
from experiments.text_corpora import load_newsgroups

TITLE = "dADA and pADA on Newsgroups, figure 2 of Wang, Zhang and Lochovsky"
OPTIONS = ada_figure.OPTIONS
RANGE = Range(
    distance_hot=1e6,
    distance_cold=1e3,
    product_hot=1.0,
    product_cold=10**-2.5,
    penalties=(10**-0.5, 1e-1, 10**-1.5, 1e-2),
    per_penalty=1,
    standing=1e3,
    standing_steps=750,
    regression_steps=1500,
)
FIGURE = ada_figure.Figure("ada_newsgroups", "Newsgroups", load_newsgroups, n_columns=1000, span=RANGE)


def run(options) -> None:
    """Measure, print and draw figure 2."""
    ada_figure.run(FIGURE, options)
