"""Tables from files: whatever pandas reads is read, and whatever cannot be used is refused in a sentence."""

import numpy as np
import pytest

from annealed.tables import InputError, TableColumns, default_table, label_table, make_vectorizer, nearest, read_table

pandas = pytest.importorskip("pandas")
FRAME = pandas.DataFrame(
    {
        "size": [1.5, np.nan, 2.25, 4.0],
        "colour": ["grün", "red", None, "red"],
        "ripe": [True, False, True, False],
        "kind": ["a", "b", "a", "b"],
    }
)


@pytest.mark.parametrize(
    ("separator", "decimal", "encoding"),
    [(",", ".", "utf-8"), (";", ",", "latin-1"), ("\t", ".", "utf-16"), ("|", ".", "utf-8-sig")],
)
def test_separator_decimal_comma_and_encoding_are_found(tmp_path, separator, decimal, encoding):
    path = tmp_path / "table.csv"
    FRAME.to_csv(path, sep=separator, decimal=decimal, encoding=encoding, index=False)
    frame = read_table(path)
    assert list(frame.columns) == list(FRAME.columns)
    assert frame["size"].iloc[2] == 2.25
    assert frame["colour"].iloc[0] == "grün"


def test_parquet_and_compressed_csv(tmp_path):
    pytest.importorskip("pyarrow")
    FRAME.to_parquet(tmp_path / "table.parquet")
    FRAME.to_csv(tmp_path / "table.csv.gz", index=False)
    assert read_table(tmp_path / "table.parquet").shape == read_table(tmp_path / "table.csv.gz").shape == FRAME.shape


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("empty.csv", b"", "is empty"),
        ("nameless.csv", b"5,1,2\n5,4,2\n3,1,4\n", "must hold the names of the columns. Got 5, 1, 2 ..."),
        ("header.csv", b"a,b\n", "has no rows"),
        ("picture.csv", b"\x89PNG\r\n\0\0\0", "is no text"),
        ("ragged.csv", b"a,b\n1,2\n1,2,3,4\n", "cannot be read as a table"),
        ("broken.parquet", b"PAR1 and no more", "cannot be read as a table"),
    ],
)
def test_unreadable_files(tmp_path, name, content, sentence):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=sentence) as caught:
        read_table(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_numbered_columns_and_question_marks(tmp_path):
    (tmp_path / "table.csv").write_text("0,1,2\n5,?,a\n3,1,b\n")
    frame = read_table(tmp_path / "table.csv")
    assert frame["1"].isna().tolist() == [True, False]


def test_no_file_and_a_folder(tmp_path):
    with pytest.raises(InputError, match="There is no file"):
        read_table(tmp_path / "absent.csv")
    with pytest.raises(InputError, match="is a folder"):
        read_table(tmp_path)


def test_unknown_encoding(tmp_path):
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="unknown encoding"):
        read_table(tmp_path / "table.csv", encoding="klingon")


@pytest.mark.parametrize(
    ("target", "change", "sentence"),
    [
        ("knid", {}, "has no column 'knid'. Nearest: 'kind'."),
        ("kind", {"kind": ["a", None, "b", "a"]}, "missing in 1 of 4 rows, first in row 2"),
        ("kind", {"kind": "a"}, "at least two classes. Got only 'a'"),
        ("size", {"size": [0.5, 1.5, 2.5, 3.5]}, "is a quantity"),
    ],
)
def test_targets_that_cannot_be_used(target, change, sentence):
    with pytest.raises(InputError, match=sentence):
        label_table(FRAME.assign(**change), target)


def test_a_table_of_the_target_alone():
    with pytest.raises(InputError, match="no column besides the target"):
        label_table(FRAME[["kind"]], "kind")


def test_whole_numbers_stay_numbers_and_truth_values_become_text():
    assert label_table(FRAME.assign(kind=[0.0, 1.0, 1.0, 0.0]), "kind").labels.tolist() == [0, 1, 1, 0]
    assert label_table(FRAME, "ripe").labels.tolist() == ["True", "False", "True", "False"]


def test_kinds_of_columns():
    frame = pandas.DataFrame(
        {
            "number": np.arange(30.0) / 2,
            "day": pandas.date_range("2020-01-01", periods=30, tz="UTC"),
            "time": ["2020-01-02", "2020-01-03T12:00:00", None] * 10,
            "text": ["x", "y"] * 15,
            "name": [f"row {i}" for i in range(30)],
            "nothing": [None] * 30,
            "same": 1,
        }
    )
    columns = TableColumns.of(frame)
    assert (columns.numbers, columns.dates, columns.categories) == (["number"], ["day", "time"], ["text"])
    assert list(columns.left_out) == ["name", "nothing", "same"]
    assert columns.conform(frame)["day"].iloc[1] == 18263
    np.testing.assert_array_equal(columns.conform(frame)["time"].iloc[:3], [18263, 18264.5, np.nan])
    with pytest.raises(InputError, match="Column 'day' must hold dates"):
        columns.conform(frame.assign(day="tomorrow"))


def test_missing_cells_and_unknown_categories_are_vectorized():
    table = label_table(FRAME, "kind")
    vectorizer = make_vectorizer(table.columns).fit(table.conformed())
    new = FRAME.drop(columns="kind").assign(colour="violet", size=np.inf)
    rows = vectorizer.transform(table.columns.conform(new))
    assert np.isfinite(rows).all()
    assert "colour_missing" in vectorizer.get_feature_names_out()


def test_new_tables_are_checked_by_name_and_kind():
    columns = label_table(FRAME, "kind").columns
    with pytest.raises(InputError, match="has no column 'size'. Nearest: 'Size'."):
        columns.conform(FRAME.rename(columns={"size": "Size"}))
    with pytest.raises(InputError, match="lacks 2 columns: 'size', 'colour'"):
        columns.conform(FRAME[["ripe"]])
    with pytest.raises(InputError, match="must hold numbers.*Got 'big' in row 4"):
        columns.conform(FRAME.assign(size=[1, 2, 3, "big"]))


def test_nearest_names_all_where_none_is_near():
    assert nearest("zzz", ["alpha", "beta"]) == "It has: 'alpha', 'beta'."


def test_the_default_has_names():
    table = default_table()
    assert table.classes.tolist() == ["benign", "malignant"]
    assert "mean radius" in table.columns.numbers
