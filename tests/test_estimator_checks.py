"""Every estimator passes the estimator checks of scikit-learn."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from annealed import (
    MELDA,
    AnnealedClassifier,
    AnnealedKernelClassifier,
    AnnealedLDA,
    AnnealedLogisticRegression,
    PooledGaussian,
    PottsDA,
    SecondOrderFeatures,
)
from annealed.problems import Quadratic

ESTIMATORS = [
    AnnealedLogisticRegression(),
    AnnealedLDA(),
    AnnealedLDA(anchor=0, solver="scg"),
    AnnealedClassifier(),
    AnnealedClassifier(Quadratic()),
    AnnealedKernelClassifier(),
    MELDA(),
    SecondOrderFeatures(),
    PooledGaussian(),
    PottsDA(),
    PottsDA(n_prototypes=6, shrinkage="oas", refine=False),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check(estimator, check):
    if "cuda" in str(getattr(check, "keywords", "")) and not has_gpu():
        pytest.skip("torch sees no GPU")  # scikit-learn checks only whether torch was built for one
    check(estimator)


def has_gpu():
    torch = pytest.importorskip("torch")
    return torch.cuda.is_available()
