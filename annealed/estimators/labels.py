"""Class labels: validation, and encoding as integer codes of the sorted classes."""

from __future__ import annotations

import numpy as np
from sklearn.utils.multiclass import check_classification_targets


def coded(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sorted classes, and the code of each label: its position among them."""
    check_labels_classify(y)
    classes, labels = np.unique(y, return_inverse=True)
    return classes, labels


def check_labels_classify(y):
    """Refuse continuous targets, and Python objects that are not strings, which could not be sorted beside strings."""
    other = next((label for label in y if not isinstance(label, str)), "") if y.dtype == object else ""
    if not isinstance(other, str):
        raise ValueError(
            f"Unknown label type: where y holds Python objects, all must be strings. Got {other!r}. Fill in missing "
            "labels or leave out their samples, and convert y, as by y.astype(str) or y.astype(int)."
        )
    check_classification_targets(y)


def check_several_classes(classes: np.ndarray):
    """Refuse a single class: every classifier needs two to tell apart."""
    if len(classes) < 2:
        raise ValueError(
            f"y must contain at least two classes. Got only one class: {classes.tolist()[0]!r}. "
            "Add samples of another class."
        )


def check_several_weighted_classes(is_weighted: np.ndarray, classes: np.ndarray):
    """Refuse weights that leave a single class; `is_weighted` says which classes have a positive weight."""
    if is_weighted.sum() < 2:
        raise ValueError(
            "y must contain at least two classes with positive weight. Got only one class: "
            f"{classes[is_weighted].tolist()[0]!r}. Check sample_weight and class_weight."
        )
