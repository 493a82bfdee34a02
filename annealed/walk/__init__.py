"""Annealing: the path of a stack of fits from hot to cold temperatures, computed by `anneal`."""

from annealed.walk.base import Step, Validation, Validator, Watch
from annealed.walk.cooling import anneal, concluded

__all__ = ["Step", "Validation", "Validator", "Watch", "anneal", "concluded"]
