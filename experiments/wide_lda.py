"""scikit-learn's linear discriminant analysis with many features, after an exact reduction to few of them."""

from __future__ import annotations

import numpy as np
from scipy import linalg, sparse
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from experiments.corpora import Corpus

MANY_COLUMNS = 1000  # n_features above which scikit-learn's LDA, an SVD of X, would take minutes
SMALLEST_SPREAD = 1e-10  # relative to the largest squared singular value; smaller ones are rounding errors


def after_lda(corpus: Corpus) -> Corpus:
    """The corpus projected by LDA, computed in the row space if features outnumber samples, as in the paper."""
    rows, size = corpus, corpus.size
    if size.n_features > size.n_train:
        rows = in_row_span(corpus)
    elif size.n_features > MANY_COLUMNS:
        rows = in_mean_span(corpus)
    lda = LinearDiscriminantAnalysis(solver="svd").fit(dense(rows.X_train), rows.y_train)
    return rows.mapped(lambda X: lda.transform(dense(X)))


def in_row_span(corpus: Corpus) -> Corpus:
    """Coordinates in an orthonormal basis of the row space of X_train, at most n_train features."""
    squared, vectors = linalg.eigh(dense(corpus.X_train @ corpus.X_train.T))
    kept = squared > SMALLEST_SPREAD * squared[-1]
    basis = vectors[:, kept] / np.sqrt(squared[kept])  # as linear combinations of samples
    return corpus.mapped(lambda X: dense(X @ corpus.X_train.T) @ basis)


def in_mean_span(corpus: Corpus) -> Corpus:
    """Projections onto W^-1 (mean of a class - mean of the first), K - 1 features that span all directions of LDA.

    This takes a Cholesky factorization of the within-class scatter W instead of an SVD of X.
    """
    labels = np.unique(corpus.y_train, return_inverse=True)[1]
    means = np.stack([corpus.X_train[labels == label].mean(axis=0) for label in range(labels.max() + 1)])
    centred = corpus.X_train - means[labels]
    basis = linalg.solve(centred.T @ centred, (means[1:] - means[0]).T, assume_a="pos")
    return corpus.mapped(lambda X: X @ basis)


def dense(X) -> np.ndarray:
    """A dense copy if X is sparse, as scikit-learn's LDA requires."""
    return X.toarray() if sparse.issparse(X) else X
