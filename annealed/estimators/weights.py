"""Sample weights and class weights."""

from __future__ import annotations

from numbers import Real
from reprlib import repr as shown

import numpy as np
from sklearn.utils.validation import _num_samples

from annealed.estimators.labels import check_several_weighted_classes
from annealed.problems.contrasts import MOST_ROWS

LEAST_SHARE = 1e-15  # of the total weight; samples of a class with less get weight 0, as rounding would lose them


def weight_of_each(weight, X):
    """Repeat a number, or an array without axes, for every sample of X; return anything else unchanged."""
    is_number = isinstance(weight, Real) or (isinstance(weight, np.ndarray) and weight.ndim == 0)
    return np.full(_num_samples(X), float(weight)) if is_number else weight


def check_weight(weight, n_rows, name="sample_weight"):
    """Validate weights and convert them to float64; None gives ones."""
    if weight is None:
        return np.ones(n_rows)
    try:
        weight = np.asarray(weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold one number for each sample. Got {shown(weight)}.") from error
    if weight.ndim == 0:
        weight = np.full(n_rows, float(weight))
    if weight.shape != (n_rows,):
        raise ValueError(f"{name} must have one entry for each sample, shape ({n_rows},). Got shape {weight.shape}.")
    finite = np.isfinite(weight)
    if not finite.all():
        row = int(np.argmin(finite))
        raise ValueError(f"{name} must be finite. Got {weight[row]} at sample {row}.")
    if weight.min() < 0:
        raise ValueError(f"{name} must not be negative. Got {weight.min()} at sample {int(np.argmin(weight))}.")
    if weight.max() == 0:
        raise ValueError(f"{name} must hold a positive weight. Got zeros only.")
    return weight


def counted_in_rows(weight, total, n_weighted):
    """Scale weights such that their sum is a number of samples.

    If they sum to less than the number of samples of positive weight, as shares do, they are scaled up to it; if to
    more than MOST_ROWS, down to that.

    total : their sum
    n_weighted : number of positive weights
    """
    _check_total(total)
    return weight / min(1.0, total / n_weighted) / max(1.0, total / MOST_ROWS)


def _check_total(total):
    if not np.isfinite(total):
        raise ValueError(f"Sample weights times class weights must add up to a finite number. Got {total}.")


def class_factors(class_weight, classes, counts):
    """The class weight of each class; "balanced" ones are inverse to `counts`, the total weights of the classes.

    As in scikit-learn, a dict may name more classes than y contains, or fewer, but not both, which is most often a
    mistake.
    """
    if isinstance(class_weight, dict):
        unknown = sorted(map(str, set(class_weight) - set(classes.tolist())))
        missing = [label for label in classes.tolist() if label not in class_weight]
        if unknown and missing:
            raise ValueError(
                f"class_weight must name every class of y, or only classes of y. Got unknown classes {unknown}, "
                f"missing {missing[:20]}."
            )
        return np.array([_checked_factor(label, class_weight.get(label, 1.0)) for label in classes.tolist()])
    if not isinstance(class_weight, str) or class_weight != "balanced":
        raise ValueError(f'class_weight must be a dict, "balanced" or None. Got {class_weight!r}.')
    return counts.sum() / (len(classes) * np.where(counts > 0, counts, 1))


def weighed_by_class(weight, labels, classes, class_weight):
    """Sample weights times class weights, and the total weight of each class."""
    counts = np.bincount(labels, weight, len(classes))
    if class_weight is None:
        return weight, counts
    factors = class_factors(class_weight, classes, counts)
    return weight * factors[labels], counts * factors


def _checked_factor(label, factor) -> float:
    if not isinstance(factor, Real) or not 0 <= float(factor) < np.inf:
        raise ValueError(f"class_weight of class {label!r} must be a finite number of at least 0. Got {factor!r}.")
    return float(factor)


def weighted_classes(counts, classes):
    """Mask of the classes whose share of the total weight is above rounding error; there must be at least two."""
    _check_total(counts.sum())
    with np.errstate(invalid="ignore"):
        is_weighted = counts / counts.sum() >= LEAST_SHARE
    check_several_weighted_classes(is_weighted, classes)
    return is_weighted
