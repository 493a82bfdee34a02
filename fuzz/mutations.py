"""Ways to damage a model file, from a flipped byte to a file that was made to be believed.

A mutation gets a random generator, the bytes of a file, and those of another model, and returns other bytes.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import zipfile
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np

from annealed.app.model_files.content import CHECKSUM, FORMAT, LENGTH, METADATA, checksum

TYPES = {"F64": "<f8", "I64": "<i8", "U64": "<u8", "BOOL": "u1"}
NUMBERS = (0, 1, -1, 2, 24, 0.5, -0.0, 1e-320, 1e-9, 1e9, 1e308, -1e308, 2**31, 2**53, 2**63, 2**70, 10**400)
TEXTS = (
    "",
    "os.system",
    "=HYPERLINK(1)",
    "\ud800",
    "a\0b",
    "missing",
    "x" * 100_000,
    "../../../etc/passwd",
    "1e999",
    "nan",
)
OBJECT = {"__class__": "system", "__module__": "os", "__loader__": "FunctionNode", "args": ["touch annealed-was-here"]}
VALUES = (None, True, False, [], {}, [[]], [None], {"a": 1}, OBJECT, [OBJECT], [0] * 1000, ["a", "a"], *NUMBERS, *TEXTS)
SETTINGS = {
    "memory": "folder-of-pickles",
    "n_jobs": 24,
    "callbacks": [OBJECT],
    "scoring": OBJECT,
    "func": "os.system",
    "random_state": OBJECT,
    "schedule": [1.0, 0.5],
    "steps": [["table", OBJECT]],
    "transformers": [OBJECT],
    "cv": 10**9,
    "max_iter": 10**12,
    "device": "cuda",
    "__class__": "subprocess.Popen",
    "__reduce__": ["os.system", ["true"]],
    "__dict__": {"predict_proba": OBJECT},
    "predict_proba": 3,
}
FILLS = (np.nan, np.inf, -np.inf, 0.0, -1.0, 1e308, -1e308, 1e150, 1e-320, 1e-150)
INFLATED = 20_000_000  # bytes


class Parts(NamedTuple):
    """A file in parts that can be changed: its header without the text, the text as a dictionary, and its arrays.

    The checksum always fits, as in a file that was made to be believed.
    """

    header: dict[str, Any]
    document: dict[str, Any]
    arrays: dict[str, bytearray]

    @classmethod
    def of(cls, data: bytes) -> Parts:
        begin = 8 + int(np.frombuffer(data, LENGTH, 1)[0])
        header = json.loads(data[8:begin])
        document = json.loads(header.pop(METADATA)[FORMAT])
        places = {name: described["data_offsets"] for name, described in header.items()}
        return cls(header, document, {name: bytearray(data[begin + a : begin + b]) for name, (a, b) in places.items()})

    def packed(self, *, is_fitting=True) -> bytes:
        """The file; the places of its arrays are made to fit their sizes, unless the header is to lie."""
        end = 0
        for name, array in self.arrays.items() if is_fitting else ():
            self.header.setdefault(name, {"dtype": "F64", "shape": [len(array) // 8]})
            self.header[name]["data_offsets"] = [end, end := end + len(array)]
        order = {name: self.header[name] for name in self.arrays if name in self.header}
        return self.joined(json.dumps(self.document), order if is_fitting else self.header)

    def joined(self, text, header) -> bytes:
        """The file with another text and another header, and with the checksum that belongs to them."""
        data = b"".join(self.arrays.values())
        encoded = json.dumps({METADATA: {FORMAT: text, CHECKSUM: checksum(text, data)}, **header}).encode()
        return b"".join([np.array(len(encoded), LENGTH).tobytes(), encoded, data])


# --- bytes ------------------------------------------------------------------------------------------------


def flipped_bytes(rng, data, other):
    changed = bytearray(data)
    first = int(rng.choice([len(data), 2000, 16]))  # often in the header
    for place in rng.integers(0, min(first, len(data)), rng.integers(1, 20)):
        changed[place] = rng.integers(256)
    return bytes(changed)


def flipped_bits_of_arrays(rng, data, other):
    """Without touching the header, so that the file is read as a whole."""
    parts = Parts.of(data)
    for _ in range(rng.integers(1, 5)):
        array = _one(rng, [array for array in parts.arrays.values() if array])
        array[rng.integers(len(array))] ^= 1 << int(rng.integers(8))
    return parts.packed()


def truncated(rng, data, other):
    return data[: rng.integers(len(data))] + bytes(int(rng.integers(2)) * int(rng.integers(64)))


def overwritten(rng, data, other):
    first, length = int(rng.integers(len(data))), int(rng.integers(1, 400))
    filling = bytes(length) if rng.integers(2) else rng.bytes(length)
    return data[:first] + filling + data[first + length :]


def joined_files(rng, data, other):
    place = int(rng.integers(min(len(data), len(other))))
    return data[:place] + other[place:]


# --- the text ---------------------------------------------------------------------------------------------


def _containers(value):
    """All dictionaries and lists inside a value, itself included."""
    found = [value]
    for child in value.values() if isinstance(value, dict) else value:
        found += _containers(child) if isinstance(child, dict | list) else []
    return found


def _place(rng, document):
    """A container that is not empty, and one of its keys."""
    container = _one(rng, [found for found in _containers(document) if found])
    return container, _one(rng, list(container) if isinstance(container, dict) else range(len(container)))


def _one(rng, choices):
    choices = list(choices)
    return choices[rng.integers(len(choices))]


def replaced_values(rng, data, other):
    parts = Parts.of(data)
    for _ in range(rng.integers(1, 4)):
        container, key = _place(rng, parts.document)
        container[key] = deepcopy(_one(rng, VALUES))
    return parts.packed()


def perturbed_values(rng, data, other):
    """Values of the same type."""
    parts = Parts.of(data)
    for _ in range(10):
        container, key = _place(rng, parts.document)
        value = container[key]
        if isinstance(value, bool):
            container[key] = not value
        elif isinstance(value, int):
            container[key] = value + int(rng.integers(-3, 4))
        elif isinstance(value, float):
            container[key] = value * float(rng.choice([0.5, 2.0, -1.0, 1e10]))
        elif isinstance(value, str):
            container[key] = _one(rng, [value + "x", value[1:], value.upper(), *TEXTS[:6]])
        else:
            continue
        break
    return parts.packed()


def dropped_or_repeated_values(rng, data, other):
    parts = Parts.of(data)
    container, key = _place(rng, parts.document)
    if isinstance(container, dict):
        value = container.pop(key)
        if rng.integers(2):
            container[_one(rng, ["new", *container])] = value
    elif rng.integers(2):
        del container[key]
    else:
        container.insert(int(rng.integers(len(container) + 1)), deepcopy(container[key]))
    return parts.packed()


def deep_values(rng, data, other):
    parts = Parts.of(data)
    depth = int(rng.choice([100, 100_000]))
    container, key = _place(rng, parts.document)
    container[key] = "DEEP"
    return parts.joined(json.dumps(parts.document).replace('"DEEP"', "[" * depth + "]" * depth), parts.header)


def injected_settings(rng, data, other):
    parts = Parts.of(data)
    for name in rng.choice(list(SETTINGS), rng.integers(1, 4)):
        container = _one(rng, [found for found in _containers(parts.document) if isinstance(found, dict)])
        container[str(name)] = deepcopy(SETTINGS[str(name)])
    return parts.packed()


def sections_of_another_model(rng, data, other):
    parts, others = Parts.of(data), Parts.of(other)
    section = _one(rng, parts.document)
    if section in others.document:
        parts.document[section] = others.document[section]
    for name in [name for name in parts.arrays if name.startswith(f"{section}.")]:
        if name in others.arrays and rng.integers(2):
            parts.arrays[name], parts.header[name] = others.arrays[name], others.header[name]
    return parts.packed()


# --- arrays -----------------------------------------------------------------------------------------------


def edited_headers(rng, data, other):
    parts = Parts.of(data)
    described = _one(rng, parts.header.values())
    choice = rng.integers(4)
    if choice == 0:
        described["dtype"] = _one(rng, [*TYPES, "O", "F32", "U8", "V", "|O", None, 3])
    elif choice == 1 and described["shape"]:
        described["shape"][rng.integers(len(described["shape"]))] = _one(rng, [*NUMBERS, None, "3", [3]])
    elif choice == 2:
        described["shape"] = _one(
            rng, [[], described["shape"][::-1], [1, *described["shape"]], [0], [-1], 3, [2**62, 4], [0, 10**15]]
        )
    else:
        described["data_offsets"] = _one(rng, [[0, 8], [0, 2**62], [-8, 0], [8, 0], [1], None, "all"])
    return parts.packed(is_fitting=False)


def moved_arrays(rng, data, other):
    """Swapped, dropped, repeated or renamed."""
    parts, choice = Parts.of(data), rng.integers(4)
    first, second = rng.choice(list(parts.arrays), 2, replace=False)
    if choice == 0:
        parts.arrays[first], parts.arrays[second] = parts.arrays[second], parts.arrays[first]
        parts.header[first], parts.header[second] = parts.header[second], parts.header[first]
    elif choice == 1:
        del parts.arrays[first], parts.header[first]
    else:
        name = first + "_more" if choice == 2 else _one(rng, ["", "a.b", "\n", "__class__", f"{second}.memory"])
        parts.arrays[name], parts.header[name] = parts.arrays[first], dict(parts.header[first])
    return parts.packed()


def replaced_numbers(rng, data, other):
    parts = Parts.of(data)
    for _ in range(rng.integers(1, 3)):
        name = _one(rng, [name for name, array in parts.arrays.items() if array])
        numbers = np.frombuffer(bytes(parts.arrays[name]), TYPES[parts.header[name]["dtype"]]).copy()
        chosen = slice(None) if rng.integers(3) == 0 else rng.integers(0, len(numbers), rng.integers(1, 4))
        if numbers.dtype.kind == "f":
            numbers[chosen] = _one(rng, FILLS)
        else:
            limits = np.iinfo(numbers.dtype)
            numbers[chosen] = _one(rng, [limits.min, limits.max, 0, 1, 2, 10])
        parts.arrays[name] = bytearray(numbers.tobytes())
    return parts.packed()


def perturbed_numbers(rng, data, other):
    """Scaled or permuted, which mostly gives another model that is valid."""
    parts = Parts.of(data)
    name = _one(rng, [name for name, array in parts.arrays.items() if array and parts.header[name]["dtype"] == "F64"])
    numbers = np.frombuffer(bytes(parts.arrays[name])).copy()
    if rng.integers(2):
        numbers *= 10.0 ** rng.uniform(-12, 12)
    else:
        rng.shuffle(numbers)
    parts.arrays[name] = bytearray(numbers.tobytes())
    return parts.packed()


def inflated(rng, data, other):
    """Arrays, texts or lists that are much larger than those of a model, and sizes that are only claimed."""
    parts, choice = Parts.of(data), rng.integers(4)
    name = _one(rng, parts.arrays)
    if choice == 0:
        parts.arrays[name] = bytearray(INFLATED)
        parts.header[name]["shape"] = [INFLATED // 8, *([1] * (len(parts.header[name]["shape"]) - 1))]
    elif choice == 1:
        parts.header[name]["shape"] = [2**40]
        return parts.packed(is_fitting=False)
    elif choice == 2:
        container, key = _place(rng, parts.document)
        repeated, times = _one(rng, [([0], 3_000_000), ("x", INFLATED), (["ab"], 2_000_000), ([{}], 3_000_000)])
        container[key] = repeated * times
    else:
        names = [f"c{index}" for index in range(int(rng.choice([2_000, 1_000_000])))]
        parts.document["columns"][_one(rng, ["numbers", "categories"])] = names
    return parts.packed()


def lying_lengths(rng, data, other):
    length = _one(rng, [0, 1, 7, len(data), len(data) - 8, 2**25, 2**40, 2**63, 2**64 - 1])
    return np.array(length, LENGTH).tobytes() + data[8:]


# --- other formats ----------------------------------------------------------------------------------------


class _Trap:
    def __reduce__(self):
        return open, ("annealed-was-here", "w")


def other_formats(rng, data, other):
    choice = rng.integers(5)
    if choice == 0:
        return pickle.dumps(_Trap())
    if choice == 1:
        return gzip.compress(data)
    buffer = io.BytesIO()
    if choice == 2:
        np.savez(buffer, a=np.array([_Trap()], object))
        return buffer.getvalue()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:  # as skops writes, but of 30 MB or with a trap
        archive.writestr("schema.json", json.dumps({"protocol": 2, **OBJECT}) if choice == 3 else bytes(30_000_000))
    return buffer.getvalue()


MUTATIONS = (
    flipped_bytes,
    flipped_bits_of_arrays,
    truncated,
    overwritten,
    joined_files,
    replaced_values,
    perturbed_values,
    dropped_or_repeated_values,
    deep_values,
    injected_settings,
    sections_of_another_model,
    edited_headers,
    moved_arrays,
    replaced_numbers,
    perturbed_numbers,
    inflated,
    lying_lengths,
    other_formats,
)
