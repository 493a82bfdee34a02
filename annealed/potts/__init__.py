"""Prototypes by Potts annealing: initialization, cooling, growth, discriminative refinement, and their choice."""

from annealed.potts.columns import Columns, distinct_rows
from annealed.potts.cooling import NO_WATCH, RELAXATIONS, SHRINKAGES, Cooling, scores_of
from annealed.potts.record import PrototypePath
from annealed.potts.refinement import CalibratedPosterior, calibrated, refinements
from annealed.potts.start import mean_start, plus_plus_starts

__all__ = [
    "CalibratedPosterior",
    "Columns",
    "Cooling",
    "NO_WATCH",
    "PrototypePath",
    "RELAXATIONS",
    "SHRINKAGES",
    "calibrated",
    "distinct_rows",
    "mean_start",
    "plus_plus_starts",
    "refinements",
    "scores_of",
]
