"""The text collections of Wang, Zhang and Lochovsky, prepared as in their section 4.

    words      sequences of two or more letters, in lower case; pages without mark-up and server header, articles
               without their header, which contains the subject line
    features   the words with the highest information gain among those that occur at least six times in training texts
    samples    a random 80 % for training and 20 % for testing; texts without any of the features are dropped

WebKB then has 9253 candidate words; the paper has 7161 (6938 words occur in at least six texts). The paper does not
state how word counts become features: `REPRESENTATIONS` are the candidates, `ada_figure.py` names the one used.
"""

from __future__ import annotations

import gzip
import html
import json
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.special import xlogy
from sklearn.datasets import fetch_20newsgroups
from sklearn.feature_extraction.text import CountVectorizer

from experiments.corpora import Corpus, data_file

WORD = r"[a-z]{2,}"
FEWEST_OCCURRENCES = 6
TRAINING_SHARE = 0.8


@dataclass(frozen=True, eq=False)
class Collection:
    """Word counts (n_texts, n_words) and integer class labels."""

    name: str
    counts: sparse.csr_array
    labels: np.ndarray


def load_webkb() -> Collection:
    """The pages of four classes; raises an `OSError` that names a missing file."""
    with gzip.open(data_file("webkb4.jsonl.gz"), "rt") as file:
        pages = [json.loads(line) for line in file]
    labels = np.unique([page["label"] for page in pages], return_inverse=True)[1]
    return collection("WebKB", [page_text(page["html"]) for page in pages], labels)


def load_newsgroups() -> Collection:
    """The articles of twenty groups, both parts of the split by date combined."""
    home = data_file("20news-bydate_py3.pkz").parent
    articles = fetch_20newsgroups(data_home=home, subset="all", download_if_missing=False)
    return collection("Newsgroups", [after_header(text) for text in articles.data], articles.target)


def collection(name: str, texts: list[str], labels: np.ndarray) -> Collection:
    counts = CountVectorizer(token_pattern=WORD, dtype=np.float64).fit_transform(texts)
    return Collection(name, sparse.csr_array(counts), labels)


def page_text(page: str) -> str:
    """Visible text of an HTML page."""
    return html.unescape(re.sub(r"<[^>]*>", " ", after_header(page)))


def after_header(text: str) -> str:
    """The text after the first empty line, or all of it if there is none."""
    _, is_found, body = text.partition("\n\n")
    return body if is_found else text


# --- columns ----------------------------------------------------------------------------------------


def information_gain(counts: sparse.csr_array, labels: np.ndarray) -> np.ndarray:
    """Information gain of each word in nats: mutual information of the class and the occurrence of the word."""
    targets = np.eye(labels.max() + 1)[labels]
    present = (counts > 0).astype(np.float64).T @ targets  # (n_words, n_classes): texts with the word
    absent = targets.sum(axis=0) - present
    return (entropy(targets.sum(axis=0)) - entropy(present) - entropy(absent)) / len(labels)


def entropy(counts: np.ndarray) -> np.ndarray:
    """Entropy of counts over the last axis, times their sum."""
    totals = counts.sum(axis=-1)
    return xlogy(totals, totals) - xlogy(counts, counts).sum(axis=-1)


def split_counts(texts: Collection, n_columns: int, seed: int) -> Corpus:
    """One random split; features are selected on the training texts."""
    order = np.random.default_rng(seed).permutation(len(texts.labels))
    train, test = np.split(order, [round(TRAINING_SHARE * len(order))])
    frequent = np.flatnonzero(texts.counts[train].sum(axis=0) >= FEWEST_OCCURRENCES)
    gain = information_gain(texts.counts[train][:, frequent], texts.labels[train])
    columns = np.sort(frequent[np.argsort(-gain, kind="stable")[:n_columns]])
    parts = [some_words(texts, rows, columns) for rows in (train, test)]
    return Corpus(texts.name, *parts[0], *parts[1])


def some_words(texts: Collection, rows: np.ndarray, columns: np.ndarray):
    counts, labels = texts.counts[rows][:, columns], texts.labels[rows]
    has_words = counts.sum(axis=1) > 0
    return counts[has_words], labels[has_words]


# --- representations --------------------------------------------------------------------------------


def as_counts(corpus: Corpus) -> Corpus:
    return corpus


def as_binary(corpus: Corpus) -> Corpus:
    return corpus.mapped(lambda counts: (counts > 0).astype(np.float64))


def as_tf_idf(corpus: Corpus) -> Corpus:
    """Counts times log(texts / texts with the word), normalized to unit length per text."""
    inverse = np.log(len(corpus.y_train) / (corpus.X_train > 0).sum(axis=0))

    def weighted(counts):
        products = sparse.csr_array(counts.multiply(inverse))
        lengths = np.sqrt(products.multiply(products).sum(axis=1))
        return sparse.csr_array(products.multiply(1 / np.maximum(lengths, 1e-300)[:, None]))

    return corpus.mapped(weighted)


REPRESENTATIONS: dict[str, Callable[[Corpus], Corpus]] = {
    "counts": as_counts,
    "binary": as_binary,
    "tf-idf": as_tf_idf,
}
