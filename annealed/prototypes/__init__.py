"""Fitting prototypes by Potts annealing: initialization, cooling, growth and discriminative refinement."""

from annealed.prototypes.base import (
    NO_WATCH,
    RELAXATIONS,
    SHRINKAGES,
    Cooled,
    Cooling,
    Watch,
    cool,
    metric_prior,
    nearest,
    scores_of,
    shrinkage_share,
)
from annealed.prototypes.columns import Columns, distinct_rows
from annealed.prototypes.growth import grown
from annealed.prototypes.record import PrototypePath
from annealed.prototypes.refinement import CalibratedPosterior, calibrated, refinements
from annealed.prototypes.start import mean_start, plus_plus_starts

__all__ = [
    "CalibratedPosterior",
    "Columns",
    "Cooled",
    "Cooling",
    "NO_WATCH",
    "PrototypePath",
    "RELAXATIONS",
    "SHRINKAGES",
    "Watch",
    "calibrated",
    "cool",
    "distinct_rows",
    "grown",
    "mean_start",
    "metric_prior",
    "nearest",
    "plus_plus_starts",
    "refinements",
    "scores_of",
    "shrinkage_share",
]
