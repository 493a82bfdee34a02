"""scikit-learn's language."""

from annealed.estimators.base import AnnealedClassifier
from annealed.estimators.distance_ada import DistanceADA
from annealed.estimators.inner_product_ada import InnerProductADA

__all__ = ["AnnealedClassifier", "DistanceADA", "InnerProductADA"]
