"""What MELDA takes from its log-linear classifiers: predictions, and the path of temperatures."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from annealed.estimators.base import AnnealedClassifier
from annealed.estimators.melda_projection import project
from annealed.estimators.types import FloatArray
from annealed.path import AnnealingPath


class MELDAPosteriorMixin(ClassifierMixin):
    """Predictions of the classifier of the kept directions, and the path of the log-linear model."""

    classifier_: AnnealedClassifier
    reduced_classifier_: AnnealedClassifier
    _whitened: tuple | None
    _checked: Any

    @property
    def path_(self) -> AnnealingPath:
        return self.classifier_.path_

    @property
    def temperature_(self) -> float:
        return self.classifier_.temperature_

    @property
    def posterior_scale_(self) -> float:
        return self.classifier_.posterior_scale_

    @property
    def C_(self) -> float:
        return self.classifier_.C_

    @property
    def penalty_scaling_(self) -> str:
        return self.classifier_.penalty_scaling_

    def at(self, temperature: float | None = None, *, C: float | None = None) -> AnnealedClassifier:
        """Get the log-linear classifier at another temperature of its path, without a refit.

        The directions belong to the chosen temperature. For those of another temperature, fit
        ``MELDA(temperature=...)``.

        Parameters
        ----------
        temperature : float, default=None
            Any temperature between the ends of ``path_``; between solved ones the parameters are interpolated.
        C : float, default=None
            The same as a value of C. Give either `temperature` or `C`.

        Returns
        -------
        classifier : AnnealedClassifier
            A fitted copy of `classifier_`, with all directions; this estimator is left as it is.
        """
        check_is_fitted(self)
        return self.classifier_.at(temperature, C=C)

    def _predict_by(self, method, X):
        """Result of a prediction method of the classifier of the kept directions."""
        check_is_fitted(self)
        X = self._checked(X, method)
        projected = X if self._whitened is None else project(X, *self._whitened)
        return getattr(self.reduced_classifier_, method)(projected)

    def decision_function(self, X) -> FloatArray:
        """Compute the logits of the posterior.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        logits : ndarray of shape (n_samples, n_classes), or (n_samples,) for two classes
            With two classes, the logit of the second class less that of the first.
        """
        return self._predict_by("decision_function", X)

    def predict_proba(self, X) -> FloatArray:
        """Compute the posterior.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        posterior : ndarray of shape (n_samples, n_classes)
            The columns are in the order of ``classes_``.
        """
        return self._predict_by("predict_proba", X)

    def predict_log_proba(self, X) -> FloatArray:
        """Compute the logarithm of the posterior.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        log_posterior : ndarray of shape (n_samples, n_classes)
            The columns are in the order of ``classes_``.
        """
        return self._predict_by("predict_log_proba", X)

    def predict(self, X) -> NDArray[Any]:
        """Predict the class of the largest posterior.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        return self._predict_by("predict", X)
