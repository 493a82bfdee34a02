"""Predictions as a CSV, JSON or Parquet file, compressed according to its name."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np

from annealed.app.tables import is_number
from annealed.errors import InputError
from annealed.export.files import write_then_rename
from annealed.optional import require

COMPRESSED: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # beginnings of a formula
SPREADSHEETS = (".xlsx", ".xls", ".ods")  # spreadsheet programs refuse a CSV with these endings


def write_predictions(predictions, path: Path, *, as_json: bool = False) -> None:
    """Write a DataFrame to a file, completely or not at all.

    Parameters
    ----------
    predictions : pandas DataFrame
    path : Path
        The ending determines the format: ``.json`` is JSON, ``.parquet`` or ``.pq`` is Parquet, and everything else
        is CSV. A further ``.gz``, ``.bz2`` or ``.xz`` compresses the file.
    as_json : bool
        Whether to write JSON to a file whose ending does not determine the format.
    """
    compress = COMPRESSED.get(path.suffix.lower(), bytes)
    kind = (path if compress is bytes else path.with_suffix("")).suffix.lower()
    if kind == ".zip":
        raise InputError(f"Compressed predictions must end in {', '.join(COMPRESSED)}. Got '{path}'.")
    if kind in SPREADSHEETS:
        raise InputError(
            f"Predictions must be CSV, JSON or Parquet. Got '{path}'. Write .csv, which spreadsheet programs open."
        )
    if as_json and kind in (".csv", ".parquet", ".pq"):
        raise InputError(f"The name of a JSON file must end in .json. Got '{path}'.")
    if as_json or kind == ".json":
        content = json_of(predictions).encode()
    elif kind in (".parquet", ".pq"):
        content = _parquet(predictions)
    else:
        content = csv_of(predictions).encode()
    write_then_rename(path, compress(content))


def csv_of(predictions) -> str:
    """Predictions as CSV; an apostrophe precedes labels that a spreadsheet program would take for a formula."""
    labels = predictions.iloc[:, 0].map(lambda label: f"'{label}" if _is_formula(label) else label)
    return predictions.assign(**{predictions.columns[0]: labels}).to_csv(index=False)


def _is_formula(label):
    return isinstance(label, str) and label.startswith(FORMULA) and not is_number(label)


def json_of(frame) -> str:
    """Rows as JSON, with null for missing and infinite values; pandas' own writer would drop digits of floats."""
    is_finite = frame.notna() & ~frame.isin([np.inf, -np.inf])
    rows = frame.astype(object).where(is_finite, None).to_dict("records")
    return json.dumps(rows, indent=2, allow_nan=False) + "\n"


def _parquet(frame):
    require("pyarrow", extra="parquet")
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return buffer.getvalue()
