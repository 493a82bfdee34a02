"""Types of the parameters and fitted attributes that several estimators have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealed.path import Schedule

FloatArray: TypeAlias = NDArray[np.floating[Any]]

Temperature: TypeAlias = Literal["auto"] | float
Temperatures: TypeAlias = Literal["auto"] | ArrayLike | Schedule
Selection: TypeAlias = Literal["cv", "loo", "holdout", "last"]
SelectionWithFolds: TypeAlias = Literal["cv", "holdout", "last"]
Rule: TypeAlias = Literal["best", "one_standard_error"]
PenaltyScaling: TypeAlias = Literal["auto", "cv", "none", "standardize", "half-whiten", "whiten"]
MatmulPrecision: TypeAlias = Literal["tf32"]
ClassWeight: TypeAlias = dict[Any, float] | Literal["balanced"]
RandomState: TypeAlias = int | np.random.RandomState

# Names of scorers are looked up in scikit-learn, and any object with `split` is a splitter.
Scoring: TypeAlias = str | Callable[..., Any]
Folds: TypeAlias = int | Iterable[Any] | Any
