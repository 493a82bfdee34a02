"""Discriminant analysis by annealing and maximum entropy, in scikit-learn's language.

Begin with ``AnnealedLogisticRegression().fit(X, y)``: multinomial logistic regression with its whole L2 path, fitted
from strong to weak regularization. Cross-validation chooses the point of the path, and ``path_`` records all of them;
``AnnealingPathDisplay.from_estimator(model)`` draws it. ``AnnealedLDA`` (fitted class means), ``MELDA`` (a reduction),
``PottsDA`` (prototypes) and ``AnnealedClassifier`` (families from ``annealed.objectives``, or your own) anneal too.
"""

from annealed.displays import AnnealingPathDisplay, CoefficientPathDisplay, ProjectionDisplay, PrototypeDisplay
from annealed.estimators import (
    MELDA,
    AnnealedClassifier,
    AnnealedLDA,
    AnnealedLogisticRegression,
    PooledGaussian,
    PottsDA,
    SecondOrderFeatures,
)
from annealed.path import AnnealingPath
from annealed.prototypes import PrototypePath
from annealed.schedules import AdaptiveSchedule, CGrid, ExponentialSchedule, FixedSchedule, InverseTemperatureSchedule

__version__ = "0.1.0"

__all__ = [
    "AdaptiveSchedule",
    "AnnealedClassifier",
    "AnnealedLDA",
    "AnnealedLogisticRegression",
    "AnnealingPath",
    "AnnealingPathDisplay",
    "CGrid",
    "CoefficientPathDisplay",
    "ExponentialSchedule",
    "FixedSchedule",
    "InverseTemperatureSchedule",
    "MELDA",
    "PooledGaussian",
    "PottsDA",
    "ProjectionDisplay",
    "PrototypeDisplay",
    "PrototypePath",
    "SecondOrderFeatures",
]
