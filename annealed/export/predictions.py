"""Predictions as a file: CSV, or JSON or Parquet where the name or the user says so, packed where the name does."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np

from annealed.export.base import write_then_rename
from annealed.optional import require
from annealed.tables import InputError

PACKED: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}

SPREADSHEETS = (".xlsx", ".xls", ".ods")  # which would not open a CSV of that name


def write_predictions(predictions, path: Path, *, as_json: bool = False) -> None:
    """Write a DataFrame, whole or not at all.

    Parameters
    ----------
    predictions : pandas DataFrame
    path : Path
        ``.json`` is JSON, ``.parquet`` or ``.pq`` Parquet, all else CSV; ``.gz``, ``.bz2`` or ``.xz`` at the end packs.
    as_json : bool
        JSON also under a name that says nothing.
    """
    pack = PACKED.get(path.suffix.lower(), bytes)
    kind = (path if pack is bytes else path.with_suffix("")).suffix.lower()
    if kind == ".zip":
        raise InputError(f"Predictions are packed as {', '.join(PACKED)}. Got '{path}'.")
    if kind in SPREADSHEETS:
        raise InputError(f"Predictions are CSV, JSON or Parquet, of which spreadsheets open .csv. Got '{path}'.")
    if as_json and kind in (".csv", ".parquet", ".pq"):
        raise InputError(f"JSON wants a name that ends in .json. Got '{path}'.")
    if as_json or kind == ".json":
        content = json_of(predictions).encode()
    elif kind in (".parquet", ".pq"):
        content = _parquet(predictions)
    else:
        content = predictions.to_csv(index=False).encode()
    write_then_rename(path, pack(content))


def json_of(frame) -> str:
    """Rows as JSON with every digit, where pandas keeps ten or fifteen; null for what is missing or infinite."""
    is_told = frame.notna() & ~frame.isin([np.inf, -np.inf])
    rows = frame.astype(object).where(is_told, None).to_dict("records")
    return json.dumps(rows, indent=2, allow_nan=False) + "\n"


def _parquet(frame):
    require("pyarrow", extra="parquet")
    held = io.BytesIO()
    frame.to_parquet(held, index=False)
    return held.getvalue()
