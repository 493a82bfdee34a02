"""Discriminant analysis by annealing and maximum entropy, in scikit-learn's language."""

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
