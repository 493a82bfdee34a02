"""Fitted models as files: to load again, and to read."""

from annealed.export.base import write_then_rename
from annealed.export.persistence import load_model, save_model
from annealed.export.report import write_report

__all__ = ["load_model", "save_model", "write_report", "write_then_rename"]
