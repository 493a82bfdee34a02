"""A table with its target taken apart, checked for what classification needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from annealed.datasets import load_default
from annealed.optional import require
from annealed.tables.base import InputError, TableColumns, check_columns, labels_of, weights_of


@dataclass(frozen=True)
class LabelledTable:
    """Rows to learn from: features as read, labels, what each column is, and how much each row counts.

    weights : positive, (n_rows,); None where all rows count alike
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
    """Features and labels of a table, checked for what classification needs.

    Parameters
    ----------
    frame : pandas DataFrame
    target : str
        The column with the classes.
    weights : str or None
        The column that says how much each row counts; rows of weight 0 are left out.

    Returns
    -------
    table : LabelledTable
    """
    check_columns([target], frame)
    labels = labels_of(frame[target])
    classes = np.unique(labels)
    if len(classes) < 2:
        raise InputError(f"The target {target!r} needs at least two classes. Got only {str(classes[0])!r}.")
    features = frame.drop(columns=target)
    row_weights = None
    if weights is not None:
        row_weights = _weights_for(target, labels, frame, weights)
        counts = row_weights > 0
        features, labels, row_weights = features[counts].drop(columns=weights), labels[counts], row_weights[counts]
    if not features.shape[1]:
        besides = f" and the weights {weights!r}" if weights is not None else ""
        raise InputError(f"The table has no column besides the target {target!r}{besides}.")
    return LabelledTable(features, labels, target, TableColumns.of(features, labels, weights), row_weights)


def _weights_for(target, labels, frame, weights):
    check_columns([weights], frame)
    if weights == target:
        raise InputError(f"The weights must be another column than the target. Got {target!r} for both.")
    row_weights = weights_of(frame[weights])
    silent = set(labels) - set(labels[row_weights > 0])
    if silent:
        raise InputError(
            f"Every class needs a row of positive weight. Got the weights {weights!r} 0 in all rows of "
            f"{str(min(silent))!r}: weigh some, or delete these rows."
        )
    return row_weights


def default_table() -> LabelledTable:
    """The embedded default as a table: names for columns and classes."""
    source = load_default()
    frame = require("pandas", extra="cli").DataFrame(source.X, columns=source.feature_names)
    frame["diagnosis"] = source.target_names[source.y].astype(object)
    return label_table(frame, "diagnosis")
