"""The content of a model file: named arrays and a JSON text, in the safetensors format, without compression.

The first 8 bytes are the length of a JSON header, which gives the type, shape and place of every array, and under
"__metadata__" a text named by the format, and a checksum. The arrays follow without gaps, so the sizes in the header
must add up to the size of the file before anything is made from it.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import numpy as np

LENGTH = np.dtype("<u8")
LONGEST_HEADER = 1 << 24  # bytes; values of JSON take up to 25 times the memory of their text
METADATA, FORMAT, CHECKSUM = "__metadata__", "annealed table model, 2", "sha256"
DTYPES = {"F64": np.dtype("<f8"), "I64": np.dtype("<i8"), "U64": np.dtype("<u8"), "BOOL": np.dtype("?")}
CODES = {"f": "F64", "i": "I64", "u": "U64", "b": "BOOL"}


def to_bytes(content: dict[str, Any]) -> bytes:
    """A dictionary, in which dictionaries may hold further ones, with arrays and values of JSON.

    The name of an array in the file is made of the keys that lead to it. Entries that are None are left out.
    """
    arrays: dict[str, np.ndarray] = {}
    text, header, chunks, end = _json(_without_arrays(content, "", arrays)), {}, [], 0
    for name, array in arrays.items():
        code = CODES[array.dtype.kind]
        chunks.append(np.ascontiguousarray(array, DTYPES[code]).tobytes())
        begin, end = end, end + len(chunks[-1])
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [begin, end]}
    data = b"".join(chunks)
    encoded = _json({METADATA: {FORMAT: text, CHECKSUM: checksum(text, data)}, **header}).encode()
    encoded += b" " * (-len(encoded) % LENGTH.itemsize)  # aligns the arrays
    if len(encoded) > LONGEST_HEADER:
        raise ValueError("its columns have too many distinct texts")
    return b"".join([np.array(len(encoded), LENGTH).tobytes(), encoded, data])


def checksum(text: str, data: bytes | memoryview) -> str:
    """Recognizes damage, so that a flipped bit does not change predictions; it is no protection from an attacker."""
    digest = hashlib.sha256(text.encode())
    digest.update(data)
    return digest.hexdigest()


def _without_arrays(content, prefix, arrays):
    values = {}
    for name, value in content.items():
        if isinstance(value, np.ndarray):
            arrays[prefix + name] = value
        elif isinstance(value, dict):
            values[name] = _without_arrays(value, f"{prefix}{name}.", arrays)
        elif value is not None:
            values[name] = value
    return values


def _json(value):
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def from_bytes(data: bytes) -> Content:
    """The content of a file; raises a ValueError or a KeyError if it has another format."""
    length = int(np.frombuffer(data, LENGTH, 1)[0])
    if not 0 < length <= min(LONGEST_HEADER, len(data) - LENGTH.itemsize):
        raise ValueError(f"The header has a length of {length}.")
    begin = LENGTH.itemsize + length
    header = _parsed(data[LENGTH.itemsize : begin].decode())  # given bytes, json would guess their encoding
    metadata = header.pop(METADATA)
    if metadata[CHECKSUM] != checksum(metadata[FORMAT], memoryview(data)[begin:]):
        raise ValueError("The checksum is wrong.")
    arrays, end = {}, 0
    for name, described in header.items():
        dtype, shape = DTYPES[described["dtype"]], described["shape"]
        if any(type(size) is not int or size < 0 for size in shape):
            raise ValueError(f"Array {name!r} has shape {shape}.")
        first, end = end, end + math.prod(shape) * dtype.itemsize
        if described["data_offsets"] != [first, end] or end > len(data) - begin:
            raise ValueError(f"Array {name!r} is not at its place.")
        if dtype.kind == "b" and np.frombuffer(data, np.uint8, end - first, begin + first).max(initial=0) > 1:
            raise ValueError(f"Array {name!r} must hold truth values.")
        arrays[name] = np.frombuffer(data, dtype, math.prod(shape), begin + first).reshape(shape).copy()
    if begin + end != len(data):
        raise ValueError(f"{begin + end} bytes were expected. Got {len(data)}.")
    return Content(_parsed(metadata[FORMAT]), arrays)


def _parsed(text):
    value = json.loads(text, object_pairs_hook=_without_repetition, parse_constant=_refuse)
    if not isinstance(value, dict):
        raise ValueError("An object was expected.")
    return value


def _refuse(constant):
    raise ValueError(f"{constant} is not a value of JSON.")


def _without_repetition(pairs):
    if len(dict(pairs)) < len(pairs):
        raise ValueError("A name is repeated.")
    return dict(pairs)


class Content:
    """What a file holds, entry by entry: each must have the type and the shape that is asked for.

    An entry is given out once; `close` raises an error if one is left, because the library writes none that it does
    not read.
    """

    def __init__(self, values: dict[str, Any], arrays: dict[str, np.ndarray], prefix: str = "") -> None:
        self._values = values
        self._arrays = arrays
        self._prefix = prefix

    def __contains__(self, name: str) -> bool:
        return name in self._values or self._prefix + name in self._arrays

    def close(self) -> None:
        left = [*self._values, *(name for name in self._arrays if name.startswith(self._prefix))]
        if left:
            raise ValueError(f"{left[0]!r} was not expected.")

    def _value(self, name, kinds):
        value = self._values.pop(name)
        if type(value) not in kinds:  # a bool is an int for isinstance
            raise TypeError(f"{name!r} must not be a {type(value).__name__}.")
        return value

    def part(self, name: str) -> Content:
        return Content(self._value(name, [dict]), self._arrays, f"{self._prefix}{name}.")

    def text(self, name: str) -> str:
        return checked_text(self._value(name, [str]))

    def texts(self, name: str) -> list[str]:
        """Different texts."""
        return distinct_texts(self._value(name, [list]))

    def values(self, name: str) -> list:
        return self._value(name, [list])

    def truth(self, name: str) -> bool:
        return self._value(name, [bool])

    def whole(self, name: str) -> int:
        """A number that is not negative."""
        number = self._value(name, [int])
        if number < 0:
            raise ValueError(f"{name!r} must not be negative. Got {number}.")
        return number

    def number(self, name: str, *, above: float = -math.inf) -> float:
        number = float(self._value(name, [int, float]))
        if not above < number < math.inf:
            raise ValueError(f"{name!r} must be a number above {above}. Got {number}.")
        return number

    def text_or_number(self, name: str) -> str | float:
        return self.text(name) if type(self._values[name]) is str else self.number(name)

    def array(self, name: str, shape, kind: str = "f", *, is_finite: bool = True, above: float = -math.inf):
        """An array with a dtype of this kind; None in a shape stands for any size."""
        array = self._arrays.pop(self._prefix + name)
        is_shaped = len(shape) == array.ndim and all(
            size in (None, actual) for size, actual in zip(shape, array.shape, strict=True)
        )
        if array.dtype.kind != kind or not is_shaped:
            raise ValueError(f"{name!r} must have shape {shape}. Got {array.shape} of {array.dtype}.")
        if is_finite and not (np.isfinite(array).all() and (array > above).all()):
            raise ValueError(f"{name!r} must hold finite numbers above {above}.")
        return array


def checked_text(value) -> str:
    if not isinstance(value, str):
        raise TypeError(f"A text was expected. Got a {type(value).__name__}.")
    value.encode()  # raises an error for half of a surrogate pair, which could not be written to a file
    return value


def distinct_texts(values) -> list[str]:
    if not isinstance(values, list) or len(set(map(checked_text, values))) < len(values):
        raise ValueError("A list of different texts was expected.")
    return values
