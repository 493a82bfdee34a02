"""Certificates of random problems, at every point of every path, against an oracle in double precision.

The oracle's number is a bound on the excess over the minimum, too. Where it exceeds the certificate, the excess itself
is computed from a solution at REFERENCE_TOL: after a last step, which lowers the value, the gradient may be larger.
"""

from __future__ import annotations

import warnings
from time import process_time

import numpy as np
from sklearn.base import clone

from annealed import AnnealedLogisticRegression
from gates.comparing import HONEST, ROUNDING
from gates.measure import oracle_bounds
from gates.random_tables import random_table

MOST_VALUES = 60_000
SCALINGS = ("auto", "auto", "none", "standardize", "half-whiten", "whiten")
TOLERANCES = (1e-4, 1e-4, 1e-2, 1e-6, 1e-8)
REFERENCE_TOL = 1e-10
CERTIFIED_SHARE = 0.01  # of `tol`: what the library promises of a converged point


def random_problem(seed: int):
    """(table, estimator)"""
    draw, table = np.random.default_rng([seed, 7]), random_table(seed, MOST_VALUES)
    scaling = str(draw.choice(SCALINGS))
    if table.is_sparse and scaling in ("half-whiten", "whiten"):
        scaling = "standardize"
    tol, strength = float(draw.choice(TOLERANCES)), float(10 ** draw.uniform(-2, 2))
    selection = str(draw.choice(["cv", "holdout", "last"]))
    return table, AnnealedLogisticRegression(
        penalty_scaling=scaling, tol=tol, l2_strength=strength, selection=selection
    )


def _excess(model, table, temperature, gap) -> float:
    """The relative excess at a point of a path."""
    settings = {"penalty_scaling": model.penalty_scaling_, "tol": REFERENCE_TOL, "selection": "last"}
    exact = clone(model).set_params(schedule=[temperature], **settings)
    exact.fit(table.X, table.y, sample_weight=table.weight)
    at = table.X, table.y, table.weight, exact.penalty_scaling_, exact.l2_strength
    (reference,) = oracle_bounds(exact.path_, *at)
    return gap.value / (reference.value - reference.bound) - 1


def certify(n_problems: int, first: int) -> int:
    """Print every point whose certificate is below what the oracle finds; the exit status."""
    n_points, n_wrong, n_loose, worst, began = 0, 0, 0, 0.0, process_time()
    for seed in range(first, first + n_problems):
        table, model = random_problem(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(table.X, table.y, sample_weight=table.weight)
        path = model.path_
        bounds = oracle_bounds(path, table.X, table.y, table.weight, model.penalty_scaling_, model.l2_strength)
        found = np.array([gap.relative for gap in bounds])
        is_above = found > HONEST * path.certificate + ROUNDING
        found[is_above] = [_excess(model, table, path.temperatures[at], bounds[at]) for at in np.flatnonzero(is_above)]
        is_wrong = found > HONEST * path.certificate + ROUNDING
        is_loose = path.converged & (found > HONEST * CERTIFIED_SHARE * model.tol + ROUNDING)
        n_points, n_wrong, n_loose = n_points + len(path), n_wrong + is_wrong.sum(), n_loose + is_loose.sum()
        worst = max(worst, float(np.max(found / (path.certificate + ROUNDING))))
        if is_wrong.any() or is_loose.any() or not path.converged.all():
            point = int(np.argmax(found / (path.certificate + ROUNDING)))
            print(
                f"{table.name}\n      {model.penalty_scaling_}, tol {model.tol:g}, "
                f"l2_strength {model.l2_strength:.2g}: "
                f"{int(is_wrong.sum())} of {len(path)} certificates too low, {int(is_loose.sum())} points above tol, "
                f"{int((~path.converged).sum())} not converged; worst at T = {path.temperatures[point]:.3g}: "
                f"{path.certificate[point]:.1e}, oracle {found[point]:.1e}",
                flush=True,
            )
    print(
        f"{n_problems} problems, {n_points} points in {process_time() - began:.0f} s: {n_wrong} certificates are below "
        f"the oracle's bound, {n_loose} converged points above their tolerance; largest ratio {worst:.2g}"
    )
    return int(bool(n_wrong or n_loose))
