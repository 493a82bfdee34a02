"""Tables from files, with mixed numbers and categories and with missing cells."""

from annealed.app.tables.base import TableColumns, check_names, is_number, nearest, why_texts
from annealed.app.tables.labelled import LabelledTable, default_table, label_table
from annealed.app.tables.model import TableModel, check_rows
from annealed.app.tables.reading import read_table
from annealed.app.tables.vectorizer import MOST_CATEGORIES, make_vectorizer

__all__ = [
    "LabelledTable",
    "MOST_CATEGORIES",
    "TableColumns",
    "TableModel",
    "check_names",
    "check_rows",
    "default_table",
    "is_number",
    "label_table",
    "make_vectorizer",
    "nearest",
    "read_table",
    "why_texts",
]
