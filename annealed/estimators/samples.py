"""Checks of samples, labels and weights.

Under scikit-learn's `array_api_dispatch`, X of torch, CuPy or another array-API library stays there, on its device. Its
labels and weights are copied to the host once, where classes and folds are found in the same way as for NumPy input.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real
from reprlib import repr as shown
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples, validate_data

from annealed.arrays import (
    HOST,
    Place,
    detached,
    is_dispatched,
    is_foreign,
    is_mapped,
    namespace_of,
    on_named_device,
    to_host,
)
from annealed.estimators.predictions import named_classes
from annealed.problems.base import number_of
from annealed.problems.contrasts import MOST_ROWS

DTYPES = (np.float64, np.float32)
# Of the total weight, for a class, and of the largest weight, for a sample: with less, samples get weight 0.
LEAST_SHARE = 4 * np.finfo(float).eps


# --- samples and labels --------------------------------------------------------------------------------------


def checked(estimator, X, *y, accept_sparse="csr", reset=True, dtypes=DTYPES):
    """X and, if given, y, checked by scikit-learn; dense X of none of `dtypes` is copied to the first of them.

    It does not convert the dtype of frames of sparse columns, and sums X to find NaN, whatever overflows. Neither fits
    nor predictions of foreign arrays have gradients.
    """
    if is_dispatched(X):
        return _checked_foreign(estimator, X, *y, reset=reset)
    with np.errstate(over="ignore", invalid="ignore"):
        found = validate_data(estimator, X, *y, accept_sparse=accept_sparse, dtype=dtypes, reset=reset)
    X = found[0] if y else found
    if sparse.issparse(X) and X.dtype not in DTYPES:
        X = X.astype(np.float64)
    return (X, found[1]) if y else X


def _checked_foreign(estimator, X, y=None, *, reset):
    if "sparse" in str(getattr(X, "layout", "")):
        raise TypeError(
            f"X must be dense if it is a torch array. Got layout {X.layout}. Use X.to_dense(), or a SciPy matrix."
        )
    if namespace_of(X).isdtype(X.dtype, "complex floating"):
        raise ValueError(f"Complex data not supported. Got X of {X.dtype}.")
    X = validate_data(estimator, detached(X), dtype=Place.of(X).float_dtypes, reset=reset)
    if y is None:
        return X
    y = y if is_foreign(y) and y.ndim == 1 else column_or_1d(to_host(y), warn=True)
    if y.shape[0] != X.shape[0]:
        raise ValueError(f"X and y must have the same number of samples. Got {X.shape[0]} and {y.shape[0]}.")
    return X, y


def checked_on_host(estimator, X, *y, reset=True, dtypes=DTYPES):
    """X, and y if given, of an estimator that accepts NumPy and SciPy arrays only."""
    if is_dispatched(X):
        raise TypeError(
            f"X of {type(estimator).__name__} must be a NumPy or SciPy array. Got {type(X).__module__}."
            f"{type(X).__name__}. Convert X to NumPy, or set array_api_dispatch=False for arrays on the CPU."
        )
    return checked(estimator, X, *y, reset=reset, dtypes=dtypes)


def coded(y) -> tuple[np.ndarray, np.ndarray]:
    """The sorted classes, at least two, and the code of each label, its position among them; both in NumPy."""
    if is_foreign(y):  # labels on a device are encoded there
        values, codes = namespace_of(y).unique_inverse(y)
        values = to_host(values)
        _check_labels(
            np.tile(values, min(2, y.shape[0] // len(values)))
        )  # twice, as it warns of labels that all differ
        classes, ranks = np.unique(values, return_inverse=True)
        labels = ranks[to_host(codes)]
    else:
        _check_labels(y)
        classes, labels = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y must contain at least two classes. Got only one class: {classes.tolist()[0]!r}. "
            "Add samples of another class."
        )
    return classes, labels


def _check_labels(y):
    """Refuse continuous targets, and Python objects that are not strings, which could not be sorted beside strings."""
    other = next((label for label in y if not isinstance(label, str)), "") if y.dtype == object else ""
    if not isinstance(other, str):
        raise ValueError(
            f"Unknown label type: where y holds Python objects, all must be strings. Got {other!r}. Fill in missing "
            "labels or leave out their samples, and convert y, as by y.astype(str) or y.astype(int)."
        )
    check_classification_targets(y)


# --- weights -------------------------------------------------------------------------------------------------


def weight_of_each(weight, X):
    """Repeat a number, or an array without axes, for every sample of X; return anything else unchanged."""
    is_number = isinstance(weight, Real) or (isinstance(weight, np.ndarray) and weight.ndim == 0)
    return np.full(_num_samples(X), float(weight)) if is_number else weight


def check_weight(weight, n_rows, name="sample_weight"):
    """Validate weights and convert them to float64 in NumPy; None gives ones."""
    if weight is None:
        return np.ones(n_rows)
    try:
        weight = np.asarray(to_host(weight), dtype=np.float64)
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


def weighed_samples(weight, labels, classes, class_weight) -> tuple[np.ndarray, float]:
    """Sample weights times class weights, in samples, and the sum of these products."""
    counts = np.bincount(labels, weight, len(classes))
    if class_weight is not None:
        factors = _class_factors(class_weight, classes, counts)
        with np.errstate(over="ignore"):  # the total is checked
            weight, counts = weight * factors[labels], counts * factors
    weight = weight * weighted_classes(counts, classes)[labels]
    weight = np.where(weight > LEAST_SHARE * weight.max(), weight, 0)  # a fold must not consist of such samples
    total = float(counts.sum())
    return counted_in_rows(weight, total, np.count_nonzero(weight)), total


def _class_factors(class_weight, classes, counts):
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


def _checked_factor(label, factor) -> float:
    if not 0 <= number_of(factor) < np.inf:
        raise ValueError(f"class_weight of class {label!r} must be a finite number of at least 0. Got {factor!r}.")
    return float(factor)


def weighted_classes(counts, classes):
    """Mask of the classes whose share of the total weight is above rounding error; there must be at least two."""
    _check_total(counts.sum())
    with np.errstate(invalid="ignore"):
        is_weighted = counts / counts.sum() >= LEAST_SHARE
    if is_weighted.sum() < 2:
        found = "".join(f"only one class: {label!r}" for label in classes[is_weighted].tolist())
        raise ValueError(
            f"y must contain at least two classes with positive weight. Got {found or 'none'}. Check sample_weight and "
            "class_weight."
        )
    return is_weighted


# --- what a path is fitted to --------------------------------------------------------------------------------


class Shown(NamedTuple):
    """Samples and labels as splitters and scorers receive them, as in scikit-learn's `cross_validate`."""

    X: Any
    y: Any

    @classmethod
    def of(cls, given_X, given_y, X, y) -> Shown:
        """Frames and series as they were given, everything else as it was checked."""
        is_frame = hasattr(given_X, "columns")
        is_series = hasattr(given_y, "to_numpy") and len(getattr(given_y, "shape", ())) == 1 and not is_foreign(X)
        return cls(given_X if is_frame else X, given_y if is_series else y)

    def in_one_library(self) -> Shown:
        """The same, with labels in the library and on the device of X, where predictions are."""
        if not is_foreign(self.X):
            return self
        return Shown(self.X, named_classes(self.y, Place.of(self.X).whole(np.arange(len(self.y)))))


@dataclass(frozen=True)
class Samples:
    """Training samples, or a validation set.

    X : in any library; `place` is that of X, or a device to which X is moved or streamed
    labels : codes; weight : for the fit, in samples; both in NumPy
    total_weight : sum of the given weights, multiplied by those of classes
    shown : for splitters and scorers
    given_weight : as the user gave it
    """

    X: Any
    labels: np.ndarray
    weight: np.ndarray
    classes: np.ndarray
    total_weight: float
    shown: Shown
    given_weight: Any
    place: Place
    dtype: Any  # of X as it was given

    @classmethod
    def of(cls, estimator, X, y, sample_weight, accept_sparse) -> Self:
        """The training samples of `fit`."""
        given_X, given_y = X, y
        X, y = checked(estimator, X, y, accept_sparse=accept_sparse)
        classes, labels = coded(y)
        on_place, place = X, Place.of(X) if is_foreign(X) else HOST
        if estimator.device is not None and not is_foreign(X):
            if sparse.issparse(X):
                raise ValueError(f"device={estimator.device!r} is for dense rows. Got sparse X.")
            on_place, place = on_named_device(X, estimator.device)
        weight = check_weight(sample_weight, len(labels))
        weight, total = weighed_samples(weight, labels, classes, estimator.class_weight)
        shown_samples = Shown.of(given_X, given_y, X, classes[labels])
        return cls(on_place, labels, weight, classes, total, shown_samples, sample_weight, place, X.dtype)

    def validation_set(self, estimator, X, y, sample_weight, accept_sparse) -> Self | None:
        """A validation set that the user gives to `fit`; its weights are not multiplied by those of classes."""
        if X is None:
            return None
        given_X, given_y = X, y
        X, y = checked(estimator, X, y, accept_sparse=accept_sparse, reset=False)
        y = to_host(y)
        unknown = np.setdiff1d(y, self.classes)
        if len(unknown):
            found, known = unknown[:5].tolist(), self.classes[:20].tolist()
            raise ValueError(f"y_val must contain only labels of y. Got {found}. Known labels: {known}.")
        sample_weight = weight_of_each(sample_weight, y)
        weight = check_weight(sample_weight, len(y), "sample_weight_val")
        weight = counted_in_rows(weight, weight.sum(), np.count_nonzero(weight))
        shown_samples, labels = Shown.of(given_X, given_y, X, y), np.searchsorted(self.classes, y)
        X = X if self.place.is_host or is_foreign(X) else self.place.row(X)
        return replace(self, X=X, labels=labels, weight=weight, shown=shown_samples, given_weight=sample_weight)

    def without_idle(self) -> Self:
        """The samples that have weight."""
        weighty = np.flatnonzero(self.weight)
        if len(weighty) == len(self.weight) or not self.place.is_host or is_mapped(self.X):
            return self
        return replace(self, X=self.X[weighty], labels=self.labels[weighty], weight=self.weight[weighty])
