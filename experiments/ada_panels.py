"""The panels of figures 1 and 2 of Wang, Zhang and Lochovsky, measured on one split of a text collection.

    a  dADA's accuracy on the test samples against temperature, from three starts, cooling rate 0.9
    b  the same from the class means with four cooling rates
    c  seconds per temperature of the runs of (b)
    d  pADA's accuracy against temperature for four penalties, and that of unpenalized logistic regression

dADA is `AnnealedLDA.as_published` with two changes: eq. 10 with the diagonal of the pooled covariance, and the paper's
optimizer in whitened coordinates, with at most 15 steps per temperature. pADA is solved to convergence at every
temperature. Two further panels test what `docs/theory.md` derives:

    shift  pADA's posteriors for different penalties at the same product of penalty and temperature
    steps  dADA's optimizer for the same number of steps at a fixed temperature

A point is (split, panel, line, place, value). The place is a temperature, or the number of steps in `steps`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from annealed import AnnealedLDA, AnnealedLogisticRegression, ExponentialSchedule, PooledGaussian
from annealed.problems import gibbs
from experiments.corpora import Corpus
from experiments.text_corpora import REPRESENTATIONS, Collection, split_counts

STARTS = ("means", "random", "zero")
SLOWEST = 0.9
RATES = (SLOWEST, 0.7, 0.4, 0.1)  # the paper's text names 0.9, 0.7 and 0.1
INNER_STEPS = 15
STANDS_STILL = 1 - 1e-6  # cooling rate of a practically constant temperature


@dataclass(frozen=True)
class Range:
    """Temperatures and penalties of a figure, chosen such that the line of the weakest penalty passes its maximum.

    penalties : successive ones are `per_penalty` temperatures of pADA apart, so that their curves have common products
    standing : the fixed temperature of panel `steps`
    regression_steps : maximum number of steps of unpenalized logistic regression

    dADA starts at a temperature at which posteriors are uniform and the start is forgotten, and cools by a factor of
    1000. The paper cools from 1 to 0.001 in an unspecified unit.
    """

    distance_hot: float = 1e5
    distance_cold: float = 1e2
    product_hot: float = 100.0
    product_cold: float = 0.01
    penalties: tuple[float, ...] = (1.0, 0.1, 0.01, 0.001)
    per_penalty: int = 10
    standing: float = 1e2
    standing_steps: int = 1500
    regression_steps: int = 300

    @property
    def product_temperatures(self) -> np.ndarray:
        """Temperatures of pADA, hot to cold."""
        step = np.log(self.penalties[0] / self.penalties[1]) / self.per_penalty
        n_steps = round(np.log(self.product_hot / self.product_cold) / step)
        return self.product_hot * np.exp(-step * np.arange(n_steps + 1))


class Point(NamedTuple):
    split: int
    panel: str
    line: str
    place: float
    value: float


def measure(
    texts: Collection,
    n_columns: int,
    representation: str,
    span: Range,
    split: int,
    parts: tuple[str, ...] | None = None,
) -> list[Point]:
    """The points of one split, or of some of its `PARTS`, which can be measured separately."""
    counts = split_counts(texts, n_columns, split)
    corpus = REPRESENTATIONS[representation](counts)
    points = (point for part in parts or PARTS for point in PARTS[part](counts, corpus, span, split))
    return [Point(split, *point) for point in points]


# --- baselines --------------------------------------------------------------------------------------


def baselines(counts: Corpus, span: Range) -> Iterator[tuple]:
    """LDA with diagonal and with full covariance, and logistic regression, for each representation."""
    for name, represent in REPRESENTATIONS.items():
        corpus = represent(counts)
        yield "LDA, diagonal", name, 0.0, accuracy(PooledGaussian(priors="equal"), corpus)
        yield "LDA, whole", name, 0.0, accuracy(whole_lda(corpus), corpus.mapped(sparse.csr_array.toarray))
        regression = logistic_regression(corpus, span.regression_steps)
        yield "logistic regression", name, 0.0, percent(regression.predict(corpus.X_test), corpus)
        yield "its training loss", name, 0.0, log_loss(corpus.y_train, regression.predict_proba(corpus.X_train))


def whole_lda(corpus: Corpus) -> LinearDiscriminantAnalysis:
    """Nearest class mean (eq. 10) in the metric of the pooled covariance, without priors."""
    n_classes = corpus.size.n_classes
    return LinearDiscriminantAnalysis(solver="lsqr", priors=np.full(n_classes, 1 / n_classes))


def logistic_regression(corpus: Corpus, most_steps: int) -> LogisticRegression:
    """Eq. 16: no penalty, no intercept. The classes are nearly separable, so the number of steps is limited."""
    model = LogisticRegression(C=np.inf, fit_intercept=False, max_iter=most_steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(corpus.X_train, corpus.y_train)


def accuracy(model, corpus: Corpus) -> float:
    return percent(model.fit(corpus.X_train, corpus.y_train).predict(corpus.X_test), corpus)


def percent(predicted: np.ndarray, corpus: Corpus) -> float:
    return 100 * float(np.mean(predicted == corpus.y_test))


# --- dADA -------------------------------------------------------------------------------------------


def literal(schedule, **options) -> AnnealedLDA:
    """The paper's algorithm with a diagonal covariance and steps in whitened coordinates, down to the end."""
    settings = {"covariance": "diagonal", "solver": "scg", "scoring": "neg_log_loss", "selection": "last"}
    return AnnealedLDA.as_published(inner_iterations=INNER_STEPS, schedule=schedule, **settings, **options)


def cooling(corpus: Corpus, span: Range, split: int, init: str, rate: float) -> Iterator[tuple]:
    """One line of panels a, b and c; `random` draws other samples in every split."""
    schedule = ExponentialSchedule(span.distance_hot, cooling_rate=rate, stop=span.distance_cold)
    model = literal(schedule, init=init, random_state=split).fit(corpus.X_train, corpus.y_train)
    if rate == SLOWEST:
        yield from curve("a", init, model, corpus)
    if init == "means":
        yield from curve("b", str(rate), model, corpus)
        for temperature, seconds in zip(model.path_.temperatures, model.path_.seconds, strict=True):
            yield "c", str(rate), temperature, seconds


def standing(corpus: Corpus, span: Range) -> Iterator[tuple]:
    """Panel `steps`: accuracy and training loss of the optimizer at a fixed temperature."""
    n_stops = span.standing_steps // INNER_STEPS
    schedule = span.standing * STANDS_STILL ** np.arange(n_stops)
    path = literal(schedule).fit(corpus.X_train, corpus.y_train).path_
    steps = INNER_STEPS * np.arange(1, n_stops + 1)
    for place, value in zip(steps, path_accuracy(path, corpus), strict=True):
        yield "steps", "accuracy", place, value
    for place, value in zip(steps, path.free_energy / path.temperatures, strict=True):
        yield "steps", "training loss", place, value


def curve(panel: str, line: str, model, corpus: Corpus) -> Iterator[tuple]:
    values = path_accuracy(model.path_, corpus)
    for temperature, value in zip(model.path_.temperatures, values, strict=True):
        yield panel, line, temperature, value


def path_accuracy(path, corpus: Corpus) -> list[float]:
    """Accuracy on the test samples at every temperature."""
    return [percent(scores.argmax(axis=1), corpus) for scores in path_scores(path, corpus.X_test)]


def path_scores(path, X) -> Iterator[np.ndarray]:
    """Logits at every temperature."""
    for coef, intercept in zip(path.coef, path.intercept, strict=True):
        yield X @ coef.T + intercept


# --- pADA -------------------------------------------------------------------------------------------


def penalties(corpus: Corpus, span: Range) -> Iterator[tuple]:
    """Panel d, the accuracy at the temperature that a validation set chooses, and panel `shift`."""
    dense = corpus.mapped(sparse.csr_array.toarray)  # few features: dense is faster
    before = None
    for penalty in span.penalties:
        is_weakest = penalty == span.penalties[-1]
        model = inner_product(penalty, span, is_weakest).fit(dense.X_train, dense.y_train)
        yield from curve("d", f"{penalty:.3g}", model, dense)
        if before is not None:
            yield "shift", "posterior", penalty, shifted_difference(before, model.path_, dense.X_test, span.per_penalty)
        if is_weakest:
            yield "pADA, validated", "", model.temperature_, percent(model.predict(dense.X_test), dense)
        before = model.path_


def inner_product(penalty: float, span: Range, validates: bool) -> AnnealedLogisticRegression:
    """Eq. 17 as printed. If `validates`, the log-loss of a fifth of the training samples chooses T."""
    settings = {"scoring": "neg_log_loss", "selection": "holdout" if validates else "last", "random_state": 0}
    return AnnealedLogisticRegression.as_published(l2_strength=penalty, schedule=span.product_temperatures, **settings)


def shifted_difference(path, weaker, X, shift: int) -> float:
    """Largest difference between the posteriors of two penalties at the same penalty x temperature."""
    strong, weak = ([gibbs.posterior(scores) for scores in path_scores(which, X)] for which in (path, weaker))
    return max(float(np.abs(first - second).max()) for first, second in zip(strong[shift:], weak[:-shift], strict=True))


# --- all parts --------------------------------------------------------------------------------------

COOLINGS = [*((init, SLOWEST) for init in STARTS), *(("means", rate) for rate in RATES[1:])]
PARTS: dict[str, Callable] = {
    "baselines": lambda counts, corpus, span, split: baselines(counts, span),
    **{
        f"cooling-{init}-{rate}": lambda counts, corpus, span, split, init=init, rate=rate: cooling(
            corpus, span, split, init, rate
        )
        for init, rate in COOLINGS
    },
    "standing": lambda counts, corpus, span, split: standing(corpus, span),
    "penalties": lambda counts, corpus, span, split: penalties(corpus, span),
}
