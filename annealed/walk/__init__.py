"""The walk from temperature to temperature: `anneal`."""

from annealed.walk.base import Step, Validation, Validator, Watch
from annealed.walk.cooling import anneal, concluded

__all__ = ["Step", "Validation", "Validator", "Watch", "anneal", "concluded"]
