"""What is fitted on the tables: a name, a maker, and on which tables it makes sense."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from annealed import (
    MELDA,
    AnnealedClassifier,
    AnnealedLDA,
    AnnealedLogisticRegression,
    PooledGaussian,
    PottsDA,
)
from annealed.problems import Quadratic
from gates.tables import Table


class Estimator(NamedTuple):
    make: Callable
    suits: Callable[[Table], bool]
    is_certified: bool = False  # whether every point of the path has a certificate that the oracle can check


def _is_small(table: Table) -> bool:
    return len(table.y) < 300 and table.n_values <= 20_000


def _has_prototypes(table: Table) -> bool:
    """Not sparse, which PottsDA refuses, and not one more of the many small tables that look alike to it."""
    return not table.is_sparse and table.n_classes < 20 and table.name not in ALIKE


# Tables that add little to the others for prototypes, which take a second each.
ALIKE = ("very_wide", "one_sample_class", "noise", "units", "collinear", "heavy_tails", "wine", "one_feature")


def _is_quadratic(table: Table) -> bool:
    return not table.is_sparse and table.X.shape[1] <= 8 and len(table.y) <= 700


# MELDA anneals as the logistic estimator does: the rest of it is seen on a few tables.
REDUCED = ("tall", "wide", "two_classes", "many_classes", "one_sample_class", "collinear", "float32", "empty_columns")

ESTIMATORS = {
    "logistic": Estimator(AnnealedLogisticRegression, lambda table: True, True),
    "logistic, loo": Estimator(lambda: AnnealedLogisticRegression(selection="loo"), _is_small, True),
    "logistic, holdout": Estimator(lambda: AnnealedLogisticRegression(selection="holdout"), lambda table: True, True),
    "quadratic": Estimator(lambda: AnnealedClassifier(Quadratic()), _is_quadratic, True),
    "lda": Estimator(AnnealedLDA, lambda table: True),
    "melda": Estimator(MELDA, lambda table: table.name in REDUCED),
    "potts": Estimator(lambda: PottsDA(random_state=0), _has_prototypes),
    "pooled gaussian": Estimator(PooledGaussian, lambda table: True),
}
