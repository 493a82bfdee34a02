"""AnnealedKernelClassifier and its peers on the tables of the suite with at most MOST_ROWS samples.

Every table is measured on stratified 70/30 splits, also if it has a canonical one. Each fit has its own process with
one thread. Fits of other methods than AnnealedKernelClassifier are ended after a limit of CPU seconds. As in the suite,
a result is written as soon as it is measured, and existing results are not measured again. Scores and seconds are those
of the suite. Further columns:

    gamma, n_landmarks, n_support    the fitted attributes of AnnealedKernelClassifier
    n_temperatures, n_unconverged    visited temperatures, and how many of them did not converge
    n_uncertified, certificate       temperatures without a finite certificate, and the largest finite one
    failure                          why there is no score: an exception, the limit, or the reason why it was not tried
"""

from __future__ import annotations

import time
import warnings
from functools import lru_cache

import numpy as np
from joblib import Parallel, delayed
from sklearn.model_selection import StratifiedShuffleSplit
from threadpoolctl import threadpool_limits

from annealed.datasets import load_table, table_names
from experiments import child_process, kernel_summary, suite
from experiments.kernel_methods import MAIN, METHODS
from experiments.suite import Task
from experiments.suite_methods import NotTried

TITLE = "AnnealedKernelClassifier and its peers on the tables of the suite with at most 10,000 samples"
OPTIONS = ("resume", "splits", "jobs", "tables", "methods", "again", "summary", "seconds")
FILE = "kernel.csv"
OF_PATH = (
    *("gamma", "n_landmarks", "n_support"),
    *("n_temperatures", "n_unconverged", "n_uncertified", "certificate"),
)
COLUMNS = (
    *("table", "split", "method", "n_train", "n_test", "n_features", "n_classes"),
    *("error", "log_loss", "brier", "calibration", "fit_seconds", "cpu_seconds"),
    *(*OF_PATH, "failure", "warnings"),
)
MOST_ROWS = 10_000
N_SPLITS = 3
SECONDS = 600.0
TEST_SHARE = 0.3


def add_options(parser) -> None:
    about = f"in addition to --tables, --methods, --again and --summary of the suite; methods: {', '.join(METHODS)}"
    group = parser.add_argument_group("kernel", about)
    group.add_argument(
        "--seconds", type=float, default=SECONDS, help=f"CPU seconds for one fit of a peer (default {SECONDS:.0f})"
    )


def run(options) -> None:
    """Measure what is missing, then summarize the chosen methods, tables and splits."""
    rows_file, n_splits = options.results / FILE, options.splits or N_SPLITS
    if options.seconds <= 0:
        raise SystemExit(f"--seconds must be positive. Got {options.seconds:g}.")
    methods = suite.chosen(options.methods, list(METHODS), "method")
    suite.drop_torn_row(rows_file, COLUMNS)
    if not options.summary:
        try:
            tables = suite.chosen(options.tables, table_names(), "table")
        except FileNotFoundError as error:
            print(f"kernel: skipped, {error}")
            return
        done = set() if options.again else suite.measured_tasks(rows_file)
        tasks = planned(small_tables(tables), methods, n_splits, done)
        measure_all(tasks, options.jobs, options.seconds, rows_file)
    if not rows_file.exists():
        raise SystemExit(f"there is no {rows_file} yet: run the experiment without --summary first.")
    kernel_summary.report(rows_file, options.results, options.tables, methods, n_splits)


# --- the tasks --------------------------------------------------------------------------------------


def small_tables(names: list[str]) -> list[str]:
    """The tables with at most MOST_ROWS samples; the others are named."""
    sizes = {name: len(load_table(name, dtype=None).y) for name in names}
    large = [f"{name} ({size})" for name, size in sizes.items() if size > MOST_ROWS]
    if large:
        print(f"left out, more than {MOST_ROWS} samples: {', '.join(large)}")
    return [name for name, size in sizes.items() if size <= MOST_ROWS]


def planned(tables: list[str], methods: list[str], n_splits: int, done: set[Task]) -> list[tuple[Task, float]]:
    """Remaining tasks with rough costs, the smallest table first: an interrupted run has complete tables."""
    sizes = {name: suite.table_size(name, n_splits)[0] for name in tables}
    tasks = [
        (Task(table, split, method), sizes[table] * METHODS[method].weight)
        for table in sorted(tables, key=sizes.get)
        for split in range(n_splits)
        for method in methods
    ]
    return [(task, cost) for task, cost in tasks if task not in done]


def measure_all(tasks: list[tuple[Task, float]], n_jobs: int, seconds: float, rows_file) -> None:
    """Run the tasks and write each result when it arrives. Threads suffice: they wait for the processes."""
    if not tasks:
        return
    progress = suite.Progress(tasks)
    parallel = Parallel(n_jobs, backend="threading", return_as="generator_unordered", pre_dispatch="all", batch_size=1)
    for row in parallel(delayed(measure)(task, seconds) for task, _ in tasks):
        suite.append(rows_file, row, COLUMNS)
        progress.update(row)


@lru_cache(maxsize=4)
def split_rows(name: str, split: int):
    """(X_train, X_test, y_train, y_test)."""
    table = load_table(name)
    train, test = next(StratifiedShuffleSplit(1, test_size=TEST_SHARE, random_state=split).split(table.y, table.y))
    return suite.rows_of(table.X, train), suite.rows_of(table.X, test), table.y[train], table.y[test]


# --- one fit ----------------------------------------------------------------------------------------


def measure(task: Task, seconds: float) -> dict:
    """Fit and score one method on one split in its own process; a failure is a result row too."""
    parts = split_rows(task.table, task.split)
    X_train, _, y_train, y_test = parts
    method = METHODS[task.method]
    row = {
        **task._asdict(),
        "n_train": len(y_train),
        "n_test": len(y_test),
        "n_features": X_train.shape[1],
        "n_classes": len(np.unique(np.concatenate([y_train, y_test]))),
        **{"fit_seconds": "0", "cpu_seconds": "0"},
    }
    limit = np.inf if task.method == MAIN else seconds
    try:
        return row | child_process.call(fit_and_score, method.estimator(X_train), parts, limit, preload=__name__)
    except NotTried as reason:
        return row | {"failure": f"{NotTried.__name__}: {reason}"}
    except child_process.ChildEnded as end:
        return row | failure_of(end, seconds)


def failure_of(end: child_process.ChildEnded, seconds: float) -> dict[str, str]:
    if end.is_limit:
        return {"failure": f"Limit: more than {seconds:g} CPU seconds", "cpu_seconds": f"{seconds:g}"}
    return {"failure": f"ChildEnded: {end}"}


def fit_and_score(model, parts, limit: float) -> dict[str, str]:
    """Scores, seconds, and what the path of AnnealedKernelClassifier says; called in a process of its own."""
    X_train, X_test, y_train, y_test = parts
    row = {}
    with warnings.catch_warnings(record=True) as caught, threadpool_limits(1):
        warnings.simplefilter("always")
        began = time.perf_counter(), time.process_time()
        try:
            with child_process.cpu_limit(limit):
                model.fit(X_train, y_train)
            took = time.perf_counter() - began[0], time.process_time() - began[1]
            row = suite.scores_of(model.predict_proba(X_test), model.classes_, y_test) | path_traits(model)
        except Exception as error:  # any exception of a method is recorded as its result
            took = time.perf_counter() - began[0], time.process_time() - began[1]
            row["failure"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    row["fit_seconds"], row["cpu_seconds"] = (f"{seconds:.4f}" for seconds in took)
    return row | {"warnings": " | ".join(sorted({suite.described(warning) for warning in caught}))}


def path_traits(model) -> dict[str, str]:
    """The columns OF_PATH of an AnnealedKernelClassifier; none for other methods."""
    if not hasattr(model, "n_landmarks_"):
        return {}
    path = model.path_
    certificates = np.full(len(path.converged), np.nan) if path.certificate is None else path.certificate
    known = certificates[np.isfinite(certificates)]
    traits = (
        *(model.gamma_, model.n_landmarks_, int(np.sum(model.n_support_))),
        *(len(path.converged), int(np.sum(~path.converged)), len(certificates) - len(known)),
        max(known, default=np.nan),
    )
    return {name: "" if value is None else f"{value:.6g}" for name, value in zip(OF_PATH, traits, strict=True)}
