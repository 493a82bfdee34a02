"""The data of a report as arrays, which `points` computes and `figures` draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm

from annealed.estimators import AnnealedKernelClassifier

LONGEST = 18  # characters of a name beside an axis, and of a number in a cell
MOST_DIGITS = 6  # digits of a number in the confusion matrix
QUANTILE = float(norm.ppf(0.975))


def share_interval(share, n_samples):
    """Wilson's 95 % interval of a proportion, which lies in [0, 1] and has positive length even at 0 and 1."""
    shrink = 1 + QUANTILE**2 / n_samples
    centre = (share + QUANTILE**2 / (2 * n_samples)) / shrink
    half = QUANTILE / shrink * np.sqrt(share * (1 - share) / n_samples + QUANTILE**2 / (4 * n_samples**2))
    return np.maximum(centre - half, 0), np.minimum(centre + half, 1)


def effective_sample_size(weights):
    """Kish's effective sample size: the number of equally weighted samples whose mean has the same variance."""
    shares = weights / weights.max()
    return shares.sum() ** 2 / np.sum(shares**2)


def is_kernel(classifier) -> bool:
    return isinstance(classifier, AnnealedKernelClassifier)


@dataclass(frozen=True)
class Plane:
    """The samples projected onto two directions, and the predictions on a grid in their plane.

    points : (n_samples, 2)
    axes : coordinates of the grid along each direction, two vectors
    regions : predicted class at each grid point, (n_temperatures, len(axes[1]), len(axes[0]))
    confidence : posterior probability of the predicted class, of the same shape
    """

    points: np.ndarray
    axes: tuple[np.ndarray, np.ndarray]
    regions: np.ndarray
    confidence: np.ndarray


@dataclass(frozen=True)
class OneTemperature:
    """Replaces the path of a model that predicts at a single temperature, such as PottsDA."""

    temperatures: np.ndarray
    best_index: int = 0


@dataclass(frozen=True)
class Prototypes:
    """The prototypes of a model.

    positions : (n_prototypes, n_features), as differences from the mean in standard deviations of the features
    labels : (n_prototypes, n_classes), class probabilities
    """

    positions: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class ReportData:
    """The data of a report.

    shown : indices on the path of the temperatures that the slider visits
    weights : sample weights, (n_samples,)
    posterior : posterior of every sample at these temperatures, (n_shown, n_samples, n_classes)
    in_training : whether a sample equals one that the model was fitted on, (n_samples,)
    is_held_out : whether a sample was predicted by a cross-validation fit without it, (n_samples,)
    strength : effect of a standard deviation of each feature on each class's logit, (n_classes, n_features); None if
        the model is not linear
    prototypes : None if the model has none
    """

    path: Any
    shown: np.ndarray
    classes: list[str]
    labels: np.ndarray
    weights: np.ndarray
    posterior: np.ndarray
    in_training: np.ndarray
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
        """Index of the temperature chosen by validation among the shown ones."""
        return int(np.flatnonzero(self.shown == self.path.best_index)[0])

    @property
    def unit(self) -> str:
        """The unit of sums of weights: samples, if all weights are 1."""
        return "samples" if (self.weights == 1).all() else "sum of weights"

    @property
    def predicted(self) -> np.ndarray:
        return self.posterior.argmax(axis=2)

    def confusion(self, predicted) -> np.ndarray:
        """Sum of the sample weights for each true and predicted class."""
        counts = np.zeros((len(self.classes), len(self.classes)))
        np.add.at(counts, (self.labels, predicted), self.weights)
        return counts


def formatted(count):
    """A sum of weights with few digits, or a number of samples with all digits."""
    text = np.format_float_positional(count, precision=MOST_DIGITS, fractional=False, trim="-")
    return text if len(text) <= LONGEST else f"{count:.3g}"
