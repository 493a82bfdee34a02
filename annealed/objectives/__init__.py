"""Families of discriminant functions: each a free energy at a temperature."""

from annealed.objectives.base import NO_PICKS, Form, Inspection, Objective, Picks, Problem, SmoothProblem
from annealed.objectives.distance import Distance
from annealed.objectives.family import ScoreFamily
from annealed.objectives.inner_product import InnerProduct
from annealed.objectives.quadratic import Quadratic
from annealed.objectives.representer import RepresenterProblem, RowPreconditioner

__all__ = [
    "Distance",
    "Form",
    "InnerProduct",
    "Inspection",
    "NO_PICKS",
    "Objective",
    "Picks",
    "Problem",
    "Quadratic",
    "RepresenterProblem",
    "RowPreconditioner",
    "ScoreFamily",
    "SmoothProblem",
]
