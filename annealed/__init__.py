"""The whole L2 path of multinomial logistic regression, cross-validated, calibrated and certified, for scikit-learn.

Begin with ``AnnealedLogisticRegression().fit(X, y)``. It fits the models of all regularization strengths, from strong
to weak, and cross-validation chooses one. ``path_`` records all of them, and
``AnnealingPathDisplay.from_estimator(model)`` plots them. The other estimators are ``AnnealedLDA`` (fitted class
means), ``AnnealedKernelClassifier`` (curved boundaries), ``MELDA`` (a supervised projection), ``PottsDA`` (prototypes)
and ``AnnealedClassifier`` (families from ``annealed.problems``, or your own).
"""

from annealed.estimators import (
    MELDA,
    AnnealedClassifier,
    AnnealedKernelClassifier,
    AnnealedLDA,
    AnnealedLogisticRegression,
    PooledGaussian,
    PottsDA,
    SecondOrderFeatures,
)
from annealed.path import (
    AdaptiveSchedule,
    AnnealingPath,
    CGrid,
    ExponentialSchedule,
    FixedSchedule,
    InverseTemperatureSchedule,
)
from annealed.plots import (
    AnnealingPathDisplay,
    CoefficientPathDisplay,
    KernelSearchDisplay,
    ProjectionDisplay,
    PrototypeDisplay,
)
from annealed.potts import PrototypePath

__version__ = "0.1.0"

__all__ = [
    "AdaptiveSchedule",
    "AnnealedClassifier",
    "AnnealedKernelClassifier",
    "AnnealedLDA",
    "AnnealedLogisticRegression",
    "AnnealingPath",
    "AnnealingPathDisplay",
    "CGrid",
    "CoefficientPathDisplay",
    "ExponentialSchedule",
    "FixedSchedule",
    "InverseTemperatureSchedule",
    "KernelSearchDisplay",
    "MELDA",
    "PooledGaussian",
    "PottsDA",
    "ProjectionDisplay",
    "PrototypeDisplay",
    "PrototypePath",
    "SecondOrderFeatures",
]
