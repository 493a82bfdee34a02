"""Tables as people have them: read from a file, numbers and categories mixed, cells missing."""

from annealed.tables.base import InputError, TableColumns, nearest
from annealed.tables.model import TableModel
from annealed.tables.reading import LabelledTable, default_table, label_table, read_table
from annealed.tables.vectorizer import make_vectorizer

__all__ = [
    "InputError",
    "LabelledTable",
    "TableColumns",
    "TableModel",
    "default_table",
    "label_table",
    "make_vectorizer",
    "nearest",
    "read_table",
]
