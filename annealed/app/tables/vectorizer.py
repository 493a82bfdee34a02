"""Encodes numbers, dates and categories with missing cells as one matrix, with scikit-learn's ColumnTransformer.

skrub's TableVectorizer would do as well, but it depends on a dozen further packages, and a model file with its types
could only be loaded by trusting them.
"""

from __future__ import annotations

from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from annealed.app.tables.base import TableColumns

MOST_CATEGORIES = 40  # features that encode a column; its rarest categories share one


def make_vectorizer(columns: TableColumns) -> ColumnTransformer:
    """An unfitted transformer for the given columns.

    A missing number is replaced by the median and marked by an indicator. Categories are one-hot encoded; a missing
    cell is a category, and an unknown category is encoded like the rare ones.
    """
    numbers = Pipeline(
        [
            ("fill", SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)),
            ("scale", StandardScaler()),
        ]
    )
    categories = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=MOST_CATEGORIES, sparse_output=False
    )
    parts = [("numbers", numbers, [*columns.numbers, *columns.dates]), ("categories", categories, columns.categories)]
    return ColumnTransformer([part for part in parts if part[2]], verbose_feature_names_out=False)
