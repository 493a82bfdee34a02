"""Pictures of fitted models: they take arrays, draw, and compute nothing."""

from annealed.plots.annealing_path import AnnealingPathDisplay
from annealed.plots.coefficient_path import CoefficientPathDisplay
from annealed.plots.kernel_search import KernelSearchDisplay
from annealed.plots.projection import ProjectionDisplay
from annealed.plots.prototype import PrototypeDisplay

__all__ = [
    "AnnealingPathDisplay",
    "CoefficientPathDisplay",
    "KernelSearchDisplay",
    "ProjectionDisplay",
    "PrototypeDisplay",
]
