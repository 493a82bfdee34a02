"""Numbers, dates and categories, some cells missing, as one matrix: scikit-learn's ColumnTransformer.

skrub's TableVectorizer would do as well; it brings a dozen packages more, and types that a model file could only be
trusted with by trusting them too.
"""

from __future__ import annotations

from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from annealed.tables.base import TableColumns

MOST_CATEGORIES = 40  # of a column; the rarest share one


def make_vectorizer(columns: TableColumns) -> ColumnTransformer:
    """Median and a mark for a missing number, one column a category, missing being one; unknown ones count as rare."""
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
