"""Fixed problems that resemble real ones on which the path once took very long. Their docstrings say how."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from benchmarks.generators.base import MOST_HELD_OUT, cliff, drawn_labels
from benchmarks.generators.dense import curves_of, smooth_images
from benchmarks.generators.sparse import codes_of, tf_idf_of, word_counts_of


@cliff("text")
def text_cliff(draw):
    """tf-idf, 7,674 x 7,097, 8 unequal classes, nearly separable."""
    n_train, sizes = 7674, np.array([3923, 2292, 374, 326, 293, 271, 144, 51])
    y = drawn_labels(draw, n_train + MOST_HELD_OUT, sizes / sizes.sum())
    return tf_idf_of(word_counts_of(draw, y, 7097, 60, contrast=0.8, n_topics=3)), y, n_train


@cliff("one-hot beside numbers")
def one_hot_cliff(draw):
    """10,666 x 1,105: 1,100 one-hot columns beside five numbers with spreads from 2 to 9,000, 2 classes."""
    n_train = 10_666
    n_samples = n_train + MOST_HELD_OUT
    codes = codes_of(draw, n_samples, 1100)
    numbers = draw.gamma(1.0, 1.0, (n_samples, 5)) * np.geomspace(2, 9000, 5)
    scores = codes @ draw.normal(size=1100) + np.log1p(numbers) @ draw.normal(size=5) / 2
    y = (2 * (scores - np.median(scores)) / scores.std() + draw.logistic(size=n_samples) > 0).astype(int)
    return sparse.csr_array(sparse.hstack([codes, sparse.csr_array(np.round(numbers))], format="csr")), y, n_train


@cliff("squares")
def squares_cliff(draw):
    """58,000 x 18: heavy-tailed columns beside their squares, 7 classes, three of them rare, nearly separable."""
    n_train, sizes = 58_000, np.array([45_586, 8_903, 3_267, 171, 50, 13, 10])
    y = np.r_[np.repeat(np.arange(7), sizes), drawn_labels(draw, MOST_HELD_OUT, sizes / sizes.sum())]
    y[:n_train] = draw.permutation(y[:n_train])
    centers = 3 * draw.normal(size=(7, 9))
    X = np.round(40 + 10 * (centers[y] + draw.normal(size=(len(y), 9)))) + np.round(draw.standard_t(1.5, (len(y), 9)))
    return np.hstack([X, X**2]), y, n_train


@cliff("images")
def images_cliff(draw):
    """1,440 x 1,024: 72 views of each of 20 objects, which turn; separable."""
    side, n_views = 32, 72
    y = np.repeat(np.arange(20), n_views)
    angle = np.tile(np.linspace(0, 2 * np.pi, n_views, endpoint=False), 20)
    waves = smooth_images(draw, 20 * 7, side, 2.5).reshape(20, 7, -1)
    turns = np.stack([np.ones_like(angle), *(wave(k * angle) for k in (1, 2, 3) for wave in (np.cos, np.sin))], axis=1)
    turns[:, 1:] /= 2 * np.repeat([1, 2, 3], 2)
    X = np.clip(0.3 + np.einsum("nk,nkp->np", turns, waves[y]) / 3, 0, 1)
    distant = np.hypot(*np.meshgrid(*[np.linspace(-1, 1, side)] * 2)) > 0.95
    X[:, distant.ravel()] = 0.0
    order = draw.permutation(len(y))
    X = np.vstack([X[order], np.clip(X + 0.02 * draw.normal(size=X.shape) * (X > 0), 0, 1)])
    return X, np.r_[y[order], y], len(y)


@cliff("speech")
def speech_cliff(draw):
    """1,560 x 617, 26 classes of 60 samples, nearly separable."""
    n_train = 1560
    y = np.r_[draw.permutation(np.repeat(np.arange(26), n_train // 26)), draw.integers(26, size=MOST_HELD_OUT)]
    X = curves_of(draw, y, 617, 4.0, 1.6)
    return X / np.abs(X).max(axis=0), y, n_train
