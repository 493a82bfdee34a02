"""Tables in files: reading, comparison of models, model files, predictions, the report, and the command line."""

from annealed.app.comparison import fit_table
from annealed.app.model_files import load_model, save_model
from annealed.app.report import write_report
from annealed.app.tables import default_table, label_table, read_table

__all__ = [
    "default_table",
    "fit_table",
    "label_table",
    "load_model",
    "read_table",
    "save_model",
    "write_report",
]
