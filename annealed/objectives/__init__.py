"""Families of discriminant functions: each a free energy at a temperature."""

from annealed.objectives.base import (
    NOTHING_HELD_OUT,
    HeldOut,
    Objective,
    Predictor,
    Problem,
    SmoothProblem,
    TrainingSummary,
)
from annealed.objectives.distance import Distance
from annealed.objectives.family import ScoreFamily
from annealed.objectives.inner_product import InnerProduct
from annealed.objectives.quadratic import Quadratic
from annealed.objectives.representer import RepresenterProblem, RowPreconditioner

__all__ = [
    "Distance",
    "InnerProduct",
    "HeldOut",
    "NOTHING_HELD_OUT",
    "Objective",
    "Predictor",
    "Problem",
    "Quadratic",
    "RepresenterProblem",
    "RowPreconditioner",
    "ScoreFamily",
    "SmoothProblem",
    "TrainingSummary",
]
