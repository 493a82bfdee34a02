"""Bring your own discriminant functions: "here the discriminant functions are general" (after eq. 1).

A subclass of `ScoreFamily` says how many parameters a fit has, what the scores are, and how a row's residual
flows back to the parameters; annealing, selection, path and scikit-learn's behaviour follow.
"""

from __future__ import annotations

from abc import abstractmethod
from reprlib import repr as shown

import numpy as np
from scipy import sparse

from annealed.design import Design
from annealed.objectives.base import Objective, Predictor, SmoothProblem, check_strength
from annealed.objectives.linear import mean_of_columns, spread_of_columns

CHECKED_ROWS = 10  # that tell whether a family gives what it should


class ScoreFamily(Objective):
    """Base of user-defined families: a subclass gives `start`, `scores` and `pullback`.

    `AnnealedClassifier(family)` minimizes ``Q(parameters; T) + l2_strength / 2 |parameters - start|^2`` along the path.
    Dense X reaches the three methods standardized (column mean 0, standard deviation 1), sparse X as CSR rows.

    Parameters
    ----------
    l2_strength : float, default=1.0
        Strength of the pull of the parameters to their start; with the temperature it governs complexity.

    Examples
    --------
    A centre per class, scores minus the squared distance to it:

    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from annealed import AnnealedClassifier
    >>> from annealed.objectives import ScoreFamily
    >>> class Radial(ScoreFamily):
    ...     def start(self, X, labels, weight, n_classes, random_state):
    ...         rows = [labels == label for label in range(n_classes)]
    ...         return np.stack([np.average(X[own], axis=0, weights=weight[own]) for own in rows])
    ...
    ...     def scores(self, X, parameters):
    ...         return -((X[:, None] - parameters) ** 2).sum(axis=2)
    ...
    ...     def pullback(self, X, parameters, residual):
    ...         return 2 * (residual.T @ X - residual.sum(axis=0)[:, None] * parameters)
    >>> X, y = load_iris(return_X_y=True)
    >>> AnnealedClassifier(Radial()).fit(X, y).path_.parameters.shape[1:]
    (3, 4)
    """

    def __init__(self, *, l2_strength=1.0):
        self.l2_strength = l2_strength

    @abstractmethod
    def start(self, X, labels, weight, n_classes, random_state) -> np.ndarray:
        """Parameters, an array of any shape, before annealing; labels are integers from 0, weights sum to one.

        It is called for every fold with the fold's rows, and must always give the same shape. Where weights are zero,
        or with folds of one's own, a class may have no row there.
        """

    @abstractmethod
    def scores(self, X, parameters) -> np.ndarray:
        """Scores g_j(x), (n_rows, n_classes)."""

    @abstractmethod
    def pullback(self, X, parameters, residual) -> np.ndarray:
        """Sum over rows and classes of residual (n_rows, n_classes) times d score / d parameters."""

    def prepare(self, design, random_state=None):
        check_strength(self.l2_strength)
        return FamilyProblem(design, self, random_state)


class FamilyPredictor(Predictor):
    """Scores of the user's family divided by the temperature."""

    def __init__(self, family, center, scale, is_standardized):
        self.family, self.center, self.scale = family, center, scale
        self.is_standardized = is_standardized

    def logits(self, X, arrays, temperature):
        if sparse.issparse(X) and self.is_standardized:
            X = X.toarray()  # the family was fitted on dense, standardized rows
        if not sparse.issparse(X):
            X = (np.asarray(X, dtype=np.float64) - self.center) / self.scale
        return np.asarray(self.family.scores(X, arrays["parameters"])) / temperature


class FamilyProblem(SmoothProblem):
    """Solved in `parameters / temperature`, so that the gradient is the paper's dQ / dtheta."""

    def __init__(self, design: Design, family: ScoreFamily, random_state):
        self.family = family
        center, self.scale = np.zeros(design.n_features), np.ones(design.n_features)
        if not sparse.issparse(design.X):
            center = mean_of_columns(design)
            self.scale = spread_of_columns(design, center)
        super().__init__(design.centered(center))
        self.predictor = FamilyPredictor(family, center, self.scale, not sparse.issparse(design.X))
        starts = [self._start(fit, random_state) for fit in range(self.n_fits)]
        self.shape = starts[0].shape
        self._check_starts(starts)
        self.start_parameters = np.stack(starts)
        self._check_family()

    def _check_family(self):
        """An error near the mistake, where what a family gives on a few rows is not what it should be."""
        name, parameters = type(self.family).__name__, self.start_parameters[0]
        n_rows = min(CHECKED_ROWS, self.design.n_rows)
        X = self._features(np.arange(n_rows))
        scores = np.atleast_1d(self.family.scores(X, parameters))
        if scores.shape != (n_rows, self.n_classes) or not np.isfinite(scores).all():
            raise ValueError(
                f"{name}.scores must give finite numbers, (n_rows, n_classes), here {(n_rows, self.n_classes)}. "
                f"Got shape {scores.shape}: {scores[:2]!r}."
            )
        pulled = np.asarray(self.family.pullback(X, parameters, np.zeros(scores.shape)))
        if pulled.shape != self.shape or not np.isfinite(pulled).all():
            raise ValueError(
                f"{name}.pullback must give finite numbers of the parameters' shape, {self.shape}. "
                f"Got shape {pulled.shape}: {pulled!r}."
            )

    def _check_starts(self, starts):
        for fit, start in enumerate(starts):
            if start.shape == self.shape and start.size and np.isfinite(start).all():
                continue
            weights = np.bincount(self.design.labels, self.design.weight[:, fit], self.n_classes)
            lacking = np.flatnonzero(weights == 0).tolist()
            raise ValueError(
                f"{type(self.family).__name__}.start must give finite numbers, as many for every fold. Got {start!r}"
                + (f" of rows that have none of classes {lacking}." if lacking else ".")
            )

    def hot_temperature(self):
        temperature = super().hot_temperature()
        if not np.isfinite(temperature):
            name = type(self.family).__name__
            raise ValueError(f"{name}.scores are no finite numbers one step of the gradient away from its start.")
        return temperature

    def _start(self, fit, random_state):
        used = np.flatnonzero(self.design.weight[:, fit])
        weight = self.design.weight[used, fit]
        start = self.family.start(self._features(used), self.design.labels[used], weight, self.n_classes, random_state)
        try:
            return np.asarray(start, dtype=np.float64)
        except (TypeError, ValueError) as error:
            name = type(self.family).__name__
            raise ValueError(f"{name}.start must give an array of numbers. Got {shown(start)}.") from error

    def _features(self, rows):
        """Some rows as the family sees them."""
        X = self.design.X[rows]
        return X if sparse.issparse(X) else (X - self.design.center) / self.scale

    def _unflatten(self, parameters, temperature):
        return temperature * parameters.reshape(len(parameters), *self.shape)

    def start(self, temperature):
        return self.start_parameters.reshape(self.n_fits, -1) / temperature

    def forward(self, parameters, temperature, fits):
        return self._unflatten(parameters, temperature), temperature

    def block_logits(self, block, state):
        parameters, temperature = state
        X = block.features(1 / self.scale)
        return np.stack([self.family.scores(X, own) for own in parameters], axis=1) / temperature

    def block_pullback(self, block, state, residual):
        parameters, _ = state
        X = block.features(1 / self.scale)
        pulled = [self.family.pullback(X, own, residual[:, fit]) for fit, own in enumerate(parameters)]
        return (np.stack(pulled).reshape(len(parameters), -1),)

    def backward(self, sums, parameters, temperature, fits, quick=False):
        return sums[0]

    def penalty(self, temperature, fits):
        return np.full(1, float(self.family.l2_strength) * temperature), self.start(temperature)[fits]

    def curvature(self, temperature, fits):
        variance = self.class_variance[fits].mean(axis=1, keepdims=True)
        return np.broadcast_to(variance, (len(variance), int(np.prod(self.shape))))

    def report(self, parameters, temperature, fits=slice(None)):
        return {"parameters": self._unflatten(parameters, temperature)}
