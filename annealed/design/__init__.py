"""Rows of (X, labels, weight), wherever a backend keeps them."""

from scipy import sparse

from annealed.design.base import Block, Design
from annealed.design.coordinates import Coordinates, RowSpan, principal_coordinates, row_span
from annealed.design.csr import CsrDesign
from annealed.design.dense import DenseDesign, SinglePrecisionRows

__all__ = [
    "Block",
    "Coordinates",
    "CsrDesign",
    "DenseDesign",
    "Design",
    "RowSpan",
    "SinglePrecisionRows",
    "make_design",
    "principal_coordinates",
    "row_span",
]


def make_design(X, labels, weight, total_weight, n_classes) -> Design:
    """The design that fits X's storage."""
    backend = CsrDesign if sparse.issparse(X) else DenseDesign
    return backend(X, labels, weight, total_weight, n_classes)
