"""Tables from files: formats that pandas reads, and error messages of one line for everything else."""

import re
import zipfile
from datetime import date
from decimal import Decimal

import numpy as np
import pytest

from annealed.app.comparison import fit_table
from annealed.app.tables import TableColumns, default_table, label_table, make_vectorizer, nearest, read_table
from annealed.errors import InputError

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
def test_separator_decimal_comma_and_encoding_are_detected(tmp_path, separator, decimal, encoding):
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
    ("text", "sizes"),
    [
        ("size;kind\n1,5;a\n2;b\n", [1.5, 2]),  # a decimal comma in some cells only
        ("size;kind\n1.250,5;a\n2;b\n", [1250.5, 2]),
        ("size;kind\n1,5e-05;a\n2;b\n", [1.5e-5, 2]),  # as written by R
        ("size;kind\n,5;a\n-,25;b\n", [0.5, -0.25]),  # as written by SPSS
        ('size,kind\n"1,250.5",a\n2,b\n', [1250.5, 2]),  # commas between thousands
        ('size,kind\n"1,250.5",a\n.5,b\n', [1250.5, 0.5]),
        ('size,kind\n"1,250",a\n2,b\n', [1250, 2]),
        ('size,kind\n"1,5",a\n2,b\n', [1.5, 2]),  # quoted decimal commas, as written by spreadsheets
        ('size,costs,kind\n"1,250","0,5",a\n"2,500",1,b\n', [1.25, 2.5]),
        (
            'size,costs,kind\n"1,5",0.5,a\n"2,5",1,b\n',
            ["1,5", "2,5"],
        ),  # lists: others have a point
        (
            "size\tcosts\tkind\n1,250\t1,250.5\ta\n950\t1.5\tb\n",
            [1250, 950],
        ),  # decided by another column
        ("size\tcosts\tkind\n1,250\t0,125\ta\n2,500\t0,250\tb\n", [1.25, 2.5]),
        ("length, mm;size;kind\n1,5;1,5;a\n2,5;3,5;b\n", [1.5, 3.5]),  # a comma in a name
        ("sep=;\nsize;kind\n1;a\n2;b\n", [1, 2]),  # as written by Excel
        ("size kind\n1 a\n2 b\n", [1, 2]),
        (" size , kind \n 1 , a\n 2 , b\n", [1, 2]),
        ("size,kind\n1,a,\n2,b,\n", [1, 2]),  # a trailing separator in every row
        ('"size","kind"\n"1",1,"a"\n"2",2,"b"\n', [1, 2]),  # row names, as written by R
        ('"size","kind","end"\n"7",1,"a",NA\n"8",2,"b",NA\n', [1, 2]),  # row names; the last column is missing
        ('"size","kind","end"\n"7",1,"a",\n"8",2,"b","x"\n', [1, 2]),  # row names; the last column is empty at first
        ("\n \nsize,kind\n1,a,\n2,b,\n", [1, 2]),  # blank lines before the header
        ('note,size,kind\n"x;y\n;z;",1,a\n"",2,b\n', [1, 2]),  # a new line in quotes
    ],
)
def test_ways_of_writing_a_csv(tmp_path, text, sizes):
    (tmp_path / "table.csv").write_text(text)
    frame = read_table(tmp_path / "table.csv")
    assert frame["size"].tolist() == sizes
    assert [str(kind).strip() for kind in frame["kind"]] == ["a", "b"]


@pytest.mark.parametrize("compression", ["gz", "bz2", "xz", "zip"])
def test_the_format_of_compressed_tables_is_detected(tmp_path, compression):
    FRAME.to_csv(tmp_path / f"table.csv.{compression}", sep=";", encoding="latin-1", index=False)
    frame = read_table(tmp_path / f"table.csv.{compression}")
    assert list(frame.columns) == list(FRAME.columns)
    assert frame["colour"].iloc[0] == "grün"


def test_archives_with_a_password(tmp_path):
    path = tmp_path / "table.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("table.csv", "a,b\n1,2\n")
    content = bytearray(path.read_bytes())
    content[6] |= 1  # the encryption flag, in the local header and in the central directory
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="cannot be decompressed: .*password required.* Decompress it first"):
        read_table(path)


@pytest.mark.parametrize("separator", ["((", "||", "**", "[", "é", "\t", ";"])
def test_separators_with_special_or_several_characters(tmp_path, separator):
    (tmp_path / "table.csv").write_text("size, kind\n1, a\n2, b\n".replace(",", separator), encoding="utf-8")
    typed = separator.replace("\t", r"\t")
    frame = read_table(tmp_path / "table.csv", separator=typed, texts=["size"])
    assert frame.to_dict("list") == {"size": ["1", "2"], "kind": ["a", "b"]}


def test_types_of_parquet_columns(tmp_path):
    pytest.importorskip("pyarrow")
    frame = FRAME.assign(
        price=[Decimal("1.5"), None, Decimal("2.5"), Decimal("3")],
        span=pandas.to_timedelta([12, 24, 36, 48], unit="h"),
        lists=[[1, 2]] * 4,
    )
    frame.set_index("kind").to_parquet(tmp_path / "table.parquet")
    again = read_table(tmp_path / "table.parquet")
    np.testing.assert_array_equal(again["price"], [1.5, np.nan, 2.5, 3])
    assert again["span"].tolist() == [0.5, 1, 1.5, 2]
    assert label_table(again, "kind").columns.left_out == {"lists": "its cells are neither numbers nor texts"}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.csv", b"", "is empty"),
        ("nameless.csv", b"5,1,2\n5,4,2\n3,1,4\n", "must hold the names of the columns. Got 5, 1, 2 ..."),
        ("header.csv", b"a,b\n", "has no rows"),
        ("book.xlsx", b"PK\x03\x04\x14\0", "Got a workbook of a spreadsheet program. Save it as CSV"),
        ("picture.csv", b"\x89PNG\r\n\0\0\0", "Got a file that is not text"),
        ("wide.csv", b"a,b\n1,2,3,4\n1,2,3,4\n", "Got 2 names, but 4 cells in the first row"),
        ("twice.csv", b"a,a \n1,2\n", "must have different names. Got 'a' more than once"),
        ("same.csv", b"a,k,k\n1,x,y\n", "must have different names. Got 'k' more than once"),
        ("broken.csv.gz", b"no gzip", "cannot be read as a table"),
        ("broken.csv.xz", b"no xz", "cannot be read as a table"),
        ("broken.csv.zip", b"no zip", "cannot be read as a table"),
        ("ragged.csv", b"a,b\n1,2\n\n1,2,3,4\n", "line 4 has 4 cells, but the lines before it have 2. Quote"),
        ("broken.parquet", b"PAR1 and no more", "cannot be read as a table"),
    ],
)
def test_unreadable_files(tmp_path, name, content, message):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_table(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_numbered_columns_and_question_marks(tmp_path):
    (tmp_path / "table.csv").write_text("0,1,2\n5,?,a\n3,1,b\n")
    frame = read_table(tmp_path / "table.csv")
    assert frame["1"].isna().tolist() == [True, False]


def test_long_tables_are_read_in_one_piece(tmp_path):
    """In chunks, pandas would read 1.0 in chunks of numbers and 1 in a chunk with a text."""
    (tmp_path / "table.csv").write_text("code,kind\n" + "1,a\n,b\n" * 150_000 + "A,a\n")
    assert set(read_table(tmp_path / "table.csv")["code"].dropna()) == {"1", "A"}


def test_columns_without_a_name(tmp_path):
    (tmp_path / "table.csv").write_text(",size,\n1,2,3\n")
    assert list(read_table(tmp_path / "table.csv").columns) == ["Unnamed: 0", "size", "Unnamed: 2"]


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
    ("target", "change", "message"),
    [
        ("knid", {}, "has no column 'knid'. Did you mean 'kind'?"),
        ("kind", {"kind": ["a", None, "b", "a"]}, "missing in 1 of 4 rows, first in row 2"),
        ("kind", {"kind": ["a", "  ", "b", "a"]}, "missing in 1 of 4 rows, first in row 2"),
        ("kind", {"kind": "a"}, "at least two classes. Got only 'a'"),
        ("size", {"size": [0.5, 1.5, 2.5, 3.5]}, "must hold class labels. Got a quantity"),
    ],
)
def test_targets_that_cannot_be_used(target, change, message):
    with pytest.raises(InputError, match=re.escape(message)):
        label_table(FRAME.assign(**change), target)


def test_a_table_without_features():
    with pytest.raises(InputError, match="no column besides the target"):
        label_table(FRAME[["kind"]], "kind")


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([1, -0.5, 2, -3], "must be non-negative numbers. Got -0.5 in row 2"),
        ([1, 2, None, 1], "Got a missing cell in row 3. Correct such cells, or write 0"),
        ([1, "heavy", 2, 3], "Got heavy in row 2"),
        ([1, 2, 3, np.inf], "Got inf in row 4"),
        (pandas.to_datetime(["2024-05-31"] * 4), "Got 2024-05-31"),
        ([0, 0, 0, 0], "Got 0 in every row"),
        ([1, 0, 2, 0.0], "must have a row of positive weight. Got weights 'trust' of 0 in all rows of class 'b'"),
    ],
)
def test_weights_that_cannot_be_used(cells, message):
    with pytest.raises(InputError, match=message):
        label_table(FRAME.assign(trust=cells), "kind", "trust")


def test_columns_that_cannot_be_weights():
    with pytest.raises(InputError, match="must be another column than the target. Got 'kind' for both"):
        label_table(FRAME, "kind", "kind")
    with pytest.raises(InputError, match=r"has no column 'sizes'. Did you mean 'size'\?"):
        label_table(FRAME, "kind", "sizes")
    with pytest.raises(InputError, match="besides the target 'kind' and the weights 'trust'"):
        label_table(FRAME[["kind"]].assign(trust=1), "kind", "trust")


@pytest.mark.parametrize("dtype", [int, float, "Int64", bool, str])
def test_weights_are_not_a_feature_and_rows_of_weight_0_are_left_out(dtype):
    cells = [True, True, False, True] if dtype is bool else [1, 1, 0, 1]
    table = label_table(FRAME.assign(trust=pandas.Series(cells, dtype=dtype)), "kind", "trust")
    assert table.weights.tolist() == [1, 1, 1] and table.labels.tolist() == ["a", "b", "b"]
    assert table.columns.weights == "trust"
    assert "trust" not in [*table.columns.used, *table.columns.left_out]
    assert len(table.conformed()) == 3


def test_whole_numbers_stay_numbers_and_other_labels_become_text():
    assert label_table(FRAME.assign(kind=[0.0, 1.0, 1.0, 0.0]), "kind").labels.tolist() == [0, 1, 1, 0]
    assert label_table(FRAME, "ripe").labels.tolist() == ["True", "False", "True", "False"]
    assert label_table(FRAME.assign(kind=[0.5, 1.5, 1.5, 0.5]), "kind").labels.tolist() == ["0.5", "1.5", "1.5", "0.5"]
    assert label_table(FRAME.assign(kind=[" a", "b", "a ", "b"]), "kind").classes.tolist() == ["a", "b"]


@pytest.mark.parametrize("target", [[0, 1, 1, 0], [0.0, 1.0, 1.0, 0.0], [0.5, 1.0, 1.0, 0.5], ["0", "01", "01", "0"]])
@pytest.mark.parametrize("rewrite", [lambda label: label, float, lambda label: f"{float(label):.2f}"])
def test_a_copy_of_the_target_is_left_out_even_if_it_is_written_differently(target, rewrite):
    frame = FRAME.assign(kind=target, copy=[rewrite(label) for label in target])
    assert label_table(frame, "kind").columns.left_out == {"copy": "it repeats the target"}
    frame.loc[3, "copy"] = frame["copy"][2]
    assert not label_table(frame, "kind").columns.left_out


def test_a_recoding_of_the_target_is_left_out():
    """Also if a missing cell stands for a class; not if two values do, or one value for two classes."""
    kinds = np.array(["ash", "birch", "cedar"])[np.arange(30) % 3]
    frame = pandas.DataFrame({"kind": kinds, "size": np.arange(30) / 7})
    frame["number"] = np.array([7.5, -1.0, 3.0])[np.arange(30) % 3]
    frame["sparse"] = np.array([None, "b", "c"], object)[np.arange(30) % 3]
    frame["finer"] = [f"{kind} {row % 2}" for row, kind in enumerate(kinds)]
    frame["coarser"] = np.where(kinds == "ash", "hard", "soft")
    frame["nearly"] = np.where(np.arange(30) == 0, "birch", kinds)
    columns = label_table(frame, "kind").columns
    reason = "it recodes the target: each of its values stands for one class"
    assert columns.left_out == {"number": reason, "sparse": reason}
    few = pandas.DataFrame({"kind": ["ash", "birch", "ash"], "size": [1.0, 2.5, 1.0]})
    assert label_table(few, "kind").columns.used == ["size"]


def test_an_identifier_as_target_is_an_error():
    frame = pandas.DataFrame({"name": [f"row {row}" for row in range(1000)], "size": np.arange(1000) / 7})
    with pytest.raises(
        InputError, match="The target 'name' must hold .* 1000 different texts in 1000 rows, which ident"
    ):
        label_table(frame, "name")
    repeated = pandas.concat([frame, frame]).assign(size=np.arange(2000) / 7)
    assert len(label_table(repeated, "name").classes) == 1000
    assert len(label_table(frame.head(20), "name").classes) == 20


@pytest.mark.parametrize("pair", [(0, 2**64 - 1), (0.0, np.inf), (1e30, 2e30), (-np.inf, np.inf)])
def test_classes_that_do_not_fit_into_an_integer_are_texts(pair):
    labels = label_table(FRAME.assign(kind=np.array([*pair, *pair])), "kind").labels
    assert labels.tolist() == [str(number) for number in np.array([*pair, *pair])]
    assert len(set(labels)) == 2


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
    with pytest.raises(InputError, match="Column 'day' must hold dates such as 2024-05-31. Got 'tomorrow' in row 1."):
        columns.conform(frame.assign(day="tomorrow"))


DATES = TableColumns([], ["day"], [], {})


def days_of(cells):
    return DATES.conform(pandas.DataFrame({"day": cells}))["day"].tolist()


@pytest.mark.parametrize(
    "cells",
    [
        ["2020-01-02", "9999-12-31", "0001-01-01", "0000-00-00", None],
        np.array(["2020-01-02", "9999-12-31", "0001-01-01", "NaT"], dtype="datetime64[us]"),
        [date(2020, 1, 2), date(9999, 12, 31), None],
    ],
)
def test_placeholder_dates_are_missing(cells):
    np.testing.assert_array_equal(days_of(cells), [18263, *[np.nan] * (len(cells) - 1)])


def test_other_formats_of_dates():
    assert days_of([20200102, 20200103]) == [18263, 18264]
    assert days_of(["2020-01-02T12:00:00+12:00", "2020-01-03T00:00:00.123456789Z"])[0] == 18263
    assert np.isnan(days_of([np.nan, np.nan])).all()
    assert np.isnan(days_of(np.array(["NaT", "NaT"], dtype="datetime64[us]"))).all()  # as in Parquet


@pytest.mark.parametrize("cell", ["2020-13-01", "5/1/2020", True, 3.5])
def test_the_error_of_an_invalid_date_has_its_row_and_a_remedy(cell):
    with pytest.raises(InputError, match=f"Got '{cell}' in row 2. Correct such cells or leave them empty."):
        days_of(pandas.Series(["2020-01-02", cell], dtype=object))


def test_columns_that_only_identify_rows():
    numbers = np.random.RandomState(0).permutation(1000)[:30]
    frame = pandas.DataFrame(
        {
            "Unnamed: 0": range(30),
            "patient_id": numbers,
            "userId": [f"u{row // 2}" for row in range(30)],
            "paid": numbers,
            "year": range(1990, 2020),
            "shop_id": [1, 2, 3] * 10,
        }
    )
    assert TableColumns.of(frame).left_out == {
        "Unnamed: 0": "it numbers the rows",
        "patient_id": "its name is that of an identifier",
    }
    doubled = pandas.concat([frame, frame], ignore_index=True)
    doubled["userId"] = [f"u{row // 2}" for row in range(60)]
    assert "userId" not in TableColumns.of(doubled).left_out  # its values are exactly half as many as the rows


def test_the_error_of_a_table_without_informative_columns_has_the_reasons():
    frame = pandas.DataFrame({"size": [1.0] * 4, "colour": [None] * 4})
    with pytest.raises(InputError, match="'size': every cell is the same; 'colour': every cell is missing"):
        TableColumns.of(frame)


def test_placeholder_numbers_are_missing():
    columns = label_table(FRAME, "kind").columns
    assert columns.conform(FRAME.assign(size=[1e300, np.inf, -1.7e308, 2.0]))["size"].isna().tolist() == [1, 1, 1, 0]


def test_missing_cells_and_unknown_categories_are_vectorized():
    table = label_table(FRAME, "kind")
    vectorizer = make_vectorizer(table.columns).fit(table.conformed())
    new = FRAME.drop(columns="kind").assign(colour="violet", size=np.inf)
    rows = vectorizer.transform(table.columns.conform(new))
    assert np.isfinite(rows).all()
    assert "colour_missing" in vectorizer.get_feature_names_out()


def test_new_tables_are_checked_by_name_and_kind():
    columns = label_table(FRAME, "kind").columns
    with pytest.raises(InputError, match="has no column 'size'. Did you mean 'Size'"):
        columns.conform(FRAME.rename(columns={"size": "Size"}))
    with pytest.raises(InputError, match="lacks 2 columns: 'size', 'colour'"):
        columns.conform(FRAME[["ripe"]])
    with pytest.raises(InputError, match="must hold numbers.*Got 'big' in row 4"):
        columns.conform(FRAME.assign(size=[1, 2, 3, "big"]))


def test_nearest_gives_all_names_if_none_is_similar():
    assert nearest("zzz", ["alpha", "beta"]) == "Available: 'alpha', 'beta'."


def test_the_built_in_example_has_names():
    table = default_table()
    assert table.classes.tolist() == ["benign", "malignant"]
    assert "mean radius" in table.columns.numbers


def test_names_of_features():
    frame = pandas.concat([FRAME] * 20, ignore_index=True).assign(many=[f"t{row // 2 % 40}" for row in range(80)])
    frame.loc[0, "many"] = "t-1"
    names = fit_table(label_table(frame, "kind"), "sklearn-lda").feature_names
    assert {"size", "size missing", "colour = red", "colour = missing", "many = rare values"} <= set(names)
