"""Pictures of fitted models: they take arrays, draw, and compute nothing."""

from annealed.displays.annealing_path import AnnealingPathDisplay

__all__ = ["AnnealingPathDisplay"]
