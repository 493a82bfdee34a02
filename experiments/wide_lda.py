"""Linear discriminant analysis of rows with many columns: scikit-learn's, after an exact change to few of them."""

from __future__ import annotations

import numpy as np
from scipy import linalg, sparse
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from experiments.corpora import Corpus

MANY_COLUMNS = 1000  # from here on scikit-learn's LDA, an SVD of all rows, would take minutes
SMALLEST_SPREAD = 1e-10  # of the largest squared singular value; below it a direction of the span is rounding


def after_lda(corpus: Corpus) -> Corpus:
    """Rows after LDA; where columns outnumber rows it is computed in the span of the rows, as in the paper."""
    rows, size = corpus, corpus.size
    if size.n_features > size.n_train:
        rows = in_row_span(corpus)
    elif size.n_features > MANY_COLUMNS:
        rows = in_mean_span(corpus)
    lda = LinearDiscriminantAnalysis(solver="svd").fit(dense(rows.X_train), rows.y_train)
    return rows.mapped(lambda X: lda.transform(dense(X)))


def in_row_span(corpus: Corpus) -> Corpus:
    """Rows in an orthonormal basis of the training rows' span: at most as many columns as training rows."""
    squared, vectors = linalg.eigh(dense(corpus.X_train @ corpus.X_train.T))
    kept = squared > SMALLEST_SPREAD * squared[-1]
    basis = vectors[:, kept] / np.sqrt(squared[kept])  # as combinations of rows
    return corpus.mapped(lambda X: dense(X @ corpus.X_train.T) @ basis)


def in_mean_span(corpus: Corpus) -> Corpus:
    """Rows along W^-1 (mean of a class - mean of the first): K - 1 columns that hold all directions of LDA.

    One Cholesky factor of the scatter within classes, W, instead of a singular value decomposition of all rows.
    """
    labels = np.unique(corpus.y_train, return_inverse=True)[1]
    means = np.stack([corpus.X_train[labels == label].mean(axis=0) for label in range(labels.max() + 1)])
    centred = corpus.X_train - means[labels]
    basis = linalg.solve(centred.T @ centred, (means[1:] - means[0]).T, assume_a="pos")
    return corpus.mapped(lambda X: X @ basis)


def dense(X) -> np.ndarray:
    """What scikit-learn's LDA asks for."""
    return X.toarray() if sparse.issparse(X) else X
