"""scikit-learn's language."""

from annealed.estimators.base import AnnealedClassifier
from annealed.estimators.distance_ada import DistanceADA
from annealed.estimators.inner_product_ada import InnerProductADA
from annealed.estimators.melda import MELDA, GaussianModel
from annealed.estimators.pooled_gaussian import PooledGaussian
from annealed.estimators.potts_da import PottsDA
from annealed.estimators.second_order_features import SecondOrderFeatures

__all__ = [
    "AnnealedClassifier",
    "DistanceADA",
    "GaussianModel",
    "InnerProductADA",
    "MELDA",
    "PooledGaussian",
    "PottsDA",
    "SecondOrderFeatures",
]
