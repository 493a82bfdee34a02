"""Interactive Potts spins (Wu): memberships of rows in prototypes, and soft labels of the prototypes.

With memberships D_ik of row i in prototype k, soft labels Xi_km, one-hot classes q_i, beta = 1 / temperature and
d2_ik = (x_i - y_k)' A (x_i - y_k), the free energy is, over rows of weight w_i with sum N,

    Psi = E1 + c E2 - (H(D) + H(Xi)) / beta
    E1  = N/2 [ tr(A W) + r tr(A P) - (1 + r) log det A ],    W = 1/N sum_ik w_i D_ik (x_i - y_k)(x_i - y_k)'
    E2  = sum_ik w_i D_ik (1 - q_i' Xi_k)

E2 is linear in every spin, so its mean is exact and each block has its minimum in closed form:

    D_i  = softmax(beta v_i),    v_ik = -d2_ik / 2 + c q_i' Xi_k
    Xi_k = softmax(beta u_k),    u_km = c n_km,    n_km = sum_i w_i D_ik q_im
    y_k  = sum_i w_i D_ik x_i / n_k
    A    = ((W + r P) / (1 + r))^-1,    W = S - sum_k (n_k / N) y_k y_k'    (S: second moment of the rows)

r P is a prior on the metric: it shrinks W by r / (1 + r) towards P. At a fixed temperature and prior Psi never rises.
Shapes: X (n_rows, n_features), prototypes y (K, n_features), labels Xi (K, n_classes), metric A square (n_features).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import linalg
from scipy.linalg import lapack
from scipy.special import entr

from annealed.design.threads import map_in_order
from annealed.objectives import gibbs
from annealed.objectives.diagonal_plus import DiagonalPlus, Symmetric, dense, diagonal, inner

BLOCK_NUMBERS = 1 << 16  # memberships in a block of rows: half a megabyte, which stays in cache
SMALLEST_VARIANCE = {8: 1e-10, 4: 1e-6}  # of the rows' mean variance, by bytes of a number: less is rounding
SMALLEST_COUNT = 1e-8  # rows; a prototype that holds less keeps its place


class Block(NamedTuple):
    """Rows of a block; of each class in it the number, the first row within the block, and how many there are."""

    rows: slice
    labels: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray

    def spread(self, values):
        """To each row what its class has, (K, n_rows), of values (K, n_classes)."""
        return np.repeat(values[:, self.labels], self.sizes, axis=1)

    def class_sums(self, values):
        """Sums over the rows of each class in the block, of values (K, n_rows)."""
        return np.add.reduceat(values, self.starts, axis=1)


class LabelledRows:
    """Rows in the order of their classes, about the origin of centred columns."""

    def __init__(self, X, labels, weight, n_classes):
        order = np.argsort(labels, kind="stable")
        self.X, self.labels, self.weight = X[order], labels[order], np.asarray(weight, dtype=np.float64)[order]
        self.n_classes = n_classes
        self.total = float(self.weight.sum())
        self.is_unweighted = bool((self.weight == 1).all())

    def in_single_precision(self) -> LabelledRows:
        return LabelledRows(self.X.astype(np.float32), self.labels, self.weight, self.n_classes)

    def take(self, rows) -> LabelledRows:
        """Some of the rows, by their numbers here."""
        return LabelledRows(self.X[rows], self.labels[rows], self.weight[rows], self.n_classes)

    def turned(self, axes) -> LabelledRows:
        """The rows along other axes, (n_features, n_axes)."""
        return LabelledRows(self.X @ axes.astype(self.X.dtype), self.labels, self.weight, self.n_classes)

    @property
    def n_rows(self) -> int:
        return len(self.X)

    def sums(self, state: PottsState, beta: float, coupling: float) -> Sums:
        """What a pass over the rows leaves."""
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
        """Blocks of rows whose memberships stay in cache."""
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
        """The first row of each class, and the number of rows."""
        return np.searchsorted(self.labels, np.arange(self.n_classes + 1))

    @cached_property
    def smallest_variance(self) -> float:
        """The floor on eigenvalues of a scatter: a share of the rows' mean variance."""
        mean = diagonal(self.second_moment).mean()
        return SMALLEST_VARIANCE[self.X.itemsize] * (mean if mean > 0 else 1.0)

    def _slices(self, step):
        return [slice(first, first + step) for first in range(0, len(self.X), step)]


class MetricPrior(NamedTuple):
    """What W is shrunk towards: `target` (n_features,), a diagonal P, with `strength` r, rows of it per row of data."""

    strength: float
    target: np.ndarray


@dataclass(frozen=True)
class PottsState:
    """Prototypes, their soft labels and the metric; `log_det` is that of the metric, `scatter` the W it comes from."""

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
    """What a pass over the rows leaves: sums over rows, with memberships D at their minimum.

    class_counts : n_km, (K, n_classes); rows : sum of w_i D_ik x_i, (K, n_features)
    squares : sum of w_i D_ik^2; log_partition : sum of w_i log sum_k exp(beta v_ik), without the rows' own squares and
        with `label_leads` for labels
    """

    class_counts: np.ndarray
    rows: np.ndarray
    squares: float
    log_partition: float


# --- blocks: each the exact minimizer of the free energy, the others fixed ---------------------------------


def sum_over_rows(rows: LabelledRows, state: PottsState, beta: float, coupling: float) -> Sums:
    """The membership block: one product a block of rows gives D, a second adds it up."""
    directions = beta * (state.prototypes @ state.metric)
    level = -0.5 * (directions * state.prototypes).sum(axis=1)[:, None]
    level = level + (beta * coupling) * label_leads(state.labels)
    directions, level = directions.astype(rows.X.dtype), level.astype(rows.X.dtype)

    def block_sums(block):
        X, weight = rows.X[block.rows], rows.weight[block.rows]
        scores = directions @ X.T  # (K, n_rows): reductions run along rows
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
    """Xi_km less the largest of any prototype: D is the same, and a strong coupling leaves distances their digits."""
    return labels - labels.max(axis=0)


def updated_labels(class_counts, beta, coupling):
    """The label block, Xi_k = softmax(beta c n_k)."""
    field = (beta * coupling) * class_counts
    weights = np.exp(field - field.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def updated_prototypes(prototypes, sums: Sums):
    """The prototype block, the mean of a prototype's rows; an empty one keeps its place."""
    counts = sums.class_counts.sum(axis=1)[:, None]
    return np.where(counts > SMALLEST_COUNT, sums.rows / np.maximum(counts, SMALLEST_COUNT), prototypes)


def within_scatter(rows: LabelledRows, prototypes, counts, sums_of_rows):
    """W about any prototypes: S less what the prototypes explain, in columns that are centred."""
    if isinstance(rows.second_moment, DiagonalPlus):
        core, own = np.zeros((2 * len(counts), 2 * len(counts))), np.arange(len(counts))
        core[own, own] = counts / rows.total
        core[own, own + len(counts)] = core[own + len(counts), own] = -1 / rows.total
        return rows.second_moment.plus(np.vstack([prototypes, sums_of_rows]), core)
    crossed = prototypes.T @ sums_of_rows
    scatter = (prototypes.T * counts) @ prototypes - crossed - crossed.T
    return rows.second_moment + scatter / rows.total


def metric_of(scatter, prior: MetricPrior, smallest):
    """The metric block, the inverse of the shrunk scatter with a floor on its eigenvalues, and its log det."""
    least = prior.strength / (1 + prior.strength) * prior.target.min()
    is_above = least > smallest  # no eigenvalue is below the floor
    if isinstance(scatter, DiagonalPlus) and is_above:
        return (1 / (1 + prior.strength) * scatter.with_diagonal(prior.strength * prior.target)).inverse()
    shrunk = (dense(scatter) + prior.strength * np.diag(prior.target)) / (1 + prior.strength)
    shrunk = (shrunk + shrunk.T) / 2
    if is_above and (found := _inverse(shrunk, smallest)) is not None:
        return found
    values, vectors = symmetric_eigen(shrunk)
    values = np.maximum(values, smallest)
    return (vectors / values) @ vectors.T, -float(np.log(values).sum())


def _inverse(matrix, smallest):
    """The inverse and its log det, by a root; None where an eigenvalue may be below the smallest, by rounding: none is
    below one over the trace of the inverse.
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
    """Eigenvalues, rising, and eigenvectors; by the slower QR iteration where divide and conquer fails.

    LAPACK's divide and conquer, which NumPy calls, gives up on some singular matrices, such as scatters of one-hot
    columns.
    """
    try:
        return np.linalg.eigh(matrix)
    except np.linalg.LinAlgError:
        return linalg.eigh(matrix, driver="ev")


# --- energies ----------------------------------------------------------------------------------------------


def metric_energy(rows: LabelledRows, state: PottsState, scatter, prior: MetricPrior) -> float:
    """E1 of a scatter W."""
    pull = prior.strength * (diagonal(state.metric) @ prior.target)
    size = inner(state.metric, scatter) + pull - (1 + prior.strength) * state.log_det
    return 0.5 * rows.total * float(size)


def multilinear_error(rows: LabelledRows, memberships, labels) -> float:
    """E2 as a sum over memberships (n_rows, K): linear in every spin, so exact in the mean."""
    agreement = np.sum(memberships * labels.T[rows.labels], axis=1)
    return float(rows.weight @ (memberships.sum(axis=1) - agreement))


def quadratic_error(rows: LabelledRows, memberships, labels) -> float:
    """The slides' E2, half the squared distance of q_i and sum_k D_ik Xi_k."""
    missed = np.eye(rows.n_classes)[rows.labels] - memberships @ labels
    return 0.5 * float((rows.weight @ missed**2).sum())  # sums along short rows take far longer


def entropy(spins, weight=None) -> float:
    """Entropy of rows of spins, each counted by its weight, or once."""
    disorder = entr(spins)
    return float((disorder if weight is None else weight @ disorder).sum())


def free_energy(rows, state: PottsState, memberships, temperature, coupling, prior, error=multilinear_error) -> float:
    """Psi at any memberships (n_rows, K): the definition, which the sweeps never need to form."""
    weighted = memberships * rows.weight[:, None]
    scatter = within_scatter(rows, state.prototypes, weighted.sum(axis=0), weighted.T @ rows.X)
    disorder = entropy(memberships, rows.weight) + entropy(state.labels)
    energy = metric_energy(rows, state, scatter, prior) + coupling * error(rows, memberships, state.labels)
    return energy - temperature * disorder


def least_free_energy(rows, state: PottsState, sums: Sums, temperature, coupling, prior) -> float:
    """Psi with memberships at their minimum, from one pass: -1/beta sum_i log sum_k exp(beta v_ik) and the rest."""
    least_error = rows.class_weight @ (1 - state.labels.max(axis=0))
    fixed = metric_energy(rows, state, rows.second_moment, prior) + coupling * float(least_error)
    return fixed - temperature * (sums.log_partition + entropy(state.labels))


# --- a sweep -----------------------------------------------------------------------------------------------


class Swept(NamedTuple):
    """A sweep's outcome: the new state, Psi of the old one at its best memberships, and the sums of squares."""

    state: PottsState
    free_energy: float
    membership_saturation: float
    counts: np.ndarray


class Multilinear:
    """Sweeps of the energy that is linear in every spin: closed forms, no memberships kept."""

    def __init__(self, rows: LabelledRows, coupling: float):
        self.rows, self.coupling = rows, coupling

    def sweep(self, state: PottsState, temperature: float, prior: MetricPrior) -> Swept:
        """Memberships, labels, prototypes, metric, in this order."""
        rows = self.rows
        sums = rows.sums(state, 1 / temperature, self.coupling)
        value = least_free_energy(rows, state, sums, temperature, self.coupling, prior)
        labels = updated_labels(sums.class_counts, 1 / temperature, self.coupling)
        new = moved(rows, state, labels, sums, prior)
        counts = sums.class_counts.sum(axis=1)
        return Swept(new, value, sums.squares / rows.total, counts)


def moved(rows: LabelledRows, state: PottsState, labels, sums: Sums, prior: MetricPrior) -> PottsState:
    """Prototypes and metric at their minima, with new labels."""
    prototypes = updated_prototypes(state.prototypes, sums)
    scatter = within_scatter(rows, prototypes, sums.class_counts.sum(axis=1), sums.rows)
    metric, log_det = metric_of(scatter, prior, rows.smallest_variance)
    return PottsState(prototypes, labels, metric, log_det, scatter)
