"""The number of prototypes with which `PottsDA` starts: for each class, or in total."""

from __future__ import annotations

from numbers import Integral

import numpy as np

from annealed.path import is_auto


def numbers_of_prototypes(n_prototypes, init, classes, class_weight):
    """(number for each class or None, total or None): the former for k-means++, the latter for the slides' start.

    Both are None if prototypes are added while the fit improves.
    """
    if is_auto(n_prototypes):
        if init == "mean":
            raise ValueError('n_prototypes must be an int with init="mean". Got "auto".')
        return None, None
    if isinstance(n_prototypes, dict):
        return _numbers_by_class(n_prototypes, init, classes.tolist()), None
    if not isinstance(n_prototypes, Integral) or n_prototypes < 1:
        raise ValueError(f'n_prototypes must be "auto", a positive int or a dict. Got {n_prototypes!r}.')
    if init == "mean":
        return None, int(n_prototypes)
    return _divided(int(n_prototypes), class_weight), None


def _numbers_by_class(given, init, classes):
    if init == "mean":
        raise ValueError(f'n_prototypes must be an int, the total, with init="mean". Got {given!r}.')
    unknown = sorted(map(str, set(given) - set(classes)))
    missing = [label for label in classes if label not in given]
    if unknown or missing:
        raise ValueError(
            f"n_prototypes as a dict must name every class of y. Got unknown classes {unknown}, missing {missing}."
        )
    for label, number in given.items():
        if not isinstance(number, Integral) or number < 1:
            raise ValueError(f"n_prototypes of class {label!r} must be a positive int. Got {number!r}.")
    return np.array([int(given[label]) for label in classes])


def _divided(total, class_weight):
    """Divide `total` prototypes among the classes by weight, at least one for each."""
    if total < len(class_weight):
        raise ValueError(
            f"n_prototypes must be at least the number of classes, {len(class_weight)}. Got {total}. "
            'Raise it, or use the slides\' start, init="mean".'
        )
    numbers = np.ones(len(class_weight), dtype=int)
    for _ in range(total - len(class_weight)):
        numbers[np.argmax(class_weight / numbers)] += 1
    return numbers
