"""Random tables for the estimators: the values of X, how X is stored, labels, and weights of samples.

A table is described by a few words and numbers, which hypothesis can shrink and a failure can print. Its arrays are
made anew whenever they are needed, so that nobody can change those of another fit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas
from scipy import sparse

HUGE, TINY, DENORMAL, NEW_ROWS = 1e300, 1e-300, 5e-324, 9
ENTRIES = {
    "nan": np.nan,
    "inf": np.inf,
    "-inf": -np.inf,
    "1.7e308": 1.7e308,
    "-1e300": -HUGE,
    "1e30": 1e30,
    "1e-300": TINY,
}


class Table(NamedTuple):
    """Description of X, y and sample_weight; every word is a key of one of the dictionaries below."""

    n_samples: int = 12
    columns: tuple[str, ...] = ("signal", "signal")
    n_classes: int = 2
    labels: str = "ints"
    sizes: str = "random"
    storage: str = "dense"
    dtype: str = "float64"
    entry: str = ""  # that replaces one number of X, chosen by the seed
    weight: str = "none"
    seed: int = 0

    def codes(self) -> np.ndarray:
        """The class of each sample, as a number."""
        return SIZES[self.sizes](np.random.default_rng([1, self.seed]), self.n_samples, self.n_classes)

    def values(self, n_rows=None) -> np.ndarray:
        """X as a float64 array; with `n_rows`, other samples of the same columns."""
        rng = np.random.default_rng([2, self.seed, n_rows or 0])
        codes = self.codes() if n_rows is None else rng.integers(0, self.n_classes, n_rows)
        X = np.zeros((len(codes), len(self.columns)))
        for index, name in enumerate(self.columns):
            X[:, index] = ANY_COLUMN[name](
                np.random.default_rng([3, self.seed, index, n_rows or 0]), codes, X[:, :index]
            )
        if self.entry and X.size:
            X[rng.integers(len(X)), rng.integers(X.shape[1])] = ENTRIES[self.entry]
        return X

    def X(self) -> Any:
        return self._stored(self.values())

    def new_rows(self) -> Any:
        """Samples that the fit has not seen, without the entry that does not belong, finite in their type."""
        values = self._replace(entry="").values(NEW_ROWS)
        largest = np.finfo(self.dtype).max if self.dtype in ("float16", "float32") else np.inf
        return self._stored(np.clip(values, -largest, largest))

    def far_rows(self) -> Any:
        """Samples far from those of the fit, in all directions, and zeros."""
        rng = np.random.default_rng([4, self.seed])
        lengths = np.array([0, 1, 1e3, 1e10, 1e30, 1e100, 1e200, 1e300])[:, None]
        rows = lengths * rng.uniform(-1, 1, (len(lengths), len(self.columns)))
        is_small = self.dtype in ("float32", "int64", "int8", "bool", "object", "text")
        return self._replace(dtype="float64")._stored(np.clip(rows, -1e30, 1e30) if is_small else rows)

    def _stored(self, values):
        """The values in the type and the storage of this table; SciPy has no sparse matrices of some types."""
        dtype = "float64" if self.storage in SPARSE and self.dtype not in OF_SPARSE else self.dtype
        with np.errstate(all="ignore"):
            return ANY_STORAGE[self.storage](ANY_DTYPE[dtype](values), np.random.default_rng([5, self.seed]))

    def y(self) -> Any:
        return ANY_LABELS[self.labels](self.codes(), np.random.default_rng([6, self.seed]))

    def sample_weight(self) -> Any:
        return ANY_WEIGHT[self.weight](self.codes(), np.random.default_rng([7, self.seed]))

    def groups(self) -> np.ndarray:
        return np.random.default_rng([8, self.seed]).integers(0, 4, self.n_samples)


# --- sizes of the classes -----------------------------------------------------------------------------------


def _with_a_single_sample(rng, n_samples, n_classes):
    codes = rng.integers(0, max(1, n_classes - 1), n_samples)
    codes[rng.integers(0, n_samples, min(1, n_samples))] = n_classes - 1
    return codes


SIZES = {
    "random": lambda rng, n_samples, n_classes: rng.integers(0, n_classes, n_samples),
    "equal": lambda rng, n_samples, n_classes: rng.permutation(np.arange(n_samples) % n_classes),
    "sorted": lambda rng, n_samples, n_classes: np.sort(np.arange(n_samples) % n_classes),
    "a single sample": _with_a_single_sample,
    "all single": lambda rng, n_samples, n_classes: np.arange(n_samples),
    "one class": lambda rng, n_samples, n_classes: np.zeros(n_samples, int),
}


# --- columns: functions of a generator, the classes, and the columns to the left -------------------------------


def _signal(rng, codes, left):
    return rng.normal(size=len(codes)) + codes


def _replaced(share, value):
    def column(rng, codes, left):
        return np.where(rng.random(len(codes)) < share, value, _signal(rng, codes, left))

    return column


def _times(factor):
    return lambda rng, codes, left: factor * _signal(rng, codes, left)


def _plus(offset):
    return lambda rng, codes, left: offset + _signal(rng, codes, left)


def _combined(rng, codes, left):
    return left @ rng.normal(size=left.shape[1]) if left.shape[1] else _signal(rng, codes, left)


def _one_other(value):
    """A column of zeros and one other number."""

    def column(rng, codes, left):
        numbers = np.zeros(len(codes))
        numbers[rng.integers(0, len(codes), min(1, len(codes)))] = value
        return numbers

    return column


COLUMNS = {
    "signal": _signal,
    "noise": lambda rng, codes, left: rng.normal(size=len(codes)),
    "constant": lambda rng, codes, left: np.full(len(codes), 3.7),
    "zero": lambda rng, codes, left: np.zeros(len(codes)),
    "nearly constant": lambda rng, codes, left: 3.7 + 1e-13 * rng.normal(size=len(codes)),
    "constant but for rounding": lambda rng, codes, left: np.nextafter(1.0, 1.0 + rng.integers(0, 2, len(codes))),
    "copy": lambda rng, codes, left: left[:, -1] if left.shape[1] else _signal(rng, codes, left),
    "combination": _combined,
    "nearly a combination": lambda rng, codes, left: _combined(rng, codes, left) + 1e-9 * rng.normal(size=len(codes)),
    "class": lambda rng, codes, left: codes.astype(float),
    "indicator": lambda rng, codes, left: (rng.random(len(codes)) < 0.3).astype(float),
    "rare": _one_other(1.0),
    "rare and huge": _one_other(1e12),
    "counts": lambda rng, codes, left: rng.poisson(0.5 + codes).astype(float),
    "row number": lambda rng, codes, left: np.arange(len(codes), dtype=float),
    "heavy tails": lambda rng, codes, left: rng.standard_cauchy(len(codes)) ** 3,
    "outlier": lambda rng, codes, left: _signal(rng, codes, left) + 10.0 ** rng.integers(2, 16) * _rare(rng, codes),
    "sentinel": _replaced(0.3, -999.0),
    "thousands": _times(1e3),
    "millionths": _times(1e-6),
    "1e20": _times(1e20),
    "1e-20": _times(1e-20),
    "1e100": _times(1e100),
    "1e-100": _times(1e-100),
    "offset 1e8": _plus(1e8),
    "offset 1e15": _plus(1e15),
    "any unit": lambda rng, codes, left: 10.0 ** rng.uniform(-12, 12) * _signal(rng, codes, left),
    "any magnitude": lambda rng, codes, left: rng.normal(size=len(codes)) * 10.0 ** rng.uniform(-12, 12, len(codes)),
}
EXTREME_COLUMNS = {  # most of which are refused
    "1e150": _times(1e150),
    "1e-150": _times(1e-150),
    "1e300": _times(HUGE),
    "1e-300": _times(TINY),
    "denormal": lambda rng, codes, left: DENORMAL * np.rint(100 * _signal(rng, codes, left)),
}
ANY_COLUMN = COLUMNS | EXTREME_COLUMNS


def _rare(rng, codes):
    return np.arange(len(codes)) == rng.integers(0, max(1, len(codes)))


# --- types of numbers, and storages ---------------------------------------------------------------------------

DTYPES = {
    "float64": lambda values: values,
    "float32": lambda values: values.astype(np.float32),
    "float16": lambda values: values.astype(np.float16),
    "longdouble": lambda values: values.astype(np.longdouble),
    "int64": lambda values: np.rint(np.clip(np.nan_to_num(values), -1e18, 1e18)).astype(np.int64),
    "int8": lambda values: np.rint(np.clip(np.nan_to_num(values), -128, 127)).astype(np.int8),
    "bool": lambda values: values > 1,
    "object": lambda values: values.astype(object),
    "text": lambda values: values.astype(str),
}
BAD_DTYPES = {
    "words": lambda values: np.where(values > 0, "yes", "no"),
    "complex": lambda values: values.astype(complex),
    "dates": lambda values: np.clip(np.nan_to_num(values), -1e9, 1e9).astype("datetime64[s]"),
}
ANY_DTYPE = DTYPES | BAD_DTYPES


def _view(values, rng):
    """Every second row and the columns from right to left of a larger array."""
    larger = np.repeat(np.repeat(values, 2, axis=0), 2, axis=1)[:, ::-1]
    return larger[::2, ::-2] if values.size else values


def _read_only(values, rng):
    values = values.copy()
    values.flags.writeable = False
    return values


def _sparse(make):
    def stored(values, rng):
        is_thinned = values.dtype.kind == "f" and values.size
        return make(np.where(values > np.median(values), values, 0) if is_thinned else values)

    return stored


def _with_duplicates(values, rng):
    """Entries that are stored twice, out of order, and zeros that are stored."""
    rows, columns = np.indices(values.shape).reshape(2, -1)
    order = rng.permutation(np.concatenate([np.arange(len(rows))] * 2))
    order = order[np.argsort(rows[order], kind="stable")]
    numbers = values.ravel()[order] * (0.5 if values.dtype.kind == "f" else 1)
    indptr = 2 * values.shape[1] * np.arange(len(values) + 1)
    return sparse.csr_array((numbers, columns[order], indptr), shape=values.shape)


def _with_long_indices(values, rng):
    X = sparse.csr_array(values)
    return sparse.csr_array((X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)), shape=X.shape)


def _frame(values, rng):
    return pandas.DataFrame(values, columns=[f"column {index}" for index in range(values.shape[1])])


def _frame_of_nullable(values, rng):
    frame = _frame(values, rng)
    return frame.convert_dtypes() if frame.size else frame


STORAGES = {
    "dense": lambda values, rng: values,
    "fortran": lambda values, rng: np.asfortranarray(values),
    "view": _view,
    "read-only": _read_only,
    "list": lambda values, rng: values.tolist(),
    "big-endian": lambda values, rng: values.astype(values.dtype.newbyteorder(">")),
    "csr": _sparse(sparse.csr_array),
    "csc": _sparse(sparse.csc_array),
    "coo": _sparse(sparse.coo_array),
    "csr matrix": _sparse(sparse.csr_matrix),
    "csc matrix": _sparse(sparse.csc_matrix),
    "duplicates": _with_duplicates,
    "long indices": _with_long_indices,
    "lil": _sparse(sparse.lil_array),
    "frame": _frame,
    "frame of nullable": _frame_of_nullable,
    "frame of sparse": lambda values, rng: _frame(values, rng).astype(
        pandas.SparseDtype(values.dtype, values.dtype.type(0))
    ),
}
BAD_STORAGES = {
    "one-dimensional": lambda values, rng: values.ravel(),
    "three-dimensional": lambda values, rng: values[None],
}
ANY_STORAGE = STORAGES | BAD_STORAGES

SPARSE = [*("csr", "csc", "coo", "csr matrix", "csc matrix", "duplicates", "long indices", "lil"), "frame of sparse"]
DENSE_STORAGES = {name: stored for name, stored in STORAGES.items() if name not in SPARSE}
OF_SPARSE = ("float64", "float32", "int64", "int8", "bool", "complex")


# --- labels -----------------------------------------------------------------------------------------------------


def _named(names):
    names = np.array(names)
    return lambda codes, rng: names[codes % len(names)]


def _one_replaced(other):
    def labels(codes, rng):
        found = np.array([f"class {code}" for code in codes], dtype=object)
        found[rng.integers(0, len(codes), min(1, len(codes)))] = other
        return found

    return labels


LABELS = {
    "ints": lambda codes, rng: codes,
    "negative": lambda codes, rng: -3 * codes - 1,
    "large ints": lambda codes, rng: codes + 2**62,
    "uint8": lambda codes, rng: (codes % 256).astype(np.uint8),
    "bools": lambda codes, rng: codes % 2 == 0,
    "floats": lambda codes, rng: codes.astype(float),
    "strings": lambda codes, rng: np.array([f"class {code}" for code in codes], dtype=str),
    "objects": lambda codes, rng: np.array([f"class {code}" for code in codes], dtype=object),
    "accents and blanks": _named(["", " ", "\u00e9", "\n", "\U0001f333"]),
    "list": lambda codes, rng: codes.tolist(),
    "list of strings": lambda codes, rng: [f"class {code}" for code in codes],
    "series": lambda codes, rng: pandas.Series(codes, index=range(5, 5 + len(codes))),
    "categorical": lambda codes, rng: pandas.Series([f"class {code}" for code in codes], dtype="category"),
    "column": lambda codes, rng: codes[:, None],
    "read-only": lambda codes, rng: _read_only(codes, rng),
    "bytes": _named([b"oak", b"ash", b"elm"]),
    "dates": lambda codes, rng: codes.astype("datetime64[D]"),
    "objects of ints": lambda codes, rng: codes.astype(object),
}
BAD_LABELS = {  # nearly all of which are refused
    "one is a number": _one_replaced(3),
    "one is None": _one_replaced(None),
    "one is NaN": _one_replaced(np.nan),
    "continuous": lambda codes, rng: codes + rng.random(len(codes)),
    "floats with NaN": lambda codes, rng: np.where(rng.random(len(codes)) < 0.2, np.nan, codes),
    "floats with infinity": lambda codes, rng: np.where(rng.random(len(codes)) < 0.2, np.inf, codes),
    "two columns": lambda codes, rng: np.column_stack([codes, codes]),
    "too many": lambda codes, rng: np.append(codes, 0),
    "too few": lambda codes, rng: codes[:-1],
    "none": lambda codes, rng: None,
    "complex": lambda codes, rng: codes.astype(complex),
}
ANY_LABELS = LABELS | BAD_LABELS


# --- weights ------------------------------------------------------------------------------------------------------


def _weights(value, is_changed):
    """Ones, and another value for some samples."""

    def weight(codes, rng):
        return np.where(is_changed(codes, rng), value, 1.0)

    return weight


def _some(codes, rng):
    return rng.random(len(codes)) < 0.3


def _class(codes, rng):
    return codes == codes[0] if len(codes) else codes == 0


def _one(codes, rng):
    return _rare(rng, codes)


def _all(codes, rng):
    return np.full(len(codes), True)


WEIGHTS = {
    "none": lambda codes, rng: None,
    "ones": _weights(1.0, _all),
    "random": lambda codes, rng: rng.exponential(size=len(codes)),
    "shares": lambda codes, rng: rng.dirichlet(np.ones(max(1, len(codes))))[: len(codes)],
    "ints": lambda codes, rng: rng.integers(0, 4, len(codes)),
    "bools": _some,
    "float32": lambda codes, rng: rng.exponential(size=len(codes)).astype(np.float32),
    "list": lambda codes, rng: rng.exponential(size=len(codes)).tolist(),
    "series": lambda codes, rng: pandas.Series(rng.exponential(size=len(codes))),
    "number": lambda codes, rng: 2.5,
    "some zero": _weights(0.0, _some),
    "a class of zeros": _weights(0.0, _class),
    "all 1e300": _weights(HUGE, _all),
    "some 1e300": _weights(HUGE, _some),
    "one 1e300": _weights(HUGE, _one),
    "all 1e-300": _weights(TINY, _all),
    "some 1e-300": _weights(TINY, _some),
    "all denormal": _weights(DENORMAL, _all),
    "a class of 1e-12": _weights(1e-12, _class),
    "one 1e12": _weights(1e12, _one),
    "any magnitude": lambda codes, rng: 10.0 ** rng.uniform(-30, 30, len(codes)),
}
BAD_WEIGHTS = {  # nearly all of which are refused
    "all but one zero": lambda codes, rng: _one(codes, rng).astype(float),
    "all zero": _weights(0.0, _all),
    "one negative": _weights(-1.0, _one),
    "one NaN": _weights(np.nan, _one),
    "one infinite": _weights(np.inf, _one),
    "too many": lambda codes, rng: np.ones(len(codes) + 1),
    "two columns": lambda codes, rng: np.ones((len(codes), 2)),
    "words": lambda codes, rng: ["heavy"] * len(codes),
}
ANY_WEIGHT = WEIGHTS | BAD_WEIGHTS
