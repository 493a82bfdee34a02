"""A model fitted on a table: the pipeline, and the columns that it needs in a new table."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from annealed.app.tables.base import TableColumns, as_known, as_texts, is_number, label_texts, weights_of
from annealed.errors import InputError
from annealed.optional import require

INDICATOR = "missingindicator_"  # scikit-learn's prefix for indicators of missing cells
TOLERANCE = 1e-6  # of the sum of probabilities
RARE = "infrequent_sklearn"  # scikit-learn's name for the infrequent categories that share one feature


@dataclass(frozen=True)
class TableModel:
    """The model that `annealed fit` writes and the other commands read.

    name : name of the estimator, as in `--model`
    facts : description of the training data and the software versions, for the model card
    """

    pipeline: Any
    columns: TableColumns
    target: str
    name: str
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def classes(self) -> np.ndarray:
        return self.pipeline.classes_

    @property
    def classifier(self):
        """The last step, or the annealed classifier inside it (MELDA's `classifier_`)."""
        last = self.pipeline[-1]
        return getattr(last, "classifier_", last)

    @property
    def path(self):
        """The annealing path of the classifier."""
        if not hasattr(self.classifier, "path_"):
            raise InputError(
                f"The model must have an annealing path. Got {self.name!r}, which has none. Fit one of the models "
                "of `annealed fit`."
            )
        return self.classifier.path_

    @property
    def feature_names(self) -> list[str]:
        """Readable names of the vectorizer's features: `size`, `size missing`, `colour = red`."""
        parts = self.pipeline[0].named_transformers_
        numbers = parts["numbers"].get_feature_names_out() if "numbers" in parts else []
        columns = {*self.columns.numbers, *self.columns.dates}
        names = [name if name in columns else f"{name.removeprefix(INDICATOR)} missing" for name in map(str, numbers)]
        return [*names, *_category_names(parts["categories"])] if "categories" in parts else names

    @property
    def texts(self) -> list[str]:
        """Columns that `read_table` must keep as text, because in a new table all their cells may look numeric."""
        has_numbers = all(is_number(str(label)) for label in self.classes)
        return [*self.columns.categories, *([] if has_numbers else [self.target])]

    def recognised(self, frame):
        """The table with its categories spelled as in the fit: a file or pandas may write 1 as 1.0."""
        spelled = {
            name: as_known(as_texts(frame[name]), known)
            for name, known in self._known_categories.items()
            if name in frame.columns
        }
        return frame.assign(**spelled)

    @property
    def _known_categories(self):
        encoder = self.pipeline[0].named_transformers_.get("categories")
        return dict(zip(self.columns.categories, encoder.categories_, strict=True)) if encoder is not None else {}

    def predict(self, frame):
        """A DataFrame with the predicted label and the probability of each class."""
        matrix = self.features_of(self.columns.conform(self.recognised(frame)))
        with np.errstate(all="ignore"):  # what overflows is reported
            posterior = self.pipeline[-1].predict_proba(matrix)
        check_rows((posterior >= 0).all(axis=1) & (np.abs(posterior.sum(axis=1) - 1) < TOLERANCE))
        best = self.classes[np.argmax(posterior, axis=1)]
        columns = {f"probability of {label}": posterior[:, place] for place, label in enumerate(self.classes)}
        pandas = require("pandas", extra="cli")
        return pandas.DataFrame({f"predicted {self.target}": best, **columns}, index=frame.index)

    def features_of(self, rows) -> np.ndarray:
        """The features of the classifier, of rows with the model's columns."""
        with np.errstate(all="ignore"):
            matrix = np.asarray(self.pipeline[0].transform(rows), dtype=float)
        check_rows(np.isfinite(matrix).all(axis=1))
        return matrix

    def label_codes(self, frame) -> np.ndarray:
        """Index in `classes` of each row's true label."""
        if self.target not in frame.columns:
            raise InputError(f"The table has no column {self.target!r}, the target of the model.")
        known = {str(label): code for code, label in enumerate(self.classes)}
        labels = as_known(label_texts(frame[self.target]).tolist(), list(known))
        unknown = sorted({label for label in labels if label not in known})
        if unknown:
            raise InputError(
                f"The target {self.target!r} must hold classes that the model was fitted on. Got {unknown[0]!r}. "
                f"Known classes: {', '.join(list(known)[:12])}."
            )
        return np.array([known[label] for label in labels])

    def row_weights(self, frame) -> np.ndarray:
        """The sample weight of each row; 1 if the model was fitted without weights."""
        name = self.columns.weights
        if name is None:
            return np.ones(len(frame))
        if name not in frame.columns:
            raise InputError(
                f"The table has no column {name!r}, with which the model's samples were weighted. Add it; 1 in every "
                "row gives equal weights."
            )
        return weights_of(frame[name])


def check_rows(is_predicted) -> None:
    """Raise an error if some row has no features or no probabilities, because numbers overflow."""
    if not is_predicted.all():
        raise InputError(
            f"The model gives no probabilities for row {int(np.argmin(is_predicted)) + 1}: its numbers are too far "
            "from those of the fit, or the model file is damaged. Correct the row, or fit the model again."
        )


def _category_names(encoder):
    """Names from a copy of the encoder, because a model file cannot hold a function among its settings."""
    naming = copy(encoder)
    naming.feature_name_combiner = lambda column, category: (
        f"{column} = {'rare values' if category == RARE else category}"
    )
    return [str(name) for name in naming.get_feature_names_out()]
