"""Models of tables as files of data: what was learned, never settings or code."""

from annealed.app.model_files.base import load_model, save_model
from annealed.app.model_files.classifiers import KINDS

__all__ = ["KINDS", "load_model", "save_model"]
