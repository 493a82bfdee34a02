"""The text collections of Wang, Zhang and Lochovsky, prepared as their section 4 says.

    words      runs of two or more letters, in lower case; pages without mark-up and the server's header, articles
               without their header, which holds the subject line
    columns    words that occur at least six times in the training texts, the best of them by information gain
    rows       a random 80 % to train and 20 % to test; texts without any of the columns are dropped

WebKB then has 9253 words to choose from, the paper has 7161 (6938 words occur in six texts). The paper does not say
how a text's words become numbers: `REPRESENTATIONS` are the candidates, `ada_figure.py` names the one taken.
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
    """Word counts of texts, (n_texts, n_words), and the codes of their classes."""

    name: str
    counts: sparse.csr_array
    labels: np.ndarray


def load_webkb() -> Collection:
    """The pages of four classes; an `OSError` says which file is absent."""
    with gzip.open(data_file("webkb4.jsonl.gz"), "rt") as file:
        pages = [json.loads(line) for line in file]
    labels = np.unique([page["label"] for page in pages], return_inverse=True)[1]
    return collection("WebKB", [page_text(page["html"]) for page in pages], labels)


def load_newsgroups() -> Collection:
    """The articles of twenty groups, both parts of the split by date together."""
    home = data_file("20news-bydate_py3.pkz").parent
    articles = fetch_20newsgroups(data_home=home, subset="all", download_if_missing=False)
    return collection("Newsgroups", [after_header(text) for text in articles.data], articles.target)


def collection(name: str, texts: list[str], labels: np.ndarray) -> Collection:
    counts = CountVectorizer(token_pattern=WORD, dtype=np.float64).fit_transform(texts)
    return Collection(name, sparse.csr_array(counts), labels)


def page_text(page: str) -> str:
    """What a reader of the page sees."""
    return html.unescape(re.sub(r"<[^>]*>", " ", after_header(page)))


def after_header(text: str) -> str:
    """All after the first empty line; all of it where there is none."""
    _, is_found, body = text.partition("\n\n")
    return body if is_found else text


# --- columns ----------------------------------------------------------------------------------------


def information_gain(counts: sparse.csr_array, labels: np.ndarray) -> np.ndarray:
    """Of each word: how many nats the class loses of its entropy when one knows whether the word occurs."""
    targets = np.eye(labels.max() + 1)[labels]
    present = (counts > 0).astype(np.float64).T @ targets  # (n_words, n_classes): texts with the word
    absent = targets.sum(axis=0) - present
    return (entropy(targets.sum(axis=0)) - entropy(present) - entropy(absent)) / len(labels)


def entropy(counts: np.ndarray) -> np.ndarray:
    """Of counts over the last axis, times their sum."""
    totals = counts.sum(axis=-1)
    return xlogy(totals, totals) - xlogy(counts, counts).sum(axis=-1)


def split_counts(texts: Collection, n_columns: int, seed: int) -> Corpus:
    """One random split, its columns chosen by the training rows."""
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
    """Counts times log(texts / texts with the word), rows of length one."""
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
