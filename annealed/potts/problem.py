"""Mean-field annealing of Potts spins (Wu): soft k-means with class labels and one learned Mahalanobis metric.

Two kinds of Potts spins are replaced by their means: memberships D_ik of row i in prototype k, and soft labels Xi_km of
prototype k for class m. With one-hot classes q_i, beta = 1 / temperature, squared distances
d2_ik = (x_i - y_k)' A (x_i - y_k) and row weights w_i with sum N, the free energy is

    Psi = E1 + c E2 - (H(D) + H(Xi)) / beta
    E1  = N/2 [ tr(A W) + r tr(A P) - (1 + r) log det A ],    W = 1/N sum_ik w_i D_ik (x_i - y_k)(x_i - y_k)'
    E2  = sum_ik w_i D_ik (1 - q_i' Xi_k)

E2 is linear in each spin, so the mean-field value is the exact expectation, and each block of variables has a
closed-form minimizer given the others. The first line is the E-step of soft k-means, the third its M-step:

    D_i  = softmax(beta v_i),    v_ik = -d2_ik / 2 + c q_i' Xi_k
    Xi_k = softmax(beta u_k),    u_km = c n_km,    n_km = sum_i w_i D_ik q_im
    y_k  = sum_i w_i D_ik x_i / n_k
    A    = ((W + r P) / (1 + r))^-1,    W = S - sum_k (n_k / N) y_k y_k'    (S: second moment of the rows)

r P is a prior on the metric: it shrinks W by r / (1 + r) towards P. At a fixed temperature and prior a sweep over the
four blocks (block coordinate descent) never increases Psi.

Shapes: X (n_rows, n_features), prototypes y (K, n_features), labels Xi (K, n_classes), metric A (n_features,
n_features).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import linalg
from scipy.linalg import lapack
from scipy.special import entr

from annealed.potts.diagonal_plus import DiagonalPlus, Symmetric, dense, diagonal, inner
from annealed.problems import gibbs
from annealed.rows.threads import map_in_order

BLOCK_NUMBERS = 1 << 16  # memberships per block of rows: half a megabyte in float64, which stays in cache
SMALLEST_VARIANCE = {8: 1e-10, 4: 1e-6}  # floor, in units of the mean variance, by item size: below it is rounding


class Block(NamedTuple):
    """Consecutive rows; class code, first row within the block, and length of each run of equal class."""

    rows: slice
    labels: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray

    def spread(self, values):
        """Repeat values (K, n_classes) for the rows of each class, (K, n_rows)."""
        return np.repeat(values[:, self.labels], self.sizes, axis=1)

    def class_sums(self, values):
        """Sums of values (K, n_rows) over the rows of each class in the block, (K, n_runs)."""
        return np.add.reduceat(values, self.starts, axis=1)


class LabelledRows:
    """Rows sorted by class, so that class sums are sums over slices. Columns must be centred."""

    def __init__(self, X, labels, weight, n_classes):
        order = np.argsort(labels, kind="stable")
        self.X, self.labels, self.weight = X[order], labels[order], np.asarray(weight, dtype=np.float64)[order]
        self.n_classes = n_classes
        self.total = float(self.weight.sum())
        self.is_unweighted = bool((self.weight == 1).all())

    def in_single_precision(self) -> LabelledRows:
        return LabelledRows(self.X.astype(np.float32), self.labels, self.weight, self.n_classes)

    def take(self, rows) -> LabelledRows:
        """A subset of the rows, by their indices in the sorted order."""
        return LabelledRows(self.X[rows], self.labels[rows], self.weight[rows], self.n_classes)

    def turned(self, axes) -> LabelledRows:
        """The rows in the coordinates of other axes, (n_features, n_axes)."""
        return LabelledRows(self.X @ axes.astype(self.X.dtype), self.labels, self.weight, self.n_classes)

    @property
    def n_rows(self) -> int:
        return len(self.X)

    def sums(self, state: PottsState, beta: float, coupling: float) -> Sums:
        """The sums of one pass over the rows; see `sum_over_rows`."""
        return sum_over_rows(self, state, beta, coupling)

    @cached_property
    def second_moment(self) -> Symmetric:
        """S, the weighted mean of x x'."""
        share = self.weight / self.total
        parts = map_in_order(lambda rows: (self.X[rows].T * share[rows]) @ self.X[rows], self._slices(1 << 12))
        return np.sum(list(parts), axis=0)

    @cached_property
    def class_weight(self) -> np.ndarray:
        return np.bincount(self.labels, self.weight, self.n_classes)

    def blocks(self, n_prototypes) -> list[Block]:
        """Blocks of rows, small enough for their memberships to stay in cache."""
        step = max(64, BLOCK_NUMBERS // n_prototypes)
        if step >= len(self.X):
            return [self.whole]
        return [self._block(first, first + step) for first in range(0, len(self.X), step)]

    @cached_property
    def whole(self) -> Block:
        """All rows in one block."""
        return self._block(0, len(self.X))

    def _block(self, first, last) -> Block:
        starts = np.minimum(np.maximum(self._class_starts, first), last) - first
        sizes = np.diff(starts)
        labels = np.flatnonzero(sizes)
        return Block(slice(first, last), labels, starts[labels], sizes[labels])

    @cached_property
    def _class_starts(self) -> np.ndarray:
        """Index of the first row of each class, followed by the number of rows."""
        return np.searchsorted(self.labels, np.arange(self.n_classes + 1))

    @cached_property
    def smallest_variance(self) -> float:
        """Floor on the eigenvalues of a scatter matrix: a small fraction of the mean variance."""
        mean = diagonal(self.second_moment).mean()
        return SMALLEST_VARIANCE[self.X.itemsize] * (mean if mean > 0 else 1.0)

    def _slices(self, step):
        return [slice(first, first + step) for first in range(0, len(self.X), step)]


class MetricPrior(NamedTuple):
    """Shrinkage of W towards P = `variance` I; `strength` r is its weight in pseudo-rows per row."""

    strength: float
    variance: float


@dataclass(frozen=True)
class PottsState:
    """Prototypes, their soft labels, the metric, its log determinant, and the scatter W it was computed from."""

    prototypes: np.ndarray
    labels: np.ndarray
    metric: Symmetric
    log_det: float
    scatter: Symmetric

    def __len__(self):
        return len(self.prototypes)

    def take(self, kept) -> PottsState:
        return replace(self, prototypes=self.prototypes[kept], labels=self.labels[kept])


class Sums(NamedTuple):
    """Sums over the rows in one pass, with memberships D at their minimizer.

    class_counts : n_km, (K, n_classes)
    rows : sum of w_i D_ik x_i, (K, n_features)
    squares : sum of w_i D_ik^2
    log_partition : sum of w_i log sum_k exp(beta v_ik), with v_ik shifted by terms that are equal for all prototypes:
        without x_i' A x_i / 2, and with `label_leads` in place of the labels
    """

    class_counts: np.ndarray
    rows: np.ndarray
    squares: float
    log_partition: float


# --- blocks: each the exact minimizer of the free energy, given the others ---------------------------------


def sum_over_rows(rows: LabelledRows, state: PottsState, beta: float, coupling: float) -> Sums:
    """The E-step for memberships: per block of rows, one matrix product gives D and a second one sums it."""
    directions = beta * (state.prototypes @ state.metric)
    level = -0.5 * (directions * state.prototypes).sum(axis=1)[:, None]
    level = level + (beta * coupling) * label_leads(state.labels)
    directions, level = directions.astype(rows.X.dtype), level.astype(rows.X.dtype)

    def block_sums(block):
        X, weight = rows.X[block.rows], rows.weight[block.rows]
        scores = directions @ X.T  # (K, n_rows): the softmax is vectorized over rows
        scores += block.spread(level)
        top, total = gibbs.exponentials(scores)
        scores *= 1 / total
        squares = np.einsum("kn,kn->n", scores, scores) @ weight
        if not rows.is_unweighted:
            scores *= weight.astype(scores.dtype)
        return block.class_sums(scores), scores @ X, squares, (np.log(total) + top) @ weight

    counts, sums = np.zeros((len(state), rows.n_classes)), np.zeros(state.prototypes.shape)
    squares = log_partition = 0.0
    blocks = rows.blocks(len(state))
    for block, part in zip(blocks, map_in_order(block_sums, blocks), strict=True):
        counts[:, block.labels] += part[0]
        sums += part[1]
        squares += float(part[2])
        log_partition += float(part[3])
    return Sums(counts, sums, squares, log_partition)


def label_leads(labels):
    """Xi_km minus its largest value over prototypes: D is unchanged, and a strong coupling does not swamp distances."""
    return labels - labels.max(axis=0)


def updated_labels(class_counts, beta, coupling):
    """The E-step for labels, Xi_k = softmax(beta c n_k)."""
    field = (beta * coupling) * class_counts
    weights = np.exp(field - field.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def updated_prototypes(prototypes, sums: Sums):
    """The M-step for prototypes: weighted means of the rows; one whose weight is rounding keeps its position."""
    counts = sums.class_counts.sum(axis=1)[:, None]
    smallest = np.finfo(np.float32).eps * counts.sum() / len(counts)
    return np.where(counts > smallest, sums.rows / np.maximum(counts, smallest), prototypes)


def within_scatter(rows: LabelledRows, prototypes, counts, sums_of_rows):
    """W about any prototypes, S + 1/N sum_k (n_k y_k y_k' - y_k s_k' - s_k y_k'), with s_k = sum_i w_i D_ik x_i."""
    if isinstance(rows.second_moment, DiagonalPlus):
        core, index = np.zeros((2 * len(counts), 2 * len(counts))), np.arange(len(counts))
        core[index, index] = counts / rows.total
        core[index, index + len(counts)] = core[index + len(counts), index] = -1 / rows.total
        return rows.second_moment.plus(np.vstack([prototypes, sums_of_rows]), core)
    crossed = prototypes.T @ sums_of_rows
    scatter = (prototypes.T * counts) @ prototypes - crossed - crossed.T
    return rows.second_moment + scatter / rows.total


def metric_of(scatter, prior: MetricPrior, smallest):
    """The M-step for the metric: inverse and log det of the shrunk scatter, its eigenvalues floored at `smallest`."""
    prior_floor = prior.strength / (1 + prior.strength) * prior.variance
    is_bounded = prior_floor > smallest  # the prior alone keeps every eigenvalue above the floor
    if isinstance(scatter, DiagonalPlus) and is_bounded:
        return (1 / (1 + prior.strength) * scatter.with_diagonal(prior.strength * prior.variance)).inverse()
    shrunk = (dense(scatter) + prior.strength * prior.variance * np.eye(len(scatter))) / (1 + prior.strength)
    shrunk = (shrunk + shrunk.T) / 2
    if is_bounded and (inverse_and_log_det := _inverse(shrunk, smallest)) is not None:
        return inverse_and_log_det
    values, vectors = symmetric_eigen(shrunk)
    values = np.maximum(values, smallest)
    return (vectors / values) @ vectors.T, -float(np.log(values).sum())


def _inverse(matrix, smallest):
    """The inverse and its log det by Cholesky; None if rounding may have put an eigenvalue below `smallest`.

    Every eigenvalue is at least 1 / trace(inverse), which is cheaper to check than the eigenvalues themselves.
    """
    root, failure = lapack.dpotrf(matrix, lower=1)
    if failure:
        return None
    inverse_root, _ = lapack.dtrtri(root, lower=1)
    inverse = inverse_root.T @ inverse_root
    if smallest * inverse.trace() > 1:
        return None
    return inverse, -2 * float(np.log(root.diagonal()).sum())


def symmetric_eigen(matrix):
    """Ascending eigenvalues, and eigenvectors; by the slower QR iteration if divide and conquer fails.

    LAPACK's divide and conquer, which NumPy calls, does not converge on some singular matrices, such as scatters of
    one-hot columns.
    """
    try:
        return np.linalg.eigh(matrix)
    except np.linalg.LinAlgError:
        return linalg.eigh(matrix, driver="ev")


# --- energies ----------------------------------------------------------------------------------------------


def metric_energy(rows: LabelledRows, state: PottsState, scatter, prior: MetricPrior) -> float:
    """E1 of a scatter W."""
    prior_trace = prior.strength * prior.variance * diagonal(state.metric).sum()
    per_row = inner(state.metric, scatter) + prior_trace - (1 + prior.strength) * state.log_det
    return 0.5 * rows.total * float(per_row)


def multilinear_error(rows: LabelledRows, memberships, labels) -> float:
    """E2 from memberships (n_rows, K); linear in each spin, so equal to its expectation."""
    agreement = np.sum(memberships * labels.T[rows.labels], axis=1)
    return float(rows.weight @ (memberships.sum(axis=1) - agreement))


def quadratic_error(rows: LabelledRows, memberships, labels) -> float:
    """The slides' E2, half the squared distance between q_i and sum_k D_ik Xi_k."""
    residual = np.eye(rows.n_classes)[rows.labels] - memberships @ labels
    return 0.5 * float((rows.weight @ residual**2).sum())  # reducing over rows first is much faster


def entropy(spins, weight=None) -> float:
    """Sum of the entropies of the rows of `spins`, weighted if weights are given."""
    terms = entr(spins)
    return float((terms if weight is None else weight @ terms).sum())


def free_energy(rows, state: PottsState, memberships, temperature, coupling, prior, error=multilinear_error) -> float:
    """Psi by its definition, at any memberships (n_rows, K); the multilinear sweeps never form these."""
    weighted = memberships * rows.weight[:, None]
    scatter = within_scatter(rows, state.prototypes, weighted.sum(axis=0), weighted.T @ rows.X)
    total_entropy = entropy(memberships, rows.weight) + entropy(state.labels)
    energy = metric_energy(rows, state, scatter, prior) + coupling * error(rows, memberships, state.labels)
    return energy - temperature * total_entropy


def least_free_energy(rows, state: PottsState, sums: Sums, temperature, coupling, prior) -> float:
    """Psi with memberships at their minimizer, from one pass: -1/beta sum_i w_i log sum_k exp(beta v_ik) + the rest."""
    least_error = rows.class_weight @ (1 - state.labels.max(axis=0))
    fixed = metric_energy(rows, state, rows.second_moment, prior) + coupling * float(least_error)
    return fixed - temperature * (sums.log_partition + entropy(state.labels))


# --- a sweep -----------------------------------------------------------------------------------------------


class Swept(NamedTuple):
    """Result of a sweep: the new state, a free energy, the mean sum of squares of memberships, and n_k (K,).

    `Multilinear` reports Psi of the state before the sweep, at its optimal memberships.
    """

    state: PottsState
    free_energy: float
    membership_saturation: float
    counts: np.ndarray


class Multilinear:
    """Sweeps for the E2 that is linear in each spin: closed forms, and no memberships are stored."""

    def __init__(self, rows: LabelledRows, coupling: float):
        self.rows, self.coupling = rows, coupling

    def sweep(self, state: PottsState, temperature: float, prior: MetricPrior) -> Swept:
        """Update memberships, labels, prototypes and metric, in this order."""
        rows = self.rows
        sums = rows.sums(state, 1 / temperature, self.coupling)
        value = least_free_energy(rows, state, sums, temperature, self.coupling, prior)
        labels = updated_labels(sums.class_counts, 1 / temperature, self.coupling)
        new = moved(rows, state, labels, sums, prior)
        counts = sums.class_counts.sum(axis=1)
        return Swept(new, value, sums.squares / rows.total, counts)


def moved(rows: LabelledRows, state: PottsState, labels, sums: Sums, prior: MetricPrior) -> PottsState:
    """The M-step: prototypes and metric at their minimizers, together with new labels."""
    prototypes = updated_prototypes(state.prototypes, sums)
    scatter = within_scatter(rows, prototypes, sums.class_counts.sum(axis=1), sums.rows)
    metric, log_det = metric_of(scatter, prior, rows.smallest_variance)
    return PottsState(prototypes, labels, metric, log_det, scatter)
