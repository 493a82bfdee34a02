"""Figure 2 of Wang, Zhang and Lochovsky, "Annealed Discriminant Analysis": articles of twenty newsgroups."""

from __future__ import annotations

from experiments import ada_figure
from experiments.text_corpora import load_newsgroups

TITLE = "dADA and pADA on Newsgroups, figure 2 of Wang, Zhang and Lochovsky"
FIGURE = ada_figure.Figure("ada_newsgroups", "Newsgroups", load_newsgroups, n_columns=1000)


def run(options) -> None:
    """Measure, print and draw figure 2."""
    ada_figure.run(FIGURE, options)
