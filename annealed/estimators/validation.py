"""Validation of an annealed classifier: checks of parameters, metadata routing, held-out samples, and validators."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn import get_config
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, get_routing_for_object, process_routing
from sklearn.utils.validation import validate_data

from annealed.arrays import Place, is_dispatched, is_foreign, is_mapped, to_host
from annealed.estimators.on_device import (
    DeviceRows,
    check_foreign,
    check_labels,
    device_validator,
    device_validator_of_set,
    named_classes,
)
from annealed.estimators.weights import check_weight, counted_in_rows, weight_of_each
from annealed.path import check_given_temperature, check_temperature, is_auto
from annealed.validation.point_scorer import Part, PointScorer
from annealed.validation.selection import (
    DEFAULT_FOLDS,
    RULES,
    HeldOutValidator,
    LeaveOneOut,
    NoValidation,
    held_out_by_fold,
    is_number_of_folds,
    make_splits,
    score_groups,
    stratified_splits,
)

HOLDING_OUT = ("cv", "loo", "holdout")
SELECTIONS = (*HOLDING_OUT, "last")
DTYPES = (np.float64, np.float32)
MOST_WEIGHTY = 0.5  # share of samples with weight up to which they are copied, to leave out those without


class Shown(NamedTuple):
    """Samples and labels as splitters and scorers receive them, as in scikit-learn's `cross_validate`."""

    X: Any
    y: Any

    @classmethod
    def of(cls, given_X, given_y, X, y) -> Shown:
        """Frames and series as they were given, everything else as it was checked."""
        is_frame = hasattr(given_X, "columns")
        is_series = hasattr(given_y, "to_numpy") and len(getattr(given_y, "shape", ())) == 1 and not is_foreign(X)
        return cls(given_X if is_frame else X, given_y if is_series else to_host(y))

    def in_one_library(self) -> Shown:
        """The same, with labels in the library and on the device of X, where predictions are."""
        if not is_foreign(self.X):
            return self
        return Shown(self.X, named_classes(self.y, Place.of(self.X).whole(np.arange(len(self.y)))))


@dataclass(frozen=True)
class Rows:
    """The training data: samples, labels as codes, weights, and classes.

    total_weight : sum of the given weights, multiplied by those of classes
    shown : samples and labels for splitters and scorers
    device : the same data on a device, if the fit takes place there
    """

    X: Any
    shown: Shown
    labels: np.ndarray
    weight: Any
    classes: np.ndarray
    total_weight: float
    device: DeviceRows | None = None

    @property
    def host_weight(self) -> np.ndarray:
        return self.weight if self.device is None else to_host(self.device.weight)


class ValidationSet(NamedTuple):
    """A validation set given by the user; `weight` is rescaled like those of samples, except on a device."""

    X: Any
    shown: Shown
    labels: np.ndarray
    weight: Any
    given_weight: Any


class ValidationMixin:
    """Validation of `AnnealedClassifier`, which defines `_point` and `_accept_sparse`."""

    cv: Any
    temperature: Any
    selection: Any
    rule: Any
    scoring: Any
    calibrate: Any
    tol: Any
    max_iter: Any
    random_state: Any
    _point: Any
    _accept_sparse: Any

    def _is_log_loss(self):
        return _is_log_loss(self.scoring)

    def _selection(self):
        """How the temperature is chosen: "last" if a temperature is given."""
        return self.selection if is_auto(self.temperature) else "last"

    def _check_parameters(self, X_val, y_val, sample_weight_val):
        if self.rule not in RULES:
            raise ValueError(f"rule must be one of {RULES}. Got {self.rule!r}.")
        check_temperature(self.tol, "tol")
        check_count(self.max_iter, "max_iter")
        check_flag(self.calibrate, "calibrate")
        if not isinstance(self.scoring, str) and not callable(self.scoring):
            raise ValueError(
                f'scoring must be the name of one scorer, such as "neg_log_loss", or a callable. Got {self.scoring!r}.'
            )
        if not isinstance(self.selection, str) or self.selection not in SELECTIONS:
            hint = " Give a temperature as temperature=." if isinstance(self.selection, Real) else ""
            raise ValueError(f"selection must be one of {SELECTIONS}. Got {self.selection!r}.{hint}")
        check_given_temperature(self.temperature)
        if (X_val is None) != (y_val is None):
            raise ValueError("X_val and y_val must be given together.")
        if X_val is None and sample_weight_val is not None:
            raise ValueError("sample_weight_val weighs the samples of a validation set. Give X_val and y_val, too.")
        if self.selection == "loo" and not self._is_log_loss():
            raise ValueError(
                f'selection="loo" compares log-losses and has no folds to score. Got scoring={self.scoring!r}. '
                'Set scoring="neg_log_loss" or selection="cv".'
            )
        if X_val is not None and self._selection() != "holdout":
            given = (
                f"selection={self.selection!r}" if is_auto(self.temperature) else f"temperature={self.temperature!r}"
            )
            raise ValueError(
                f'A validation set was given, which {given} does not use. Set selection="holdout" and '
                'temperature="auto".'
            )

    def _route(self, sample_weight, params):
        """Metadata for the splitter's `split` and the scorer's `score`."""
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", sample_weight=sample_weight, **params)
            return {"split": routed.splitter.split, "score": {} if self._is_log_loss() else routed.scorer.score}
        unknown = sorted(set(params) - {"groups"})
        if unknown:
            raise TypeError(
                f"fit got unexpected arguments {unknown}. Only `groups` is known without metadata routing: "
                "enable it with sklearn.set_config(enable_metadata_routing=True)."
            )
        score = {} if sample_weight is None else {"sample_weight": sample_weight}
        return {"split": {key: value for key, value in params.items() if value is not None}, "score": score}

    def get_metadata_routing(self):
        """Get the metadata requests of this estimator, its splitter and its scorer."""
        return with_scorer(with_splitter(MetadataRouter(owner=self).add_self_request(self), self.cv), self)

    def _validation_set(self, X_val, y_val, sample_weight_val, rows: Rows) -> ValidationSet | None:
        if X_val is None:
            return None
        classes, given_X, given_y = rows.classes, X_val, y_val
        if is_foreign(rows.X):
            X_val = check_foreign(self, X_val, reset=False)
            y_val = check_labels(y_val, X_val.shape[0])
        else:
            X_val, y_val = checked_rows(self, X_val, y_val, accept_sparse=self._accept_sparse(), reset=False)
        unknown = np.setdiff1d(y_val, classes)
        if len(unknown):
            found, known = unknown[:5].tolist(), classes[:20].tolist()
            raise ValueError(f"y_val must contain only labels of y. Got {found}. Known labels: {known}.")
        weight = sample_weight_val = weight_of_each(sample_weight_val, y_val)
        if rows.device is None:
            weight = check_weight(sample_weight_val, len(y_val), "sample_weight_val")
            weight = counted_in_rows(weight, weight.sum(), np.count_nonzero(weight))
        shown = Shown.of(given_X, given_y, X_val, y_val)
        return ValidationSet(X_val, shown, np.searchsorted(classes, y_val), weight, sample_weight_val)

    def _without_idle(self, rows: Rows) -> Rows:
        """The samples that have weight, if many have none and no splitter or scorer of the user needs the others."""
        weighty = np.flatnonzero(rows.weight)
        is_free = is_number_of_folds(self.cv) and self._is_log_loss()
        if not is_free or len(weighty) > MOST_WEIGHTY * len(rows.weight) or is_mapped(rows.X):
            return rows
        return replace(rows, X=rows.X[weighty], labels=rows.labels[weighty], weight=rows.weight[weighty])

    def _splits(self, rows: Rows, selection, split_params):
        is_splitter_asked = selection == "cv" and not is_number_of_folds(self.cv)
        if "groups" in split_params and selection in HOLDING_OUT and not is_splitter_asked:
            warnings.warn(
                'groups are ignored: they are for a splitter of selection="cv", such as cv=GroupKFold(5). Samples of '
                f"one group may be on both sides of a split. Got selection={selection!r}, cv={self.cv!r}.",
                UserWarning,
                stacklevel=5,
            )
        if selection not in ("cv", "holdout"):
            return []
        weight = rows.host_weight
        if selection == "cv":
            y = rows.classes[rows.labels]
            splits = make_splits(self.cv, rows.shown.X, y, rows.labels, weight, self.random_state, split_params)
        else:
            splits = stratified_splits(DEFAULT_FOLDS, rows.labels, self.random_state, weight)[:1]
        weighty = [split for split in splits if weight[split[1]].sum() > 0]  # the others validate nothing
        if splits and not weighty:
            raise ValueError("No held-out sample has a positive weight. Check cv and sample_weight.")
        if not splits:
            warnings.warn(
                "Every class has a single sample, so nothing can be held out: the last temperature is chosen.",
                UserWarning,
                stacklevel=3,
            )
        return weighty

    def _validator(self, rows: Rows, selection, splits, validation_set, score_point):
        """The validator of the temperatures; `score_point` is the result of `_point_scorer`."""
        labels, weight = rows.labels, rows.weight
        if validation_set is not None:
            validator = self._validator_of_set(rows, validation_set.X, validation_set.labels, validation_set.weight)
        elif selection == "loo":
            return LeaveOneOut(labels, weight, score_groups(rows.host_weight), calibrate=self.calibrate)
        elif splits:
            held_out, folds = held_out_by_fold(splits)
            if rows.device is not None:
                validator = device_validator(rows.device, held_out, len(splits), self.calibrate)
            else:
                validator = HeldOutValidator(
                    labels[held_out.rows], weight[held_out.rows], folds, held_out, self.calibrate
                )
        else:
            return NoValidation()
        validator.score_point = score_point
        return validator

    def _point_scorer(
        self, rows: Rows, splits, validation_set: ValidationSet | None, score_params
    ) -> PointScorer | None:
        """The user's scorer on held-out samples; None for the log-loss, which needs none."""
        if self._is_log_loss():
            return None
        scorer, shown = check_scoring(self, scoring=self.scoring), rows.shown.in_one_library()
        if validation_set is None:
            tests = enumerate([test for _, test in splits], start=1)
            parts = [Part(fit, *shown, score_params, test) for fit, test in tests]
        else:
            is_weighed = validation_set.given_weight is not None and _takes_weight(scorer)
            params = {"sample_weight": validation_set.given_weight} if is_weighed else {}
            parts = [Part(0, *validation_set.shown.in_one_library(), params)]
        return PointScorer(scorer, self._point, Part(0, *shown, score_params), parts)

    def _validator_of_set(self, rows: Rows, X, labels, weight):
        """The validator of a given validation set."""
        if rows.device is None:
            return HeldOutValidator(labels, weight, np.zeros(len(labels), dtype=int), calibrate=self.calibrate, X=X)
        place = rows.device.place
        on_place = X if is_foreign(X) else place.row(X)
        return device_validator_of_set(on_place, labels, weight, place, self.calibrate)


def with_splitter(router: MetadataRouter, cv) -> MetadataRouter:
    """Add the requests of a splitter; given splits have none, and an iterator of splits must not be consumed here."""
    splitter = check_cv(cv if hasattr(cv, "split") else None, classifier=True)
    return router.add(splitter=splitter, method_mapping=MethodMapping().add(caller="fit", callee="split"))


def with_scorer(router: MetadataRouter, estimator) -> MetadataRouter:
    """Add the requests of the estimator's scorer; the log-loss is computed here, with the weights of fit."""
    if _is_log_loss(estimator.scoring):
        return router
    scorer = check_scoring(estimator, scoring=estimator.scoring)
    return router.add(scorer=scorer, method_mapping=MethodMapping().add(caller="fit", callee="score"))


def _is_log_loss(scoring) -> bool:
    return isinstance(scoring, str) and scoring == "neg_log_loss"


def _takes_weight(scorer) -> bool:
    """Whether a scorer receives weights: always, unless metadata routing is enabled and it does not request them."""
    if not get_config()["enable_metadata_routing"]:
        return True
    return bool(get_routing_for_object(scorer).consumes("score", ["sample_weight"]))


def host_rows(estimator, *rows, reset=True):
    """X, and y if given, of an estimator that accepts NumPy and SciPy arrays only."""
    if is_dispatched(rows[0]):
        given = type(rows[0])
        raise TypeError(
            f"X of {type(estimator).__name__} must be a NumPy or SciPy array. Got {given.__module__}.{given.__name__}. "
            "Convert X to NumPy, or set array_api_dispatch=False for arrays on the CPU."
        )
    return checked_rows(estimator, *rows, reset=reset)


def checked_rows(estimator, X, *y, accept_sparse="csr", reset=True):
    """X, and y if given, checked by scikit-learn, which does not convert the dtype of frames of sparse columns."""
    found = validate_data(estimator, X, *y, accept_sparse=accept_sparse, dtype=DTYPES, reset=reset)
    X = found[0] if y else found
    if sparse.issparse(X) and X.dtype not in DTYPES:
        X = X.astype(np.float64)
    return (X, found[1]) if y else X


def check_count(value, name):
    if not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a positive whole number. Got {value!r}.")


def check_flag(value, name):
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False. Got {value!r}.")
