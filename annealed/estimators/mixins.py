"""What several estimators do alike: fits after fits, answers from logits, and the path in a notebook."""

from __future__ import annotations

from sklearn.base import ClassifierMixin
from sklearn.utils import estimator_html_repr

from annealed.estimators.on_device import argmax, named_classes
from annealed.objectives import gibbs
from annealed.sparkline import sparkline

SET_BY_CHECKS = ("n_features_in_", "feature_names_in_", "classes_")


def forget_last_fit(estimator):
    """Remove what an earlier fit has found, before this one looks at rows: parameters that are refused leave it."""
    for name in [own for own in vars(estimator) if own.endswith("_") and not own.startswith("_")]:
        if name not in SET_BY_CHECKS:
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
    """A classifier whose posterior is the Gibbs distribution (7) of `_logits(X, method)`, (n_samples, n_classes)."""

    def decision_function(self, X):
        """Logits of the posterior: (n_samples, n_classes), or for two classes (n_samples,) of the second."""
        logits = self._logits(X, "decision_function")
        return logits[:, 1] - logits[:, 0] if self.classes_.shape[0] == 2 else logits

    def predict_proba(self, X):
        """The Gibbs posterior (eq. 7), (n_samples, n_classes)."""
        return gibbs.posterior(self._logits(X, "predict_proba"))

    def predict_log_proba(self, X):
        """Logarithm of the posterior, (n_samples, n_classes)."""
        return gibbs.log_posterior(self._logits(X, "predict_log_proba"))

    def predict(self, X):
        """The class of the largest score (eq. 1)."""
        best = argmax(self._logits(X, "predict"))
        return named_classes(self.classes_, best)


class PathDiagramMixin:
    """Notebooks show scikit-learn's diagram and, once there is a path, its curve."""

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
