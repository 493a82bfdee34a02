"""Random tables of every kind: shape, conditioning, tails, classes, sparsity and weights are drawn from a seed."""

from __future__ import annotations

from math import log

import numpy as np
from scipy import sparse

from gates.tables import Table

MOST_TEST_SAMPLES = 2000
FEWEST_SAMPLES, MOST_SAMPLES, MOST_CLASSES = 40, 30_000, 30
MOST_COLUMNS, MOST_WORDS = 2000, 20_000
WORDS_IN_TEXT = (5, 200)


def random_table(seed: int, most_values=1_500_000) -> Table:
    """A table with at most this many stored entries; its name says what was drawn."""
    draw = np.random.default_rng([seed, 41])
    is_sparse = draw.random() < 0.3
    n_classes = 2 if draw.random() < 0.35 else int(_between(draw, 3, MOST_CLASSES))
    make = _sparse if is_sparse else _dense
    X, scores, words = make(draw, n_classes, most_values)
    prior = np.log(draw.dirichlet(np.full(n_classes, _between(draw, 1.0, 30.0))) + 1e-3)
    scores = scores / max(scores.std(), 1e-12) * _between(draw, 0.3, 8.0)
    y = (scores + prior + draw.gumbel(size=scores.shape)).argmax(axis=1)
    y = _with_two_of_each(y, n_classes)
    weight = None
    if draw.random() < 0.25:
        weight = draw.lognormal(0, _between(draw, 0.3, 2.0), len(y))
        words += ", weighted"
    is_test = np.arange(len(y)) % 3 == 2
    is_test[: 6 * n_classes] = False  # every class is in training
    test = np.flatnonzero(is_test)[:MOST_TEST_SAMPLES]
    train = np.flatnonzero(~is_test)
    name = f"{seed:4}: {len(train)} x {X.shape[1]}, {n_classes} classes, {words}"
    return Table(name, X[train], y[train], X[test], y[test], None if weight is None else weight[train])


def _between(draw, low, high) -> float:
    """Uniform in the logarithm."""
    return float(np.exp(draw.uniform(log(low), log(high))))


def _with_two_of_each(y, n_classes):
    y[: 2 * n_classes] = np.tile(np.arange(n_classes), 2)
    return y


def _dense(draw, n_classes, most_values):
    n_features = int(_between(draw, 1, min(MOST_COLUMNS, most_values // (7 * n_classes)) + 1))
    most = min(MOST_SAMPLES, most_values * 3 // (2 * n_features))
    n_samples = int(_between(draw, max(FEWEST_SAMPLES, 9 * n_classes), max(most, 10 * n_classes)))
    decades = draw.choice([0.0, 1.0, 2.0, 4.0])
    rank = n_features if draw.random() < 0.7 else max(1, n_features // 4)
    tails = str(draw.choice(["normal", "long-tailed", "clustered"]))
    Z = draw.normal(size=(n_samples, rank))
    if tails == "long-tailed":
        Z = draw.standard_t(2.5, size=Z.shape)
    elif tails == "clustered":
        Z += 3 * draw.normal(size=(2 * n_classes, rank))[draw.integers(2 * n_classes, size=n_samples)]
    scores = Z @ draw.normal(size=(rank, n_classes))
    if draw.random() < 0.25:  # not all of it is linear
        scores += np.abs(Z[:, :1]) * draw.normal(size=n_classes)
    mixed = draw.normal(size=(rank, n_features)) * np.logspace(0, -decades, rank)[:, None]
    X = Z @ mixed if draw.random() < 0.6 or rank < n_features else Z * np.logspace(0, -decades, rank)
    X = X + 0.01 * X.std() * draw.normal(size=X.shape) * (draw.random() < 0.5)
    words = f"{tails}, {decades:.0f} decades" + (f", rank {rank}" if rank < n_features else "")
    if draw.random() < 0.3:
        X = (X + draw.normal(size=n_features) * 10) * 10 ** draw.uniform(-4, 4, n_features)
        words += ", units"
    if draw.random() < 0.15:
        X = np.column_stack([X, np.ones(n_samples), X[:, :1]])
        words += ", constant and double columns"
    if draw.random() < 0.15:
        X[draw.integers(n_samples, size=n_samples // 3)] = X[0]
        words += ", repeated rows"
    if draw.random() < 0.15:
        X = X.astype(np.float32)
        words += ", float32"
    return X, scores, words


def _sparse(draw, n_classes, most_values):
    n_features = int(_between(draw, 30, MOST_WORDS))
    length = int(_between(draw, *WORDS_IN_TEXT))
    length = min(length, n_features)
    most = min(MOST_SAMPLES // 3, most_values * 3 // (2 * length))
    n_samples = int(_between(draw, max(60, 9 * n_classes), max(most, 10 * n_classes)))
    base = 1 / np.arange(1, n_features + 1) ** draw.uniform(0.5, 1.2)
    topics = base * draw.lognormal(0, 1.0, (2 * n_classes, n_features))
    topics /= topics.sum(axis=1, keepdims=True)
    topic = draw.integers(2 * n_classes, size=n_samples)
    columns = np.concatenate(
        [np.searchsorted(np.cumsum(topics[own]), draw.random(length)).clip(max=n_features - 1) for own in topic]
    )
    rows = np.repeat(np.arange(n_samples), length)
    X = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n_samples, n_features))
    X.sum_duplicates()
    scores = np.asarray(X @ (draw.normal(size=(n_features, n_classes)) * base[:, None] ** 0.25))
    words = f"sparse, {length} words"
    kind = draw.choice(["counts", "tf-idf", "numbers"])
    if kind == "tf-idf":
        inverse = np.log(n_samples / np.maximum(1, np.bincount(X.indices, minlength=n_features)))
        X = sparse.csr_array(X @ sparse.diags_array(inverse))
        X = sparse.csr_array(sparse.diags_array(1 / np.maximum(sparse.linalg.norm(X, axis=1), 1e-12)) @ X)
    elif kind == "numbers":
        numbers = draw.normal(size=(n_samples, 2)) * [10 ** draw.uniform(-2, 3), 1.0]
        scores = scores + np.outer(numbers[:, 1], draw.normal(size=n_classes)) * scores.std()
        X = sparse.csr_array(sparse.hstack([X, sparse.csr_array(numbers)], format="csr"))
    return X, scores, f"{words}, {kind}"
