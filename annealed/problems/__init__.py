"""Families of discriminant functions: each a free energy at a temperature."""

from annealed.problems.base import (
    NOTHING_HELD_OUT,
    Features,
    HeldOut,
    Objective,
    Predictor,
    Problem,
    TrainingSummary,
    held_out_logits,
)
from annealed.problems.distance import Distance
from annealed.problems.family import ScoreFamily
from annealed.problems.penalized_linear import InnerProduct
from annealed.problems.quadratic import Quadratic
from annealed.problems.representer import RepresenterProblem, RowPreconditioner
from annealed.problems.smooth import Scores, SmoothProblem

__all__ = [
    "Distance",
    "Features",
    "HeldOut",
    "InnerProduct",
    "NOTHING_HELD_OUT",
    "Objective",
    "Predictor",
    "Problem",
    "Quadratic",
    "RepresenterProblem",
    "RowPreconditioner",
    "ScoreFamily",
    "Scores",
    "SmoothProblem",
    "TrainingSummary",
    "held_out_logits",
]
