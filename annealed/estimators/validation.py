"""Who chooses the temperature of an annealed classifier: settings checked, metadata routed, rows held out, judges."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import validate_data

from annealed.arrays import is_foreign, take_rows
from annealed.estimators.on_device import DeviceRows, check_foreign, check_labels, held_out, validated
from annealed.estimators.weights import check_weight, counted_in_rows
from annealed.schedules import check_temperature
from annealed.selection import (
    DEFAULT_FOLDS,
    RULES,
    HeldOut,
    LeaveOneOut,
    NoValidation,
    fold_picks,
    make_splits,
    score_groups,
    stratified_splits,
)

SELECTIONS = ("cv", "loo", "holdout", "last")
DTYPES = (np.float64, np.float32)


@dataclass(frozen=True)
class Rows:
    """What is fitted: rows, labels as given and as codes, weights, and the classes.

    device : the same on a device, where the fit takes place on one
    """

    X: Any
    y: np.ndarray
    labels: np.ndarray
    weight: Any
    classes: np.ndarray
    device: DeviceRows | None = None


class ValidationMixin:
    """What `AnnealedClassifier` needs to validate temperatures; `_point` and `_accept_sparse` are its own."""

    cv: Any
    selection: Any
    rule: Any
    scoring: Any
    calibrate: Any
    random_state: Any
    _point: Any
    _accept_sparse: Any

    def _is_log_loss(self):
        return self.scoring is None or self.scoring == "neg_log_loss"

    def _check_parameters(self, X_val, y_val):
        if self.rule not in RULES:
            raise ValueError(f"rule must be one of {RULES}. Got {self.rule!r}.")
        for name in ("tol", "max_iter"):
            value = getattr(self, name)
            if not isinstance(value, Real) or not float(value) > 0:
                raise ValueError(f"{name} must be a positive number. Got {value!r}.")
        if isinstance(self.selection, str):
            if self.selection not in SELECTIONS:
                raise ValueError(f"selection must be one of {SELECTIONS} or a temperature. Got {self.selection!r}.")
        else:
            check_temperature(self.selection, "selection")
        if (X_val is None) != (y_val is None):
            raise ValueError("X_val and y_val must be given together.")
        if self.selection == "loo" and not self._is_log_loss():
            raise ValueError(
                f'selection="loo" compares log-losses and has no fold to score. Got scoring={self.scoring!r}. '
                'Set scoring=None or selection="cv".'
            )
        if X_val is not None and self.selection != "holdout":
            raise ValueError(
                f'A validation set was given, which selection={self.selection!r} does not use. Set selection="holdout".'
            )

    def _route(self, sample_weight, params):
        """Parameters for the splitter's `split` and the scorer's `score`."""
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
        """Requests of this estimator, its splitter and its scorer."""
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(
            splitter=check_cv(self.cv, classifier=True),
            method_mapping=MethodMapping().add(caller="fit", callee="split"),
        )
        if self._is_log_loss():  # computed here, with the weights of fit
            return router
        scorer = check_scoring(self, scoring=self.scoring)
        return router.add(scorer=scorer, method_mapping=MethodMapping().add(caller="fit", callee="score"))

    def _validation_set(self, X_val, y_val, sample_weight_val, rows: Rows):
        """(X, y, labels, weight) of an explicit validation set, or None."""
        if X_val is None:
            return None
        classes = rows.classes
        if is_foreign(rows.X):
            X_val = check_foreign(self, X_val, reset=False)
            y_val = check_labels(y_val, X_val.shape[0])
        else:
            X_val, y_val = validate_data(
                self, X_val, y_val, accept_sparse=self._accept_sparse(), dtype=DTYPES, reset=False
            )
        unknown = np.setdiff1d(y_val, classes)
        if len(unknown):
            raise ValueError(f"y_val holds labels that y does not: {list(unknown[:5])}. Known: {list(classes[:20])}.")
        weight = sample_weight_val
        if rows.device is None:
            weight = check_weight(sample_weight_val, len(y_val), "sample_weight_val")
            weight = counted_in_rows(weight, weight.sum(), np.count_nonzero(weight))
        return X_val, y_val, np.searchsorted(classes, y_val), weight

    def _splits(self, rows: Rows, selection, split_params):
        if selection == "cv":
            y = rows.classes[rows.labels]
            splits = make_splits(self.cv, rows.X, y, rows.labels, self.random_state, split_params)
        elif selection == "holdout":
            splits = stratified_splits(DEFAULT_FOLDS, rows.labels, self.random_state)[:1]
        else:
            return []
        if not splits:
            warnings.warn(
                "Every class has a single row, so nothing can be held out: the last temperature is taken.",
                UserWarning,
                stacklevel=3,
            )
        return splits

    def _judge(self, rows: Rows, selection, splits, validation_set, score_params):
        """Who validates the temperatures."""
        X, y, labels, weight = rows.X, rows.y, rows.labels, rows.weight
        parts: list
        if validation_set is not None:
            X_val, y_val, labels_val, weight_val = validation_set
            judge = self._judge_of_set(rows, X_val, labels_val, weight_val)
            parts = [(0, X_val, y_val, {}, None)]
        elif selection == "loo":
            return LeaveOneOut(labels, weight, score_groups(len(labels)), calibrate=self.calibrate)
        elif splits:
            picks, folds = fold_picks(splits)
            if rows.device is not None:
                judge = held_out(rows.device, picks, len(splits), self.calibrate)
            else:
                judge = HeldOut(labels[picks.rows], weight[picks.rows], folds, picks, self.calibrate)
            parts = [(fit, X, y, score_params, test) for fit, (_, test) in enumerate(splits, 1)]
        else:
            return NoValidation()
        if not self._is_log_loss():
            judge.score_point = self._point_scorer([(0, X, y, score_params, None), *parts])
        return judge

    def _judge_of_set(self, rows: Rows, X, labels, weight):
        """Who validates by an explicit validation set."""
        if rows.device is None:
            return HeldOut(labels, weight, np.zeros(len(labels), dtype=int), calibrate=self.calibrate, X=X)
        place = rows.device.place
        on_place = X if is_foreign(X) else place.row(X)
        return validated(on_place, labels, weight, place, self.calibrate)

    def _point_scorer(self, parts):
        """Scores of a path point by the user's scorer: on the validated parts, and on the training rows.

        Parts are (fit, X, y, score_params, rows); rows are taken when scored, so that no copy of X is kept, and None is
        all of them.
        """
        scorer = check_scoring(self, scoring=self.scoring)

        def score_point(problem, parameters, temperature, scale):
            reported = problem.report(parameters, temperature)
            scores = [
                scorer(
                    self._point({name: array[fit] for name, array in reported.items()}, temperature, scale),
                    _taken(X, rows),
                    _taken(y, rows),
                    **{name: _taken(value, rows) for name, value in score_params.items()},
                )
                for fit, X, y, score_params, rows in parts
            ]
            return scores[1:], scores[0]

        return score_point


def _taken(values, rows):
    """Some rows, or all where either is None."""
    if values is None or rows is None:
        return values
    return take_rows(values, rows) if hasattr(values, "shape") else np.asarray(values)[rows]
