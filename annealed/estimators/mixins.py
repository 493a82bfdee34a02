"""Code that several estimators share: repeated fits, published settings, predictions from logits, and HTML."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import estimator_html_repr

from annealed.estimators.on_device import argmax, named_classes
from annealed.estimators.sparkline import sparkline
from annealed.estimators.types import FloatArray
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
