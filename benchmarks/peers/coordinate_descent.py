"""The path of glmnet by coordinate descent (package python-glmnet, which has wheels for Linux on x86).

Fifty penalties over the range of our path, on all samples and on five folds, that is six paths. Scoring is left out:
python-glmnet scores folds in a Python loop over samples, which takes longer than the paths of a small table.

Like ours, its penalty is lambda / 2 |coef|^2 of standardized or raw features, with lambda = l2_strength T, or half of
it for two classes, which have a single coefficient vector (docs/theory.md).
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
        yield Skipped(NAME, "takes too long: one path on 20,000 samples of the dense problem takes 200 s")
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
    """Fit the paths of the folds, then return that of all samples."""
    X, y = table.X, table.y
    for rows, _ in StratifiedKFold(N_FOLDS).split(X, y):
        one_path(X[rows], y[rows], temperatures, penalty_scaling)
    return one_path(X, y, temperatures, penalty_scaling)


def one_path(X, y, temperatures, penalty_scaling: str):
    from glmnet import LogitNet

    penalties = temperatures / (2 if len(np.unique(y)) == 2 else 1)
    return LogitNet(alpha=0, lambda_path=penalties, n_splits=0, standardize=penalty_scaling == "standardize").fit(X, y)


def described(path, temperatures, penalty_scaling: str, yardstick: Yardstick) -> dict:
    """Worst certified bound over the penalties that were reached."""
    n_reached = path.n_lambda_
    points = zip(path.coef_path_.transpose(2, 0, 1), path.intercept_path_.T, temperatures, strict=False)
    likelihood = yardstick.likelihood(penalty_scaling)
    bounds = [likelihood.gap(*one_row_per_class(*point), temperature).relative for *point, temperature in points]
    note = "" if n_reached == len(temperatures) else f"{n_reached} of {len(temperatures)} penalties"
    return {"suboptimality": max(bounds), "note": note}
