"""Predictions as a file: CSV, or Parquet where the name says so."""

from __future__ import annotations

import io
from pathlib import Path

from annealed.export.base import write_then_rename
from annealed.optional import require


def write_predictions(predictions, path: Path) -> None:
    """Write a DataFrame, whole or not at all."""
    if path.suffix.lower() in (".parquet", ".pq"):
        require("pyarrow", extra="parquet")
        held = io.BytesIO()
        predictions.to_parquet(held, index=False)
        write_then_rename(path, held.getvalue())
    else:
        write_then_rename(path, predictions.to_csv(index=False).encode())
