"""Tables from files, with mixed numbers and categories and with missing cells."""

from annealed.tables.base import InputError, TableColumns, nearest, why_texts
from annealed.tables.labelled import LabelledTable, default_table, label_table
from annealed.tables.model import TableModel
from annealed.tables.reading import read_table
from annealed.tables.vectorizer import MOST_CATEGORIES, make_vectorizer

__all__ = [
    "InputError",
    "LabelledTable",
    "MOST_CATEGORIES",
    "TableColumns",
    "TableModel",
    "default_table",
    "label_table",
    "make_vectorizer",
    "nearest",
    "read_table",
    "why_texts",
]
