"""Pictures of fitted models: they take arrays, draw, and compute nothing."""

from annealed.displays.annealing_path import AnnealingPathDisplay
from annealed.displays.coefficient_path import CoefficientPathDisplay
from annealed.displays.projection import ProjectionDisplay
from annealed.displays.prototype import PrototypeDisplay

__all__ = ["AnnealingPathDisplay", "CoefficientPathDisplay", "ProjectionDisplay", "PrototypeDisplay"]
