"""Raw results, one row per (table, method, repeat), appended to `results/<problem>.csv`."""

from __future__ import annotations

import csv
import os
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"

COLUMNS = (
    "run",  # start time; only methods of one run are compared, because only these were interleaved
    "problem",
    "table",
    "n_rows",
    "n_features",
    "n_classes",
    "n_bytes",
    "is_rehearsal",
    "threads",
    "method",
    "repeat",
    "is_estimated",
    "wall_seconds",
    "cpu_seconds",
    "peak_extra_bytes",
    "suboptimality",  # certified, worst over the path
    "suboptimality_between",  # certified, worst over the geometric means of neighbouring temperatures
    "reference_suboptimality",  # excess over a reference optimum, at a few temperatures
    "temperature",
    "n_temperatures",
    "n_iter",
    "n_fits",
    "passes",
    "gemm_fraction",
    "bandwidth_fraction",
    "gemm_gflops",
    "bandwidth_gbs",
    "load",
    "versions",
    "note",
)


def append(row: dict, folder: Path = RESULTS) -> None:
    unknown = set(row) - set(COLUMNS)
    if unknown:
        raise ValueError(f"rows.COLUMNS does not name {sorted(unknown)}.")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{row['problem']}.csv"
    _drop_incomplete_row(path)
    is_new = not path.exists()
    if not is_new and _header(path) != list(COLUMNS):
        raise ValueError(f"{path.name} has other columns than rows.COLUMNS: move it away and run again.")
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def _drop_incomplete_row(path: Path) -> None:
    """Drop an incomplete last row, left by a kill or a full disk; the next row would be joined to it."""
    written = path.read_bytes() if path.exists() else b""
    if written.endswith(b"\n"):
        return
    whole = written[: written.rfind(b"\n") + 1]
    if whole:
        os.truncate(path, len(whole))
    else:
        path.unlink(missing_ok=True)


def _header(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return next(csv.reader(file))
