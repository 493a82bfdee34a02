"""The methods of the suite: ours and scikit-learn's, with default settings except as noted.

Ours get raw features. Peers that depend on the units of the features get standardized ones, by the training samples
(sparse X is scaled but not centred). Peers that do not support sparse X get a dense copy. Nothing else is tuned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC

import annealed

# Largest n_features for methods that decompose n_features x n_features matrices: one pooled matrix, or one per class.
WIDEST_POOLED, WIDEST_OF_CLASSES = 5000, 1000


class NotTried(RuntimeError):
    """Raised for a fit that would need too much time or memory; recorded as a failure with its reason."""


@dataclass(frozen=True)
class Method:
    """A classifier and its requirements.

    most_columns : largest number of features for which it is run
    weight : rough relative cost of a fit, for the order of the tasks and the estimated time
    """

    name: str
    make: Callable
    is_ours: bool = False
    is_linear: bool = False
    standardizes: bool = False
    needs_dense: bool = False
    most_columns: float = inf
    weight: float = 1.0

    def estimator(self, X):
        """An unfitted classifier for data like `X`; raises `NotTried` if X has too many features."""
        if X.shape[1] > self.most_columns:
            raise NotTried(f"decomposes n_features x n_features matrices, and n_features exceeds {self.most_columns}")
        is_sparse = sparse.issparse(X)
        before = []
        if self.needs_dense and is_sparse:
            before.append(FunctionTransformer(_dense, accept_sparse=True))
            is_sparse = False
        if self.standardizes:
            before.append(StandardScaler(with_mean=not is_sparse))
        return make_pipeline(*before, self.make()) if before else self.make()


def _dense(X):
    return X.toarray()


def _logistic_cv():
    return LogisticRegressionCV(
        Cs=10, cv=5, scoring="neg_log_loss", l1_ratios=(0.0,), use_legacy_attributes=False, random_state=0
    )


def _svc():
    """Probabilities from one sigmoid per class on the scores of five folds; `SVC(probability=True)` is deprecated."""
    return CalibratedClassifierCV(SVC(), ensemble=False)


def _lda_shrunk():
    return LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")


def _qda():
    """Ledoit-Wolf shrinkage: with `reg_param`, QDA raises an error if a class has fewer samples than features."""
    return QuadraticDiscriminantAnalysis(solver="eigen", shrinkage="auto")


def _forest():
    return RandomForestClassifier(random_state=0)


def _literal_distance():
    return annealed.AnnealedLDA(anchor=0)


PEERS = (
    Method("LDA", LinearDiscriminantAnalysis, is_linear=True, needs_dense=True, weight=1),
    Method("LDA shrunk", _lda_shrunk, is_linear=True, needs_dense=True, most_columns=WIDEST_POOLED, weight=1),
    Method("QDA", _qda, standardizes=True, needs_dense=True, most_columns=WIDEST_OF_CLASSES, weight=2),
    Method("LR", LogisticRegression, is_linear=True, standardizes=True, weight=4),
    Method("LRCV", _logistic_cv, is_linear=True, standardizes=True, weight=100),
    Method("SVC", _svc, standardizes=True, weight=100),
    Method("KNN", KNeighborsClassifier, standardizes=True, weight=10),
    Method("NB", GaussianNB, standardizes=True, needs_dense=True, weight=0.3),
    Method("forest", _forest, weight=10),
)
OURS = (
    Method("AnnealedLogisticRegression", annealed.AnnealedLogisticRegression, is_ours=True, is_linear=True, weight=10),
    Method("AnnealedLDA", annealed.AnnealedLDA, is_ours=True, is_linear=True, weight=10),
    Method("AnnealedLDA literal", _literal_distance, is_ours=True, is_linear=True, weight=20),
    Method("MELDA", annealed.MELDA, is_ours=True, is_linear=True, weight=25),
    Method("PottsDA", annealed.PottsDA, is_ours=True, needs_dense=True, weight=60),
)
METHODS = {method.name: method for method in (*OURS, *PEERS)}
