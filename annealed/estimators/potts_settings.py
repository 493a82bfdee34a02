"""The parameters of PottsDA: their check, and the settings of the search that they mean."""

from __future__ import annotations

from itertools import takewhile
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from annealed.estimators.validation import check_count, check_flag
from annealed.path import (
    InverseTemperatureSchedule,
    UntilSchedule,
    check_given_temperature,
    check_temperature,
    falling,
    is_auto,
    make_schedule,
)
from annealed.potts import RELAXATIONS, SHRINKAGES, Cooling, SearchSettings
from annealed.potts.search import STRENGTHS

INITS = ("kmeans++", "mean")
DECISIONS = ("posterior", "nearest")
SEARCHED_SHRINKAGES = ("oas", 0.3, 0.9)  # candidates of shrinkage="auto"
BETA_GROWTH = 1.5  # factor on beta from one temperature of the default schedule to the next
EXTREME = 1e-30  # smallest temperature, inverse coupling and weight relative to the largest: beyond it floats overflow


class PottsSettingsMixin:
    """Parameters of `PottsDA`, checked and translated for the search."""

    n_prototypes: Any
    n_init: int
    shrinkage: Any
    refine: bool
    label_coupling: float
    temperature: Any
    schedule: Any
    max_sweeps: int
    random_state: Any
    init: str
    relaxation: str
    decision: str
    saturation: float
    perturbation: float
    classes_: NDArray[Any]

    def _search_settings(self, rows) -> SearchSettings:
        n_per_class, n_total = numbers_of_prototypes(self.n_prototypes, self.init, self.classes_, rows.class_weight)
        seed = self._seed()
        return SearchSettings(
            cooling=self._cooling(seed),
            n_per_class=n_per_class,
            n_total=n_total,
            n_init=int(self.n_init),
            shrinkages=SEARCHED_SHRINKAGES if self.shrinkage == "auto" else (self.shrinkage,),
            strengths=STRENGTHS if self.refine else (),
            seed=seed,
            sharpness=None if is_auto(self.temperature) else 1 / float(self.temperature),
        )

    def _cooling(self, seed) -> Cooling:
        schedule = InverseTemperatureSchedule(growth=BETA_GROWTH) if is_auto(self.schedule) else self.schedule
        schedule, saturation = make_schedule(schedule), float(self.saturation)
        if not is_auto(self.temperature):  # the annealing ends there, whether the spins are hard or not
            schedule, saturation = UntilSchedule(schedule, self.temperature), np.inf
        ladder = falling(schedule.temperatures(lambda: 2.0))
        temperatures = tuple(takewhile(lambda value: value >= EXTREME, ladder))  # memberships are hard long before
        if not temperatures:
            raise ValueError(f"schedule must begin at a temperature of at least {EXTREME:g}. Got {self.schedule!r}.")
        return Cooling(
            temperatures=temperatures,
            coupling=float(self.label_coupling),
            shrinkage="oas",
            relaxation=self.relaxation,
            max_sweeps=int(self.max_sweeps),
            saturation=saturation,
            perturbation=float(self.perturbation),
            seed=seed,
        )

    def _seed(self):
        if self.random_state is None or isinstance(self.random_state, Integral):
            return int(self.random_state or 0)
        return int(check_random_state(self.random_state).randint(1 << 31))

    def _check_parameters(self):
        choices = {"init": INITS, "relaxation": tuple(RELAXATIONS), "decision": DECISIONS}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {known}. Got {getattr(self, name)!r}.")
        for name in ("n_init", "max_sweeps"):
            check_count(getattr(self, name), name)
        check_flag(self.refine, "refine")
        check_given_temperature(self.temperature)
        if not is_auto(self.temperature) and not EXTREME <= float(self.temperature) <= 1 / EXTREME:
            raise ValueError(f"temperature must be from {EXTREME:g} to {1 / EXTREME:g}. Got {self.temperature!r}.")
        if check_temperature(self.label_coupling, "label_coupling") > 1 / EXTREME:
            raise ValueError(f"label_coupling must be at most {1 / EXTREME:g}. Got {self.label_coupling!r}.")
        if not isinstance(self.saturation, Real) or not 0 < float(self.saturation) <= 1:
            raise ValueError(f"saturation must be above 0 and at most 1. Got {self.saturation!r}.")
        known = ("auto", *SHRINKAGES)
        if not isinstance(self.perturbation, Real) or not 0 <= float(self.perturbation) < np.inf:
            raise ValueError(f"perturbation must be a number that is not negative. Got {self.perturbation!r}.")
        is_share = isinstance(self.shrinkage, Real) and 0 <= float(self.shrinkage) <= 1
        is_known = isinstance(self.shrinkage, str) and self.shrinkage in known
        if not is_share and not is_known:
            raise ValueError(f"shrinkage must be one of {known} or a number from 0 to 1. Got {self.shrinkage!r}.")


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
