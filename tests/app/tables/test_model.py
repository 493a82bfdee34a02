"""A model recognizes its categories and classes in another table, even if they are written differently."""

import numpy as np
import pytest

from annealed.app import load_model, save_model
from annealed.app.comparison import fit_table
from annealed.app.tables import label_table, read_table
from annealed.errors import InputError

pandas = pytest.importorskip("pandas")
N_ROWS = 60


def fitted(tmp_path, cells, labels=("sick", "well")):
    """A model of a table in which the first cell implies the first label, and the second cell the second label."""
    path = tmp_path / "fitted.csv"
    indices = [row % 2 if row % 10 else 2 for row in range(N_ROWS)]
    rows = [f"{row / 7},{cells[index]},{labels[row % 2]}" for row, index in enumerate(indices)]
    path.write_text("\n".join(["size,code,kind", *rows]))
    return fit_table(label_table(read_table(path), "kind"), "sklearn-lda")


def read_for(model, tmp_path, text):
    (tmp_path / "new.csv").write_text(text)
    return read_table(tmp_path / "new.csv", texts=model.texts, commas=model.columns.commas)


def predicted(model, frame):
    return model.predict(frame)["predicted kind"].tolist()


@pytest.mark.parametrize(
    ("cells", "new"),
    [
        (("1", "2", "A"), ("1", "2", "")),  # without `texts`, pandas reads 1.0 and 2.0
        (("007", "7", "A"), ("007", "7", "")),
        (("007", "010", "A12"), ("7", "10", "A12")),  # as rewritten by a spreadsheet
        (("TRUE", "FALSE", "unknown"), ("TRUE", "FALSE", "TRUE")),
        (("TRUE", "FALSE", ""), ("TRUE", "FALSE", "unknown")),  # truth values in the fit, texts in the new table
        (("true", "false", ""), ("TRUE", "FALSE", "")),
        (('"1,5"', '"2,5"', "A"), ('"1,5"', '"2,5"', "")),
    ],
)
def test_categories_are_recognized(tmp_path, cells, new):
    model = fitted(tmp_path, cells)
    frame = read_for(model, tmp_path, "size,code\n" + "".join(f"4,{cell}\n" for cell in new))
    assert predicted(model, frame)[:2] == ["sick", "well"]
    assert set(model.recognised(frame)["code"][:2]) <= set(model.pipeline[0]["categories"].categories_[0])


@pytest.mark.parametrize(("known", "other"), [("10", "1_0"), ("12345678901234567", "12345678901234568")])
def test_different_codes_remain_different(tmp_path, known, other):
    """Python reads 1_0 as ten, and a float has sixteen digits."""
    model = fitted(tmp_path, (known, "A", "B"))
    frame = read_for(model, tmp_path, f"size,code\n4,{other}\n4,{known}.0\n")
    assert model.recognised(frame)["code"].tolist() == [other, known]


def test_texts_that_are_numbers_without_an_exact_value(tmp_path):
    """77e1234567890123456789 is infinite as a float and too large for a Decimal."""
    code = "77e1234567890123456789"
    model = fitted(tmp_path, (code, "A", "B"))
    save_model(model, tmp_path / "model.safetensors")
    frame = read_for(load_model(tmp_path / "model.safetensors"), tmp_path, f"size,code\n4,{code}\n4,A\n4,1{code}\n")
    assert predicted(model, frame)[:2] == ["sick", "well"]
    assert model.recognised(frame)["code"].tolist() == [code, "A", f"1{code}"]


def test_categories_that_pandas_has_converted_to_numbers(tmp_path):
    model = fitted(tmp_path, ("1", "2", "A"))
    assert predicted(model, pandas.DataFrame({"size": 4.0, "code": [1.0, 2.0, np.nan]}))[:2] == ["sick", "well"]


def test_a_number_that_equals_two_categories_is_not_replaced(tmp_path):
    model = fitted(tmp_path, ("1.10", "1.1", "A"))
    frame = read_for(model, tmp_path, "size,code\n4,1.100\n4,1.1\n")
    assert model.recognised(frame)["code"].tolist() == ["1.100", "1.1"]


@pytest.mark.parametrize(
    ("labels", "new", "codes"),
    [
        (("0", "1"), ("1", "0"), [1, 0]),  # a class for every row is not an error here
        (("0", "1"), ("1", "1"), [1, 1]),
        (("01", "02"), ("02", "01"), [1, 0]),
        (("TRUE", "maybe"), ("TRUE", "TRUE"), [0, 0]),
        (("FALSE", "TRUE"), ("TRUE", "FALSE"), [1, 0]),
        (("1.5", "2.0"), ("2.0", "2"), [1, 1]),
        (("01", "A"), ("01", "01"), [0, 0]),
    ],
)
def test_classes_are_recognized(tmp_path, labels, new, codes):
    model = fitted(tmp_path, ("x", "y", "z"), labels)
    frame = read_for(model, tmp_path, "size,code,kind\n" + "".join(f"4,x,{label}\n" for label in new))
    assert model.label_codes(frame).tolist() == codes


def test_unknown_and_missing_classes(tmp_path):
    model = fitted(tmp_path, ("x", "y", "z"))
    with pytest.raises(InputError, match="that the model was fitted on. Got 'dead'. Known classes: sick, well"):
        model.label_codes(pandas.DataFrame({"kind": ["sick", "dead"]}))
    with pytest.raises(InputError, match="missing in 1 of 2 rows"):
        model.label_codes(pandas.DataFrame({"kind": ["sick", None]}))
    with pytest.raises(InputError, match="has no column 'kind'"):
        model.label_codes(pandas.DataFrame({"size": [1.0]}))


@pytest.mark.parametrize(("written", "size"), [("{:,.1f}", 4800.0), ("{:.1f}", 4.8)])
def test_commas_have_the_same_meaning_as_in_the_fit(tmp_path, written, size):
    rows = "".join(f"{written.format(100.5 * row)}\t{'low' if row < 30 else 'high'}\n" for row in range(N_ROWS))
    (tmp_path / "fitted.tsv").write_text("size\tkind\n" + rows)
    model = fit_table(label_table(read_table(tmp_path / "fitted.tsv"), "kind"), "sklearn-lda")
    assert model.columns.conform(read_for(model, tmp_path, "size\tkind\n4,800\tx\n"))["size"].tolist() == [size]
    unambiguous = read_for(model, tmp_path, "size\tother\n4,800\t0,5\n")
    assert model.columns.conform(unambiguous)["size"].tolist() == [4.8]


@pytest.mark.parametrize(("decimal", "size"), [(",", 4.8), (".", 4800.0)])
def test_decimal_commas_of_the_fit_in_a_table_separated_by_commas(tmp_path, decimal, size):
    frame = pandas.DataFrame({"size": np.arange(N_ROWS) + 0.5, "kind": np.repeat(["low", "high"], N_ROWS // 2)})
    frame.to_csv(tmp_path / "fitted.csv", sep=";", decimal=decimal, index=False)
    model = fit_table(label_table(read_table(tmp_path / "fitted.csv"), "kind"), "sklearn-lda")
    assert read_for(model, tmp_path, 'size,kind\n"4,800",x\n')["size"].tolist() == [size]
