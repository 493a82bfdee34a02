"""The walk from temperature to temperature: `anneal`."""

from annealed.walk.base import Judge, Judgement, Step, Watch
from annealed.walk.cooling import anneal, concluded

__all__ = ["Judge", "Judgement", "Step", "Watch", "anneal", "concluded"]
