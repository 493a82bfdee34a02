"""The methods of the comparison of AnnealedKernelClassifier, with default settings except as noted.

Ours get raw features. SVC, the Gaussian process and nearest neighbours get standardized ones, by the training samples
(sparse X is scaled but not centred). Every method has the same random state and one thread. A method that does not
support sparse X is not run on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

import annealed
from experiments.suite_methods import Method, NotTried

MAIN, RIVAL = "kernel", "svc_grid"
MOST_ROWS_OF_PROCESS = 1000  # a Gaussian process factors n_train x n_train matrices in every step of its optimizer
GAMMA_FACTORS = (0.25, 1.0, 4.0, 16.0)
COSTS = tuple(10 ** np.linspace(-2, 5, 8))


@dataclass(frozen=True)
class KernelMethod(Method):
    """A method that may have a limit of training samples, or no support of sparse X."""

    takes_sparse: bool = True
    most_rows: float = inf

    def estimator(self, X):
        if sparse.issparse(X) and not self.takes_sparse:
            raise NotTried("it does not support sparse X")
        if X.shape[0] > self.most_rows:
            raise NotTried(f"more than {self.most_rows} training samples")
        return super().estimator(X)


class GridSearchedSVC(ClassifierMixin, BaseEstimator):
    """An SVC with sigmoid probabilities whose gamma and C have the best accuracy in five folds.

    Gamma is one of four multiples of SVC's own "scale", 1 / (n_features * variance of X).
    """

    def fit(self, X, y):
        grid = {"gamma": [factor * scale_of(X) for factor in GAMMA_FACTORS], "C": COSTS}
        self.search_ = GridSearchCV(SVC(), grid, cv=5, scoring="accuracy", refit=False).fit(X, y)
        self.model_ = CalibratedClassifierCV(SVC(**self.search_.best_params_), method="sigmoid").fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X):
        return self.model_.predict(X)

    def predict_proba(self, X):
        return self.model_.predict_proba(X)


def scale_of(X) -> float:
    """SVC's gamma="scale"."""
    variance = X.multiply(X).mean() - X.mean() ** 2 if sparse.issparse(X) else X.var()
    return 1 / (X.shape[1] * variance) if variance else 1.0


def _kernel():
    return annealed.AnnealedKernelClassifier(random_state=0)


def _linear():
    return annealed.AnnealedLogisticRegression(random_state=0)


def _potts():
    return annealed.PottsDA(random_state=0)


def _svc():
    return CalibratedClassifierCV(SVC(), method="sigmoid")


def _process():
    return GaussianProcessClassifier(1.0 * RBF(), random_state=0)


def _forest():
    return RandomForestClassifier(300, random_state=0)


def _boosting():
    return HistGradientBoostingClassifier(random_state=0)


ALL = (
    KernelMethod(MAIN, _kernel, is_ours=True, weight=200),
    KernelMethod("linear", _linear, is_ours=True, is_linear=True, weight=10),
    KernelMethod("potts", _potts, is_ours=True, takes_sparse=False, weight=60),
    KernelMethod("svc", _svc, standardizes=True, weight=30),
    KernelMethod(RIVAL, GridSearchedSVC, standardizes=True, weight=1000),
    KernelMethod(
        *("gpc", _process), standardizes=True, takes_sparse=False, most_rows=MOST_ROWS_OF_PROCESS, weight=1000
    ),
    KernelMethod("forest", _forest, weight=30),
    KernelMethod("boosting", _boosting, takes_sparse=False, weight=100),
    KernelMethod("knn", KNeighborsClassifier, standardizes=True, weight=1),
)
METHODS = {method.name: method for method in ALL}
