"""Small tables of every kind, from fixed seeds or shipped with scikit-learn.

Every table has held-out samples, on which results are compared. A maker draws training and held-out samples together:
`_split` takes every third one for the test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits, load_wine


@dataclass(frozen=True, eq=False)
class Table:
    """Training samples, their weights if any, and held-out samples."""

    name: str
    X: object
    y: np.ndarray
    X_test: object
    y_test: np.ndarray
    weight: np.ndarray | None = None

    @property
    def is_sparse(self) -> bool:
        return sparse.issparse(self.X)

    @property
    def n_values(self) -> int:
        """Stored entries of X."""
        return int(self.X.nnz if self.is_sparse else self.X.size)

    @property
    def n_classes(self) -> int:
        return len(np.unique(self.y))


MAKERS: dict[str, Callable[[], Table]] = {}


@cache
def table(name: str) -> Table:
    return MAKERS[name]()


def _made(maker):
    """Register a maker that returns (X, y) or (X, y, weight) under its name."""
    MAKERS[maker.__name__] = lambda: _split(maker.__name__, *maker())
    return maker


def _split(name, X, y, weight=None) -> Table:
    is_test = np.arange(len(y)) % 3 == 2
    # A class that the training samples lack cannot be scored.
    is_test[~np.isin(y, np.unique(y[~is_test]))] = False
    kept = None if weight is None else weight[~is_test]
    return Table(name, X[~is_test], y[~is_test], X[is_test], y[is_test], kept)


def _labels(scores, generator, noise=1.0):
    """Labels drawn from the posterior of scores divided by `noise`, each class at least twice."""
    labels = (scores / noise + generator.gumbel(size=scores.shape)).argmax(axis=1)
    labels[: 3 * scores.shape[1]] = np.repeat(np.arange(scores.shape[1]), 3)
    return labels


def _linear(n_samples, n_features, n_classes, seed, spread=None, strength=3.0):
    """Gaussian columns of given spreads in random directions, and labels of a log-linear model."""
    generator = np.random.default_rng(seed)
    spread = np.ones(n_features) if spread is None else spread
    rotation = np.linalg.qr(generator.normal(size=(n_features, n_features)))[0]
    X = generator.normal(size=(n_samples, n_features)) * spread @ rotation
    coef = generator.normal(size=(n_features, n_classes)) / X.std(axis=0)[:, None] / np.sqrt(n_features)
    return X, _labels(strength * X @ coef, generator)


def _topics(n_samples, n_words, n_classes, length, seed, contrast=0.6):
    """Word counts of short texts, whose words follow Zipf's law and a topic of their class."""
    generator = np.random.default_rng(seed)
    base = 1 / np.arange(1, n_words + 1)
    topics = base * generator.lognormal(0, contrast, (n_classes, n_words))
    topics /= topics.sum(axis=1, keepdims=True)
    y = generator.integers(n_classes, size=n_samples)
    return sparse.csr_array(np.stack([generator.multinomial(length, topics[label]) for label in y]).astype(float)), y


# --- dense ------------------------------------------------------------------------------------------------------------


@_made
def tall():
    return _linear(3000, 8, 3, seed=0, spread=np.logspace(0, -1.5, 8))


@_made
def tall_many_columns():
    """Large enough for a float32 copy and for L-BFGS."""
    return _linear(5400, 45, 4, seed=1, spread=np.logspace(0, -2, 45))


@_made
def wide():
    X, y = _linear(120, 400, 3, seed=2, spread=np.r_[np.full(20, 4.0), np.ones(380)], strength=8.0)
    return X, y


@_made
def very_wide():
    """So many columns that the default may begin with whitened ones."""
    generator = np.random.default_rng(3)
    y = np.arange(75) % 2
    directions = generator.normal(size=(21, 1200))
    noise = generator.normal(size=(75, 20)) @ directions[1:]
    return np.outer(y - 0.5, 0.5 * directions[0]) + noise + 0.5 * generator.normal(size=(75, 1200)), y


@_made
def tiny():
    return _linear(18, 2, 2, seed=4)


@_made
def two_classes():
    return _linear(300, 5, 2, seed=5)


@_made
def many_classes():
    return _linear(1200, 10, 30, seed=6, strength=12.0)


@_made
def one_sample_class():
    X, y = _linear(200, 4, 3, seed=7)
    kept = np.r_[np.flatnonzero(y != 2), np.flatnonzero(y == 2)[:1]]
    kept = np.roll(kept, 1)  # the single sample comes first and is a training sample
    return X[kept], y[kept]


@_made
def rare_classes():
    generator = np.random.default_rng(8)
    X = generator.normal(size=(900, 6))
    scores = X @ generator.normal(size=(6, 6)) + np.log([0.5, 0.3, 0.15, 0.03, 0.01, 0.01])
    return X, _labels(scores, generator)


@_made
def separable():
    generator = np.random.default_rng(9)
    corners = np.array([[0.0, 4.0], [-4.0, -2.0], [4.0, -2.0]])
    y = np.arange(90) // 2 % 3
    return corners[y] + generator.uniform(-1, 1, (90, 2)), y


@_made
def noise():
    """Labels that no column tells anything about."""
    generator = np.random.default_rng(10)
    return generator.normal(size=(225, 6)), generator.integers(3, size=225)


@_made
def units():
    X, y = _linear(300, 7, 3, seed=11)
    return (X + np.linspace(-20, 20, 7)) * np.logspace(-6, 6, 7), y


@_made
def ill_conditioned():
    return _linear(600, 20, 3, seed=12, spread=np.logspace(0, -4, 20))


@_made
def heavy_tails():
    generator = np.random.default_rng(13)
    X = generator.standard_cauchy((450, 4))
    return X, (X[:, 0] + X[:, 1] > 0).astype(int)


@_made
def squares():
    """Positive columns with long tails, and a class inside a ring."""
    generator = np.random.default_rng(14)
    Z = generator.normal(size=(450, 4))
    scores = np.column_stack([np.zeros(450), 2 * (Z[:, 0] ** 2 + Z[:, 1] ** 2 - 1.5), 2 * Z[:, 2]])
    return np.exp(Z), _labels(scores, generator)


@_made
def collinear():
    """Duplicated columns, and columns that are sums of others."""
    X, y = _linear(300, 5, 3, seed=15)
    return np.column_stack([X, X[:, :2], X[:, 0] + X[:, 1], X.sum(axis=1), 1 - X[:, 2]]), y


@_made
def constant_columns():
    X, y = _linear(240, 4, 3, seed=16)
    return np.column_stack([np.full(240, 1e5), X, np.zeros(240), np.full(240, -0.1)]), y


@_made
def one_feature():
    generator = np.random.default_rng(17)
    X = generator.normal(size=(150, 1))
    return X, _labels(np.column_stack([np.zeros(150), 2 * X[:, 0], -(X[:, 0] ** 2)]), generator)


@_made
def outliers():
    X, y = _linear(360, 5, 3, seed=18)
    X[::40] *= 300.0
    return X, y


@_made
def duplicated_rows():
    X, y = _linear(60, 8, 2, seed=19)
    order = np.random.default_rng(19).integers(60, size=360)
    return X[order], y[order]


@_made
def weights():
    """Sample weights over six decades."""
    X, y = _linear(450, 5, 3, seed=20)
    return X, y, 10 ** np.random.default_rng(20).uniform(-3, 3, 450)


@_made
def float32():
    X, y = _linear(600, 12, 4, seed=21, spread=np.logspace(1, -1, 12))
    return (X + 5).astype(np.float32), y


@_made
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:900], y[:900]


@_made
def wine():
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(22).permutation(len(y))
    return X[order], y[order]


@_made
def cancer():
    return load_breast_cancer(return_X_y=True)


# --- sparse -----------------------------------------------------------------------------------------------------------


@_made
def text():
    """More words than samples: solved in combinations of samples."""
    return _topics(1100, 3000, 3, length=40, seed=23)


@_made
def few_long_texts():
    """So few samples that their span has a basis."""
    return _topics(180, 2500, 3, length=80, seed=27)


@_made
def short_text():
    return _topics(450, 300, 4, length=15, seed=24)


@_made
def one_hot_beside_numbers():
    generator = np.random.default_rng(25)
    codes = [np.eye(size)[generator.integers(size, size=450)] for size in (8, 5, 3)]
    numbers = generator.normal(size=(450, 2)) * [100.0, 0.01]
    X = np.column_stack([*codes, numbers])
    scores = X[:, :16] @ generator.normal(size=(16, 3)) + np.outer(numbers[:, 0] / 100, [2.0, 0.0, -2.0])
    return sparse.csr_array(X), _labels(scores, generator)


@_made
def empty_columns():
    """Most words occur in no sample."""
    X, y = _topics(240, 120, 3, length=25, seed=26)
    spread = sparse.csr_array((X.data, X.indices * 25, X.indptr), shape=(240, 3000))
    return spread, y
