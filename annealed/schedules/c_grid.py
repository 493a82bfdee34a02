"""Temperatures given as values of C, the inverse regularization strength of scikit-learn."""

from __future__ import annotations

from numbers import Integral
from reprlib import repr as shown

import numpy as np

from annealed.schedules.base import Schedule

NOT_DEFINED = (
    "schedule must be given in temperatures for a model whose penalty is not an L2 norm of its coefficients: C is not "
    "defined for it. Got {schedule!r}. Give temperatures, or use AnnealedLogisticRegression."
)


class CGrid(Schedule):
    """The given values of C, scikit-learn's inverse regularization strength, visited from the smallest to the largest.

    Each C is converted to the temperature ``T = 1 / (l2_strength * C * n_samples)``, twice that for two classes, so the
    final fit has the coefficients of ``LogisticRegression(C=C)`` on the same features, scaled as ``penalty_scaling``
    says. ``n_samples`` is the sum of the weights, ``sample_weight`` times ``class_weight``, as scikit-learn counts
    them.

    For models whose penalty is an L2 norm of coefficients: :class:`annealed.AnnealedLogisticRegression`,
    :class:`annealed.MELDA`, and :class:`annealed.AnnealedClassifier` with ``InnerProduct`` or ``Quadratic``.

    Parameters
    ----------
    Cs : int or array-like of positive numbers, default=10
        Values of C in any order. A whole number is that many values from 1e-4 to 1e4, evenly spaced on a logarithmic
        scale, as in scikit-learn's ``LogisticRegressionCV``.

    Notes
    -----
    Folds are fitted at the same temperatures as the final fit. A fold trains on fewer samples, and the temperature
    weighs their mean loss, where C weighs their sum. The scores of folds therefore differ a little from those of
    ``LogisticRegressionCV``, whose folds share C instead.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from annealed import AnnealedLogisticRegression, CGrid
    >>> X, y = load_iris(return_X_y=True)
    >>> model = AnnealedLogisticRegression(schedule=CGrid([0.01, 1.0, 100.0]), penalty_scaling="none").fit(X, y)
    >>> model.path_.C.round(6).tolist()
    [0.01, 1.0, 100.0]
    """

    def __init__(self, Cs=10) -> None:
        self.Cs = Cs

    def values(self) -> np.ndarray:
        """The values of C, ascending."""
        Cs = self.Cs
        if isinstance(Cs, Integral) and str(Cs) not in ("True", "False"):
            if Cs < 1:
                raise ValueError(f"Cs must be a whole number of at least 1, or values of C. Got {Cs!r}.")
            return np.logspace(-4, 4, int(Cs))
        try:
            values = np.asarray(Cs, dtype=float)
        except (TypeError, ValueError) as error:
            raise ValueError(f"Cs must be a whole number, or a list of positive numbers. Got {shown(Cs)}.") from error
        if values.ndim != 1 or not len(values) or not ((values > 0) & (values < np.inf)).all():
            raise ValueError(f"Cs must be a whole number, or a list of positive numbers. Got {shown(Cs)}.")
        return np.sort(values)

    def in_temperatures(self, unit_C: float | None) -> list[float]:
        """The temperatures, falling, given the C of temperature one; None: C is not defined for the model."""
        values = self.values()
        if unit_C is None:
            raise ValueError(NOT_DEFINED.format(schedule=self))
        return (unit_C / values).tolist()

    def temperatures(self, hot):
        raise TypeError(
            "CGrid gives temperatures only as the `schedule` of an estimator, which knows the number of samples. "
            f"Got {self!r} elsewhere. Pass it as schedule=, or give temperatures."
        )
