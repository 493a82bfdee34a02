"""A table split into features, labels and sample weights, and checked for classification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from annealed.app.tables.base import TableColumns, check_columns, labels_of, weights_of
from annealed.datasets import load_default
from annealed.errors import InputError
from annealed.optional import require


@dataclass(frozen=True)
class LabelledTable:
    """Training data: the features as read, the labels, the kinds of the columns, and the sample weights.

    weights : positive, (n_rows,); None if the samples are unweighted
    """

    features: Any
    labels: np.ndarray
    target: str
    columns: TableColumns
    weights: np.ndarray | None = None

    @property
    def classes(self) -> np.ndarray:
        return np.unique(self.labels)

    def conformed(self):
        return self.columns.conform(self.features)


def label_table(frame, target: str, weights: str | None = None) -> LabelledTable:
    """Split a table into features and labels, and check that it suits classification.

    Parameters
    ----------
    frame : pandas DataFrame
    target : str
        The column with the class labels.
    weights : str or None
        The column with the sample weights; rows of weight 0 are left out.

    Returns
    -------
    table : LabelledTable
    """
    check_columns([target], frame)
    labels = labels_of(frame[target])
    classes = np.unique(labels)
    if len(classes) < 2:
        raise InputError(f"The target {target!r} must have at least two classes. Got only {str(classes[0])!r}.")
    features = frame.drop(columns=target)
    row_weights = None
    if weights is not None:
        row_weights = _weights_for(target, labels, frame, weights)
        counts = row_weights > 0
        features, labels, row_weights = features[counts].drop(columns=weights), labels[counts], row_weights[counts]
    if not features.shape[1]:
        and_weights = f" and the weights {weights!r}" if weights is not None else ""
        raise InputError(f"The table must have features. Got no column besides the target {target!r}{and_weights}.")
    return LabelledTable(features, labels, target, TableColumns.of(features, labels, weights), row_weights)


def _weights_for(target, labels, frame, weights):
    check_columns([weights], frame)
    if weights == target:
        raise InputError(f"The weights must be another column than the target. Got {target!r} for both.")
    row_weights = weights_of(frame[weights])
    without_weight = set(labels) - set(labels[row_weights > 0])
    if without_weight:
        raise InputError(
            f"Every class must have a row of positive weight. Got weights {weights!r} of 0 in all rows of class "
            f"{str(min(without_weight))!r}. Give some of them a positive weight, or delete these rows."
        )
    return row_weights


def default_table() -> LabelledTable:
    """The built-in example, breast-cancer cells, as a table with names of columns and classes."""
    source = load_default()
    frame = require("pandas", extra="cli").DataFrame(source.X, columns=source.feature_names)
    frame["diagnosis"] = source.target_names[source.y].astype(object)
    return label_table(frame, "diagnosis")
