"""PottsDA and its peers on the tables of the suite with at most 100 features.

Ten stratified 70/30 splits. Every method is fitted and tuned on the training samples only, standardized for the peers
and raw for PottsDA. Test errors in percent and log-losses in nats are averaged over the splits of a table, then over
tables. A class without training samples in a split has the probability EPSILON.
"""

from __future__ import annotations

import csv
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from annealed import PottsDA
from annealed.datasets import load_table, table_names

TITLE = "PottsDA and its peers on real tables, errors and log-losses"
OPTIONS = ("corpora", "resume")
MOST_COLUMNS = 100
N_SPLITS = 10
EPSILON = np.finfo(float).eps  # clipping of scikit-learn's log_loss
OURS = "PottsDA"

Score = tuple[float, float]  # error in percent, log-loss in nats


class ClassMixtures(ClassifierMixin, BaseEstimator):
    """A Gaussian mixture per class, with one to five components chosen by the Bayesian information criterion."""

    def fit(self, X, y):
        self.classes_, counts = np.unique(y, return_counts=True)
        self.log_prior_ = np.log(counts / len(y))
        self.mixtures_ = [self._mixture(X[y == label]) for label in self.classes_]
        return self

    @staticmethod
    def _mixture(X):
        X = np.vstack([X, X]) if len(X) == 1 else X
        tried = [
            GaussianMixture(number, reg_covar=1e-2, random_state=0).fit(X) for number in range(1, min(5, len(X)) + 1)
        ]
        return min(tried, key=lambda mixture: mixture.bic(X))

    def predict_proba(self, X):
        scores = np.column_stack([mixture.score_samples(X) for mixture in self.mixtures_]) + self.log_prior_
        posterior = np.exp(scores - scores.max(axis=1, keepdims=True))
        return posterior / posterior.sum(axis=1, keepdims=True)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


class WithoutSingleRows(ClassifierMixin, BaseEstimator):
    """Fits a classifier without classes of a single sample, which it does not support."""

    def __init__(self, classifier):
        self.classifier = classifier

    def fit(self, X, y):
        labels, counts = np.unique(y, return_counts=True)
        kept = np.isin(y, labels[counts > 1])
        self.fitted_ = self.classifier.fit(X[kept], y[kept])
        self.classes_ = self.fitted_.classes_
        return self

    def predict(self, X):
        return self.fitted_.predict(X)

    def predict_proba(self, X):
        return self.fitted_.predict_proba(X)


def standardized(make: Callable) -> Callable:
    return lambda y: make_pipeline(StandardScaler(), make(y))


def calibrated_machine(y):
    """`SVC(probability=True)` in the form that scikit-learn now recommends."""
    counts = np.bincount(y)
    return WithoutSingleRows(CalibratedClassifierCV(SVC(), ensemble=False, cv=min(5, counts[counts > 1].min())))


METHODS: dict[str, Callable] = {
    "LDA": standardized(lambda y: LinearDiscriminantAnalysis()),
    "QDA": standardized(lambda y: WithoutSingleRows(QuadraticDiscriminantAnalysis(reg_param=0.01))),
    "KNN": standardized(lambda y: KNeighborsClassifier()),
    "SVC": standardized(lambda y: SVC()),
    "SVC, calibrated": standardized(calibrated_machine),
    "mixtures": standardized(lambda y: ClassMixtures()),
    OURS: lambda y: PottsDA(),
}


def run(options) -> None:
    """Measure table by table, store the results, print errors and log-losses."""
    names = chosen_tables(options.corpora)
    scores: dict[tuple[str, str], Score] = {}
    for name in names:
        for method in METHODS:
            scores[method, name] = measure_or_read(method, name, options)
    print("\n" + "\n".join(table_lines(scores, names)))


def chosen_tables(wanted: list[str] | None) -> list[str]:
    try:
        known = table_names()
    except FileNotFoundError as error:
        raise SystemExit(str(error)) from error
    small = [name for name in known if np.shape(load_table(name, dtype=None).X)[1] <= MOST_COLUMNS]
    unknown = sorted(set(wanted or ()) - set(small))
    if unknown:
        raise SystemExit(f"there is no table {', '.join(unknown)}. Choose among: {', '.join(small)}.")
    return [name for name in small if not wanted or name in wanted]


# --- measuring --------------------------------------------------------------------------------------


def measure_or_read(method: str, name: str, options) -> Score:
    """(error, log-loss) of a method on a table, stored in a file so that a later run can resume."""
    kept = options.results / "potts_suite" / f"{method.replace(', ', '_')}-{name}.csv"
    if not (options.resume and kept.exists()):
        start = time.perf_counter()
        scores = [split_score(METHODS[method], name, split) for split in range(N_SPLITS)]
        write_scores(scores, kept)
        print(f"{name}, {method}: {(time.perf_counter() - start) / N_SPLITS:.1f} s per split", flush=True)
    return tuple(np.mean(read_scores(kept), axis=0))


def split_score(make: Callable, name: str, split: int) -> Score:
    table = load_table(name)
    X, X_test, y, y_test = train_test_split(table.X, table.y, test_size=0.3, stratify=table.y, random_state=split)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # collinear features, mixtures of few samples: visible in the scores
        model = make(y).fit(X, y)
    error = 100 * float(np.mean(model.predict(X_test) != y_test))
    return error, held_out_loss(model, X_test, y_test) if hasattr(model, "predict_proba") else np.nan


def held_out_loss(model, X, y) -> float:
    posterior = np.zeros((len(X), int(max(y.max(), model.classes_.max())) + 1))
    posterior[:, model.classes_] = model.predict_proba(X)
    return -float(np.mean(np.log(np.clip(posterior[np.arange(len(y)), y], EPSILON, None))))


# --- the table --------------------------------------------------------------------------------------


def table_lines(scores: dict[tuple[str, str], Score], names: list[str]) -> list[str]:
    lines = []
    for number, title in enumerate(("error, %", "log-loss, nats")):
        lines.append(line(title, METHODS))
        digits = 1 if number == 0 else 3
        for name in names:
            lines.append(line(name, [f"{scores[method, name][number]:.{digits}f}" for method in METHODS]))
        means = [np.mean([scores[method, name][number] for name in names]) for method in METHODS]
        lines += [line("mean", [f"{mean:.{digits + 1}f}" for mean in means]), ""]
    return lines


def line(title: str, cells) -> str:
    return f"{title:20}" + "".join(f"{cell:>17}" for cell in cells)


def write_scores(scores: list[Score], path: Path) -> None:
    """The file appears only when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    with unfinished.open("w", newline="") as file:
        csv.writer(file).writerows([["error", "log_loss"], *scores])
    unfinished.replace(path)


def read_scores(path: Path) -> list[Score]:
    with path.open(newline="") as file:
        return [(float(row["error"]), float(row["log_loss"])) for row in csv.DictReader(file)]
