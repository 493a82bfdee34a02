"""What a report shows, as arrays: computed in one place, drawn in another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm

LONGEST = 18  # characters of a name beside an axis, and of a number in a cell
MOST_DIGITS = 6  # of a cell in the confusion matrix
QUANTILE = float(norm.ppf(0.975))


def share_interval(share, n_rows):
    """Wilson's 95 % interval, which does not leave [0, 1] and is honest about none and all."""
    shrink = 1 + QUANTILE**2 / n_rows
    centre = (share + QUANTILE**2 / (2 * n_rows)) / shrink
    half = QUANTILE / shrink * np.sqrt(share * (1 - share) / n_rows + QUANTILE**2 / (4 * n_rows**2))
    return np.maximum(centre - half, 0), np.minimum(centre + half, 1)


def effective_rows(weights):
    """How many rows of equal weight tell a mean as well (Kish): all of them where they are equal."""
    shares = weights / weights.max()
    return shares.sum() ** 2 / np.sum(shares**2)


@dataclass(frozen=True)
class Plane:
    """Rows in two directions, and what the model says at places between them.

    points : (n_rows, 2)
    axes : places along each direction, two vectors
    regions : class predicted at each place, (n_temperatures, len(axes[1]), len(axes[0]))
    certainty : its posterior, of the same shape
    """

    points: np.ndarray
    axes: tuple[np.ndarray, np.ndarray]
    regions: np.ndarray
    certainty: np.ndarray


@dataclass(frozen=True)
class OneTemperature:
    """Stands for the path of a model that speaks at a single temperature."""

    temperatures: np.ndarray
    best_index: int = 0


@dataclass(frozen=True)
class Prototypes:
    """Places that a model compares rows with: in standard deviations of the features, and whom they speak for."""

    places: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class ReportData:
    """The numbers of a report.

    shown : positions on the path of the temperatures that the slider visits
    weights : how much each row counts, (n_rows,)
    posterior : of every row at those, (n_shown, n_rows, n_classes)
    was_seen : whether each row equals one that the model was fitted on, (n_rows,)
    is_held_out : whether each row was judged by a fold's fit that did not see it, (n_rows,)
    strength : of each feature for each class, (n_classes, n_features), in standard deviations; None if not linear
    prototypes : None where the model has none
    """

    path: Any
    shown: np.ndarray
    classes: list[str]
    labels: np.ndarray
    weights: np.ndarray
    posterior: np.ndarray
    was_seen: np.ndarray
    is_held_out: np.ndarray
    plane: Plane
    feature_names: list[str]
    strength: np.ndarray | None
    prototypes: Prototypes | None

    @property
    def temperatures(self) -> np.ndarray:
        return self.path.temperatures[self.shown]

    @property
    def chosen(self) -> int:
        """Position among the shown temperatures of the one that validation chose."""
        return int(np.flatnonzero(self.shown == self.path.best_index)[0])

    @property
    def unit(self) -> str:
        """What sums of weights count."""
        return "rows" if (self.weights == 1).all() else "in weights"

    @property
    def predicted(self) -> np.ndarray:
        return self.posterior.argmax(axis=2)

    def confusion(self, predicted) -> np.ndarray:
        """Weight of the rows by true and predicted class."""
        counts = np.zeros((len(self.classes), len(self.classes)))
        np.add.at(counts, (self.labels, predicted), self.weights)
        return counts


def written(count):
    """A sum of weights in few digits, a number of rows in all of its own."""
    text = np.format_float_positional(count, precision=MOST_DIGITS, fractional=False, trim="-")
    return text if len(text) <= LONGEST else f"{count:.3g}"
