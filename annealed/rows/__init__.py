"""Storage of the training data: samples, labels and weights on the host or on a device, summed block by block."""

from scipy import sparse

from annealed.arrays import Place, is_foreign
from annealed.rows.array_api import ArrayDesign
from annealed.rows.base import Block, Design
from annealed.rows.coordinates import Coordinates, RowSpan, principal_coordinates, row_span
from annealed.rows.csr import CsrDesign
from annealed.rows.dense import DenseDesign, SinglePrecisionRows

__all__ = [
    "ArrayDesign",
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


def make_design(X, labels, weight, total_weight, n_classes, place: Place | None = None) -> Design:
    """The design that fits the storage of X. If labels and weights are on a device, X is moved there too."""
    if is_foreign(weight):
        if place is None:
            place = Place.of(weight)
            X = X if is_foreign(X) else place.row(X)
        return ArrayDesign(X, labels, weight, total_weight, n_classes, place)
    if not sparse.issparse(X):
        return DenseDesign(X, labels, weight, total_weight, n_classes)
    if not X.has_canonical_format:  # duplicate entries are summed first: their squares are not the square of the sum
        X = X.copy()
        X.sum_duplicates()
    return CsrDesign(X, labels, weight, total_weight, n_classes)
