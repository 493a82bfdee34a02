"""What the parameters of PottsDA mean: their check, the rows of the fit, and the settings of the search."""

from __future__ import annotations

from itertools import takewhile
from numbers import Integral

import numpy as np

from annealed.arrays import Place, is_foreign, on_named_device, take_rows, to_host
from annealed.estimators.parameters import check_count, check_flag, generator_of
from annealed.estimators.samples import check_weight, counted_in_rows, weighted_classes
from annealed.path import (
    InverseTemperatureSchedule,
    UntilSchedule,
    check_given_temperature,
    check_temperature,
    falling,
    is_auto,
    make_schedule,
)
from annealed.potts import RELAXATIONS, SHRINKAGES, Columns, Cooling, LabelledRows, SearchSettings, distinct_rows
from annealed.potts.on_device import ArrayLabelledRows
from annealed.potts.search import FIT_ROWS, STRENGTHS
from annealed.potts.state import SINGLE_ROUNDING
from annealed.problems.base import check_choice, number_of

INITS = ("kmeans++", "mean")
DECISIONS = ("posterior", "nearest")
SEARCHED_SHRINKAGES = ("oas", 0.3, 0.9)  # candidates of shrinkage="auto"
BETA_GROWTH = 1.5  # factor on beta from one temperature of the default schedule to the next
EXTREME = 1e-30  # smallest temperature, inverse coupling and weight relative to the largest: beyond it floats overflow


def check_parameters(model):
    """Check the parameters of a `PottsDA` that no other object checks."""
    choices = {"init": INITS, "relaxation": tuple(RELAXATIONS), "decision": DECISIONS}
    for name, known in choices.items():
        check_choice(getattr(model, name), name, known)
    for name in ("n_init", "max_sweeps"):
        check_count(getattr(model, name), name)
    check_flag(model.refine, "refine")
    check_given_temperature(model.temperature)
    if not is_auto(model.temperature) and not EXTREME <= float(model.temperature) <= 1 / EXTREME:
        raise ValueError(f"temperature must be from {EXTREME:g} to {1 / EXTREME:g}. Got {model.temperature!r}.")
    if check_temperature(model.label_coupling, "label_coupling") > 1 / EXTREME:
        raise ValueError(f"label_coupling must be at most {1 / EXTREME:g}. Got {model.label_coupling!r}.")
    if not 0 < number_of(model.saturation) <= 1:
        raise ValueError(f"saturation must be above 0 and at most 1. Got {model.saturation!r}.")
    if not 0 <= number_of(model.perturbation) <= 1 / EXTREME:
        raise ValueError(f"perturbation must be a number from 0 to {1 / EXTREME:g}. Got {model.perturbation!r}.")
    known = ("auto", *SHRINKAGES)
    is_share = 0 <= number_of(model.shrinkage) <= 1
    is_known = isinstance(model.shrinkage, str) and model.shrinkage in known
    if not is_share and not is_known:
        raise ValueError(f"shrinkage must be one of {known} or a number from 0 to 1. Got {model.shrinkage!r}.")


def labelled_rows(model, X, labels, classes, sample_weight) -> tuple[LabelledRows, Columns]:
    """Rows in standardized columns, on a device if there is one and the rows are many."""
    X = precise(X, _cooling(model, 0).temperatures[-1])
    weight = check_weight(sample_weight, X.shape[0])
    weighted_classes(np.bincount(labels, weight / weight.max(), len(classes)), classes)
    kept = np.flatnonzero(weight > EXTREME * weight.max())
    if len(kept) < len(weight):
        X, labels, weight = take_rows(X, kept), labels[kept], weight[kept]
    is_named = model.device is not None and not is_foreign(X)
    if X.shape[0] <= FIT_ROWS or not (is_named or is_foreign(X)):
        if is_named:
            on_named_device(X[:0], model.device)  # few rows stay on the host, but a wrong device is refused anyway
        distinct, labels, weight = distinct_rows(to_host(X), labels, weight)
        weight = counted_in_rows(weight, weight.sum(), len(weight))
        columns = Columns.of_rows(distinct, weight)
        return LabelledRows(columns.rows(distinct), labels, weight, len(classes)), columns
    if model.relaxation != "multilinear" or model.shrinkage == "ledoit_wolf":
        raise ValueError(
            f"relaxation must be 'multilinear', and shrinkage must not be 'ledoit_wolf', for more than {FIT_ROWS} "
            f"samples on a device. Got {model.relaxation!r} and {model.shrinkage!r}."
        )
    if is_named:
        X, place = on_named_device(X, model.device)
        X = X if is_foreign(X) else place.row(X)
    weight = Place.of(X).wide(counted_in_rows(weight, weight.sum(), len(weight)))
    columns = Columns.of_rows(X, weight)
    return ArrayLabelledRows(columns.rows(X), labels, weight, len(classes)), columns


def precise(X, temperature):
    """X in float64 for a temperature so low that scores in float32 are rounding errors, or overflow; else as it is."""
    return X if temperature >= SINGLE_ROUNDING else Place.of(X).wide(X)


def search_settings(model, classes, class_weight) -> SearchSettings:
    """The settings of the search that the parameters mean."""
    n_per_class, n_total = _numbers_of_prototypes(model.n_prototypes, model.init, classes, class_weight)
    seed = _seed(model.random_state)
    return SearchSettings(
        cooling=_cooling(model, seed),
        n_per_class=n_per_class,
        n_total=n_total,
        n_init=int(model.n_init),
        shrinkages=SEARCHED_SHRINKAGES if model.shrinkage == "auto" else (model.shrinkage,),
        strengths=STRENGTHS if model.refine else (),
        seed=seed,
        sharpness=None if is_auto(model.temperature) else 1 / float(model.temperature),
    )


def _cooling(model, seed) -> Cooling:
    schedule = InverseTemperatureSchedule(growth=BETA_GROWTH) if is_auto(model.schedule) else model.schedule
    schedule, saturation = make_schedule(schedule), float(model.saturation)
    if not is_auto(model.temperature):  # the annealing ends there, whether the spins are hard or not
        schedule, saturation = UntilSchedule(schedule, model.temperature), np.inf
    ladder = falling(schedule.temperatures(lambda: 2.0))
    useful = takewhile(lambda value: value >= EXTREME, ladder)  # memberships are hard long before
    temperatures = tuple(value for value in useful if value <= 1 / EXTREME)
    if not temperatures:
        raise ValueError(
            f"schedule must have a temperature from {EXTREME:g} to {1 / EXTREME:g}. Got {model.schedule!r}."
        )
    return Cooling(
        temperatures=temperatures,
        coupling=float(model.label_coupling),
        shrinkage="oas",
        relaxation=model.relaxation,
        max_sweeps=int(model.max_sweeps),
        saturation=saturation,
        perturbation=float(model.perturbation),
        seed=seed,
    )


def _seed(random_state):
    generator = generator_of(random_state)
    if random_state is None or isinstance(random_state, Integral):
        return int(random_state or 0)
    return int(generator.randint(1 << 31))


def _numbers_of_prototypes(n_prototypes, init, classes, class_weight):
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
