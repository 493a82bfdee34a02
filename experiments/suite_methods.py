"""The methods of the suite: ours as they come, and the peers as scikit-learn makes them.

Ours get raw rows. A peer that minds the columns' units gets them standardized by the training rows (sparse ones are
scaled, not centred); one that refuses sparse rows gets them dense. Nothing else is tuned.
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

# Columns beyond which a method that decomposes matrices of columns x columns is not tried: one matrix, or one a class.
WIDEST_POOLED, WIDEST_OF_CLASSES = 5000, 1000


class NotTried(RuntimeError):
    """A fit that would not end, or not fit in memory, within reason: recorded as a failure, with its reason."""


@dataclass(frozen=True)
class Method:
    """How to make a classifier, and what it needs.

    most_columns : beyond which it is not tried
    weight : rough cost of a fit beside the others', for the order of the tasks and the estimate of time
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
        """A classifier ready for rows like `X`, or `NotTried`."""
        if X.shape[1] > self.most_columns:
            raise NotTried(f"decomposes matrices of columns x columns, and there are more than {self.most_columns}")
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
    """Probabilities by one sigmoid a class on five folds' scores: `SVC(probability=True)` is deprecated."""
    return CalibratedClassifierCV(SVC(), ensemble=False)


def _lda_shrunk():
    return LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")


def _qda():
    """Shrunk by Ledoit and Wolf's rule: with `reg_param` it refuses a class of fewer rows than columns."""
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
