"""Code that estimators share: repeated fits, published settings, points of a path, predictions from logits, HTML."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from annealed.arrays import in_dtype
from annealed.estimators.on_device import argmax, named_classes
from annealed.estimators.sparkline import sparkline
from annealed.estimators.types import FloatArray
from annealed.path import AnnealingPath, check_temperature
from annealed.problems import gibbs

SET_BY_VALIDATION = ("n_features_in_", "feature_names_in_", "classes_")  # every fit sets these anew


def forget_last_fit(estimator):
    """Remove the fitted attributes of an earlier fit.

    `fit` calls it after the parameters are validated, so that invalid parameters leave the earlier fit intact.
    """
    for name in list(vars(estimator)):
        is_fitted_attribute = name.endswith("_") and not name.startswith("_")
        if is_fitted_attribute and name not in SET_BY_VALIDATION:
            delattr(estimator, name)


def make_published(estimator_class, printed, settings):
    """An estimator with the settings of the published algorithm, some of them overridden by `settings`."""
    known = estimator_class._get_param_names()
    unknown = sorted(settings.keys() - set(known))
    if unknown:
        name = estimator_class.__name__
        raise TypeError(
            f"settings of {name}.as_published must be parameters of {name}. Got {', '.join(map(repr, unknown))}. "
            f"Choose among: {', '.join(known)}."
        )
    return estimator_class(**{**printed, **settings})


class LogitsMixin(ClassifierMixin):
    """Predictions of a classifier that has `_logits(X, method)`, (n_samples, n_classes).

    Its posterior is the Gibbs distribution (7) of these logits.
    """

    def decision_function(self, X) -> FloatArray:
        """Compute the logits of the posterior.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Sparse only if `fit` accepts sparse X.

        Returns
        -------
        logits : ndarray of shape (n_samples, n_classes), or (n_samples,) for two classes
            With two classes, the logit of the second class less that of the first.
        """
        logits = self._logits(X, "decision_function")
        return logits[:, 1] - logits[:, 0] if self.classes_.shape[0] == 2 else logits

    def predict_proba(self, X) -> FloatArray:
        """Compute the posterior.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Sparse only if `fit` accepts sparse X.

        Returns
        -------
        posterior : ndarray of shape (n_samples, n_classes)
            The columns are in the order of ``classes_``.
        """
        return gibbs.posterior(self._logits(X, "predict_proba"))

    def predict_log_proba(self, X) -> FloatArray:
        """Compute the logarithm of the posterior.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Sparse only if `fit` accepts sparse X.

        Returns
        -------
        log_posterior : ndarray of shape (n_samples, n_classes)
            The columns are in the order of ``classes_``.
        """
        return gibbs.log_posterior(self._logits(X, "predict_log_proba"))

    def predict(self, X) -> NDArray[Any]:
        """Predict the class of the largest posterior.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Sparse only if `fit` accepts sparse X.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        best = argmax(self._logits(X, "predict"))
        return named_classes(self.classes_, best)


class PathDiagramMixin:
    """Adds the score along the path to scikit-learn's HTML diagram of a fitted estimator."""

    def _html_repr(self):
        path = getattr(getattr(self, "classifier_", self), "path_", None)
        diagram = estimator_html_repr(self)
        if path is None:
            return diagram
        is_loss = path.score_name.startswith("neg_")
        score = path.train_score if path.validation_score is None else path.validation_score.mean(axis=1)
        name = path.score_name.removeprefix("neg_").replace("_", " ")
        which = "train" if path.validation_score is None else "validation"
        return diagram + sparkline(path.temperatures, -score if is_loss else score, path.best_index, f"{which} {name}")


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
    _dtype: Any  # of X

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
        other._set_temperature(_temperature_of(self, C) if temperature is None else check_temperature(temperature))
        return other

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
        arrays = self._arrays = {name: in_dtype(array, self._dtype) for name, array in arrays.items()}
        if "coef" in arrays:
            coef, intercept = scale * arrays["coef"], scale * arrays["intercept"]
            is_binary = self.classes_.shape[0] == 2
            self.coef_ = coef[1:, ...] - coef[:1, ...] if is_binary else coef
            self.intercept_ = intercept[1:] - intercept[:1] if is_binary else intercept


def _temperature_of(model, C):
    if model._unit_C is None:
        raise ValueError(
            f"temperature must be given: C is not defined for {type(model).__name__} here, whose penalty is not an "
            f"L2 norm of coefficients. Got C={C!r}."
        )
    least, largest = model._unit_C / model.path_.temperatures[[0, -1]]
    if not least * (1 - 1e-9) <= check_temperature(C, "C") <= largest * (1 + 1e-9):
        raise ValueError(
            f"C must lie on the path, between {least:.6g} and {largest:.6g}. Got {C!r}. "
            "Refit with a schedule that reaches it."
        )
    return model._unit_C / float(C)
