"""Random problems of the kinds that people have, for `python dev.py bench population`: `make(kind, seed)` is one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.generators import cliffs, dense, sparse  # noqa: F401  # they register their generators
from benchmarks.generators.base import CLIFFS, KINDS, MOST_HELD_OUT, Size, between
from gates.random_tables import random_table
from gates.tables import Table

FEWEST_VALUES, USUAL_VALUES, MOST_VALUES = 1_000, 300_000, 3_000_000  # stored entries of X, log-uniform
LARGE_SHARE = 0.15  # of the problems have between USUAL_VALUES and MOST_VALUES entries
RANDOM = "random"  # the kind of gates/random_tables.py


def make(kind: str, seed: int = 0, most_values: int = MOST_VALUES) -> Table:
    """The problem of this kind and seed; a cliff has neither seed nor size. Its name says what was drawn."""
    draw = np.random.default_rng([seed, *kind.encode()])
    if kind in CLIFFS:
        return _named(kind, _split("", *CLIFFS[kind](draw)))
    n_values = _drawn_size(draw, most_values)
    if kind == RANDOM:
        made = random_table(int(draw.integers(1_000, 1_000_000)), n_values)
        return _named(f"{kind} {seed}", replace(made, name=made.name.partition("classes, ")[2]))
    X, y, words = KINDS[kind](draw, Size(draw, n_values))
    return _named(f"{kind} {seed}", _split(words, X, y, max(len(y) * 2 // 3, len(y) - MOST_HELD_OUT)))


def _named(name, table) -> Table:
    n_samples, n_features = table.X.shape
    words = f", {table.name}" if table.name else ""
    return replace(table, name=f"{name}: {n_samples} x {n_features}, {table.n_classes} classes{words}")


def _drawn_size(draw, most_values) -> int:
    if most_values > USUAL_VALUES and draw.random() < LARGE_SHARE:
        return int(between(draw, USUAL_VALUES, most_values))
    return int(between(draw, FEWEST_VALUES, min(USUAL_VALUES, most_values)))


def _split(words, X, y, n_train) -> Table:
    """The first samples are for training; a class that they lack cannot be scored."""
    test = n_train + np.flatnonzero(np.isin(y[n_train:], y[:n_train]))
    return Table(words, X[:n_train], y[:n_train], X[test], y[test])
