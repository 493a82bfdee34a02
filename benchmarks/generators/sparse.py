"""Sparse problems: texts, one-hot columns beside numbers, and real entries at random places."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from sklearn.preprocessing import normalize

from benchmarks.generators.base import between, class_shares, drawn_labels, kind, labels_of


@kind("tf-idf")
def tf_idf(draw, size):
    return texts(draw, size, is_weighted=True)


@kind("word counts")
def word_counts(draw, size):
    return texts(draw, size, is_weighted=False)


def texts(draw, size, is_weighted):
    n_classes = size.classes(20)
    length = between(draw, 8, 150)
    n_samples, n_words = size.shape(n_classes, (100, 10_000), per_row=length)
    shares, words = class_shares(draw, n_classes)
    y = drawn_labels(draw, min(n_samples, 15_000), shares)
    contrast = between(draw, 0.1, 2.0)
    X = word_counts_of(draw, y, n_words, length, contrast)
    return tf_idf_of(X) if is_weighted else X, y, f"{length:.0f} words a text, contrast {contrast:.2f}, {words}"


def word_counts_of(draw, y, n_words, length, contrast, n_topics=2):
    """Texts of unequal lengths, whose words follow Zipf's law and one of the topics of their class."""
    base = 1 / np.arange(1, n_words + 1) ** draw.uniform(0.7, 1.1)
    topics = base * draw.lognormal(0, contrast, (n_topics * (y.max() + 1), n_words))
    topics = np.cumsum(topics / topics.sum(axis=1, keepdims=True), axis=1)
    lengths = 1 + draw.poisson(length * draw.lognormal(-0.2, 0.6, len(y)))
    topic = n_topics * y + draw.integers(n_topics, size=len(y))
    columns = np.empty(lengths.sum(), dtype=np.int64)
    of_words = np.repeat(topic, lengths)
    for own in np.unique(topic):
        chosen = of_words == own
        columns[chosen] = np.searchsorted(topics[own], draw.random(chosen.sum())).clip(max=n_words - 1)
    rows = np.repeat(np.arange(len(y)), lengths)
    X = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(y), n_words))
    X.sum_duplicates()
    return X


def tf_idf_of(X):
    inverse = 1 + np.log((1 + X.shape[0]) / (1 + np.bincount(X.indices, minlength=X.shape[1])))
    return sparse.csr_array(normalize(sparse.csr_array(X @ sparse.diags_array(inverse))))


@kind("one-hot")
def one_hot(draw, size):
    """Sparse one-hot columns, often beside numbers in all units."""
    n_classes = size.classes(8)
    n_samples, n_features = size.shape(n_classes, (20, 3000), per_row=10)
    codes = codes_of(draw, n_samples, n_features)
    scores = codes @ draw.normal(size=(codes.shape[1], n_classes))
    X, words = codes, "no numbers"
    if draw.random() < 0.7:
        n_numbers, decades = int(draw.integers(1, 8)), draw.uniform(0, 5)
        numbers = draw.normal(size=(n_samples, n_numbers))
        scores = scores + numbers @ draw.normal(size=(n_numbers, n_classes))
        if draw.random() < 0.5:
            numbers = np.exp(numbers)
        numbers = numbers * 10 ** draw.uniform(-decades / 2, decades, n_numbers)
        X = sparse.csr_array(sparse.hstack([codes, sparse.csr_array(numbers)], format="csr"))
        words = f"{n_numbers} numbers over {decades:.1f} decades"
    y, more_words = labels_of(draw, scores)
    return X, y, f"{words}, {more_words}"


@kind("sparse numbers")
def sparse_numbers(draw, size):
    """Real entries at random places, or signs of hashed features; columns are filled unequally."""
    n_classes = size.classes(12)
    n_filled = between(draw, 3, 100)
    n_samples, n_features = size.shape(n_classes, (30, 10_000), per_row=n_filled)
    n_entries = int(n_samples * n_filled)
    columns = (n_features * draw.random(n_entries) ** draw.uniform(1, 3)).astype(int)
    rows = draw.integers(n_samples, size=n_entries)
    is_hashed = draw.random() < 0.5
    entries = draw.choice([-1.0, 1.0], size=n_entries) if is_hashed else draw.lognormal(0, 1, n_entries)
    X = sparse.csr_array((entries, (rows, columns)), shape=(n_samples, n_features))
    X.sum_duplicates()
    y, words = labels_of(draw, X @ draw.normal(size=(n_features, n_classes)))
    return X, y, f"{n_filled:.0f} a row, {'signs' if is_hashed else 'log-normal'}, {words}"


def codes_of(draw, n_samples, n_columns):
    """One-hot columns of several variables whose categories follow Zipf's law."""
    parts, n_left = [], n_columns
    while n_left > 0:
        n_categories = min(n_left, int(between(draw, 2, max(3, n_columns))))
        share = 1 / np.arange(1, n_categories + 1) ** draw.uniform(0, 1.2)
        code = draw.choice(n_categories, size=n_samples, p=share / share.sum())
        ones = np.ones(n_samples)
        parts.append(sparse.csr_array((ones, (np.arange(n_samples), code)), shape=(n_samples, n_categories)))
        n_left -= n_categories
    return sparse.csr_array(sparse.hstack(parts, format="csr"))
