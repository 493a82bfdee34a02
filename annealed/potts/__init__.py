"""Prototypes by Potts annealing: state, sweeps, cooling, growth, discriminative refinement, and their choice."""

from annealed.potts.cooling import RELAXATIONS, SHRINKAGES, Cooling, scores_of
from annealed.potts.growth import SearchSettings, plus_plus_starts
from annealed.potts.record import PrototypePath
from annealed.potts.rows import Columns, LabelledRows, distinct_rows
from annealed.potts.state import MetricPrior
from annealed.potts.sweep import Multilinear, Quadratic

__all__ = [
    "Columns",
    "Cooling",
    "LabelledRows",
    "MetricPrior",
    "Multilinear",
    "SearchSettings",
    "PrototypePath",
    "Quadratic",
    "RELAXATIONS",
    "SHRINKAGES",
    "distinct_rows",
    "plus_plus_starts",
    "scores_of",
]
