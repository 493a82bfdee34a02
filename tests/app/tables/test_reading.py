"""Ambiguous cells of a CSV: to which column they belong, and which number they contain."""

import numpy as np
import pytest

from annealed.app.tables import TableColumns, read_table, why_texts
from annealed.errors import InputError

pandas = pytest.importorskip("pandas")
LONG = "99999999999999999999"  # exceeds 64 bits


def read(tmp_path, text, **options):
    (tmp_path / "table.csv").write_text(text)
    return read_table(tmp_path / "table.csv", **options)


@pytest.mark.parametrize(
    ("text", "separator", "message"),
    [
        ("sick,city,age\n0,Rome, IT,30\n1,Paris,41\n0,Oslo,22\n", None, "names 3 columns, but row 1 has 4 cells"),
        ("sick,city,age\n0,Rome, IT,30\n\n1,Paris,\n", None, "and row 2 has 3. Quote cells that contain a separator"),
        ("sick\tcity\n0\tRome\tIT\n0\tOslo\tNO\n1\tParis\n", r"\t", "row 1 has 3 cells and row 3 has 2"),
        ('a b\n"1" 2 x\n"2 3" 4 \n', r"\s+", "row 1 has 3 cells and row 2 has 2"),
    ],
)
def test_an_additional_cell_in_some_rows_is_not_a_row_name(tmp_path, text, separator, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path, text, separator=separator)


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ('size,kind\n"1",1,a\n"2\n,",2,""\n\n"3",3,\n', None),
        ("size\tkind\n1\t1\ta\n2\t2\t\n3\t3\tNA\n", r"\t"),
        ('size kind\n"1"  1 "a"\n"2 2" 2 "" \n\t"3"\t3\tNA', r"\s+"),
    ],
)
def test_row_names_if_the_last_column_has_empty_cells(tmp_path, text, separator):
    frame = read(tmp_path, text, separator=separator)
    assert frame["size"].tolist() == [1, 2, 3]
    assert frame["kind"].fillna("none").tolist() == ["a", "none", "none"]


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1", LONG, "3", ""], [1, 1e20, 3, -7]),
        ([LONG, "2.5", "-3"], [1e20, 2.5, -3]),
        (["18446744073709551615", "-1", "2"], [2.0**64, -1, 2]),
    ],
)
def test_numbers_too_long_for_pandas(tmp_path, cells, numbers):
    frame = read(tmp_path, "size,kind\n" + "".join(f"{cell},a\n" for cell in cells))
    assert frame["size"].fillna(-7).tolist() == numbers
    kept = read(tmp_path, "size,kind\n" + "".join(f"{cell},a\n" for cell in cells), texts=["size"])
    assert kept["size"].fillna("").tolist() == cells


def test_codes_too_long_for_pandas_stay_texts(tmp_path):
    """As floats, codes that differ only in their last digits would be equal."""
    frame = read(tmp_path, "code,size\n" + f"{LONG},1\n{LONG[:-1]}8,2\n" * 3)
    assert TableColumns.of(frame).categories == ["code"]
    assert frame["code"].nunique() == 2


@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        (["1.234", "12.500", "950"], "1.234"),
        (["", "1.000", "-12.000"], "1.000"),
        (["3", "1.234.567", "2.250"], "1.234.567"),
    ],
)
def test_a_warning_for_points_that_may_separate_thousands(tmp_path, cells, shown):
    rows = "".join(f"{cell};{row},5;a\n" for row, cell in enumerate(cells))
    with pytest.warns(UserWarning, match=f"Column 'size' has points .* as in {shown}, which are not read as thousands"):
        read(tmp_path, "size;costs;kind\n" + rows)


@pytest.mark.parametrize("cells", [["1.234", "2.5"], ["0.125", "1.250"], ["1.250", "2,5"], ["1.234", "1500"]])
def test_no_warning_for_other_points(tmp_path, cells):
    """Warnings are errors in the tests."""
    frame = read(tmp_path, "size;costs\n" + "".join(f"{cell};0,5\n" for cell in cells))
    assert frame["costs"].tolist() == [0.5, 0.5]
    assert pandas.api.types.is_numeric_dtype(frame["size"])


def test_points_are_decimal_if_there_are_no_commas(tmp_path):
    assert read(tmp_path, "size;costs\n1.234;5\n12.500;6\n")["size"].tolist() == [1.234, 12.5]


def test_a_warning_for_short_rows(tmp_path):
    with pytest.warns(UserWarning, match="names 3 columns, but 2 of 4 rows have fewer cells, first row 2 with 1"):
        frame = read(tmp_path, "a,b,c\n1,2,3\n4\n5,6,\n7,8\n")
    assert frame["c"].isna().tolist() == [False, True, True, True]


def test_cells_that_exceed_the_limit_of_the_csv_module(tmp_path):
    text = "x" * 200_000
    assert read(tmp_path, f"a,b,c\n1,{text},\n2,y,3\n")["b"].tolist() == [text, "y"]


def test_rows_with_empty_cells_are_not_short(tmp_path):
    assert read(tmp_path, "a,b,c\n1,2,\n\n4,5,6\n").shape == (2, 3)
    assert read(tmp_path, "a b c\n1 2 NA\n4 5 6\n").shape == (2, 3)


def test_utf8_with_a_few_wrong_bytes_is_refused(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes("größe,ort\n1,Köln\n".encode() + b"2,K\xf6ln\n")
    with pytest.raises(InputError, match="is UTF-8 except for 1 of its bytes, the first in line 3. Correct them"):
        read_table(path)
    assert read_table(path, encoding="cp1252").shape == (2, 2)
    path.write_bytes("größe,ort\n1,Köln\n".encode("cp1252"))
    assert list(read_table(path).columns) == ["größe", "ort"]


def test_an_interrupt_inside_the_parser_is_raised(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise pandas.errors.ParserError("Error tokenizing data. C error: Calling read(nbytes) on source failed.")

    monkeypatch.setattr(pandas, "read_csv", interrupted)
    with pytest.raises(KeyboardInterrupt):
        read(tmp_path, "a,b\n1,2\n")


NUMBERS = [f"{number}.5" for number in range(30)]


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ([*NUMBERS, "-"], "30 of its 31 cells are numbers, but '-' in row 31 is not"),
        (["n.d.", None, *NUMBERS], "30 of its 31 cells are numbers, but 'n.d.' in row 1 is not"),
        (["1", "2", "3"] * 10 + ["x"], "30 of its 31 cells are numbers, but 'x' in row 31 is not"),
        ([f"{number} cm" for number in NUMBERS], "with a unit, such as '0.5 cm'"),
        ([f"${number}" for number in NUMBERS], "with a unit"),
        ([f"{number}%" for number in NUMBERS], "with a unit"),
        ([f"item {number}" for number in range(30)], None),
        (["1", "2", "A", "B"] * 8, None),
        (["red", "green", None] * 10, None),
        ([f"{number}%" if number % 2 else f"{number} kg" for number in range(30)], None),
        (NUMBERS, None),
        ([f"{day:02}.12.2020" for day in range(1, 32)], None),
        ([f"1.2.{number}" for number in range(30)], None),
    ],
)
def test_why_a_column_holds_texts(cells, reason):
    found = why_texts(pandas.Series(cells, dtype=object))
    assert found is None if reason is None else reason in found


def test_a_stray_cell_is_the_reason_for_leaving_out_its_column():
    table = pandas.DataFrame({"size": [*NUMBERS, "-"], "n": range(5, 36)})
    assert "but '-' in row 31 is not" in TableColumns.of(table).left_out["size"]


def test_numeric_columns_of_different_types_become_floats():
    values = pandas.DataFrame(
        {
            "a": [1, 2],
            "b": [1.5, float("inf")],
            "c": pandas.array([1, None], "Int64"),
            "d": ["3", None],
            "e": [True, False],
        }
    )
    columns = TableColumns([*values.columns], [], [], {})
    whole = columns.conform(values)
    assert [*whole.columns] == [*values.columns] and set(whole.dtypes) == {np.dtype(float)}
    assert whole.fillna(-1).to_numpy().tolist() == [[1, 1.5, 1, 3, 1], [2, -1, -1, -1, 0]]


@pytest.mark.parametrize(("separator", "end"), [(",", "\n"), (";", "\r\n"), (" ", "\r")])
def test_a_header_of_a_million_columns_is_an_error(tmp_path, monkeypatch, separator, end):
    """It is refused before pandas parses it, which would take minutes."""
    path = tmp_path / "wide.csv"
    path.write_text(separator.join(f"c{number}" for number in range(1_000_000)) + end + "1" + end, newline="")
    monkeypatch.setattr("pandas.read_csv", None)
    with pytest.raises(InputError, match="A table must have at most 100,000 columns. Got 1,000,000"):
        read_table(path)


def test_a_name_that_is_a_text_is_an_error(tmp_path):
    (tmp_path / "quoted.csv").write_text('a,"' + "1,2\n" * 1000 + '"\n1,2\n')
    with pytest.raises(
        InputError, match="The name of a column must have at most 1,000 characters. Got 3,999 that begin"
    ):
        read_table(tmp_path / "quoted.csv")


def test_a_file_of_many_cells_has_few_columns(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("a,b\r" + "1,2\r" * 60_000, newline="")
    assert read_table(path).shape == (60_000, 2)
