"""Fits on a device: of torch, CuPy or other array-API input under scikit-learn's `array_api_dispatch`, and of NumPy
input that the user sends to a device.

X, weights, logits and held-out scores stay on the device of X. Labels are copied to the host once, where folds are made
in the same way as for NumPy input.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.utils import column_or_1d
from sklearn.utils.validation import validate_data

from annealed.arrays import Place, detached, is_foreign, namespace_of, on_named_device, take_rows, to_host
from annealed.estimators.labels import check_labels_classify, coded
from annealed.estimators.weights import class_factors, counted_in_rows, weighted_classes
from annealed.path import Validation
from annealed.problems.array_gibbs import deviations, margins, scaled_losses, scaled_moments
from annealed.problems.device_passes import TEMPORARIES, HeldOutOnDevice, HeldOutPart
from annealed.rows import ArrayDesign
from annealed.validation.calibration import least_log_scale, penalty
from annealed.validation.selection import HeldOutValidator, times_drawn

KEPT_BYTES = 1 << 31  # bytes of held-out logits up to which they are kept between evaluations: memory against time


@dataclass(frozen=True)
class DeviceRows:
    """Rows on a device: X (or X streamed to it), labels as codes, and weights.

    total_weight : sum of the given sample weights times class weights
    """

    X: Any
    labels: Any
    weight: Any
    place: Place
    total_weight: float


def check_precision(precision, place: Place | None):
    if precision is None:
        return
    if precision != "tf32":
        raise ValueError(f'matmul_precision must be "tf32" or None. Got {precision!r}.')
    if place is None:
        raise ValueError(
            f"matmul_precision must be None for samples on the host. Got {precision!r}. Give X as a torch array with "
            "array_api_dispatch=True, or set device."
        )
    if not place.is_torch or place.row_dtype != place.xp.float32:
        raise ValueError(
            f"matmul_precision must be None unless X is a float32 torch array. Got {precision!r} and {place.row_dtype}."
        )


def check_foreign(estimator, X, reset=True):
    """Validate X of an array-API namespace on its device; neither fits nor predictions have gradients."""
    if "sparse" in str(getattr(X, "layout", "")):
        raise TypeError(
            f"X must be dense if it is a torch array. Got layout {X.layout}. Use X.to_dense(), or a SciPy matrix."
        )
    if namespace_of(X).isdtype(X.dtype, "complex floating"):
        raise ValueError(f"Complex data not supported. Got X of {X.dtype}.")
    return validate_data(estimator, detached(X), dtype=Place.of(X).float_dtypes, reset=reset)


def check_same_library(X, fitted, estimator, method):
    """Check that X has the library and the device of `fitted`, an array of the fitted model."""
    if not is_foreign(X) and not is_foreign(fitted):
        return
    here, there = (Place.of(array) if is_foreign(array) else None for array in (X, fitted))
    if here is None or there is None or (here.xp, here.device) != (there.xp, there.device):
        names = ["NumPy" if place is None else f"{place.xp.__name__} on {place.device}" for place in (there, here)]
        raise ValueError(
            f"Inputs passed to {type(estimator).__name__}.{method}() must use the same namespace and the same device "
            f"as those passed to fit(). It was fitted with {names[0]} and got X of {names[1]}."
        )


def coded_labels(y, n_rows):
    """Classes and label codes as NumPy arrays; labels on a device are encoded there."""
    is_plain = is_foreign(y) and y.ndim == 1
    labels = y if is_plain else column_or_1d(to_host(y), warn=True)
    if labels.shape[0] != n_rows:
        raise ValueError(f"X and y must have the same number of samples. Got {n_rows} and {labels.shape[0]}.")
    if not is_plain:
        return coded(labels)
    values, codes = namespace_of(labels).unique_inverse(labels)
    values = to_host(values)
    check_labels_classify(
        np.tile(values, min(2, n_rows // len(values)))
    )  # twice, as scikit-learn warns of labels that all differ
    classes, ranks = np.unique(values, return_inverse=True)
    return classes, ranks[to_host(codes)]


def check_labels(y, n_rows):
    """Labels as a NumPy array."""
    classes, codes = coded_labels(y, n_rows)
    return classes[codes]


def classes_like(classes, y):
    """Classes in the namespace of y, on its device."""
    if not is_foreign(y):
        return classes
    place = Place.of(y)
    return place.xp.asarray(classes, dtype=y.dtype, device=place.device)


def named_classes(classes, best):
    """`classes[best]`, on the device of `best` if the classes are numbers, otherwise in NumPy."""
    if not is_foreign(best):
        return classes[best]
    place = Place.of(best)
    if not is_foreign(classes) or Place.of(classes).xp is not place.xp:
        classes = to_host(classes)
        if classes.dtype.kind not in "biuf":
            return classes[to_host(best)]
        classes = place.xp.asarray(classes, device=place.device)
    return take_rows(classes, best)


def check_device_weight(weight, n_rows, place: Place, name="sample_weight"):
    """Validate weights (n_rows,) and move them to the device; None gives ones."""
    xp = place.xp
    if weight is None:
        return xp.ones(n_rows, dtype=place.wide_dtype, device=place.device)
    if not is_foreign(weight) or (Place.of(weight).xp, Place.of(weight).device) != (xp, place.device):
        weight = np.asarray(to_host(weight), dtype=np.float64)
    weight = detached(place.wide(weight))
    if weight.ndim == 0:
        weight = xp.broadcast_to(weight, (n_rows,))
    if weight.shape != (n_rows,):
        raise ValueError(
            f"{name} must have one entry for each sample, shape ({n_rows},). Got shape {tuple(weight.shape)}."
        )
    least, most = (float(value) for value in place.host(xp.min(weight), xp.max(weight)))
    if not (np.isfinite(least) and np.isfinite(most)):
        raise ValueError(f"{name} must be finite. Got values from {least} to {most}.")
    if least < 0:
        raise ValueError(f"{name} must not be negative. Got {least}.")
    if most == 0:
        raise ValueError(f"{name} must hold a positive weight. Got zeros only.")
    return weight


def device_rows(X, codes, sample_weight, classes, class_weight, device=None) -> DeviceRows:
    """Rows on a device, from array-API input, or from NumPy input and the name of a device."""
    X, place = (X, Place.of(X)) if is_foreign(X) else on_named_device(X, device)
    labels = place.whole(codes)
    weight = check_device_weight(sample_weight, len(codes), place)
    weight, counts = weighed_on_device(weight, labels, classes, class_weight, place)
    weight = weight * place.xp.take(place.wide(weighted_classes(counts, classes)), labels)
    return DeviceRows(X, labels, _counted_in_rows(weight, place), place, float(counts.sum()))


def _counted_in_rows(weight, place):
    total, n_weighted = place.host(place.xp.sum(weight), place.xp.sum(place.wide(weight > 0)))
    return counted_in_rows(weight, float(total), float(n_weighted))


def weighed_on_device(weight, labels, classes, class_weight, place: Place):
    """Sample weights times class weights, on the device, and the total weight of each class, on the host."""
    design = ArrayDesign(labels[:, None], labels, weight[:, None], None, len(classes), place)
    counts = design.class_weight_sums()[0]
    if class_weight is None:
        return weight, counts
    factors = class_factors(class_weight, classes, counts)
    return weight * place.xp.take(place.wide(factors), labels), counts * factors


def device_design(rows: DeviceRows, splits, n_classes) -> ArrayDesign:
    """The design of the final fit and its folds; the weights of each fit sum to one."""
    place, xp, n_rows = rows.place, rows.place.xp, rows.labels.shape[0]
    columns = [rows.weight]
    for train, _ in splits:
        columns.append(rows.weight * place.wide(times_drawn(train, n_rows)))
    stack = xp.stack(columns, axis=1)
    (total,) = place.host(xp.sum(stack, axis=0))
    if not (total > 0).all():
        raise ValueError(f"Fold {int(np.argmin(total))} of cv has no training sample of positive weight.")
    weight = place.row(stack / place.wide(total))
    return ArrayDesign(rows.X, rows.labels, weight, total, n_classes, place)


@dataclass
class DeviceValidator(HeldOutValidator):
    """Held-out log-loss on a device.

    `labels` and `weight` are on the device. They are those of all samples, or of the validation set `X`; `n_folds` is
    the number of folds.
    """

    n_folds: int = 1
    total: float = field(default=0.0)
    _shares: list = field(default_factory=list, init=False)
    _weights: Any = field(default=None, init=False)
    _held_out: Any = field(default=None, init=False)

    @property
    def n_rows(self) -> float:
        return self.total

    def validate(self, problem, parameters, temperature):
        place = problem.place
        parts = self._kept(problem, lambda: self._parts(problem, parameters, temperature))
        margin = self._mean_margin(place, parts)
        if self.calibrate:

            def moments(scale):
                sums = sum(scaled_moments(place, float(scale), part.deviation) @ part.weight for part in parts())
                return place.host(sums)[0] / self.total

            self.log_scale = float(least_log_scale(moments, self.total, margin, self.log_scale))
        scale = float(np.exp(self.log_scale))
        if self.score_point is not None:
            return self._by_scorer(self.score_point, problem, parameters, temperature, scale)
        losses = place.zeros((self.n_folds,))
        for number, part in enumerate(parts()):
            losses = losses + scaled_losses(place, scale, part.deviation) @ self._share(place, number, part)
        sums = place.host(losses)[0]
        scale_penalty = penalty(self.log_scale, sums.sum() / self.total, margin, self.total)
        return Validation(-sums / self._fold_weights(place), scale, penalty=scale_penalty)

    validate_all = HeldOutValidator._validate_each

    def _mean_margin(self, place, parts) -> float:
        """Mean margin of the true class over the next one."""
        (sums,) = place.host(sum(margins(place, part.deviation) @ part.weight for part in parts()))
        return float(sums) / self.total

    def _share(self, place, number, part):
        """Weights of a part's samples in each fold, (n_rows, n_folds); they do not depend on the temperature."""
        if number == len(self._shares):
            folds = place.whole(np.arange(self.n_folds))
            self._shares.append(part.weight[:, None] * place.wide(part.fold[:, None] == folds[None, :]))
        return self._shares[number]

    def _fold_weights(self, place):
        if self._weights is None:
            (weights,) = place.host(sum(place.xp.sum(share, axis=0) for share in self._shares))
            self._weights = np.where(weights > 0, weights, 1)
        return self._weights

    def _kept(self, problem, make):
        """A function that returns the parts: from memory if they are small, otherwise computed at each call."""
        X: Any = self.X
        rows = X.shape[0] if X is not None else len(self.held_out.rows)
        if rows * problem.n_classes * problem.place.row_bytes > KEPT_BYTES:
            return make
        parts = list(make())
        return lambda: parts

    def _parts(self, problem, parameters, temperature):
        if self.X is None:
            if self._held_out is None or self._held_out.problem is not problem:
                self._held_out = HeldOutOnDevice(problem, self.held_out)
            yield from self._held_out.parts(parameters, temperature, self.weight)
            return
        place = problem.place
        design = ArrayDesign(self.X, self.labels, self.weight[:, None], None, problem.n_classes, place)
        arrays = problem.report(parameters[:1, ...], temperature, slice(0, 1))
        coef, intercept = (place.row(arrays[name][0, ...]) for name in ("coef", "intercept"))

        def part(block):
            deviation = deviations(place, block.scores(coef, intercept), block.labels)
            return HeldOutPart(deviation, place.wide(block.weight[:, 0]), block.labels * 0)

        with place.products_in(problem.design.matmul_precision):
            yield from design.map_blocks(part, n_fits=TEMPORARIES)


def device_validator(rows: DeviceRows, held_out, n_folds, calibrate) -> DeviceValidator:
    """The validator of folds."""
    picked = rows.place.xp.take(rows.weight, rows.place.whole(held_out.rows))
    (total,) = rows.place.host(rows.place.xp.sum(picked))
    return DeviceValidator(
        rows.labels, rows.weight, np.empty(0), held_out, calibrate, n_folds=n_folds, total=float(total)
    )


def device_validator_of_set(X, labels, weight, place: Place, calibrate) -> DeviceValidator:
    """The validator of a validation set."""
    weight = _counted_in_rows(check_device_weight(weight, len(labels), place, "sample_weight_val"), place)
    (total,) = place.host(place.xp.sum(weight))
    return DeviceValidator(place.whole(labels), weight, np.empty(0), calibrate=calibrate, X=X, total=float(total))


def argmax(logits):
    return namespace_of(logits).argmax(logits, axis=1)
