"""A table with its target taken apart, checked for what classification needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from annealed.datasets import load_default
from annealed.optional import require
from annealed.tables.base import InputError, TableColumns, check_columns, labels_of


@dataclass(frozen=True)
class LabelledTable:
    """Rows to learn from: features as read, labels, and what each column is."""

    features: Any
    labels: np.ndarray
    target: str
    columns: TableColumns

    @property
    def classes(self) -> np.ndarray:
        return np.unique(self.labels)

    def conformed(self):
        return self.columns.conform(self.features)


def label_table(frame, target: str) -> LabelledTable:
    """Features and labels of a table, checked for what classification needs."""
    check_columns([target], frame)
    labels = labels_of(frame[target])
    classes = np.unique(labels)
    if len(classes) < 2:
        raise InputError(f"The target {target!r} needs at least two classes. Got only {str(classes[0])!r}.")
    features = frame.drop(columns=target)
    if not features.shape[1]:
        raise InputError(f"The table has no column besides the target {target!r}.")
    return LabelledTable(features, labels, target, TableColumns.of(features, labels))


def default_table() -> LabelledTable:
    """The embedded default as a table: names for columns and classes."""
    source = load_default()
    frame = require("pandas", extra="cli").DataFrame(source.X, columns=source.feature_names)
    frame["diagnosis"] = source.target_names[source.y].astype(object)
    return label_table(frame, "diagnosis")
