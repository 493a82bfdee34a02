"""Predictions as files: what a name promises is what the file holds."""

import bz2
import gzip
import json
import lzma

import numpy as np
import pytest

from annealed.export import json_of, write_predictions
from annealed.tables import InputError, read_table

pandas = pytest.importorskip("pandas")
FRAME = pandas.DataFrame({"predicted kind": ["a", "ü"], "probability of a": [2 / 3, 1e-300]})


@pytest.mark.parametrize("name", ["out.csv", "out", "out.csv.gz", "out.csv.bz2", "out.CSV.XZ", "out.gz", "out.parquet"])
def test_tables_are_read_again(tmp_path, name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    write_predictions(FRAME, tmp_path / name)
    pandas.testing.assert_frame_equal(read_table(tmp_path / name), FRAME, check_exact=True)


@pytest.mark.parametrize(
    ("name", "as_json", "unpack"),
    [
        ("out.json", False, bytes),
        ("out.json.gz", False, gzip.decompress),
        ("out.json.bz2", True, bz2.decompress),
        ("out.xz", True, lzma.decompress),
        ("out.txt", True, bytes),
    ],
)
def test_json_is_read_again(tmp_path, name, as_json, unpack):
    write_predictions(FRAME, tmp_path / name, as_json=as_json)
    assert json.loads(unpack((tmp_path / name).read_bytes())) == FRAME.to_dict("records")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("out.parquet", "JSON wants a name that ends in .json. Got '.*out.parquet'"),
        ("out.csv.gz", "JSON wants a name"),
        ("out.xlsx", "Predictions are CSV, JSON or Parquet, of which spreadsheets open .csv. Got '.*xlsx'"),
        ("out.json.zip", "packed as .gz, .bz2, .xz. Got '.*zip'"),
    ],
)
def test_names_that_promise_something_else(tmp_path, name, sentence):
    with pytest.raises(InputError, match=sentence):
        write_predictions(FRAME, tmp_path / name, as_json=True)
    assert not list(tmp_path.iterdir())


def test_what_json_has_no_word_for_is_null():
    frame = pandas.DataFrame({"loss": [np.nan, np.inf, 1 / 3], "n": [1, 2, 3], "chosen": [True, False, False]})
    rows = json.loads(json_of(frame))
    assert [row["loss"] for row in rows] == [None, None, 1 / 3]
    assert rows[0] == {"loss": None, "n": 1, "chosen": True}
