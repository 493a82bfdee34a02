"""Predictions of PottsDA: the nearest prototype, memberships, and the posterior."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted, validate_data

from annealed.arrays import Place, is_dispatched, is_foreign, namespace_of, take_rows
from annealed.estimators.mixins import LogitsMixin
from annealed.estimators.on_device import argmax, check_foreign, check_same_library, named_classes
from annealed.estimators.types import FloatArray
from annealed.estimators.validation import DTYPES
from annealed.potts import Columns, scores_of
from annealed.potts.rows import ROWS_TOGETHER
from annealed.problems import gibbs


class PottsPredictionMixin(ClassNamePrefixFeaturesOutMixin, TransformerMixin, LogitsMixin):
    """Predictions of a fitted `PottsDA` from its prototypes, their metric and their labels."""

    decision: str
    classes_: NDArray[Any]
    prototypes_: FloatArray
    prototype_labels_: FloatArray
    temperature_: float
    posterior_scale_: float
    _columns: Columns
    _posterior: Any

    @property
    def metric_(self) -> FloatArray:
        """The metric in the units of the features."""
        return self._columns.metric(self.temperature_ * self._posterior.metric)

    @property
    def _n_features_out(self):
        return self.prototypes_.shape[0]

    def _by_blocks(self, X, function, method):
        """`function(scores)` of blocks of samples.

        Scores (n_samples, K) are minus half the squared distances divided by the temperature, up to a term that is
        equal for all prototypes.
        """
        check_is_fitted(self)
        if is_dispatched(X):
            X = check_foreign(self, X, reset=False)
        else:
            X = validate_data(self, X, dtype=DTYPES, reset=False)
        check_same_library(X, self.prototypes_, self, method)
        prototypes, metric, _ = self._posterior
        parts = [
            function(scores_of(self._columns.rows(X[block, :]), prototypes, metric))
            for block in gen_batches(X.shape[0], ROWS_TOGETHER)
        ]
        return namespace_of(parts[0]).concat(parts) if is_foreign(X) else np.concatenate(parts)

    def apply(self, X) -> NDArray[np.integer[Any]]:
        """Find the nearest prototype of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        indices : ndarray of shape (n_samples,)
        """
        return self._by_blocks(X, argmax, "apply")

    def transform(self, X) -> FloatArray:
        """Compute the memberships of samples in prototypes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        memberships : ndarray of shape (n_samples, n_prototypes)
            Non-negative; those of a sample sum to one.
        """
        return self._by_blocks(X, gibbs.posterior, "transform")

    def predict(self, X) -> NDArray[Any]:
        """Predict the class of the largest posterior, or the label of the nearest prototype, depending on `decision`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        if self.decision == "nearest":
            return named_classes(self.classes_, take_rows(argmax(self.prototype_labels_), self.apply(X)))
        return super().predict(X)

    def _logits(self, X, method):
        """Log posterior of each class, calibrated but not normalized, (n_samples, n_classes)."""
        shares = self._by_blocks(X, self._label_shares, method)
        xp = namespace_of(shares)
        tiny = float(xp.finfo(shares.dtype).smallest_normal)
        return self.posterior_scale_ * xp.log(xp.clip(shares, tiny, None))

    def _label_shares(self, scores):
        """The mean of the prototypes' labels, weighted by the memberships."""
        labels = self.prototype_labels_
        return gibbs.posterior(scores) @ (Place.of(scores).row(labels) if is_foreign(scores) else labels)
