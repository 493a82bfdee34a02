"""Read a table from a file and take its target apart: every way in which that can fail has a sentence of its own."""

from __future__ import annotations

import codecs
import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from annealed.datasets import load_default
from annealed.optional import require
from annealed.tables.base import InputError, TableColumns, check_columns, labels_of

SAMPLE_BYTES = 65_536
SEPARATORS = ",;\t|"
ALSO_MISSING = ["?"]  # beyond what pandas takes for missing
DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*")


@dataclass(frozen=True)
class LabelledTable:
    """Rows to learn from: features as read, labels, and what each column is."""

    features: Any
    labels: np.ndarray
    target: str
    columns: TableColumns

    @property
    def classes(self) -> np.ndarray:
        return np.unique(self.labels)

    def conformed(self):
        return self.columns.conform(self.features)


def read_table(path: Path, *, separator: str | None = None, encoding: str | None = None):
    """A pandas DataFrame from CSV (separator and encoding found from its beginning, if not given) or Parquet."""
    if not path.exists():
        raise InputError(f"There is no file '{path}'.")
    if path.is_dir():
        raise InputError(f"'{path}' is a folder, not a table.")
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            require("pyarrow", extra="parquet")
            frame = require("pandas", extra="cli").read_parquet(path)
        else:
            frame = _read_csv(path, separator, encoding)
    except InputError:
        raise
    except ImportError as error:
        raise InputError(str(error)) from error
    except (OSError, ValueError, LookupError) as error:  # pandas' own errors are ValueErrors
        raise InputError(f"'{path}' cannot be read as a table: {_first_line(error)}") from error
    except Exception as error:  # pyarrow's errors have a root of their own
        if type(error).__module__.partition(".")[0] != "pyarrow":
            raise
        raise InputError(f"'{path}' cannot be read as a table: {_first_line(error)}") from error
    frame.columns = [str(name) for name in frame.columns]
    if not len(frame):
        raise InputError(f"The table in '{path}' has no rows.")
    if _is_data(frame.columns):
        raise InputError(
            f"The first line of '{path}' must hold the names of the columns. Got {', '.join(frame.columns[:5])} ..."
        )
    return frame


def label_table(frame, target: str) -> LabelledTable:
    """Features and labels of a table, checked for what classification needs."""
    check_columns([target], frame)
    labels = labels_of(frame[target])
    classes = np.unique(labels)
    if len(classes) < 2:
        raise InputError(f"The target {target!r} needs at least two classes. Got only {str(classes[0])!r}.")
    features = frame.drop(columns=target)
    if not features.shape[1]:
        raise InputError(f"The table has no column besides the target {target!r}.")
    return LabelledTable(features, labels, target, TableColumns.of(features))


def default_table() -> LabelledTable:
    """The embedded default as a table: names for columns and classes."""
    source = load_default()
    frame = require("pandas", extra="cli").DataFrame(source.X, columns=source.feature_names)
    frame["diagnosis"] = source.target_names[source.y].astype(object)
    return label_table(frame, "diagnosis")


def _read_csv(path, separator, encoding):
    pandas = require("pandas", extra="cli")
    with path.open("rb") as file:
        sample = file.read(SAMPLE_BYTES)
    if not sample.strip():
        raise InputError(f"'{path}' is empty.")
    if path.suffix.lower() in (".gz", ".bz2", ".zip", ".xz", ".zst"):
        return pandas.read_csv(path, sep=separator or ",", encoding=encoding or "utf-8", na_values=ALSO_MISSING)
    if b"\0" in sample and not sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and encoding is None:
        raise InputError(f"'{path}' is no text: a table must be CSV or Parquet.")
    encoding = encoding or _encoding(path, sample)
    separator = separator or _separator(sample.decode(encoding, errors="replace"))
    options = {"sep": separator, "encoding": encoding, "na_values": ALSO_MISSING}
    frame = pandas.read_csv(path, **options)
    if separator != "," and any(_has_decimal_commas(frame[name]) for name in frame.columns):
        frame = pandas.read_csv(path, **options, decimal=",")
    return frame


def _encoding(path, sample):
    """UTF-8 if it is, UTF-16 if it says so, and otherwise Windows' Latin alphabet, where most bytes are letters."""
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        with path.open(encoding="utf-8") as file:
            while file.read(SAMPLE_BYTES):
                pass
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8-sig"


def _separator(sample):
    lines = sample.splitlines()
    try:
        return csv.Sniffer().sniff("\n".join(lines[:50]), delimiters=SEPARATORS).delimiter
    except csv.Error:
        return max(SEPARATORS, key=lines[0].count) if lines else ","


def _is_data(names):
    """Whether names are numbers, and not those of numbered columns: then the first row was taken for them."""
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return False
    return numbers != [numbers[0] + place for place in range(len(numbers))]


def _has_decimal_commas(column):
    if require("pandas", extra="cli").api.types.is_numeric_dtype(column):
        return False
    cells = column.dropna()
    return len(cells) > 0 and all(DECIMAL_COMMA.fullmatch(str(cell)) for cell in cells)


def _first_line(error):
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
