"""User-defined discriminant functions: "here the discriminant functions are general" (after eq. 1).

    Q(theta; T) / T = mean over rows of [ log_partition(g / T) - g_true / T ] + l2_strength / (2 T) |theta - start|^2

A subclass of `ScoreFamily` defines the initial parameters, the scores g(x; theta) and their pullback (the gradient of a
weighted sum of scores). Path, selection and the scikit-learn interface are inherited.
Shapes: theta any shape, the same for every fit; scores (n_rows, n_classes).
"""

from __future__ import annotations

from abc import abstractmethod
from reprlib import repr as shown

import numpy as np
from scipy import sparse

from annealed.problems.base import Features, Objective, Predictor, check_strength
from annealed.problems.linear import mean_of_columns, spread_of_columns
from annealed.problems.smooth import Scores, SmoothProblem
from annealed.rows import Design

CHECKED_ROWS = 10  # rows on which the shapes and values that a family returns are checked


class ScoreFamily(Objective):
    """Base class of user-defined families: a subclass implements `start`, `scores` and `pullback`.

    `AnnealedClassifier(family)` minimizes ``Q(parameters; T) + l2_strength / 2 |parameters - start|^2`` along the path.
    The three methods receive dense X standardized (column mean 0, standard deviation 1), and sparse X as CSR.

    Parameters
    ----------
    l2_strength : float, default=1.0
        Strength of the penalty that pulls the parameters to their start; together with the temperature it governs
        complexity.

    Examples
    --------
    One centre per class; the score is minus the squared distance to it:

    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from annealed import AnnealedClassifier
    >>> from annealed.problems import ScoreFamily
    >>> class Radial(ScoreFamily):
    ...     def start(self, X, labels, weight, n_classes, random_state):
    ...         masks = [labels == label for label in range(n_classes)]
    ...         return np.stack([np.average(X[mask], axis=0, weights=weight[mask]) for mask in masks])
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
        """Initial parameters, an array of any shape; labels are integers from 0, weights sum to one.

        The method is called for every fold with the training samples of the fold, and must always return the same
        shape. With zero weights or user-defined folds, a class may have no sample there.
        """

    @abstractmethod
    def scores(self, X, parameters) -> np.ndarray:
        """Scores g_j(x), (n_samples, n_classes)."""

    @abstractmethod
    def pullback(self, X, parameters, residual) -> np.ndarray:
        """Sum over samples and classes of residual (n_samples, n_classes) times d score / d parameters."""

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
            X = X.toarray()  # the family was fitted on dense, standardized X
        if not sparse.issparse(X):
            X = (np.asarray(X, dtype=np.float64) - self.center) / self.scale
        return np.asarray(self.family.scores(X, arrays["parameters"])) / temperature


class FamilyScores(Scores):
    """Scores of a user-defined family, of parameters `theta / T` of any `shape`, flattened."""

    def __init__(self, design: Design, family: ScoreFamily, scale, shape):
        super().__init__(design)
        self.family, self.scale, self.shape = family, scale, shape

    def parameters(self, flat, temperature):
        return temperature * flat.reshape(len(flat), *self.shape)

    def forward(self, parameters, temperature, fits, quick=False):
        return self.parameters(parameters, temperature), temperature

    def logits(self, block, state):
        parameters, temperature = state
        X = block.features(1 / self.scale)
        return np.stack([self.family.scores(X, theta) for theta in parameters], axis=1) / temperature

    def pullback(self, block, state, residual):
        parameters, _ = state
        X = block.features(1 / self.scale)
        pulled = [self.family.pullback(X, theta, residual[:, fit]) for fit, theta in enumerate(parameters)]
        return (np.stack(pulled).reshape(len(parameters), -1),)

    def backward(self, sums, parameters, temperature, fits, quick=False):
        return sums[0]


class FamilyProblem(SmoothProblem):
    """A user-defined family bound to rows, solved in `theta / T`, so that the gradient is the paper's dQ / dtheta."""

    def __init__(self, design: Design, family: ScoreFamily, random_state):
        self.family, is_standardized = family, not sparse.issparse(design.X)
        center, scale = np.zeros(design.n_features), np.ones(design.n_features)
        if is_standardized:
            center = mean_of_columns(design)
            scale = spread_of_columns(design, center)
        super().__init__(design.centered(center), Features(design.n_features, None, center, scale))
        self.predictor = FamilyPredictor(family, center, scale, is_standardized)
        starts = [self._start(fit, random_state) for fit in range(self.n_fits)]
        self.scores = FamilyScores(self.design, family, scale, starts[0].shape)
        self._check_starts(starts)
        self.start_parameters = np.stack(starts)
        self._check_family()

    def _check_family(self):
        """Raise ValueError if `scores` or `pullback` returns a wrong shape or a non-finite number on a few rows."""
        name, parameters = type(self.family).__name__, self.start_parameters[0]
        n_rows = min(CHECKED_ROWS, self.design.n_rows)
        X = self._features(np.arange(n_rows))
        scores = np.atleast_1d(self.family.scores(X, parameters))
        if scores.shape != (n_rows, self.n_classes) or not np.isfinite(scores).all():
            raise ValueError(
                f"{name}.scores must return finite numbers (n_samples, n_classes), here {(n_rows, self.n_classes)}. "
                f"Got shape {scores.shape}: {scores[:2]!r}."
            )
        pulled = np.asarray(self.family.pullback(X, parameters, np.zeros(scores.shape)))
        if pulled.shape != self.scores.shape or not np.isfinite(pulled).all():
            raise ValueError(
                f"{name}.pullback must return finite numbers in the shape of the parameters, {self.scores.shape}. "
                f"Got shape {pulled.shape}: {pulled!r}."
            )

    def _check_starts(self, starts):
        for fit, start in enumerate(starts):
            if start.shape == self.scores.shape and start.size and np.isfinite(start).all():
                continue
            weights = np.bincount(self.design.labels, self.design.weight[:, fit], self.n_classes)
            lacking = np.flatnonzero(weights == 0).tolist()
            raise ValueError(
                f"{type(self.family).__name__}.start must return finite numbers, in the same shape for every fold. "
                f"Got {start!r}" + (f" for samples without any of classes {lacking}." if lacking else ".")
            )

    def hot_temperature(self):
        temperature = super().hot_temperature()
        if not np.isfinite(temperature):
            name = type(self.family).__name__
            raise ValueError(
                f"{name}.scores must be finite one gradient step away from `start`. Got infinity or NaN. Check that "
                "`pullback` is the derivative of `scores`."
            )
        return temperature

    def _start(self, fit, random_state):
        used = np.flatnonzero(self.design.weight[:, fit])
        weight = self.design.weight[used, fit]
        start = self.family.start(self._features(used), self.design.labels[used], weight, self.n_classes, random_state)
        try:
            return np.asarray(start, dtype=np.float64)
        except (TypeError, ValueError) as error:
            name = type(self.family).__name__
            raise ValueError(f"{name}.start must return an array of numbers. Got {shown(start)}.") from error

    def _features(self, rows):
        """Some rows in the form that the family's methods receive."""
        X = self.design.X[rows]
        return X if sparse.issparse(X) else (X - self.design.center) / self.features.scale

    def start(self, temperature):
        return self.start_parameters.reshape(self.n_fits, -1) / temperature

    def penalty(self, temperature, fits):
        return np.full(1, float(self.family.l2_strength) * temperature), self.start(temperature)[fits]

    def curvature(self, temperature, fits):
        variance = self.class_variance[fits].mean(axis=1, keepdims=True)
        return np.broadcast_to(variance, (len(variance), int(np.prod(self.scores.shape))))

    def report(self, parameters, temperature, fits=slice(None)):
        return {"parameters": self.scores.parameters(parameters, temperature)}
