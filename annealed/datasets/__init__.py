"""Data to try things on: an embedded default, makers with a known answer, readers of tables on disk."""

from annealed.datasets.corpora import data_home, load_table, table_names
from annealed.datasets.default import load_default
from annealed.datasets.gaussian import make_gaussian_classes

__all__ = ["data_home", "load_default", "load_table", "make_gaussian_classes", "table_names"]
