"""How many prototypes `PottsDA` starts with: of each class, or in all."""

from __future__ import annotations

from numbers import Integral

import numpy as np

from annealed.schedules import is_auto


def numbers_of_prototypes(n_prototypes, init, classes, class_weight):
    """(of each class or None, in all or None): the former for k-means++, the latter for the slides' start."""
    if is_auto(n_prototypes):
        if init == "mean":
            raise ValueError('init="mean" needs a number of prototypes. Got n_prototypes="auto".')
        return None, None
    if isinstance(n_prototypes, dict):
        return _numbers_by_class(n_prototypes, init, classes.tolist()), None
    if not isinstance(n_prototypes, Integral) or n_prototypes < 1:
        raise ValueError(f'n_prototypes must be "auto", a positive int or a dict. Got {n_prototypes!r}.')
    if init == "mean":
        return None, int(n_prototypes)
    return _dealt(int(n_prototypes), class_weight), None


def _numbers_by_class(given, init, classes):
    if init == "mean":
        raise ValueError(f'init="mean" needs n_prototypes as an int, the total. Got {given!r}.')
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


def _dealt(total, class_weight):
    """`total` prototypes dealt to the classes by weight, one at least to each."""
    if total < len(class_weight):
        raise ValueError(
            f"n_prototypes must be at least the number of classes, {len(class_weight)}. Got {total}. "
            "Raise it, or use the start of the slides, init='mean'."
        )
    dealt = np.ones(len(class_weight), dtype=int)
    for _ in range(total - len(class_weight)):
        dealt[np.argmax(class_weight / dealt)] += 1
    return dealt
