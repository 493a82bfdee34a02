"""Compares the annealed estimators and common scikit-learn classifiers on a table, cross-validated on the same folds.

A further estimator is one line in OURS or PEERS.
"""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter
from threadpoolctl import threadpool_limits

from annealed.app.tables import LabelledTable, TableColumns, TableModel, make_vectorizer, nearest
from annealed.errors import InputError
from annealed.estimators import MELDA, AnnealedKernelClassifier, AnnealedLDA, AnnealedLogisticRegression, PottsDA
from annealed.estimators.samples import counted_in_rows
from annealed.optional import require
from annealed.validation.selection import stratified_splits

MANY_CELLS = 2_000_000  # smaller tables are fitted on one thread: the overhead of more exceeds their gain
RECORDED = ("annealed", "scikit-learn", "numpy", "scipy")  # packages whose versions a model file records
FIT_ERRORS = (ValueError, ArithmeticError, np.linalg.LinAlgError)  # raised by fits on unsuitable tables
HASH = np.dtype("<u8")  # row hashes in a model file: the same byte order on every machine
SMALLEST_PROBABILITY = 1e-15  # clips the log-loss of one sample at 35 nats


OURS: dict[str, Callable[[], Any]] = {
    "logistic": AnnealedLogisticRegression,
    "lda": AnnealedLDA,
    "melda": MELDA,
    "kernel": AnnealedKernelClassifier,
    "potts": PottsDA,
}
PEERS: dict[str, Callable[[], Any]] = {
    "sklearn-logistic": lambda: LogisticRegression(max_iter=1000),
    "sklearn-lda": lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
    "nearest-neighbours": KNeighborsClassifier,
    "random-forest": lambda: RandomForestClassifier(random_state=0),
    "gradient-boosting": lambda: HistGradientBoostingClassifier(random_state=0),
    "class-shares": DummyClassifier,
}
CANDIDATES = {**OURS, **PEERS}
NOT_SAVEABLE = (
    "nearest-neighbours",
    "random-forest",
    "gradient-boosting",
)  # a model file holds arrays, and these are compiled trees


@dataclass(frozen=True)
class Result:
    """The scores of one classifier.

    errors : share of misclassified samples in each fold
    log_losses : log-loss in each fold
    seconds : total time of the fits
    failure : why it could not be fitted; "" if it was, and otherwise there are no scores
    """

    name: str
    errors: np.ndarray
    log_losses: np.ndarray
    seconds: float
    failure: str = ""

    @property
    def is_ours(self) -> bool:
        return self.name in OURS

    @property
    def log_loss(self) -> float:
        return float(self.log_losses.mean()) if not self.failure else np.inf

    def as_dict(self) -> dict[str, Any]:
        scores = {"error": self.errors, "log_loss": self.log_losses}
        columns = {name: None if self.failure else float(values.mean()) for name, values in scores.items()}
        columns |= {f"{name}_standard_error": None if self.failure else standard_error(v) for name, v in scores.items()}
        return {
            "model": self.name,
            "is_ours": self.is_ours,
            **columns,
            "seconds": self.seconds,
            "failure": self.failure,
        }


class Follower(Protocol):
    """Is notified of every fit of a comparison, for a progress bar."""

    def begin(self, name: str, fold: int) -> None: ...

    def end(self) -> None: ...

    def callbacks(self) -> tuple: ...


def standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def make_candidate(name: str):
    if name not in CANDIDATES:
        raise InputError(f"The model {name!r} does not exist. {nearest(name, list(CANDIDATES))}")
    return CANDIDATES[name]()


def fit_table(table: LabelledTable, name: str, callbacks=()) -> TableModel:
    """Fit one of the models of `annealed compare` on all rows of a table.

    Parameters
    ----------
    table : LabelledTable
        The training data, from `annealed.app.tables.label_table`.
    name : str
        Name of the model, such as "logistic", as in `--model`.
    callbacks : sequence
        Callbacks of the fit. Models without callback support ignore them.

    Returns
    -------
    model : TableModel
        A model that predicts DataFrames, and that `annealed.app.save_model` writes to a file.
    """
    pipeline = _pipeline(table, name, callbacks)
    rows = table.conformed()
    began = perf_counter()
    try:
        _fit(pipeline, rows, table.labels, table.weights)
    except FIT_ERRORS as error:
        raise InputError(f"{name!r} cannot be fitted on this table: {str(error).splitlines()[0]}") from error
    if hasattr(pipeline[-1], "set_callbacks"):
        pipeline[-1].set_callbacks()  # a fitted model keeps no callback
    facts = {
        "rows": len(rows),
        "class_counts": {str(label): int((table.labels == label).sum()) for label in table.classes},
        "left_out": table.columns.left_out,
        "seconds": perf_counter() - began,
        "row_hashes": np.unique(row_hashes(rows, table.labels)).tobytes(),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in RECORDED}},
    }
    return TableModel(pipeline, table.columns, table.target, name, facts)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # a source checkout that is not installed
        return "unknown"


def row_hashes(rows, labels) -> np.ndarray:
    """A hash of each row with its label, by which a model recognizes its training samples in any order."""
    pandas = require("pandas", extra="cli")
    labelled = pandas.concat([rows, pandas.Series(map(str, labels), index=rows.index, dtype=object)], axis=1)
    return pandas.util.hash_pandas_object(labelled, index=False).to_numpy(dtype=HASH)


def table_splits(labels, n_folds):
    """The folds of a comparison: stratified, with a fixed shuffling."""
    _, codes = np.unique(labels, return_inverse=True)
    with warnings.catch_warnings():  # classes with fewer samples than folds: their samples stay in the training set
        warnings.simplefilter("ignore")
        splits = stratified_splits(n_folds, codes, 0)
    if not splits:
        raise InputError(
            "Some class must have two rows or more, so that one can be held out. Got a single row of every class."
        )
    return splits


def compare(table: LabelledTable, n_folds: int = 5, follower: Follower | None = None) -> Iterator[Result]:
    """Cross-validate every candidate, and yield each result as soon as it is available."""
    rows, splits = table.conformed(), table_splits(table.labels, n_folds)
    for name in CANDIDATES:
        began = perf_counter()
        scores = []
        try:
            for fold, (train, test) in enumerate(splits):
                scores.append(_score_fold(table, rows, name, train, test, fold, follower))
        except FIT_ERRORS as error:
            none = np.array([])
            yield Result(name, none, none, perf_counter() - began, str(error).splitlines()[0])
            continue
        errors, losses, seconds = (np.array(column) for column in zip(*scores, strict=True))
        yield Result(name, errors, losses, float(seconds.sum()))


def _score_fold(table, rows, name, train, test, fold, follower):
    """Error, log-loss and fit time in seconds for one fold."""
    if follower is not None:
        follower.begin(name, fold)
    pipeline = _pipeline(table, name, follower.callbacks() if follower is not None else ())
    began, weights = perf_counter(), table.weights
    n_threads = 1 if rows.size < MANY_CELLS else None
    with warnings.catch_warnings(), threadpool_limits(n_threads):
        warnings.simplefilter("ignore")
        _fit(pipeline, rows.iloc[train], table.labels[train], None if weights is None else weights[train])
        seconds = perf_counter() - began
        posterior = pipeline.predict_proba(rows.iloc[test])
    if follower is not None:
        follower.end()
    truth = np.searchsorted(pipeline.classes_, table.labels[test])
    probability = np.maximum(posterior[np.arange(len(test)), truth], SMALLEST_PROBABILITY)
    test_weights = None if weights is None else weights[test]
    error = np.average(posterior.argmax(axis=1) != truth, weights=test_weights)
    return error, np.average(-np.log(probability), weights=test_weights), seconds


def _fit(pipeline, rows, labels, weights):
    """Fit a pipeline with sample weights.

    Weights that are shares are rescaled to numbers of samples, because the penalty of a scikit-learn classifier is
    relative to the sum of the weights.
    """
    if weights is None:
        return pipeline.fit(rows, labels)
    if not has_fit_parameter(pipeline[-1], "sample_weight"):
        raise ValueError("it does not support sample weights")
    sample_weight = counted_in_rows(weights, weights.sum(), len(weights))
    return pipeline.fit(rows, labels, model__sample_weight=sample_weight)


def _pipeline(table, name, callbacks):
    estimator = make_candidate(name)
    if callbacks and name in OURS and hasattr(estimator, "set_callbacks"):
        estimator.set_callbacks(*callbacks)
    return make_pipeline(table.columns, estimator)


def make_pipeline(columns: TableColumns, estimator) -> Pipeline:
    """The preparation of a table, and an estimator."""
    return Pipeline([("table", make_vectorizer(columns)), ("model", estimator)])
