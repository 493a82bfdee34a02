"""Families of discriminant functions: each a free energy at a temperature."""

from annealed.problems.base import NOTHING_HELD_OUT, HeldOut, Objective, Predictor, Problem, TrainingSummary
from annealed.problems.distance import Distance
from annealed.problems.family import ScoreFamily
from annealed.problems.inner_product import InnerProduct
from annealed.problems.quadratic import Quadratic
from annealed.problems.representer import RepresenterProblem, RowPreconditioner
from annealed.problems.smooth import SmoothProblem

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
