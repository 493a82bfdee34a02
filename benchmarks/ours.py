"""Our methods: `AnnealedLogisticRegression().fit(X, y)`, the cross-validated path and final fit on raw features."""

from __future__ import annotations

import numpy as np

from annealed import AnnealedLogisticRegression
from annealed.path import AdaptiveSchedule
from benchmarks.contract import Anchor, Method, Table
from benchmarks.quality import Yardstick

DEFAULT = "AnnealedLogisticRegression"
FIFTY = "AnnealedLogisticRegression, 50 temperatures"
N_FOLDS = 5
RATE = 0.7


def default(table: Table, yardstick: Yardstick) -> Method:
    """The default schedule, which stops once the validation score is clearly past its best."""

    def describe(model):
        columns = describe_path(model, yardstick)
        if yardstick.has_reference:
            columns["reference_suboptimality"] = yardstick.excess_at(model.path_, Anchor.of(model))
        return columns

    return Method(DEFAULT, lambda: AnnealedLogisticRegression().fit(table.X, table.y), describe)


def standardized(table: Table) -> AnnealedLogisticRegression:
    return AnnealedLogisticRegression(penalty_scaling="standardize").fit(table.X, table.y)


def fifty(table: Table, anchor: Anchor, yardstick: Yardstick) -> Method:
    """Fifty temperatures over the range of the default path, as in LogisticRegressionCV; no early stopping."""
    return on_grid(
        FIFTY, table, yardstick, np.geomspace(anchor.hot, anchor.cold, 50), penalty_scaling=anchor.penalty_scaling
    )


def on_grid(name, table: Table, yardstick: Yardstick, temperatures, n_folds=N_FOLDS, penalty_scaling="auto") -> Method:
    """A fixed list of temperatures and a given number of folds."""
    return Method(
        name,
        lambda: AnnealedLogisticRegression(schedule=temperatures, cv=n_folds, penalty_scaling=penalty_scaling).fit(
            table.X, table.y
        ),
        lambda model: describe_path(model, yardstick, n_folds),
    )


def ladder(hot: float, n_temperatures: int, finer: int = 1):
    """`n_temperatures` temperatures that fall by a factor of 0.7, or `finer` times as many over the same range."""
    return np.geomspace(hot, hot * RATE ** (n_temperatures - 1), n_temperatures * finer)


def hottest(table: Table) -> float:
    """First temperature of the default schedule."""
    first = AnnealedLogisticRegression(schedule=AdaptiveSchedule(n_temperatures=1), selection="last")
    return float(first.fit(table.X, table.y).path_.temperatures[0])


def describe_path(model, yardstick: Yardstick, n_folds=N_FOLDS) -> dict:
    path = model.path_
    n_temperatures, n_iter = len(path), int(path.n_iter.sum())
    return {
        "temperature": model.temperature_,
        "n_temperatures": n_temperatures,
        "n_iter": n_iter,
        "n_fits": 1 + n_folds,
        # One evaluation per iteration, plus the first one at each temperature.
        "passes": n_iter + n_temperatures,
        "note": "" if path.converged.all() else f"{int((~path.converged).sum())} temperatures not converged",
        **yardstick.evaluate_path(path, model.penalty_scaling_),
    }


def pass_flops(table: Table, n_fits: int) -> float:
    """Operations of `X @ W` and `X' @ R` for all fits; counted in the span of the rows if columns outnumber rows."""
    n_rows, n_features, n_classes = table.shape
    n_values = table.X.nnz if table.is_sparse else n_rows * min(n_rows, n_features)
    return 4.0 * n_values * n_fits * n_classes
