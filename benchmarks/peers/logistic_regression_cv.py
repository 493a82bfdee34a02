"""scikit-learn's LogisticRegressionCV over the range of our path: fifty values of C, five folds, default tolerance.

On large problems its time is estimated: every tenth C of one fold is timed, with a warm start from the previous C as
in LogisticRegressionCV, and the mean is multiplied by the number of fits of the grid, plus the final fit.
"""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import StratifiedKFold

from benchmarks.contract import Anchor, Method, Skipped, Table
from benchmarks.measure import Estimate, Timing, quietly, timed
from benchmarks.peers.logistic_regression import in_raw_columns, one_row_per_class
from benchmarks.quality import Yardstick

WHOLE_GRID = "LogisticRegressionCV"
N_C = 50
N_FOLDS = 5
EVERY = 10
PATIENCE = 20.0


def methods(table: Table, anchor: Anchor, yardstick: Yardstick, options):
    if table.is_large and options.peers != "all":
        yield Skipped(WHOLE_GRID, "takes very long on this problem; --peers all times it")
        return
    is_estimated = options.grid == "estimated" or (options.grid == "auto" and table.is_large)
    Cs = np.geomspace(table.C_at(anchor.hot), table.C_at(anchor.cold), N_C)
    X = table.columns_in(anchor.penalty_scaling)
    if is_estimated:
        solve, describe = lambda: estimated(X, table.y, Cs), lambda estimate: {"note": estimate.note}
    else:
        solve, describe = (
            lambda: whole(X, table.y, Cs),
            lambda model: described(model, table, anchor.penalty_scaling, yardstick),
        )
    yield Method(WHOLE_GRID, solve, describe, is_rehearsed=False, patience=PATIENCE)


def whole(X, y, Cs):
    """The whole grid, scored by log-loss like our path."""
    return LogisticRegressionCV(Cs=Cs, cv=N_FOLDS, scoring="neg_log_loss").fit(X, y)


def described(model, table: Table, penalty_scaling: str, yardstick: Yardstick) -> dict:
    """Suboptimality of its final fit, at the C that it chose itself."""
    temperature = table.temperature_at(float(np.ravel(model.C_)[0]))
    raw = in_raw_columns(table, penalty_scaling, *one_row_per_class(model.coef_, model.intercept_))
    return yardstick.evaluate(*raw, temperature, penalty_scaling)


def estimated(X, y, Cs, every=EVERY) -> Estimate:
    rows, _ = next(StratifiedKFold(N_FOLDS).split(X, y))
    X, y = X[rows], y[rows]
    model = LogisticRegression(warm_start=True)
    timings = []
    for index in range(every - 1, len(Cs), every):
        quietly(lambda C=Cs[index - 1]: model.set_params(C=C).fit(X, y))
        _, timing, _ = timed(lambda C=Cs[index]: model.set_params(C=C).fit(X, y))
        timings.append(timing)
    # A fold has four fifths of the samples, the final fit has all of them.
    n_fits = N_FOLDS * len(Cs) + N_FOLDS / (N_FOLDS - 1)
    total = Timing(
        n_fits * float(np.mean([timing.wall_seconds for timing in timings])),
        n_fits * float(np.mean([timing.cpu_seconds for timing in timings])),
    )
    return Estimate(total, f"estimated from {len(timings)} of its {N_FOLDS * len(Cs) + 1} fits")
