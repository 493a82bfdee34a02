"""Counts of operations in a fit: products with the rows of X, Hessians, factorizations, exponentials, calls.

    with counting(n_values) as tally:       # n_values: stored entries of X, the unit of a pass
        model.fit(X, y)
    tally.summary()

Functions of the library are found by their qualified name alone, in whichever module they are, so that moving a file
changes nothing here. A name that is gone is an error: adapt its entry below, and no other file.
Factorizations, sparse products and exponentials are counted at the functions of NumPy and SciPy themselves.

A multiplication stands for a multiplication and an addition.
"""

from __future__ import annotations

import cProfile
import inspect
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from importlib import import_module
from threading import Lock, local

import numpy as np
from scipy import linalg, sparse
from scipy.linalg import lapack

PACKAGE = "annealed"
MILLION = 1e6
# What `work` adds up, in multiplications of float64 (about 0.1 ns each); bytes count alike, so float32 is half of it.
EXPONENTIAL_WORK = 50.0  # an exponential with the additions and comparisons around it
SINGLE_SHARE = 0.5  # cost of float32 relative to float64


class Tally:
    """Counts of one fit. `n_values` is the number of stored entries of X."""

    def __init__(self, n_values: int):
        self.n_values = n_values
        self.counts: Counter = Counter()
        self.factors: defaultdict[str, Counter] = defaultdict(Counter)  # by kind, by size
        self._lock, self.inside = Lock(), local()

    def add(self, **numbers):
        with self._lock:
            for name, number in numbers.items():
                self.counts[name] += number

    def product(self, n_entries, n_columns, dtype):
        """A product of stored entries of X with so many columns."""
        bits = _bits(dtype)
        self.add(**{f"entries{bits}": n_entries, f"products{bits}": n_entries * n_columns})

    def multiply(self, kind, number, dtype=np.float64):
        """Multiplications of one kind: `hessian`, `rotation`, or `other`."""
        self.add(**{f"{kind}{_bits(dtype)}": number})

    def factor(self, kind, size, number, work, dtype=np.float64):
        with self._lock:
            self.factors[kind][size] += number
        self.multiply("factor", number * work, dtype)

    def summary(self) -> dict:
        """Passes in units of X; multiplications, exponentials and `work` in millions."""
        counts = self.counts
        found = {}
        for bits in (64, 32):
            found[f"passes{bits}"] = counts[f"entries{bits}"] / self.n_values
            found[f"columns{bits}"] = counts[f"products{bits}"] / self.n_values
        found |= {name: counts[name] for name in ("hessians", "row_products", "sweeps")}
        for kind in ("hessian", "factor", "rotation"):
            found[f"{kind}_millions"] = (counts[f"{kind}64"] + counts[f"{kind}32"]) / MILLION
        found["exponential_millions"] = (counts["exponentials64"] + counts["exponentials32"]) / MILLION
        found["work"] = self._work() / MILLION
        found["calls"] = counts["calls"]
        found["factors"] = {kind: dict(sorted(sizes.items())) for kind, sizes in sorted(self.factors.items())}
        return found

    def _work(self):
        kinds = ("products", "hessian", "factor", "rotation", "other")
        work = {bits: sum(self.counts[f"{kind}{bits}"] for kind in kinds) for bits in (64, 32)}
        for bits in (64, 32):
            work[bits] += EXPONENTIAL_WORK * self.counts[f"exponentials{bits}"]
        return work[64] + SINGLE_SHARE * work[32]


def _bits(dtype) -> int:
    return 32 if np.dtype(dtype) == np.float32 else 64


@contextmanager
def counting(n_values: int, with_calls=True) -> Iterator[Tally]:
    """Count what is done inside the context. `with_calls` makes small fits take about twice as long."""
    tally = Tally(n_values)
    with ExitStack() as stack:
        for entry in ENTRIES:
            stack.enter_context(patched(entry.qualified_name, entry.wrapping(tally), entry.parameters))
        stack.enter_context(_numpy_counted(tally))
        profile = cProfile.Profile() if with_calls else None
        if profile:
            profile.enable()
        try:
            yield tally
        finally:
            if profile:
                profile.disable()
                tally.counts["calls"] = sum(entry.callcount for entry in profile.getstats() if not _is_ours(entry.code))


def _is_ours(code) -> bool:
    return getattr(code, "co_filename", "") == __file__


# --- finding and replacing functions of the library -----------------------------------------------------------


@contextmanager
def patched(qualified_name: str, wrapping: Callable, parameters=()) -> Iterator[None]:
    """Replace a function or method by `wrapping(function)`, in every module that imported it.

    parameters : names of its first parameters, to choose among functions of the same name
    """
    owners = _owners(qualified_name, parameters)
    with ExitStack() as stack:
        for owner, name, original in owners:
            stack.callback(setattr, owner, name, original)
            setattr(owner, name, wrapping(original))
        yield


def _owners(qualified_name, parameters):
    """(owner, attribute, function) of every place where the function is kept."""
    found = []
    class_name, _, name = qualified_name.rpartition(".")
    for module in library_modules():
        owner = vars(module).get(class_name) if class_name else module
        function = None if owner is None else vars(owner).get(name)
        is_home = getattr(owner if class_name else function, "__module__", None) == module.__name__
        if is_home and inspect.isfunction(function) and _has(function, parameters):
            found.append((owner, function))
    if len(found) != 1:
        raise LookupError(
            f"gates/counting.py needs one function {qualified_name}{tuple(parameters)} in the library. "
            f"Got {len(found)}. Adapt its entry."
        )
    ((home, function),) = found
    if class_name:
        return [(home, name, function)]
    places = [(module, key) for module in library_modules() for key, value in vars(module).items() if value is function]
    return [(module, key, function) for module, key in places]


def _has(function, parameters) -> bool:
    return tuple(inspect.signature(function).parameters)[: len(parameters)] == tuple(parameters)


def library_modules():
    import_module(PACKAGE)
    return [module for name, module in list(sys.modules.items()) if name.split(".")[0] == PACKAGE and module]


class Entry:
    """A function of the library and what a call of it adds to the tally."""

    def __init__(self, qualified_name, parameters, count):
        self.qualified_name, self.parameters, self.count = qualified_name, parameters, count

    def wrapping(self, tally):
        def wrap(function):
            @wraps(function)
            def counted(*args, **options):
                return self.count(tally, function, *args, **options)

            return counted

        return wrap


ENTRIES: list[Entry] = []


def counts(qualified_name, *parameters):
    """Register `count(tally, function, *args)`, which calls the function too."""

    def register(count):
        ENTRIES.append(Entry(qualified_name, parameters, count))
        return count

    return register


# --- the library: the only names that a new layout changes -----------------------------------------------------


@counts("scores_of", "vectors", "rows")
def _forward(tally, function, vectors, rows):
    tally.product(rows.size, len(vectors), rows.dtype)
    return function(vectors, rows)


@counts("sums_of", "weights", "rows")
def _backward(tally, function, weights, rows):
    tally.product(rows.size, len(weights), rows.dtype)
    return function(weights, rows)


@counts("DenseDesign.combine_rows")
def _combined(tally, function, design, weights):
    if design.n_features > design.n_rows:  # others go through `sums_of`
        tally.product(design.n_rows * design.n_features, len(weights), np.float64)
    return function(design, weights)


@counts("DenseBlock.gram")
def _gram(tally, function, block, weight):
    tally.multiply("hessian", block.values.size * block.values.shape[1] / 2)
    return function(block, weight)


@counts("DenseBlock.moments")
def _moments(tally, function, block, weight):
    n_weights = weight[0].size
    tally.multiply("hessian", n_weights * block.values.size * block.values.shape[1] / 2)
    return function(block, weight)


@counts("DenseDesign.row_gram")
def _row_gram(tally, function, design, scale):
    tally.multiply("hessian", design.n_rows**2 * design.n_features)
    return function(design, scale)


@counts("SmallRows.terms")
def _small_terms(tally, function, rows, *args, **options):
    tally.inside.width = rows.points.shape[-1]
    try:
        return function(rows, *args, **options)
    finally:
        tally.inside.width = None


@counts("_times", "tables", "matrices")
def _small_product(tally, function, tables, matrices):
    width = getattr(tally.inside, "width", None)
    if width and matrices.shape[-1] > width and tables.shape[-1] != width:  # sums over rows of products of columns
        tally.multiply("hessian", tables.size * matrices.shape[-1], matrices.dtype)
    else:
        n_columns = tables.size // tables.shape[-1] / (len(matrices) if matrices.ndim == 3 else 1)
        tally.product(matrices.size, n_columns, matrices.dtype)
    return function(tables, matrices)


@counts("ExactHessians.terms")
def _hessians(tally, function, hessians, parameters, *args, **options):
    tally.add(hessians=len(parameters))
    return function(hessians, parameters, *args, **options)


@counts("HessianSample.hessian")
def _sampled_hessian(tally, function, *args, **options):
    tally.add(hessians=1)
    return function(*args, **options)


@counts("HessianSample.class_blocks")
def _class_hessians(tally, function, *args, **options):
    tally.add(hessians=1)
    return function(*args, **options)


@counts("HessianSample._square")
def _sampled_square(tally, function, sample, drawn, share):
    tally.multiply("hessian", len(share) * len(sample.leading) ** 2 / 2, np.float32)
    return function(sample, drawn, share)


@counts("Coordinates._apply")
def _rotation(tally, function, coordinates, vectors, factor, transposed):
    is_diagonal = factor.ndim == (2 if coordinates.per_fit else 1)
    number = vectors.size if is_diagonal else vectors.size * factor.shape[-2 if transposed else -1]
    tally.multiply("rotation", number, vectors.dtype)
    return function(coordinates, vectors, factor, transposed)


@counts("TurnedCoordinates.to_frame")
def _turn(tally, function, coordinates, coef):
    tally.multiply("rotation", coef.size * coordinates.rank, coef.dtype)
    return function(coordinates, coef)


@counts("TurnedCoordinates.from_frame")
def _turn_back(tally, function, coordinates, gradient):
    tally.multiply("rotation", gradient.size * coordinates.rank, gradient.dtype)
    return function(coordinates, gradient)


@counts("RowProducts.image")
def _row_product(tally, function, products, vectors):
    tally.add(row_products=vectors.shape[1])
    if products._formed is not None:
        tally.multiply("other", vectors.size * products.n_rows)
    return function(products, vectors)


@counts("second_order", "X", "columns")
def _second_order(tally, function, X, columns=slice(None)):
    features = function(X, columns)
    tally.multiply("other", features.size)
    return features


@counts("LabelledRows.sums", "self", "state")
def _sweep(tally, function, rows, state, *args):
    tally.add(sweeps=1)
    for _ in range(2):  # forward and back
        tally.product(rows.X.size, len(state), rows.X.dtype)
    return function(rows, state, *args)


@counts("loss_and_gradient", "rows", "point")
def _refinement_step(tally, function, rows, point):
    for _ in range(2):
        tally.product(rows.X.size, len(point.prototypes), rows.X.dtype)
    tally.multiply("other", 6 * point.prototypes.size * point.root.shape[0])
    return function(rows, point)


@counts("memberships", "X", "prototypes")
def _memberships(tally, function, X, prototypes, metric):
    tally.product(X.size, len(prototypes), X.dtype)
    return function(X, prototypes, metric)


# --- NumPy and SciPy ------------------------------------------------------------------------------------------------

# (module, function, kind, multiplications for a matrix of size n divided by n^3)
FACTORIZATIONS = (
    (np.linalg, "eigh", "eigh", 4.5),
    (np.linalg, "inv", "inverse", 1.0),
    (np.linalg, "solve", "solve", 1 / 3),
    (np.linalg, "svd", "svd", 6.0),
    (np.linalg, "lstsq", "svd", 6.0),
    (np.linalg, "pinv", "svd", 6.0),
    (np.linalg, "slogdet", "solve", 1 / 3),
    (linalg, "eigh", "eigh", 4.5),
    (linalg, "cho_factor", "cholesky", 1 / 6),
    (linalg, "cholesky", "cholesky", 1 / 6),
    (linalg, "qr", "qr", 2 / 3),
    (lapack, "dpotrf", "cholesky", 1 / 6),
    (lapack, "spotrf", "cholesky", 1 / 6),
    (lapack, "dtrtri", "inverse", 1 / 6),
)
SPARSE_CLASSES = (sparse.csr_array, sparse.csc_array, sparse.csr_matrix, sparse.csc_matrix)


@contextmanager
def _numpy_counted(tally) -> Iterator[None]:
    with ExitStack() as stack:
        for module, name, kind, share in FACTORIZATIONS:
            original = getattr(module, name)
            stack.callback(setattr, module, name, original)
            setattr(module, name, _counted_factorization(tally, original, kind, share))
        for cls in SPARSE_CLASSES:
            for name in ("__matmul__", "__rmatmul__"):
                stack.callback(delattr, cls, name)  # the class inherits them
                setattr(cls, name, _counted_sparse_product(tally, getattr(cls, name)))
        stack.callback(setattr, np, "exp", np.exp)
        np.exp = _counted_exponential(tally, np.exp)
        yield


def _counted_factorization(tally, original, kind, share):
    @wraps(original)
    def counted(matrix, *args, **options):
        shape = np.shape(matrix)
        if len(shape) > 1 and 0 not in shape:
            height, width = shape[-2:]
            number = int(np.prod(shape[:-2]))
            work = share * min(height, width) ** 2 * max(height, width)
            tally.factor(kind, min(height, width), number, work, getattr(matrix, "dtype", np.float64))
        return original(matrix, *args, **options)

    return counted


def _counted_sparse_product(tally, original):
    def counted(matrix, other):
        if sparse.issparse(other):
            if original.__name__ == "__matmul__" and other.format == matrix.format == "csr":
                tally.multiply("hessian", float(np.diff(other.indptr)[matrix.indices].sum()), matrix.dtype)
            else:
                tally.multiply("hessian", matrix.nnz * other.nnz / max(1, min(other.shape)), matrix.dtype)
        else:
            shape = np.shape(other)
            n_columns = (shape[1] if original.__name__ == "__matmul__" else shape[0]) if len(shape) == 2 else 1
            tally.product(matrix.nnz, n_columns, matrix.dtype)
        return original(matrix, other)

    counted.__name__ = original.__name__
    return counted


def _counted_exponential(tally, original):
    def counted(values, *args, **options):
        size = np.size(values)
        if size > 1:
            tally.add(**{f"exponentials{_bits(getattr(values, 'dtype', np.float64))}": size})
        return original(values, *args, **options)

    return counted
