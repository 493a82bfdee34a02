"""Discriminant analysis by annealing and maximum entropy, in scikit-learn's language.

Begin with ``InnerProductADA().fit(X, y)``: a linear classifier that walks from a hot, simple model to a cold, sharp one
and keeps the temperature at which held-out rows are predicted best. ``path_`` holds everything seen on the way, and
``AnnealingPathDisplay.from_estimator(model)`` draws it. ``DistanceADA`` (fitted class means), ``MELDA`` (a reduction),
``PottsDA`` (prototypes) and ``AnnealedClassifier`` (families from ``annealed.objectives``, or your own) anneal too.
"""

from annealed.displays import AnnealingPathDisplay, CoefficientPathDisplay, ProjectionDisplay, PrototypeDisplay
from annealed.estimators import (
    MELDA,
    AnnealedClassifier,
    DistanceADA,
    InnerProductADA,
    PooledGaussian,
    PottsDA,
    SecondOrderFeatures,
)
from annealed.path import AnnealingPath
from annealed.prototypes import PrototypePath
from annealed.schedules import AdaptiveSchedule, ExponentialSchedule, FixedSchedule, InverseTemperatureSchedule

__version__ = "0.1.0"

__all__ = [
    "AdaptiveSchedule",
    "AnnealedClassifier",
    "AnnealingPath",
    "AnnealingPathDisplay",
    "CoefficientPathDisplay",
    "DistanceADA",
    "ExponentialSchedule",
    "FixedSchedule",
    "InnerProductADA",
    "InverseTemperatureSchedule",
    "MELDA",
    "PooledGaussian",
    "PottsDA",
    "ProjectionDisplay",
    "PrototypeDisplay",
    "PrototypePath",
    "SecondOrderFeatures",
]
