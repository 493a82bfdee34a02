"""glmnet's own path, by coordinate descent (the package python-glmnet, which has wheels for Linux on x86).

Fifty penalties over the range of our path, on all rows and on five folds: six paths and nothing else. Its class scores
folds by itself, row by row of Python, which takes longer than the paths of a small table: that is left out.

Its penalty is lambda / 2 |coef|^2, of standardized columns or of raw ones, as ours: lambda is l2_strength T, half of it
for two classes, which have one row of coefficients (docs/theory.md).
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
from sklearn.model_selection import StratifiedKFold

from benchmarks.contract import Anchor, Method, Skipped, Table
from benchmarks.peers.logistic_regression import one_row_per_class
from benchmarks.quality import Yardstick

NAME = "glmnet, 6 paths"
N_PENALTIES = 50
N_FOLDS = 5
PATIENCE = 20.0


def methods(table: Table, anchor: Anchor, yardstick: Yardstick, options):
    if find_spec("glmnet") is None:
        yield Skipped(NAME, "python-glmnet is not installed: it has wheels for Linux on x86, Python 3.11 to 3.13")
    elif table.is_large:
        yield Skipped(NAME, "would take too long: one path of 20,000 rows of the dense problem takes 200 s")
    else:
        temperatures = np.geomspace(anchor.hot, anchor.cold, N_PENALTIES)
        yield Method(
            NAME,
            lambda: six_paths(table, temperatures, anchor.penalty_scaling),
            lambda path: described(path, temperatures, anchor.penalty_scaling, yardstick),
            is_rehearsed=False,
            patience=PATIENCE,
        )


def six_paths(table: Table, temperatures, penalty_scaling: str):
    """That of all rows, after those of the folds."""
    X, y = table.X, table.y
    for rows, _ in StratifiedKFold(N_FOLDS).split(X, y):
        one_path(X[rows], y[rows], temperatures, penalty_scaling)
    return one_path(X, y, temperatures, penalty_scaling)


def one_path(X, y, temperatures, penalty_scaling: str):
    from glmnet import LogitNet

    penalties = temperatures / (2 if len(np.unique(y)) == 2 else 1)
    return LogitNet(alpha=0, lambda_path=penalties, n_splits=0, standardize=penalty_scaling == "standardize").fit(X, y)


def described(path, temperatures, penalty_scaling: str, yardstick: Yardstick) -> dict:
    """The worst of its points, as far as it went."""
    n_reached = path.n_lambda_
    points = zip(path.coef_path_.transpose(2, 0, 1), path.intercept_path_.T, temperatures, strict=False)
    likelihood = yardstick.likelihood(penalty_scaling)
    bounds = [likelihood.gap(*one_row_per_class(*own), temperature).relative for *own, temperature in points]
    note = "" if n_reached == len(temperatures) else f"{n_reached} of {len(temperatures)} penalties"
    return {"suboptimality": max(bounds), "note": note}
