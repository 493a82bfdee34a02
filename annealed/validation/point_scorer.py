"""Scores of the model at one temperature by the user's scorer: on each validation fold and on the training samples."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_method_params

from annealed.arrays import is_foreign, take_rows, to_host


class Part(NamedTuple):
    """Samples on which one fit is scored.

    fit : index of the fit among those of the folds
    rows : indices of the samples, or None for all; they are selected when scored, so that no copy of X is kept
    """

    fit: int
    X: Any
    y: Any
    score_params: dict
    rows: np.ndarray | None = None


class PointScorer:
    """Scores the classifiers `make_point(problem, arrays, temperature, scale)` of the folds at one temperature."""

    def __init__(self, scorer: Callable, make_point: Callable, training: Part, held_out: list[Part]) -> None:
        self.scorer, self.make_point, self.training, self.held_out = scorer, make_point, training, held_out
        self.has_scored = False
        self.last_error: ValueError | None = None  # of the scorer, on a fold that lacks a class

    def __call__(self, problem, parameters, temperature, scale):
        """The scores of the validation folds, and that of the training samples."""
        reported = problem.report(parameters, temperature)

        def score(part: Part) -> float:
            arrays = {name: array[part.fit, ...] for name, array in reported.items()}
            point = self.make_point(problem, arrays, temperature, scale)
            if not hasattr(part.X, "columns"):
                point.__dict__.pop("feature_names_in_", None)  # X has no names, and the point would warn
            params = _check_method_params(part.X, part.score_params, part.rows)
            try:
                found = self._scored(point, _taken(part.X, part.rows), _taken(part.y, part.rows), params)
            except ValueError as error:
                if not self._lacks_class(part):
                    raise
                self.last_error, found = error, np.nan
            return _number(found)

        scores = np.array([score(part) for part in self.held_out])
        if not self.has_scored:
            self.has_scored = True
            scores = self._without_unscored(scores)
        return scores, score(self.training)

    def _scored(self, point, X, y, params):
        try:
            return self.scorer(point, X, y, **params)
        except TypeError as error:
            if "unexpected keyword argument 'sample_weight'" not in str(error):
                raise
            raise TypeError(
                f"`scoring` must accept the sample_weight given to fit. Got {error}. Add sample_weight=None to its "
                "parameters, or let each consumer request weights: sklearn.set_config(enable_metadata_routing=True)."
            ) from error

    def _without_unscored(self, scores):
        """Drop the folds that have no score because they lack a class, as a fold of one class has no ROC curve.

        Other folds are kept: they may have a score at lower temperatures, as precision has once a rare class is
        predicted. A temperature at which one of them has none is not chosen.
        """
        is_kept = np.isfinite(scores) | ~np.array([self._lacks_class(part) for part in self.held_out])
        if not is_kept.any():
            raise ValueError(
                f"`scoring` returned NaN on every validation fold, each of which lacks a class. Got {scores.tolist()}. "
                "Use folds that contain every class, such as stratified ones."
            ) from self.last_error
        if not is_kept.all():
            warnings.warn(
                f"`scoring` returned NaN on validation folds {np.flatnonzero(~is_kept).tolist()} of {len(scores)}, "
                "which lack a class. They are left out. Use stratified folds to score on all.",
                UserWarning,
                stacklevel=2,
            )
            self.held_out = [part for part, keep in zip(self.held_out, is_kept, strict=True) if keep]
        return scores[is_kept]

    def _lacks_class(self, part: Part) -> bool:
        """Whether a fold has no sample of a class that the training samples have."""
        return not np.isin(_classes(self.training), _classes(part)).all()


def _number(score) -> float:
    try:
        return float(score)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`scoring` must return one number. Got {score!r}.") from error


def _classes(part: Part):
    return np.unique(to_host(_taken(part.y, part.rows)))


def _taken(values, rows):
    """Rows by position, or all if `rows` is None."""
    if rows is None:
        return values
    return take_rows(values, rows) if is_foreign(values) else _safe_indexing(values, rows)
