"""Labels that scikit-learn takes, as numbers of their sorted classes."""

from __future__ import annotations

import numpy as np
from sklearn.utils.multiclass import check_classification_targets


def coded(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The classes, sorted, and each label's number among them."""
    check_labels_classify(y)
    classes, labels = np.unique(y, return_inverse=True)
    return classes, labels


def check_labels_classify(y):
    """Refuse quantities and, of Python objects, what is no string: it could not be sorted beside one."""
    other = next((label for label in y if not isinstance(label, str)), "") if y.dtype == object else ""
    if not isinstance(other, str):
        raise ValueError(
            f"Unknown label type: where y holds Python objects, all must be strings. Got {other!r}. Fill in missing "
            "labels or leave out their rows, and convert y, as by y.astype(str) or y.astype(int)."
        )
    check_classification_targets(y)
