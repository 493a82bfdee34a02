"""The generators by name, and the shapes and labels that they draw.

A generator `(draw, size)` returns X, the labels and words about what it drew. `Size` draws shapes of which X has a
given number of stored entries. A cliff is a fixed problem, `(draw)` to X, labels and the number of training samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log

import numpy as np

FEWEST_SAMPLES_OF_A_CLASS = 6
MOST_SAMPLES = 60_000
MOST_SCORES = 1_000_000  # samples times classes
MOST_HELD_OUT = 2000

KINDS: dict[str, Callable] = {}
CLIFFS: dict[str, Callable] = {}


def between(draw, low, high) -> float:
    """Uniform in the logarithm."""
    return float(exp(draw.uniform(log(low), log(max(low, high)))))


def kind(name):
    def register(generator):
        KINDS[name] = generator
        return generator

    return register


def cliff(name):
    def register(generator):
        CLIFFS[f"cliff: {name}"] = generator
        return generator

    return register


@dataclass(frozen=True)
class Size:
    """Draws shapes with about so many stored entries of training samples."""

    draw: np.random.Generator
    n_values: int

    def classes(self, most=30) -> int:
        most = min(most, self.n_values // 50)
        return 2 if self.draw.random() < 0.4 else int(between(self.draw, 3, max(3.0, most + 0.99)))

    def shape(self, n_classes, n_columns=(2, 300), per_row=None) -> tuple[int, int]:
        """Samples, with those held out, and columns. per_row : stored entries of a row; None means all columns."""
        fewest = FEWEST_SAMPLES_OF_A_CLASS * n_classes
        n_features = int(between(self.draw, n_columns[0], min(n_columns[1], max(n_columns[0], self.n_values / fewest))))
        n_samples = self.n_values // int(per_row or n_features)
        n_samples = min(max(fewest, 30, n_samples), MOST_SAMPLES, MOST_SCORES // n_classes)
        return n_samples + min(MOST_HELD_OUT, n_samples // 2), n_features


def class_shares(draw, n_classes):
    """Equal, unequal, or with classes so rare that few samples are left, and a word."""
    kind = draw.choice(["equal", "unequal", "rare"], p=[0.4, 0.35, 0.25])
    if kind == "equal":
        return np.full(n_classes, 1 / n_classes), "equal classes"
    if kind == "unequal":
        return draw.dirichlet(np.full(n_classes, 2.0)), "unequal classes"
    shares = 10.0 ** -draw.uniform(0, between(draw, 1, 3.5), n_classes)
    return shares / shares.sum(), "rare classes"


def drawn_labels(draw, n_samples, shares):
    """Each class at least twice, also among the first half."""
    y = draw.choice(len(shares), size=n_samples, p=shares)
    y[: 2 * len(shares)] = np.tile(np.arange(len(shares)), 2)
    return y


def labels_of(draw, scores):
    """Labels from a posterior of drawn certainty and class shares, and words; each class at least twice."""
    n_classes = scores.shape[1]
    shares, words = class_shares(draw, n_classes)
    certainty = 0.0 if draw.random() < 0.06 else between(draw, 0.3, 100.0)
    scores = certainty * (scores - scores.mean(axis=0)) / np.maximum(scores.std(), 1e-300)
    scores = scores + np.log(shares) * max(1.0, certainty) + draw.gumbel(size=scores.shape)
    y = scores.argmax(axis=1)
    n_train = len(y) * 2 // 3
    margin = scores - scores.max(axis=1, keepdims=True)
    for own in range(n_classes):
        if np.sum(y[:n_train] == own) < 2:  # those that are nearly of this class
            y[np.argsort(-margin[:n_train, own], kind="stable")[:2]] = own
    return y, f"{words}, certainty {certainty:.2g}"
