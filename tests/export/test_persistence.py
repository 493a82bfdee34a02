"""Model files: what was written is read again, and nothing else is."""

import json
import pickle
import zipfile
from dataclasses import asdict

import numpy as np
import pytest
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from annealed.comparison import OURS, fit_table
from annealed.export import check_writable, load_model, save_model, write_then_rename
from annealed.export.persistence import FORMAT
from annealed.tables import InputError, default_table

pytest.importorskip("pandas")
skops = pytest.importorskip("skops.io")
TABLE = default_table()


@pytest.fixture(scope="module")
def model():
    return fit_table(TABLE, "inner-product")


@pytest.mark.parametrize("name", OURS)
def test_every_estimator_of_ours_comes_back(tmp_path, name):
    model = fit_table(TABLE, name)
    save_model(model, tmp_path / "model.skops")
    again = load_model(tmp_path / "model.skops")
    assert again.columns == model.columns
    assert again.facts == model.facts
    assert repr(again.path) == repr(model.path)
    old, new = (own.predict(TABLE.features).iloc[:, 1:].to_numpy() for own in (model, again))
    assert np.array_equal(old, new)


def content_of(model, **change):
    own = {"pipeline": model.pipeline, "columns": asdict(model.columns), "target": model.target, "name": model.name}
    return {"format": FORMAT, **own, "facts": model.facts, **change}


def test_files_that_do_not_say_what_commas_meant(tmp_path, model):
    """They were written before models kept it."""
    columns = asdict(model.columns)
    del columns["commas"]
    skops.dump(content_of(model, columns=columns), tmp_path / "model.skops")
    assert load_model(tmp_path / "model.skops").columns == model.columns


@pytest.mark.parametrize(
    "change",
    [
        {"pipeline": None},
        {"pipeline": {"a": 1}},
        {"pipeline": Pipeline([("table", FunctionTransformer())])},
        {"columns": [1]},
        {"columns": {"numbers": 1, "dates": 2, "categories": 3, "left_out": 4}},
        {"columns": {"numbers": ["other"], "dates": [], "categories": [], "left_out": {}}},
        {"facts": None},
        {"target": 3},
    ],
)
def test_contents_of_another_kind(tmp_path, model, change):
    skops.dump(content_of(model, **change), tmp_path / "model.skops")
    assert "is damaged: fit the model again" in refused(tmp_path / "model.skops")


def test_files_that_cannot_be_read(tmp_path, monkeypatch):
    assert "cannot be read: File name too long" in refused(tmp_path / ("x" * 300))

    def fail(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.is_file", fail)
    assert "cannot be read: Permission denied" in refused(tmp_path / "closed" / "model.skops")


def refused(path):
    with pytest.raises(InputError) as caught:
        load_model(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_pickles_are_not_loaded(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    (tmp_path / "model.skops").write_bytes(pickle.dumps(Trap()))
    assert "is not a model file" in refused(tmp_path / "model.skops")
    assert not (tmp_path / "sprung").exists()


def test_foreign_types_are_named_and_not_loaded(tmp_path):
    content = {"format": "annealed table model, 1", "pipeline": FunctionTransformer(json.dumps)}
    skops.dump(content, tmp_path / "model.skops")
    assert "tampered with: it asks for json.dumps" in refused(tmp_path / "model.skops")


def test_other_models_and_no_file(tmp_path):
    skops.dump({"something": "else"}, tmp_path / "other.skops")
    assert "is no model that `annealed fit`" in refused(tmp_path / "other.skops")
    assert "There is no model file" in refused(tmp_path / "absent.skops")


def test_tampered_type(tmp_path, model):
    path, forged = tmp_path / "model.skops", tmp_path / "forged.skops"
    save_model(model, path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(forged, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "schema.json":
                content = content.replace(b'"annealed.path"', b'"subprocess"').replace(b'"AnnealingPath"', b'"Popen"')
            new.writestr(name, content)
    assert "it asks for subprocess.Popen" in refused(forged)


@pytest.mark.parametrize("place", [0.1, 0.5, 0.99])
def test_damaged_bytes(tmp_path, model, place):
    path = tmp_path / "model.skops"
    save_model(model, path)
    content = bytearray(path.read_bytes())
    first = int(place * len(content))
    content[first : first + 200] = b"\0" * len(content[first : first + 200])
    path.write_bytes(content)
    assert "damaged" in refused(path)
    path.write_bytes(content[: len(content) // 2])
    assert "damaged" in refused(path)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "out.csv"
    write_then_rename(path, b"old")

    def fail(*names):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(InputError, match="cannot be written: No space left"):
        write_then_rename(path, b"new")
    assert [own.name for own in tmp_path.iterdir()] == ["out.csv"]
    assert path.read_bytes() == b"old"


def test_names_of_any_length(tmp_path):
    path = tmp_path / ("x" * 250)
    write_then_rename(path, b"new")
    assert path.read_bytes() == b"new"
    with pytest.raises(InputError, match="cannot be written: File name too long"):
        check_writable(tmp_path / ("x" * 300))


def test_a_closed_folder(tmp_path, monkeypatch):
    def fail(path, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.stat", fail)
    with pytest.raises(InputError, match="cannot be written: Permission denied"):
        check_writable(tmp_path / "closed" / "out.csv")


def test_no_folder_to_write_in(tmp_path):
    with pytest.raises(InputError, match="There is no folder"):
        write_then_rename(tmp_path / "absent" / "out.csv", b"")
