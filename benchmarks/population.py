"""`python dev.py bench population`: the default path against scikit-learn on some 300 random problems of every kind.

Every problem is fitted by `AnnealedLogisticRegression()` (the path), by one `LogisticRegression` with the C that the
path chose, and by `LogisticRegressionCV()`, each in CPU seconds of one thread. scikit-learn has standardized columns,
sparse ones divided by their largest entry. A run that takes so long that the question is answered is cut off, and its
time is a lower bound: LogisticRegressionCV after CV_SHARE times the path and CV_SECONDS.
"""

from __future__ import annotations

import argparse
import csv
import gc
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from math import nan
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from annealed import AnnealedLogisticRegression
from benchmarks.generators import CLIFFS, KINDS, MOST_VALUES, RANDOM, make
from benchmarks.measure import TooSlow, limited
from benchmarks.population_report import SLOW, print_report
from gates.counting import counting
from gates.measure import SMALLEST_PROBABILITY
from gates.tables import Table

NUMBER, QUICK_NUMBER, QUICK_VALUES = 320, 40, 8_000
CV_SHARE, CV_SECONDS, QUICK_CV_SECONDS = 1.25, 4.0, 1.0
REPEATS, REPEATED_SECONDS = 3, 1.0  # a run is repeated until it has taken so long, or so often
ACCURATE = 1e-6  # relative suboptimality
TOLERANCES = (1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
TIGHT_SHARE = 0.1  # of the path's time, after which an accurate single fit is cut off
MOST_ITERATIONS = 100_000
COUNTS = ("passes64", "passes32", "columns64", "columns32", "hessians", "row_products", "factor_millions", "work")
COLUMNS = (
    *("name", "kind", "seed", "n_samples", "n_features", "n_classes", "n_values"),
    *("path_seconds", "path_is_cut", "one_seconds", "one_is_cut", "tight_seconds", "tight_is_cut", "tight_tol"),
    *("cv_seconds", "cv_is_cut", "cv_error", "path_loss", "one_loss", "cv_loss"),
    *("temperature", "C", "penalty_scaling", "solver", "n_temperatures", "n_nodes", "n_iter", "most_iter"),
    *("kept_seconds", "n_unconverged", "certificate", "chosen_certificate", *COUNTS),
    *("warnings", "error", "plan"),
)


class Spec(NamedTuple):
    """What `make` needs, and the limits of the runs."""

    kind: str
    seed: int
    most_values: int
    limit: float
    cv_seconds: float

    @property
    def short_name(self) -> str:
        return self.kind if self.kind in CLIFFS else f"{self.kind} {self.seed}"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python dev.py bench population", description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, help=f"of problems; default: {NUMBER}, with --quick {QUICK_NUMBER}")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first problem of each kind")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only problems with one of these in `kind seed`")
    parser.add_argument("--quick", action="store_true", help="small problems, without those that once took very long")
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--limit", type=float, default=120.0, help="CPU seconds after which a path is cut off")
    parser.add_argument(
        "--results", type=Path, default=Path(__file__).resolve().parent / "results", help="folder of population.csv"
    )
    parser.add_argument("--report", action="store_true", help="run nothing; print the latest results")
    options = parser.parse_args(arguments)
    for name in ("number", "workers", "limit"):
        if (number := getattr(options, name)) is not None and number <= 0:
            parser.error(f"--{name} must be positive. Got {number}.")
    return options


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    file = options.results / "population.csv"
    if not options.report:
        run(population(options), options.workers, file)
    print_report(file)
    return 0


def population(options) -> list[Spec]:
    """The problems that once took very long, then one problem of each kind in turn."""
    number = options.number or (QUICK_NUMBER if options.quick else NUMBER)
    most_values, cv_seconds = (QUICK_VALUES, QUICK_CV_SECONDS) if options.quick else (MOST_VALUES, CV_SECONDS)
    kinds = [RANDOM, *KINDS]
    drawn = [(kinds[turn % len(kinds)], options.seed + turn // len(kinds)) for turn in range(number)]
    fixed = [] if options.quick else [(kind, 0) for kind in CLIFFS]
    specs = [Spec(kind, seed, most_values, options.limit, cv_seconds) for kind, seed in (fixed + drawn)[:number]]
    if options.only:
        specs = [spec for spec in specs if any(word in spec.short_name for word in options.only)]
        if not specs:
            raise SystemExit(f"no problem holds {' or '.join(options.only)} in its name.")
    return specs


def run(specs: list[Spec], n_workers: int, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    began = perf_counter()
    with file.open("w", newline="") as open_file:
        writer = csv.DictWriter(open_file, COLUMNS, restval="")
        writer.writeheader()
        for number, row in enumerate(_rows(specs, n_workers), 1):
            writer.writerow(row)
            open_file.flush()
            words = f"{number:4}/{len(specs)} {perf_counter() - began:6.0f} s"
            print(f"{words} | path {row['path_seconds']:7.3f} s  {row['name'] + row['error']:.110}", flush=True)


def _rows(specs, n_workers) -> Iterator[dict]:
    if n_workers == 1:
        yield from map(measured, specs)
        return
    with ProcessPoolExecutor(n_workers, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(measured, spec) for spec in specs]):
            yield done.result()


# --- one problem ------------------------------------------------------------------------------------------------------


def measured(spec: Spec) -> dict:
    """One row of results."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `_path` records those of the path
        _warm_up()
        return _measured(spec)


def _measured(spec):
    table = make(spec.kind, spec.seed, spec.most_values)
    n_samples, n_features = table.X.shape
    row = {"name": table.name, "kind": spec.kind, "seed": spec.seed, "n_samples": n_samples, "n_features": n_features}
    row |= {"n_classes": table.n_classes, "n_values": table.n_values, "path_seconds": nan, "C": 1.0, "error": ""}
    try:
        row |= _path(table, spec.limit)
    except Exception as error:
        return row | {"error": f"{type(error).__name__}: {error}"[:300]}
    peer = Peer(table)
    row |= peer.one_fit(row["C"], row["path_seconds"])
    cv_limit = spec.limit if row["path_is_cut"] else CV_SHARE * row["path_seconds"] + spec.cv_seconds
    return row | peer.cross_validated(cv_limit)


@cache
def _warm_up():
    """Imports and caches of a first fit belong to no problem."""
    for kind in ("gaussian", "tf-idf"):
        table = make(kind, 0, 2000)
        AnnealedLogisticRegression().fit(table.X, table.y)
        LogisticRegression().fit(table.X, table.y)


def _path(table: Table, limit) -> dict:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with counting(table.n_values, with_calls=False) as tally:
            model, seconds = _timed(lambda: AnnealedLogisticRegression().fit(table.X, table.y, **_weight(table)), limit)
        row = {"path_seconds": seconds, "path_is_cut": model is None}
        row |= {name: number for name, number in tally.summary().items() if name in COUNTS}
        if model is not None:
            row |= _described(model, table)
    told = dict.fromkeys(f"{own.category.__name__}: {' '.join(str(own.message).split())}" for own in caught)
    row["warnings"] = " | ".join(told)
    if model is not None and seconds < REPEATED_SECONDS:
        row["path_seconds"] = _repeated(lambda: AnnealedLogisticRegression().fit(table.X, table.y, **_weight(table)))
    return row


def _described(model, table: Table) -> dict:
    path, best = model.path_, model.path_.best_index
    row = {"temperature": model.temperature_, "C": model.C_, "penalty_scaling": model.penalty_scaling_}
    row |= {"solver": path.plan.partition(" in ")[0][:40], "plan": path.plan, "n_temperatures": len(path)}
    row |= {"n_nodes": path.is_node.sum(), "n_iter": path.n_iter.sum(), "most_iter": path.n_iter.max()}
    row |= {"kept_seconds": path.seconds.sum(), "n_unconverged": np.sum(~path.converged)}
    row |= {"certificate": path.certificate.max(), "chosen_certificate": path.certificate[best]}
    proba = model.predict_proba(table.X_test)
    if not (np.isfinite(proba).all() and np.allclose(proba.sum(axis=1), 1, atol=1e-5)):
        row["error"] = "held-out probabilities are not finite or do not add up to one"
    return row | {"path_loss": _log_loss(proba, model.classes_, table.y_test)}


class Peer:
    """scikit-learn's logistic regression on the columns of a problem as a careful user would scale them."""

    def __init__(self, table: Table):
        scaler = (MaxAbsScaler() if table.is_sparse else StandardScaler()).fit(table.X)
        self.table, self.X, self.X_test = table, scaler.transform(table.X), scaler.transform(table.X_test)

    def one_fit(self, C, path_seconds) -> dict:
        """One fit with default tolerance and, if the path is slow, one that is as accurate as the path."""
        limit = max(2 * path_seconds, REPEATED_SECONDS)
        model, seconds = _timed(lambda: self._fitted(LogisticRegression(C=C)), limit)
        if model is not None and seconds < REPEATED_SECONDS:
            seconds = _repeated(lambda: self._fitted(LogisticRegression(C=C)))
        row = {"one_seconds": seconds, "one_is_cut": model is None, "one_loss": self._loss(model)}
        if path_seconds > SLOW and model is not None:
            row |= self._accurate(model, C, seconds, TIGHT_SHARE * path_seconds)
        return row

    def _accurate(self, model, C, seconds, limit) -> dict:
        """The first tolerance at which the next one does not lower the objective by more than ACCURATE."""
        tol, value = model.tol, self._objective(model, C)
        for next_tol in TOLERANCES:
            tighter = LogisticRegression(C=C, tol=next_tol, max_iter=MOST_ITERATIONS)
            model, next_seconds = _timed(lambda tighter=tighter: self._fitted(tighter), limit)
            if model is None:
                return {"tight_seconds": max(seconds, next_seconds), "tight_is_cut": True, "tight_tol": next_tol}
            next_value = self._objective(model, C)
            if value - next_value <= ACCURATE * next_value:
                break
            tol, value, seconds = next_tol, next_value, next_seconds
        return {"tight_seconds": seconds, "tight_is_cut": False, "tight_tol": tol}

    def cross_validated(self, limit) -> dict:
        try:
            model, seconds = _timed(lambda: self._fitted(LogisticRegressionCV()), limit)
        except Exception as error:  # as for some classes of two samples
            return {"cv_error": f"{type(error).__name__}: {error}"[:200]}
        return {"cv_seconds": seconds, "cv_is_cut": model is None, "cv_loss": self._loss(model)}

    def _fitted(self, model):
        return model.fit(self.X, self.table.y, **_weight(self.table))

    def _objective(self, model, C):
        scores = model.decision_function(self.X).astype(np.float64)
        scores = np.column_stack([np.zeros(len(scores)), scores]) if scores.ndim == 1 else scores
        true = scores[np.arange(len(scores)), np.searchsorted(model.classes_, self.table.y)]
        losses = logsumexp(scores, axis=1) - true
        return np.average(losses, weights=self.table.weight) + np.sum(model.coef_**2) / (2 * C * self._total_weight())

    def _total_weight(self):
        return len(self.table.y) if self.table.weight is None else self.table.weight.sum()

    def _loss(self, model):
        return nan if model is None else _log_loss(model.predict_proba(self.X_test), model.classes_, self.table.y_test)


def _weight(table: Table) -> dict:
    return {} if table.weight is None else {"sample_weight": table.weight}


def _timed(solve, limit):
    """What `solve` returns, or None if it was cut off, and its CPU seconds."""
    gc.collect()
    began = process_time()
    try:
        with limited(limit):
            result = solve()
    except TooSlow:
        result = None
    return result, process_time() - began


def _repeated(solve) -> float:
    """Median CPU seconds of several runs."""
    seconds: list[float] = []
    while len(seconds) < REPEATS and sum(seconds) < REPEATED_SECONDS:
        seconds.append(_timed(solve, np.inf)[1])
    return median(seconds)


def _log_loss(proba, classes, y):
    true = proba[np.arange(len(y)), np.searchsorted(classes, y)]
    return float(-np.log(np.maximum(true, SMALLEST_PROBABILITY)).mean())
