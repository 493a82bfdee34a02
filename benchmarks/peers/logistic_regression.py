"""One fit of scikit-learn's LogisticRegression at the C that our path chose: the yardstick for the whole path.

Features are given in the units of our penalty, so that the objective is ours: standardized for dense X, raw or divided
by their standard deviation for sparse X. With the default solver there is also a fit on raw features.
"""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression

from benchmarks.contract import Anchor, Method, Skipped, Table
from benchmarks.quality import Yardstick

ONE_FIT = "LogisticRegression lbfgs"
SOLVERS = ("lbfgs", "newton-cg", "newton-cholesky")
MOST_CHOLESKY_PARAMETERS = 2000  # the solver factors their Hessian; 3289 parameters took 11 s with 100 samples
MOST_NEWTON_CG_VALUES = 2e7  # entries of X; 1e7 took two minutes with ten classes
PATIENCE = 60.0


def methods(table: Table, anchor: Anchor, yardstick: Yardstick, options):
    for solver in SOLVERS:
        name = f"LogisticRegression {solver}"
        n_parameters = table.shape[1] * (table.shape[2] if table.shape[2] > 2 else 1)
        if solver == "newton-cholesky" and n_parameters > MOST_CHOLESKY_PARAMETERS:
            yield Skipped(name, f"its Hessian would be {n_parameters} x {n_parameters}")
        elif solver == "newton-cg" and table.shape[0] * table.shape[1] > MOST_NEWTON_CG_VALUES:
            yield Skipped(name, "takes many minutes here")
        else:
            yield one_fit(name, table, anchor, yardstick, solver)
    if anchor.penalty_scaling == "none":
        yield Skipped(f"{ONE_FIT}, raw columns", "the features are raw already")
    else:
        yield one_raw_fit(f"{ONE_FIT}, raw columns", table, anchor, yardstick)


def one_fit(name, table: Table, anchor: Anchor, yardstick: Yardstick, solver) -> Method:
    X, C = table.columns_in(anchor.penalty_scaling), table.C_at(anchor.chosen)

    def describe(model):
        raw = in_raw_columns(table, anchor.penalty_scaling, *one_row_per_class(model.coef_, model.intercept_))
        return {"n_iter": int(np.max(model.n_iter_)), **yardstick.evaluate(*raw, anchor.chosen, anchor.penalty_scaling)}

    return Method(name, lambda: LogisticRegression(C=C, solver=solver).fit(X, table.y), describe, patience=PATIENCE)


def one_raw_fit(name, table: Table, anchor: Anchor, yardstick: Yardstick) -> Method:
    """On raw features the penalty differs from ours; the suboptimality refers to the objective of this fit."""
    C = table.C_at(anchor.chosen)

    def describe(model):
        coef, intercept = one_row_per_class(model.coef_, model.intercept_)
        evaluated = yardstick.evaluate(coef, intercept, anchor.chosen, penalty_scaling="none")
        return {"n_iter": int(np.max(model.n_iter_)), **evaluated}

    return Method(name, lambda: LogisticRegression(C=C).fit(table.X, table.y), describe, patience=PATIENCE)


def one_row_per_class(coef, intercept):
    """One coefficient vector per class: for two classes scikit-learn has a single w, we have -w/2 and w/2."""
    if len(coef) > 1:
        return coef, intercept
    return np.vstack([-coef, coef]) / 2, np.concatenate([-intercept, intercept]) / 2


def in_raw_columns(table: Table, penalty_scaling: str, coef, intercept):
    """Coefficients for raw features from those for features in the units of the penalty scaling."""
    if penalty_scaling == "none":
        return coef, intercept
    coef = coef / table.scaler.scale_
    return coef, intercept if table.is_sparse else intercept - coef @ table.scaler.mean_
