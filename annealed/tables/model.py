"""A model fitted on a table: the pipeline, and the columns by which it knows a table again."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from annealed.optional import require
from annealed.tables.base import InputError, TableColumns, as_known, as_texts, is_number, label_texts, weights_of

INDICATOR = "missingindicator_"  # as scikit-learn begins the names of marks for missing cells
RARE = "infrequent_sklearn"  # and as it calls the categories that share a column


@dataclass(frozen=True)
class TableModel:
    """What `annealed fit` writes and the other commands read.

    name : of the estimator, as `--model` takes it
    facts : what the model card tells of the data it was fitted on
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
        """The last step, or the one that works inside it."""
        last = self.pipeline[-1]
        return getattr(last, "classifier_", last)

    @property
    def path(self):
        """What was seen while cooling."""
        if not hasattr(self.classifier, "path_"):
            raise InputError(f"This needs a model with an annealing path, which {self.name!r} has not.")
        return self.classifier.path_

    @property
    def feature_names(self) -> list[str]:
        """Of the vectorizer's output, in words: `size`, `size missing`, `colour = red`."""
        parts = self.pipeline[0].named_transformers_
        numbers = parts["numbers"].get_feature_names_out() if "numbers" in parts else []
        own = {*self.columns.numbers, *self.columns.dates}
        named = [name if name in own else f"{name.removeprefix(INDICATOR)} missing" for name in map(str, numbers)]
        return [*named, *_category_names(parts["categories"])] if "categories" in parts else named

    @property
    def texts(self) -> list[str]:
        """Columns that `read_table` must keep as written: of another table their cells could pass for numbers."""
        has_numbers = all(is_number(str(label)) for label in self.classes)
        return [*self.columns.categories, *([] if has_numbers else [self.target])]

    def recognised(self, frame):
        """A table with its categories spelled as the model knows them: a file or pandas may write 1 as 1.0."""
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
        """A DataFrame with a prediction and a probability for each class."""
        rows = self.columns.conform(self.recognised(frame))
        posterior = self.pipeline.predict_proba(rows)
        best = self.classes[np.argmax(posterior, axis=1)]
        columns = {f"probability of {label}": posterior[:, place] for place, label in enumerate(self.classes)}
        pandas = require("pandas", extra="cli")
        return pandas.DataFrame({f"predicted {self.target}": best, **columns}, index=frame.index)

    def label_codes(self, frame) -> np.ndarray:
        """Position in `classes` of each row's true label."""
        if self.target not in frame.columns:
            raise InputError(f"The table has no column {self.target!r}, the target of the model.")
        known = {str(label): code for code, label in enumerate(self.classes)}
        labels = as_known(label_texts(frame[self.target]).tolist(), list(known))
        unknown = sorted({label for label in labels if label not in known})
        if unknown:
            raise InputError(
                f"The target {self.target!r} holds a class that the model does not know: {unknown[0]!r}. "
                f"Known: {', '.join(list(known)[:12])}."
            )
        return np.array([known[label] for label in labels])

    def row_weights(self, frame) -> np.ndarray:
        """How much each row counts: alike where the model was fitted on rows without weights."""
        name = self.columns.weights
        if name is None:
            return np.ones(len(frame))
        if name not in frame.columns:
            raise InputError(
                f"The table has no column {name!r}, the weights of the model's rows: add it, with 1 in every row "
                "where all count alike."
            )
        return weights_of(frame[name])


def _category_names(encoder):
    """A copy is asked: a function among the encoder's settings could not be written to a model file."""
    own = copy(encoder)
    own.feature_name_combiner = lambda column, category: f"{column} = {'rare ones' if category == RARE else category}"
    return [str(name) for name in own.get_feature_names_out()]
