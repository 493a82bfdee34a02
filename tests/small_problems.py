"""Small problems with a known solution, reproducible to the bit, because all seeds are fixed.

    table = gaussian()
    softmax(table.X @ table.coef.T + table.intercept)      # the posterior from which the labels were drawn

Labels are codes 0 to n_classes - 1. `stack_of` makes a stack of fits as an estimator would: the first fit has every
sample, each of the others leaves some out.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from annealed.datasets import make_gaussian_classes
from annealed.problems import ScoreFamily
from annealed.rows import make_design
from annealed.solvers import LBFGS, Accuracy, Points


@dataclass(frozen=True)
class Table:
    """Samples, labels, and the true logits `X @ coef.T + intercept` if they are known."""

    name: str
    X: object
    y: np.ndarray
    coef: np.ndarray | None = None
    intercept: np.ndarray | None = None

    @property
    def n_classes(self):
        return int(self.y.max()) + 1

    def __repr__(self):
        return self.name


def gaussian(n_samples=120, n_features=4, seed=0, separation=2.0):
    """Three overlapping Gaussian classes of unequal frequency with one shared covariance."""
    drawn = make_gaussian_classes(
        n_samples,
        n_features,
        3,
        separation=separation,
        condition=30.0,
        class_prior=[0.5, 0.3, 0.2],
        random_state=seed,
    )
    return Table("gaussian", drawn.X, drawn.y, drawn.coef, drawn.intercept)


def two_classes(n_samples=90, n_features=3, seed=1):
    drawn = make_gaussian_classes(n_samples, n_features, 2, separation=1.5, condition=10.0, random_state=seed)
    return Table("two_classes", drawn.X, drawn.y, drawn.coef, drawn.intercept)


def heavy_tailed(n_samples=300, n_features=4, seed=1):
    """Samples with very large outliers: coefficients change abruptly along the path."""
    X = np.random.default_rng(seed).standard_cauchy((n_samples, n_features))
    return Table("heavy_tailed", X, (X[:, 0] + X[:, 1] > 0).astype(int))


def categories():
    """Three one-hot encoded features: each adds up to one, so there are three empty directions."""
    generator = np.random.RandomState(0)
    X = np.column_stack([np.eye(size)[generator.randint(size, size=300)] for size in (5, 4, 3)])
    y = (X @ generator.standard_normal((12, 3)) + generator.gumbel(size=(300, 3))).argmax(axis=1)
    return Table("categories", X, y)


def badly_scaled():
    """The samples of `gaussian` in other units: features times 1e-8 to 1e8, far from the origin. Same true logits."""
    plain = gaussian()
    units = np.logspace(-8, 8, plain.X.shape[1])
    shift = np.array([100.0, -3.0, 0.0, 50.0])
    coef = plain.coef / units
    intercept = plain.intercept - plain.coef @ shift
    return Table("badly_scaled", (plain.X + shift) * units, plain.y, coef, intercept)


def separable():
    """Three tight clouds at the corners of a triangle: the true logits classify every sample with a margin."""
    corners = np.array([[0.0, 4.0], [-4.0, -2.0], [4.0, -2.0]])
    y = np.arange(36) % 3
    X = corners[y] + np.random.default_rng(2).uniform(-1, 1, size=(36, 2))
    return Table("separable", X, y, corners, -0.5 * (corners**2).sum(axis=1))


def rare_class():
    """Gaussian classes, the last of which has only three samples."""
    plain = gaussian(seed=3)
    keep = np.concatenate([np.flatnonzero(plain.y < 2), np.flatnonzero(plain.y == 2)[:3]])
    return Table("rare_class", plain.X[keep], plain.y[keep], plain.coef)


def wide():
    """More features than samples, with features of unequal spread."""
    generator = np.random.default_rng(4)
    y = np.arange(24) % 3
    X = generator.normal(size=(24, 60)) * np.linspace(0.2, 3.0, 60)
    X[:, :3] += 2 * np.eye(3)[y]
    return Table("wide", X, y)


def text(kind=sparse.csr_matrix, n_samples=60, n_words=25, seed=5):
    """Word counts of short texts: class j draws words from its own topic, so the true coef is log topic."""
    generator = np.random.default_rng(seed)
    topics = generator.dirichlet(np.full(n_words, 0.3), size=3) + 1e-2
    topics /= topics.sum(axis=1, keepdims=True)
    y = generator.integers(3, size=n_samples)
    counts = np.stack([generator.multinomial(12, topics[label]) for label in y])
    return Table(f"text_{kind.__name__}", kind(counts.astype(float)), y, np.log(topics), np.zeros(3))


def sparse_rows(n_rows, n_columns, density):
    """Numbers from 0 to 1 in a sparse matrix of the given density."""
    generator = np.random.default_rng(0)
    filled = generator.random((n_rows, n_columns)) < density
    return sparse.csr_array(np.where(filled, generator.random((n_rows, n_columns)), 0))


def shared_noise(n_rows=90, seed=0, n_columns=300):
    """Two slightly separated classes in hundreds of features, which share twenty directions of large variance."""
    generator = np.random.default_rng(seed)
    y = np.arange(n_rows) % 2
    directions = np.random.default_rng(1).normal(size=(21, n_columns))
    noise = generator.normal(size=(n_rows, 20)) @ directions[1:]
    return np.outer(y - 0.5, 0.2 * directions[0]) + noise + 0.5 * generator.normal(size=(n_rows, n_columns)), y


def wide_text(kind=sparse.csr_matrix):
    return replace(text(kind, n_samples=20, n_words=50, seed=6), name=f"wide_text_{kind.__name__}")


def make_everything_wide(monkeypatch):
    """Lower the limit of what counts as wide, so that small tables are solved in combinations of samples."""
    for module in (
        "rows.coordinates",
        "problems.linear",
        "problems.penalty_scaling",
        "problems.penalized_linear",
        "solvers.plan",
    ):
        monkeypatch.setattr(f"annealed.{module}.WIDEST_EIGENPROBLEM", 1)
    monkeypatch.setattr("annealed.rows.coordinates.WIDEST_ROTATION", 1)


def standardized(table):
    """The same samples with feature means 0 and standard deviations 1."""
    return replace(table, X=(table.X - table.X.mean(axis=0)) / table.X.std(axis=0), coef=None, intercept=None)


def dense(X):
    return X.toarray() if sparse.issparse(X) else np.asarray(X)


# --- stacks of fits ---------------------------------------------------------------------------------


def fold_masks(n_rows, n_folds=2):
    """Weight (n_rows, 1 + n_folds): ones, then each fold without every n_folds-th sample."""
    folds = np.arange(n_rows) % n_folds
    return np.column_stack([np.ones(n_rows), *(folds != fold for fold in range(n_folds))]).astype(float)


def stack_of(table, weight=None, n_classes=None):
    """A design of the table's samples; `weight` (n_rows, n_fits) counts samples, by default one fit of all of them."""
    weight = np.ones((len(table.y), 1)) if weight is None else np.asarray(weight, dtype=float)
    total = weight.sum(axis=0)
    return make_design(table.X, table.y, weight / total, total, n_classes or table.n_classes)


def uneven_weights(n_rows, n_fits=3):
    """Positive weights that differ between samples and between fits."""
    return np.random.default_rng(7).uniform(0.2, 2.0, size=(n_rows, n_fits))


# --- user-defined families -------------------------------------------------------------------------


class Radial(ScoreFamily):
    """The example of `annealed.problems.family`: minus the squared distance to a centre per class."""

    def start(self, X, labels, weight, n_classes, random_state):
        members_of_classes = [labels == label for label in range(n_classes)]
        return np.stack([np.average(X[members], axis=0, weights=weight[members]) for members in members_of_classes])

    def scores(self, X, parameters):
        return -((X[:, None] - parameters) ** 2).sum(axis=2)

    def pullback(self, X, parameters, residual):
        return 2 * (residual.T @ X - residual.sum(axis=0)[:, None] * parameters)


class Loudness(ScoreFamily):
    """`exp(loudness_j) * (direction_j @ x)`: not linear in its parameters, and applicable to sparse X."""

    def start(self, X, labels, weight, n_classes, random_state):
        members_of_classes = [labels == label for label in range(n_classes)]
        means = [X[members].T @ weight[members] / weight[members].sum() for members in members_of_classes]
        return np.column_stack([np.stack(means), np.zeros(n_classes)])

    def scores(self, X, parameters):
        return (X @ parameters[:, :-1].T) * np.exp(parameters[:, -1])

    def pullback(self, X, parameters, residual):
        loudness = np.exp(parameters[:, -1])
        directions = (X.T @ residual).T * loudness[:, None]
        return np.column_stack([directions, np.sum(residual * self.scores(X, parameters), axis=0)])


# --- solving ----------------------------------------------------------------------------------------


def solve_fits(solver, problem, start, temperature, *, tol, max_iter, memory=None, certify=True):
    """All fits of `start` at one temperature."""
    return _solved(solver, problem, Points.of_fits([start], [temperature]), Accuracy(tol, max_iter, certify), memory)


def solve_final(solver, problem, starts, temperatures, *, tol, max_iter, memory=None, certify=True):
    """The final fit at several temperatures, with a start for each."""
    return _solved(solver, problem, Points.of_final(starts, temperatures), Accuracy(tol, max_iter, certify), memory)


def _solved(solver, problem, points, accuracy, memory):
    return solver.solve(problem, points, accuracy, solver.new_memory(problem) if memory is None else memory)


def solve(problem, temperature, solver=None, tol=1e-10, max_iter=5000):
    """The solution of a stack at one temperature, from its start; fails if a fit did not converge."""
    start = problem.start(temperature)
    solution = solve_fits(solver or LBFGS(), problem, start, temperature, tol=tol, max_iter=max_iter)
    assert solution.converged.all(), f"not converged at {temperature}: gradient {solution.gradient_norm}"
    return solution


def near_start(problem, temperature, size=0.3):
    """Parameters of all fits, at random points near their start."""
    start = problem.start(temperature)
    return start + size * np.random.default_rng(0).normal(size=start.shape)
