"""scikit-learn's language."""

from annealed.estimators.annealed_kernel_classifier import AnnealedKernelClassifier
from annealed.estimators.annealed_lda import AnnealedLDA
from annealed.estimators.annealed_logistic_regression import AnnealedLogisticRegression
from annealed.estimators.base import AnnealedClassifier
from annealed.estimators.melda import MELDA
from annealed.estimators.melda_projection import GaussianModel
from annealed.estimators.pooled_gaussian import PooledGaussian
from annealed.estimators.potts_da import PottsDA
from annealed.estimators.second_order_features import SecondOrderFeatures

__all__ = [
    "AnnealedClassifier",
    "AnnealedKernelClassifier",
    "AnnealedLDA",
    "GaussianModel",
    "AnnealedLogisticRegression",
    "MELDA",
    "PooledGaussian",
    "PottsDA",
    "SecondOrderFeatures",
]
