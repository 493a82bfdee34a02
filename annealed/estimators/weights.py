"""Weights of rows: those the user gives, and those of classes."""

from __future__ import annotations

import numpy as np
from sklearn.utils import compute_sample_weight


def check_weight(weight, n_rows, name="sample_weight"):
    """Weights as float64, or an error that shows the offending value."""
    if weight is None:
        return np.ones(n_rows)
    weight = np.asarray(weight, dtype=np.float64)
    if weight.ndim == 0:
        weight = np.full(n_rows, float(weight))
    if weight.shape != (n_rows,):
        raise ValueError(f"{name} must have one entry a row, shape ({n_rows},). Got shape {weight.shape}.")
    finite = np.isfinite(weight)
    if not finite.all():
        row = int(np.argmin(finite))
        raise ValueError(f"{name} must be finite. Got {weight[row]} at row {row}.")
    if weight.min() < 0:
        raise ValueError(f"{name} must not be negative. Got {weight.min()} at row {int(np.argmin(weight))}.")
    if weight.max() == 0:
        raise ValueError(f"{name} must hold a positive weight. Got zeros only.")
    return weight


def class_weights(class_weight, classes, y, sample_weight):
    """Factor on each row's weight from its class; balanced weights count rows by their sample weight."""
    if class_weight is None:
        return 1.0
    if isinstance(class_weight, dict):
        unknown = set(class_weight) - set(classes.tolist())
        if unknown:
            raise ValueError(f"class_weight names classes that y does not hold: {sorted(map(str, unknown))}.")
        return compute_sample_weight(class_weight, y)
    if class_weight != "balanced":
        raise ValueError(f'class_weight must be a dict, "balanced" or None. Got {class_weight!r}.')
    labels = np.searchsorted(classes, y)
    count = np.bincount(labels, sample_weight, len(classes))
    return (count.sum() / (len(classes) * np.where(count > 0, count, 1)))[labels]
