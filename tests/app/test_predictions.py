"""Predictions as files: the name determines the format of the content."""

import bz2
import gzip
import json
import lzma

import numpy as np
import pytest

from annealed.app.predictions import csv_of, json_of, write_predictions
from annealed.app.tables import read_table
from annealed.errors import InputError

pandas = pytest.importorskip("pandas")
FRAME = pandas.DataFrame({"predicted kind": ["a", "ü"], "probability of a": [2 / 3, 1e-300]})


@pytest.mark.parametrize("name", ["out.csv", "out", "out.csv.gz", "out.csv.bz2", "out.CSV.XZ", "out.gz", "out.parquet"])
def test_tables_are_read_back_unchanged(tmp_path, name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    write_predictions(FRAME, tmp_path / name)
    pandas.testing.assert_frame_equal(read_table(tmp_path / name), FRAME, check_exact=True)


def test_labels_that_spreadsheets_would_run_as_formulas(tmp_path):
    """An apostrophe precedes them in CSV, which such programs open; numbers, JSON and Parquet stay as they are."""
    labels = ['=HYPERLINK("http://x","y")', "+a", "-b", "@c", "\td", "\re", "-1", "+2.5", "f=g", "-1e3"]
    frame = pandas.DataFrame({"predicted kind": labels, "probability of a": np.linspace(0, 1, len(labels))})
    write_predictions(frame, tmp_path / "out.csv")
    written = pandas.read_csv(tmp_path / "out.csv", dtype={"predicted kind": str}, lineterminator="\n")
    assert written["predicted kind"].tolist() == [*(f"'{label}" for label in labels[:6]), *labels[6:]]
    assert json.loads(json_of(frame)) == frame.to_dict("records")
    numbers = pandas.DataFrame({"predicted kind": [-1, 1], "probability of -1": [0.5, 0.25]})
    assert csv_of(numbers) == numbers.to_csv(index=False)


@pytest.mark.parametrize(
    ("name", "as_json", "decompress"),
    [
        ("out.json", False, bytes),
        ("out.json.gz", False, gzip.decompress),
        ("out.json.bz2", True, bz2.decompress),
        ("out.xz", True, lzma.decompress),
        ("out.txt", True, bytes),
    ],
)
def test_json_is_read_back_unchanged(tmp_path, name, as_json, decompress):
    write_predictions(FRAME, tmp_path / name, as_json=as_json)
    assert json.loads(decompress((tmp_path / name).read_bytes())) == FRAME.to_dict("records")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("out.parquet", "The name of a JSON file must end in .json. Got '.*out.parquet'"),
        ("out.csv.gz", "The name of a JSON file must"),
        ("out.xlsx", "Predictions must be CSV, JSON or Parquet. Got '.*xlsx'. Write .csv"),
        ("out.json.zip", "must end in .gz, .bz2, .xz. Got '.*zip'"),
    ],
)
def test_names_that_contradict_the_format(tmp_path, name, message):
    with pytest.raises(InputError, match=message):
        write_predictions(FRAME, tmp_path / name, as_json=True)
    assert not list(tmp_path.iterdir())


def test_values_that_json_cannot_represent_are_null():
    frame = pandas.DataFrame({"loss": [np.nan, np.inf, 1 / 3], "n": [1, 2, 3], "chosen": [True, False, False]})
    rows = json.loads(json_of(frame))
    assert [row["loss"] for row in rows] == [None, None, 1 / 3]
    assert rows[0] == {"loss": None, "n": 1, "chosen": True}
