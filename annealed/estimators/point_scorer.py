"""Scores of a path point by a scorer of the user's: on what was held out, and on the training rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_method_params

from annealed.arrays import is_foreign, take_rows, to_host


class Part(NamedTuple):
    """Rows that a fit of the stack is scored on; `rows` are taken when scored, so that no copy of X is kept, and None
    is all of them.
    """

    fit: int
    X: Any
    y: Any
    score_params: dict
    rows: np.ndarray | None = None


class PointScorer:
    """`speak(arrays, temperature, scale)` is the classifier that a path point makes."""

    def __init__(self, scorer: Callable, make_point: Callable, training: Part, held_out: list[Part]) -> None:
        self.scorer, self.make_point, self.training, self.held_out = scorer, make_point, training, held_out
        self.has_scored = False
        self.refusal: ValueError | None = None  # of the scorer, the last one, for want of a class

    def __call__(self, problem, parameters, temperature, scale):
        """Scores of the held-out parts, and that of the training rows."""
        reported = problem.report(parameters, temperature)

        def score(part: Part) -> float:
            point = self.make_point(
                {name: array[part.fit, ...] for name, array in reported.items()}, temperature, scale
            )
            if not hasattr(part.X, "columns"):
                point.__dict__.pop("feature_names_in_", None)  # which X does not have
            params = _check_method_params(part.X, part.score_params, part.rows)
            try:
                found = self._scored(point, _taken(part.X, part.rows), _taken(part.y, part.rows), params)
            except ValueError as error:
                if not self._lacks_class(part):
                    raise
                self.refusal, found = error, np.nan
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
                f"scoring does not take the weights that fit has: {error}. Add sample_weight=None to its parameters, "
                "or leave weights to what asks for them: sklearn.set_config(enable_metadata_routing=True)."
            ) from error

    def _without_unscored(self, scores):
        """Leave out parts that have no score for want of a class, as a fold of one class has no ROC curve. Others may
        have one at colder temperatures, as precision has where a rare class is predicted; one without cannot be chosen.
        """
        is_kept = np.isfinite(scores) | ~np.array([self._lacks_class(part) for part in self.held_out])
        if not is_kept.any():
            raise ValueError(
                f"scoring gives no number on any held-out part, and each lacks a class. Got {scores.tolist()}. "
                "Hold out rows of every class, as stratified folds do."
            ) from self.refusal
        if not is_kept.all():
            warnings.warn(
                f"scoring gives no number on held-out parts {np.flatnonzero(~is_kept).tolist()} of {len(scores)}, "
                "which are left out.",
                UserWarning,
                stacklevel=2,
            )
            self.held_out = [part for part, is_own in zip(self.held_out, is_kept, strict=True) if is_own]
        return scores[is_kept]

    def _lacks_class(self, part: Part) -> bool:
        """Whether a part has no row of a class that the training rows have."""
        return not np.isin(_classes(self.training), _classes(part)).all()


def _number(score) -> float:
    try:
        return float(score)
    except (TypeError, ValueError) as error:
        raise ValueError(f"scoring must give one number. Got {score!r}.") from error


def _classes(part: Part):
    return np.unique(to_host(_taken(part.y, part.rows)))


def _taken(values, rows):
    """Some rows by their position, or all where `rows` is None."""
    if rows is None:
        return values
    return take_rows(values, rows) if is_foreign(values) else _safe_indexing(values, rows)
