"""Data classes of a benchmark: a table, the anchor taken from our default path, and a method that solves the table.

A module of `problems/` yields tables, a module of `peers/` yields methods. Only `Method.solve` is timed.

    C = n_rows_of_coef / (l2_strength T N)       n_rows_of_coef: 1, but 2 for two classes (docs/theory.md)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

import numpy as np
from scipy import sparse
from sklearn.preprocessing import StandardScaler


@dataclass(frozen=True, eq=False)
class Table:
    """Training data, with raw features."""

    name: str
    X: object
    y: np.ndarray
    problem: str = ""
    is_large: bool = False
    is_rehearsal: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        """(n_samples, n_features, n_classes)."""
        return (*self.X.shape, len(np.unique(self.y)))

    @property
    def is_sparse(self) -> bool:
        return sparse.issparse(self.X)

    @property
    def n_bytes(self) -> int:
        """Memory of X as it is stored."""
        if not self.is_sparse:
            return self.X.nbytes
        return sum(part.nbytes for part in (self.X.data, self.X.indices, self.X.indptr))

    @cached_property
    def scaler(self) -> StandardScaler:
        return StandardScaler(with_mean=not self.is_sparse).fit(self.X)

    @cached_property
    def standardized(self):
        """Features divided by their standard deviation, and centred if X is dense."""
        return self.scaler.transform(self.X)

    def columns_in(self, penalty_scaling: str):
        """Input for a peer such that its penalty equals ours: raw features for "none", else standardized ones."""
        return self.X if penalty_scaling == "none" else self.standardized

    def first_rows(self, n_rows: int) -> Table:
        """A random subset of the samples for a rehearsal, which is left out of the report."""
        if n_rows >= len(self.y):
            return replace(self, is_rehearsal=True)
        rows = np.sort(np.random.RandomState(0).permutation(len(self.y))[:n_rows])
        return replace(self, X=self.X[rows], y=self.y[rows], is_rehearsal=True)

    def C_at(self, temperature: float) -> float:
        """C of scikit-learn's LogisticRegression at a temperature, for `l2_strength=1`."""
        n_rows, _, n_classes = self.shape
        return (2 if n_classes == 2 else 1) / (temperature * n_rows)

    def temperature_at(self, C: float) -> float:
        return self.C_at(1.0) / C


@dataclass(frozen=True)
class Anchor:
    """Temperatures that peers are aligned with: first, chosen and last of our path, and its penalty scaling."""

    hot: float
    chosen: float
    cold: float
    penalty_scaling: str

    @classmethod
    def of(cls, model) -> Anchor:
        temperatures = model.path_.temperatures
        return cls(float(temperatures[0]), float(model.temperature_), float(temperatures[-1]), model.penalty_scaling_)

    @property
    def is_of_columns(self) -> bool:
        """Whether a peer can minimize the same objective on rescaled features."""
        return self.penalty_scaling in ("standardize", "none")


@dataclass(frozen=True)
class Method:
    """One way to solve a table.

    solve : returns a fitted model; the only timed part
    describe : maps the model to further columns of the results, such as its suboptimality
    is_rehearsed : whether to run it once untimed beforehand, to measure its peak memory
    patience : the method is not repeated after it has used this many seconds
    """

    name: str
    solve: Callable[[], object]
    describe: Callable[[object], dict] = field(default=lambda model: {})
    is_rehearsed: bool = True
    patience: float = inf


@dataclass(frozen=True)
class Skipped:
    """A method that does not run on a table, with the reason."""

    name: str
    reason: str
