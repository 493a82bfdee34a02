"""The nouns of a benchmark: a table, what our path says of it, and a method that solves it.

A file of `problems/` yields tables, a file of `peers/` yields methods; `solve` is the only thing that is timed.

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
    """Rows to fit, as a user would meet them."""

    name: str
    X: object
    y: np.ndarray
    problem: str = ""
    is_large: bool = False
    is_rehearsal: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns, classes."""
        return (*self.X.shape, len(np.unique(self.y)))

    @property
    def is_sparse(self) -> bool:
        return sparse.issparse(self.X)

    @property
    def n_bytes(self) -> int:
        """Of X as it is stored."""
        if not self.is_sparse:
            return self.X.nbytes
        return sum(part.nbytes for part in (self.X.data, self.X.indices, self.X.indptr))

    @cached_property
    def scaler(self) -> StandardScaler:
        return StandardScaler(with_mean=not self.is_sparse).fit(self.X)

    @cached_property
    def standardized(self):
        """Columns divided by their spread, and centred where X is dense."""
        return self.scaler.transform(self.X)

    def columns_in(self, penalty_scaling: str):
        """What a careful user gives a peer: columns in the units that our path penalizes in."""
        return self.X if penalty_scaling == "none" else self.standardized

    def first_rows(self, n_rows: int) -> Table:
        """A random part of the rows, to rehearse a benchmark with; never reported."""
        if n_rows >= len(self.y):
            return replace(self, is_rehearsal=True)
        rows = np.sort(np.random.RandomState(0).permutation(len(self.y))[:n_rows])
        return replace(self, X=self.X[rows], y=self.y[rows], is_rehearsal=True)

    def C_at(self, temperature: float) -> float:
        """The C of scikit-learn's LogisticRegression at a temperature; l2_strength is one."""
        n_rows, _, n_classes = self.shape
        return (2 if n_classes == 2 else 1) / (temperature * n_rows)

    def temperature_at(self, C: float) -> float:
        return self.C_at(1.0) / C


@dataclass(frozen=True)
class Anchor:
    """What our default path says of a table: its ends, and the temperature and the metric that validation chose."""

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
        """Whether a peer can have the same penalty, by columns in other units."""
        return self.penalty_scaling in ("standardize", "none")


@dataclass(frozen=True)
class Method:
    """One way to solve a table.

    solve : gives a fitted model; nothing else is timed
    describe : columns of the results from that model, such as its suboptimality
    is_rehearsed : whether to run it once before, untimed, for its peak memory
    patience : seconds after which it is not repeated
    """

    name: str
    solve: Callable[[], object]
    describe: Callable[[object], dict] = field(default=lambda model: {})
    is_rehearsed: bool = True
    patience: float = inf


@dataclass(frozen=True)
class Skipped:
    """A method that does not run here, and why."""

    name: str
    reason: str
