"""Types of the parameters and fitted attributes that several estimators have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.floating[Any]]

Temperature: TypeAlias = Literal["auto"] | float
Selection: TypeAlias = Literal["cv", "loo", "holdout", "last"]
SelectionWithoutLoo: TypeAlias = Literal["cv", "holdout", "last"]
Rule: TypeAlias = Literal["best", "one_standard_error"]
PenaltyScaling: TypeAlias = Literal["auto", "cv", "none", "standardize", "half-whiten", "whiten"]
MatmulPrecision: TypeAlias = Literal["tf32", "bf16"]

# Scorer names are strings too, so that only a call checks them; splitters and generators are duck-typed in scikit-learn.
Scoring: TypeAlias = str | Callable[..., Any]
Folds: TypeAlias = int | Iterable[Any] | Any
ClassWeight: TypeAlias = dict[Any, float] | Literal["balanced"]
RandomState: TypeAlias = int | np.random.RandomState
