"""One point of a path: a fitted classifier at another temperature, without a refit."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from annealed.estimators.types import FloatArray
from annealed.path import AnnealingPath, check_temperature


class PathPointsMixin:
    """A fitted classifier at one temperature of its `path_`."""

    path_: AnnealingPath
    classes_: NDArray[Any]
    temperature_: float
    posterior_scale_: float
    C_: float
    coef_: FloatArray
    intercept_: FloatArray
    _unit_C: float | None

    def at(self, temperature: float | None = None, *, C: float | None = None) -> Self:
        """Get the classifier at another temperature of its path, without a refit.

        Exactly one of `temperature` and `C` must be given.

        Parameters
        ----------
        temperature : float, default=None
            A temperature between the ends of ``path_``. Between the temperatures of the path, parameters are
            interpolated.
        C : float, default=None
            The same as a value of scikit-learn's C, for models that have ``C_``.

        Returns
        -------
        classifier : object
            A fitted copy; this classifier is not changed.
        """
        check_is_fitted(self)
        if (temperature is None) == (C is None):
            given = "neither" if C is None else f"temperature={temperature!r} and C={C!r}"
            raise ValueError(f"Exactly one of `temperature` and `C` must be given. Got {given}.")
        other = copy(self)
        other._set_temperature(self._temperature_of(C) if temperature is None else check_temperature(temperature))
        return other

    def _temperature_of(self, C):
        if self._unit_C is None:
            raise ValueError(
                f"temperature must be given: C is not defined for {type(self).__name__} here, whose penalty is not an "
                f"L2 norm of coefficients. Got C={C!r}."
            )
        least, largest = self._unit_C / self.path_.temperatures[[0, -1]]
        if not least * (1 - 1e-9) <= check_temperature(C, "C") <= largest * (1 + 1e-9):
            raise ValueError(
                f"C must lie on the path, between {least:.6g} and {largest:.6g}. Got {C!r}. "
                "Refit with a schedule that reaches it."
            )
        return self._unit_C / float(C)

    def _set_temperature(self, temperature):
        arrays, scale = self.path_.at(temperature)
        self._set_point(arrays, float(temperature), scale)

    def _point(self, arrays, temperature, scale):
        """A copy with these parameters, which can predict before the path is complete."""
        other = copy(self)
        other._set_point(arrays, temperature, scale)
        return other

    def _set_point(self, arrays, temperature, scale):
        self.temperature_, self.posterior_scale_ = temperature, scale
        if self._unit_C is not None:
            self.C_ = self._unit_C / temperature
        self._arrays = arrays
        if "coef" in arrays:
            coef, intercept = scale * arrays["coef"], scale * arrays["intercept"]
            is_binary = self.classes_.shape[0] == 2
            self.coef_ = coef[1:, ...] - coef[:1, ...] if is_binary else coef
            self.intercept_ = intercept[1:] - intercept[:1] if is_binary else intercept
