"""One fit: its temperatures, probabilities of held-out samples, certificates checked by the oracle, and counts."""

from __future__ import annotations

import warnings
from functools import cache
from itertools import combinations_with_replacement
from math import inf

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from benchmarks.quality import PenalizedLikelihood
from gates.counting import counting
from gates.estimators import ESTIMATORS
from gates.tables import Table, table

N_PROBABILITIES = 12
SMALLEST_PROBABILITY = 1e-15
CONSTANT = 1e-13  # standard deviation relative to the mean, up to which a column is constant
DIGITS = 6  # significant digits of recorded numbers, more of probabilities


def measured(table_name: str, estimator_name: str, with_calls=True) -> dict:
    """Fit an estimator on a table, and describe the result. Numbers are rounded for the record."""
    of_table, estimator = table(table_name), ESTIMATORS[estimator_name]
    _warm_up(estimator_name)
    model = estimator.make()
    weights = {} if of_table.weight is None else {"sample_weight": of_table.weight}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with counting(of_table.n_values, with_calls) as tally:
            model.fit(of_table.X, of_table.y, **weights)
    found = described(model, of_table, estimator.is_certified)
    found["warnings"] = sum(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    found["counts"] = {name: _rounded(number) for name, number in tally.summary().items()}
    return found


@cache
def _warm_up(estimator_name):
    """Imports and caches of the first fit are no part of any count."""
    for name in ("tiny", "short_text"):
        if ESTIMATORS[estimator_name].suits(table(name)):
            of_table = table(name)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ESTIMATORS[estimator_name].make().fit(of_table.X, of_table.y)


def described(model, of_table: Table, is_certified: bool) -> dict:
    proba = model.predict_proba(of_table.X_test).astype(np.float64)
    column = np.searchsorted(model.classes_, of_table.y_test)
    rows = np.arange(len(column))
    true = np.maximum(proba[rows, column], SMALLEST_PROBABILITY)
    shown = np.unique(np.linspace(0, len(rows) - 1, N_PROBABILITIES).astype(int))
    found = {
        "log_loss": _rounded(-np.log(true).mean()),
        "probabilities": [float(f"{number:.9g}") for number in proba[shown, shown % proba.shape[1]]],
    }
    path = getattr(model, "path_", None)
    if hasattr(path, "temperatures"):
        temperatures = np.asarray(path.temperatures, dtype=float)
        found |= {
            "n_temperatures": len(temperatures),
            "hottest": _rounded(temperatures.max()),
            "coldest": _rounded(temperatures.min()),
        }
    if hasattr(model, "temperature_"):
        found["chosen"] = _rounded(model.temperature_)
    if is_certified:
        found |= {name: _rounded(number) for name, number in _certificates(model, of_table).items()}
    return found


def _certificates(model, of_table: Table) -> dict:
    """Largest relative suboptimality over the path, as the library claims it and as the oracle bounds it."""
    path = model.path_
    bounds = oracle_bounds(path, of_table.X, of_table.y, of_table.weight, model.penalty_scaling_)
    return {
        "claimed": float(np.max(path.certificate)),
        "bound": max(gap.relative for gap in bounds),
        "energy_error": max(
            abs(temperature * gap.value / energy - 1) if energy else inf
            for temperature, gap, energy in zip(path.temperatures, bounds, path.free_energy, strict=True)
        ),
    }


def oracle_bounds(path, X, y, weight, penalty_scaling, l2_strength=1.0) -> list:
    """The oracle's `Gap` at every temperature of a path of linear logits, in columns or in second-order features."""
    X = X.astype(np.float64)
    if not sparse.issparse(X) and path.coef.shape[2] != X.shape[1]:
        X = _second_order(X, weight)
    likelihood = PenalizedLikelihood(X, y, penalty_scaling, l2_strength, weight)
    points = zip(path.coef, path.intercept, path.temperatures, strict=True)
    return [likelihood.gap(*point) for point in points]


def _second_order(X, weight):
    """The standardized columns z_i, then z_i z_j for i <= j; constant columns are zero."""
    mean = np.average(X, axis=0, weights=weight)
    spread = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    is_constant = spread <= CONSTANT * np.abs(mean)
    Z = np.where(is_constant, 0.0, (X - mean) / np.where(is_constant, 1.0, spread))
    products = [Z[:, left] * Z[:, right] for left, right in combinations_with_replacement(range(Z.shape[1]), 2)]
    return np.column_stack([Z, *products])


def _rounded(number):
    if isinstance(number, dict):
        return {str(size): {str(key): value for key, value in sizes.items()} for size, sizes in number.items()}
    return float(f"{float(number):.{DIGITS}g}")
