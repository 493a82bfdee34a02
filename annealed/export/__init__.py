"""Writes fitted models, predictions and reports to files, and loads models."""

from annealed.export.base import STANDARD_OUTPUT, check_writable, write_then_rename
from annealed.export.persistence import load_model, save_model
from annealed.export.predictions import json_of, write_predictions
from annealed.export.report import write_report

__all__ = [
    "STANDARD_OUTPUT",
    "check_writable",
    "json_of",
    "load_model",
    "save_model",
    "write_predictions",
    "write_report",
    "write_then_rename",
]
