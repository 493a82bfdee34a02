"""Data sets: the built-in example, generators with a known solution, and readers of tables on disk."""

from annealed.datasets.corpora import data_home, load_table, table_names
from annealed.datasets.default import load_default
from annealed.datasets.gaussian import make_gaussian_classes
from annealed.datasets.potts_examples import make_mixed_strips, make_spirals, make_xor_means

__all__ = [
    "data_home",
    "load_default",
    "load_table",
    "make_gaussian_classes",
    "make_mixed_strips",
    "make_spirals",
    "make_xor_means",
    "table_names",
]
