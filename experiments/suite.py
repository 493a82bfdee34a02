"""The suite: our classifiers and scikit-learn's on every table of `<data>/suite`, one result row per fit.

A table with a canonical split is measured on it. Others are measured on stratified 70/30 splits: three for large tables
and up to ten for small ones, until ENOUGH_TEST_ROWS test samples were scored. Tables with more than MOST_ROWS training
samples are reduced to a stratified subset of that size, the same for all methods; `n_available` and `n_train` record
this. A result is written as soon as it is measured, and existing results are not measured again.

    error        share of test samples whose most probable class is not the true one
    log_loss     mean of -log p of the true class, with p clipped at 1e-15
    brier        mean squared distance between the probabilities and the one-hot label
    calibration  expected calibration error of the largest probability, 15 bins of equal width
    fit_seconds, cpu_seconds     wall-clock and CPU time of `fit`, including standardization; one BLAS thread
"""

from __future__ import annotations

import csv
import os
import time
import warnings
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed
from scipy import sparse
from sklearn.model_selection import StratifiedShuffleSplit, train_test_split
from threadpoolctl import threadpool_limits

from annealed.datasets import load_table, table_names
from experiments import suite_summary
from experiments.suite_methods import METHODS

TITLE = "every table of the suite: ours beside scikit-learn's classifiers"
OPTIONS = ("resume", "splits", "jobs", "tables", "methods", "again", "summary")
FILE = "suite.csv"
COLUMNS = (
    *("table", "split", "method", "n_train", "n_available", "n_test", "n_features", "n_classes"),
    *("error", "log_loss", "brier", "calibration", "fit_seconds", "cpu_seconds", "failure", "warnings"),
)
FEWEST_SPLITS, MOST_SPLITS = 3, 10
ENOUGH_TEST_ROWS = 1000  # over all splits of a table; with fewer the mean is noisy
TEST_SHARE = 0.3
MOST_ROWS = 10_000
SMALLEST_PROBABILITY = 1e-15
BINS = 15
BETWEEN_LINES = 5.0  # seconds between progress lines


class Task(NamedTuple):
    """One fit."""

    table: str
    split: int
    method: str


def add_options(parser) -> None:
    group = parser.add_argument_group("suite")
    group.add_argument("--tables", nargs="+", help="only these tables")
    group.add_argument("--methods", nargs="+", help=f"only these methods, of: {', '.join(METHODS)}")
    group.add_argument(
        "--again", action="store_true", help="repeat fits that are already measured; the later result counts"
    )
    group.add_argument("--summary", action="store_true", help="only summarize the existing results")


def run(options) -> None:
    """Measure what is missing, then summarize."""
    rows_file = options.results / FILE
    drop_torn_row(rows_file)
    if not options.summary:
        methods = chosen(options.methods, list(METHODS), "method")
        try:
            tables = chosen(options.tables, table_names(), "table")
        except FileNotFoundError as error:
            print(f"suite: skipped, {error}")
            return
        done = set() if options.again else measured_tasks(rows_file)
        measure_all(planned(tables, methods, options.splits, done), options.jobs, rows_file)
    if not rows_file.exists():
        raise SystemExit(f"there is no {rows_file} yet: run the suite without --summary first.")
    suite_summary.report(rows_file, options.results)


def chosen(asked: list[str] | None, known: list[str], what: str) -> list[str]:
    unknown = sorted(set(asked or ()) - set(known))
    if unknown:
        raise SystemExit(f"there is no {what} {', '.join(unknown)}. Choose among: {', '.join(known)}.")
    return [name for name in known if not asked or name in asked]


# --- the tasks --------------------------------------------------------------------------------------


def planned(tables: list[str], methods: list[str], n_splits: int | None, done: set[Task]) -> list[tuple[Task, float]]:
    """Remaining tasks with rough costs: table by table, the most expensive first, and its slowest method first."""
    sizes = {name: table_size(name, n_splits) for name in tables}
    tasks = [
        (Task(table, split, method), size * METHODS[method].weight)
        for table, (size, splits) in sorted(sizes.items(), key=lambda item: -item[1][0])
        for method in sorted(methods, key=lambda name: -METHODS[name].weight)
        for split in range(splits)
    ]
    return [(task, cost) for task, cost in tasks if task not in done]


def table_size(name: str, n_splits: int | None) -> tuple[float, int]:
    """Training entries of a table times its classes, in millions, and its number of splits (default if None)."""
    table = load_table(name, dtype=None)
    is_canonical = table.train is not None
    n_train = min(MOST_ROWS, len(table.train) if is_canonical else int((1 - TEST_SHARE) * len(table.y)))
    per_row = table.X.nnz / len(table.y) if hasattr(table.X, "nnz") else table.X.shape[1]
    wanted = int(np.clip(np.ceil(ENOUGH_TEST_ROWS / (TEST_SHARE * len(table.y))), FEWEST_SPLITS, MOST_SPLITS))
    size = 1e-6 * n_train * per_row * len(table.target_names) + 1e-3
    return size, 1 if is_canonical else n_splits or wanted


def measure_all(tasks: list[tuple[Task, float]], n_jobs: int, rows_file: Path) -> None:
    """Run the tasks in processes and write each result when it arrives."""
    if not tasks:
        return
    progress = Progress(tasks)
    parallel = Parallel(n_jobs, return_as="generator_unordered", pre_dispatch="all", batch_size=1)
    for row in parallel(delayed(measure)(task) for task, _ in tasks):
        append(rows_file, row)
        progress.update(row)


class Progress:
    """Prints the number of finished fits, the last one, and the remaining time estimated from the rough costs."""

    def __init__(self, tasks: list[tuple[Task, float]]):
        self.costs = dict(tasks)
        self.total = sum(self.costs.values())
        self.n_done, self.cost_done = 0, 0.0
        self.began = time.perf_counter()
        self.printed_at = 0.0

    def update(self, row: dict) -> None:
        self.n_done += 1
        self.cost_done += self.costs[Task(row["table"], row["split"], row["method"])]
        now = time.perf_counter()
        if now - self.printed_at < BETWEEN_LINES and self.n_done < len(self.costs):
            return
        self.printed_at = now
        left = (now - self.began) * (self.total - self.cost_done) / self.cost_done
        text = f"{self.n_done:5} of {len(self.costs)} fits, about {left / 60:.1f} minutes left"
        print(f"{text}; {row['table']} {row['method']} {row['fit_seconds']} s", flush=True)


# --- one fit ----------------------------------------------------------------------------------------


def measure(task: Task) -> dict:
    """Fit and score one method on one split; a failure is a result row too."""
    X_train, X_test, y_train, y_test, n_available = split_rows(task.table, task.split)
    row = {
        **task._asdict(),
        "n_train": len(y_train),
        "n_available": n_available,
        "n_test": len(y_test),
        "n_features": X_train.shape[1],
        "n_classes": len(np.unique(np.concatenate([y_train, y_test]))),
    }
    with warnings.catch_warnings(record=True) as caught, threadpool_limits(1):
        warnings.simplefilter("always")
        began = time.perf_counter(), time.process_time()
        try:
            model = METHODS[task.method].estimator(X_train).fit(X_train, y_train)
            took = time.perf_counter() - began[0], time.process_time() - began[1]
            row |= scores_of(model.predict_proba(X_test), model.classes_, y_test)
        except Exception as error:  # any exception of a method is recorded as its result
            took = time.perf_counter() - began[0], time.process_time() - began[1]
            row["failure"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    row["fit_seconds"], row["cpu_seconds"] = (f"{seconds:.4f}" for seconds in took)
    row["warnings"] = " | ".join(sorted({described(warning) for warning in caught}))
    return row


def described(warning) -> str:
    return f"{warning.category.__name__}: {str(warning.message).strip().splitlines()[0][:100]}"


@lru_cache(maxsize=4)
def split_rows(name: str, split: int):
    """(X_train, X_test, y_train, y_test, number of training samples before subsampling)."""
    table = load_table(name)
    train, test = table.train, table.test
    if train is None:
        splitter = StratifiedShuffleSplit(1, test_size=TEST_SHARE, random_state=split)
        train, test = next(splitter.split(table.y, table.y))
    n_available = len(train)
    if n_available > MOST_ROWS:
        train, _ = train_test_split(train, train_size=MOST_ROWS, stratify=table.y[train], random_state=split)
    return rows_of(table.X, train), rows_of(table.X, test), table.y[train], table.y[test], n_available


def rows_of(X, rows: np.ndarray):
    """Some rows of X; sparse ones with 32-bit indices, as required by scikit-learn's trees and kernels."""
    chosen_rows = X[rows]
    if sparse.issparse(chosen_rows):
        chosen_rows.indices, chosen_rows.indptr = (
            part.astype(np.int32, copy=False) for part in (chosen_rows.indices, chosen_rows.indptr)
        )
    return chosen_rows


def scores_of(probabilities: np.ndarray, classes: np.ndarray, y: np.ndarray) -> dict[str, str]:
    """The four scores of the module docstring; a posterior that is not finite is an error."""
    if not np.isfinite(probabilities).all():
        raise FloatingPointError("probabilities are not finite")
    everything = np.union1d(classes, y)
    posterior = np.zeros((len(y), len(everything)))
    posterior[:, np.searchsorted(everything, classes)] = probabilities
    codes = np.searchsorted(everything, y)
    of_truth = posterior[np.arange(len(y)), codes]
    is_right = posterior.argmax(axis=1) == codes
    numbers = {
        "error": np.mean(~is_right),
        "log_loss": np.mean(np.abs(np.log(np.clip(of_truth, SMALLEST_PROBABILITY, 1)))),
        "brier": np.mean(np.sum((posterior - np.eye(len(everything))[codes]) ** 2, axis=1)),
        "calibration": calibration_error(posterior.max(axis=1), is_right),
    }
    return {name: f"{number:.6g}" for name, number in numbers.items()}


def calibration_error(confidence: np.ndarray, is_right: np.ndarray) -> float:
    """Mean over samples of |accuracy - mean confidence| of their bin."""
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, weights=is_right - confidence, minlength=BINS)
    return float(np.abs(gaps).sum() / len(confidence))


# --- rows -------------------------------------------------------------------------------------------


def measured_tasks(path: Path) -> set[Task]:
    """The tasks of the results in a file; none if it is missing."""
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        return {Task(row["table"], int(row["split"]), row["method"]) for row in csv.DictReader(file)}


def drop_torn_row(path: Path, columns: tuple[str, ...] = COLUMNS) -> None:
    """Drop an incomplete last row, left by a kill or a full disk. Raise an error if the file has other columns."""
    if not path.exists():
        return
    written = path.read_bytes()
    whole = written[: written.rfind(b"\n") + 1]
    if not whole:
        path.unlink()
        return
    if whole.splitlines()[0].decode(errors="replace") != ",".join(columns):
        raise SystemExit(f"{path} has other columns than this experiment writes: move it away and run again.")
    if whole != written:
        os.truncate(path, len(whole))


def append(path: Path, row: dict, columns: tuple[str, ...] = COLUMNS) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        if is_new:
            writer.writeheader()
        writer.writerow(row)
