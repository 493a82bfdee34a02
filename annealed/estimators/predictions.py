"""Predictions that classifiers share, from logits, in the library and on the device of X."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from annealed.arrays import Place, in_dtype, is_foreign, namespace_of, take_rows, to_host
from annealed.estimators.types import FloatArray
from annealed.problems import gibbs


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
        logits = finite_logits(self, X, "decision_function")
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
        return gibbs.posterior(finite_logits(self, X, "predict_proba"))

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
        return gibbs.log_posterior(finite_logits(self, X, "predict_log_proba"))

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
        best = argmax(finite_logits(self, X, "predict"))
        return named_classes(self.classes_, best)


def finite_logits(model, X, method):
    """The logits of a `LogitsMixin`, finite for at least one class of each sample; a class of prior 0 has -inf."""
    logits = model._logits(X, method)
    xp = namespace_of(logits)
    if not bool(xp.all(xp.isfinite(xp.max(logits, axis=1)))):  # NaN is the largest
        raise ValueError(
            f"{method} of {type(model).__name__} has no finite logits for this X. Look for numbers in X that are far "
            "beyond those of the samples of `fit`."
        )
    return logits


def argmax(logits):
    return namespace_of(logits).argmax(logits, axis=1)


def logits_of_classes(coef, intercept):
    """`coef_` and `intercept_` by scikit-learn's convention, which has a single logit for two classes."""
    return (coef[1:, ...] - coef[:1, ...], intercept[1:] - intercept[:1]) if coef.shape[0] == 2 else (coef, intercept)


def finite_in(dtype, temperature, **arrays) -> dict[str, Any]:
    """Arrays of the model at a temperature, converted to a dtype, which must hold their numbers."""
    with np.errstate(over="ignore"):
        arrays = {name: in_dtype(array, dtype) for name, array in arrays.items()}
    for name, array in arrays.items():
        if not bool(namespace_of(array).all(namespace_of(array).isfinite(array))):
            raise out_of_range(f"{name} in {dtype}", temperature)
    return arrays


def out_of_range(name, temperature) -> ValueError:
    return ValueError(
        f"The model at temperature {temperature:.3g} has no finite {name}. Divide the columns of X by their standard "
        "deviations, or give temperatures and penalties nearer to 1."
    )


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


def classes_like(classes, y):
    """Classes in the namespace of y, on its device."""
    if not is_foreign(y):
        return classes
    place = Place.of(y)
    return place.xp.asarray(classes, dtype=y.dtype, device=place.device)


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
