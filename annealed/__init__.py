"""Discriminant analysis by annealing and maximum entropy, in scikit-learn's language."""

from annealed.displays import AnnealingPathDisplay, CoefficientPathDisplay, ProjectionDisplay
from annealed.estimators import (
    MELDA,
    AnnealedClassifier,
    DistanceADA,
    InnerProductADA,
    PooledGaussian,
    SecondOrderFeatures,
)
from annealed.path import AnnealingPath
from annealed.schedules import AdaptiveSchedule, ExponentialSchedule, FixedSchedule

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
    "MELDA",
    "PooledGaussian",
    "ProjectionDisplay",
    "SecondOrderFeatures",
]
