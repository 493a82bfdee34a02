"""Arrays of any library (NumPy, torch, CuPy, array-api-strict), on their own device.

NumPy arrays are handled by NumPy itself; everything else is written in the array-API standard, so that one
implementation serves every library. No library is imported here unless the user has already imported it.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj, is_numpy_array
from array_api_compat import device as device_of_array
from array_api_compat import numpy as compatible_numpy
from scipy import sparse
from sklearn import get_config

from annealed.lazy import cached_property
from annealed.optional import require

ROUNDING = 256 * np.finfo(np.float64).eps  # relative rounding error of a long sum in float64
ALIGNED_NUMBERS = 16 // np.dtype(np.float16).itemsize  # tensor cores need rows aligned to 16 bytes
SHARE_OF_MEMORY = 0.7  # of the free device memory: a larger X is streamed
numpy_namespace = np if hasattr(np, "concat") else compatible_numpy  # NumPy before 2.0 has other names


def is_foreign(array) -> bool:
    """Whether an array belongs to another library than NumPy."""
    return not is_numpy_array(array) and not sparse.issparse(array) and is_array_api_obj(array)


def _is_of(values, dtype) -> bool:
    """Whether an array is a foreign one with this dtype, by a very fast test."""
    return getattr(values, "dtype", None) is dtype and not isinstance(values, (np.ndarray, np.generic))


def is_dispatched(X) -> bool:
    """Whether scikit-learn lets X stay in its library: a foreign array with `array_api_dispatch` enabled."""
    return bool(get_config()["array_api_dispatch"]) and is_foreign(X)


def namespace_of(array):
    """The namespace of an array."""
    return numpy_namespace if isinstance(array, (np.ndarray, np.generic)) else array_namespace(array)


def to_host(array) -> np.ndarray:
    """A NumPy copy of a small array."""
    if not is_foreign(array):
        return np.asarray(array)
    if hasattr(array, "detach"):
        return array.detach().cpu().numpy()
    if hasattr(array, "get"):
        return array.get()
    home = array_namespace(array).__array_namespace_info__().default_device()
    return np.asarray(array.to_device(home))


def detached(array):
    """The array without the autograd graph that torch would otherwise record."""
    return array.detach() if hasattr(array, "detach") else array


def take_rows(array, rows):
    """Rows of an array, selected by NumPy indices or by indices on the array's device."""
    if not is_foreign(array):
        return array[rows]
    place = Place.of(array)
    xp, rows = place.xp, place.whole(rows)
    if not xp.isdtype(array.dtype, "unsigned integer"):
        return xp.take(array, rows, axis=0)
    signed = xp.astype(array, xp.int64)  # torch cannot index most unsigned dtypes
    return xp.astype(xp.take(signed, rows, axis=0), array.dtype)


def is_mapped(array) -> bool:
    """Whether an array is a memory map, or a view of one."""
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = getattr(array, "base", None)
    return False


def as_slice(numbers):
    """An array of indices, as a slice if they are consecutive."""
    first, last = int(numbers[0]), int(numbers[-1])
    is_run = last - first == len(numbers) - 1 and (numbers[1:] - numbers[:-1] == 1).all()
    return slice(first, last + 1) if is_run else numbers


def take(array, chosen):
    """Entries along the first axis of an array of any library; `chosen` is a slice or NumPy indices."""
    if isinstance(array, np.ndarray):
        return array[chosen]
    chosen = _selection(chosen)
    if isinstance(chosen, slice):
        return array[chosen, ...]
    xp = array_namespace(array)
    return xp.take(array, xp.asarray(chosen, device=device_of_array(array)), axis=0)


def put(array, chosen, values):
    """Replace entries along the first axis; `chosen` as in `take`."""
    if isinstance(array, np.ndarray):
        array[chosen] = values
        return
    chosen = _selection(chosen)
    if isinstance(chosen, slice):
        array[chosen, ...] = values
        return
    for number, entry in enumerate(chosen.tolist()):  # the standard has no assignment to an array of indices
        array[entry, ...] = values[number, ...]


def _selection(chosen):
    if isinstance(chosen, slice):
        return chosen
    chosen = np.asarray(chosen)
    return as_slice(chosen) if len(chosen) else slice(0, 0)


def inner(left, right):
    """Inner product of each row of two matrices."""
    return (left[:, None, :] @ right[:, :, None])[:, 0, 0]


def reshaped(array, shape):
    return array.reshape(shape) if isinstance(array, np.ndarray) else array_namespace(array).reshape(array, shape)


def at_least(array, floor):
    """The array with its entries raised to a number."""
    return np.maximum(array, floor) if isinstance(array, np.ndarray) else array_namespace(array).clip(array, min=floor)


def in_dtype(array, dtype):
    return (
        array.astype(dtype, copy=False)
        if isinstance(array, np.ndarray)
        else array_namespace(array).astype(array, dtype)
    )


def copied(array):
    if isinstance(array, np.ndarray):
        return array.copy()
    return array_namespace(array).asarray(array, copy=True)


def stacked(arrays):
    """Arrays of equal shape, stacked along a new leading axis."""
    return namespace_of(arrays[0]).stack(arrays)


def combined(weights, arrays):
    """Weighted sum of arrays of equal shape, in their dtype."""
    if not isinstance(arrays[0], np.ndarray):  # on a device, few operations are faster
        whole, place = stacked(arrays), Place.of(arrays[0])
        return place.xp.tensordot(place.wide(weights), whole, axes=1)
    total = float(weights[0]) * arrays[0]
    for weight, array in zip(weights[1:], arrays[1:], strict=True):
        if weight:
            total = total + float(weight) * array
    return total


def aligned_width(width):
    """The width of rows in half precision, rounded up such that tensor cores multiply them."""
    return -(-width // ALIGNED_NUMBERS) * ALIGNED_NUMBERS


@dataclass(frozen=True)
class Place:
    """Where arrays live: a library, one of its devices, and the dtypes of samples and of parameters.

    row_dtype : dtype of X
    wide_dtype : dtype of parameters and of sums, float64 if the device has it
    returns_numpy : whether the user gave NumPy arrays, so that fitted attributes must be NumPy arrays, too
    """

    xp: Any
    device: Any
    row_dtype: Any
    wide_dtype: Any
    returns_numpy: bool = False
    is_host = False

    @classmethod
    def of(cls, array) -> Place:
        xp, device = array_namespace(array), device_of_array(array)
        floats = xp.__array_namespace_info__().dtypes(kind="real floating", device=device)
        wide = floats.get("float64", floats["float32"])
        is_float = array.dtype in floats.values()
        return cls(xp, device, array.dtype if is_float else wide, wide)

    @cached_property
    def is_torch(self) -> bool:
        return self.xp.__name__.endswith("torch")

    @cached_property
    def is_accelerator(self) -> bool:
        return "cuda" in str(self.device).lower() or "cupy" in self.xp.__name__

    @property
    def float_dtypes(self):
        """Dtypes of X that are used without conversion."""
        floats = self.xp.__array_namespace_info__().dtypes(kind="real floating", device=self.device)
        return [floats[name] for name in ("float64", "float32") if name in floats]

    @cached_property
    def rounding(self) -> float:
        """Relative rounding error of an entry of X."""
        return float(self.xp.finfo(self.row_dtype).eps)

    @cached_property
    def tiny(self) -> float:
        """Smallest normal number of parameters."""
        return float(self.xp.finfo(self.wide_dtype).smallest_normal)

    @cached_property
    def row_bytes(self) -> int:
        return self.xp.finfo(self.row_dtype).bits // 8

    def wide(self, values):
        """Parameters and other small arrays on the device, in `wide_dtype`; foreign arrays are only converted."""
        if _is_of(values, self.wide_dtype):
            return values
        if is_foreign(values):
            return self.xp.astype(values, self.wide_dtype, copy=False)
        return self.xp.asarray(np.array(values), dtype=self.wide_dtype, device=self.device)

    def row(self, values):
        """Like `wide`, in the dtype of X."""
        if _is_of(values, self.row_dtype):
            return values
        if is_foreign(values):
            return self.xp.astype(values, self.row_dtype, copy=False)
        return self.xp.asarray(np.array(values), dtype=self.row_dtype, device=self.device)

    def given(self, array):
        """An array of the library of the user's arrays."""
        return to_host(array) if self.returns_numpy else array

    def whole(self, values):
        """Integers, such as sample indices, on the device."""
        if is_foreign(values):
            return values
        return self.xp.asarray(np.array(values, dtype=np.int64), device=self.device)

    def zeros(self, shape):
        return self.xp.zeros(shape, dtype=self.wide_dtype, device=self.device)

    def aligned(self, shape, dtype):
        """An uninitialized torch array whose rows are aligned for tensor cores."""
        n_rows, width = shape[0], prod(shape[1:])
        array = self.xp.empty((n_rows, aligned_width(width)), dtype=dtype, device=self.device)
        return array[:, :width].unflatten(1, shape[1:])

    def free_bytes(self) -> float:
        """Memory of the torch device that is free, within the share that the process may use."""
        if not self.is_accelerator:
            return np.inf
        cuda = self.xp.cuda
        free, whole = cuda.mem_get_info(self.device)
        unused = cuda.memory_reserved(self.device) - cuda.memory_allocated(self.device)
        allowed = cuda.get_per_process_memory_fraction(self.device) * whole - cuda.memory_allocated(self.device)
        return min(free + unused, allowed)

    def host(self, *arrays) -> list[np.ndarray]:
        """Small float arrays as NumPy arrays, in one transfer."""
        flat = [self.xp.reshape(self.wide(array), (-1,)) for array in arrays]
        numbers = np.array(to_host(self.xp.concat(flat)), dtype=np.float64)
        each = zip(accumulate(part.shape[0] for part in flat), flat, arrays, strict=True)
        return [numbers[end - part.shape[0] : end].reshape(array.shape) for end, part, array in each]

    @contextmanager
    def products_in(self, precision: str | None):
        """A context in which torch computes float32 products in full precision, or in TF32 if `precision` is set."""
        if not self.is_torch:
            yield
            return
        before = self.xp.get_float32_matmul_precision()
        self.xp.set_float32_matmul_precision("highest" if precision is None else "high")
        try:
            yield
        finally:
            self.xp.set_float32_matmul_precision(before)


class _Host(Place):
    """NumPy arrays, which need no transfer."""

    is_host = True

    def wide(self, values):
        return np.asarray(values, dtype=np.float64)

    row = wide

    def whole(self, values):
        return np.asarray(values, dtype=np.int64)

    def host(self, *arrays):
        return list(arrays)


HOST = _Host(numpy_namespace, "cpu", np.float64, np.float64)


def on_named_device(X, device):
    """Move NumPy samples to a torch tensor on `device`, unless they do not fit into its memory.

    Returns (X, place). This is the only function that imports torch.
    """
    torch = require("torch", extra="gpu")
    try:
        sample = torch.empty((0,), dtype=getattr(torch, X.dtype.name), device=device)
    except (AssertionError, RuntimeError, NotImplementedError, TypeError, ValueError) as error:
        raise ValueError(f"device={device!r} cannot be used by torch here: {str(error).splitlines()[0]}") from error
    device = sample.device
    place = replace(Place.of(sample), returns_numpy=True)
    if X.nbytes > SHARE_OF_MEMORY * place.free_bytes():
        return X, place
    with warnings.catch_warnings():  # no fit writes to X: read-only arrays need no copy
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.asarray(X, device=device), place
