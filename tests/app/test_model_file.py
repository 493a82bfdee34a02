"""Model files: a written model is loaded unchanged, and nothing else is loaded."""

import copy
import json
import os
import pickle
import zipfile
from dataclasses import asdict, replace

import numpy as np
import pytest
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

from annealed import MELDA, AnnealedClassifier, AnnealedLogisticRegression, PooledGaussian, SecondOrderFeatures
from annealed.app import load_model, save_model
from annealed.app.comparison import OURS, fit_table
from annealed.app.model_file import FORMAT
from annealed.app.tables import TableModel, default_table, label_table, make_vectorizer
from annealed.errors import InputError
from annealed.export import check_writable, write_then_rename
from annealed.path import (
    AdaptiveSchedule,
    ExponentialSchedule,
    FixedSchedule,
    InverseTemperatureSchedule,
    UntilSchedule,
)
from annealed.problems import Distance, Quadratic
from annealed.solvers import LBFGS, ScaledConjugateGradient

pytest.importorskip("pandas")
skops = pytest.importorskip("skops.io")
TABLE = default_table()


@pytest.fixture(scope="module")
def model():
    return fit_table(TABLE, "logistic")


@pytest.mark.parametrize("name", OURS)
def test_every_estimator_is_loaded_unchanged(tmp_path, name):
    model = fit_table(TABLE, name)
    save_model(model, tmp_path / "model.skops")
    again = load_model(tmp_path / "model.skops")
    assert again.columns == model.columns
    assert again.facts == model.facts
    assert repr(again.path) == repr(model.path)
    old, new = (loaded.predict(TABLE.features).iloc[:, 1:].to_numpy() for loaded in (model, again))
    assert np.array_equal(old, new)


@pytest.mark.parametrize(
    "estimator",
    [
        AnnealedLogisticRegression(schedule=ExponentialSchedule(start=10.0, cooling_rate=0.5, stop=0.1)),
        AnnealedLogisticRegression(schedule=AdaptiveSchedule(), selection="last"),
        AnnealedLogisticRegression(schedule=FixedSchedule([1.0, 0.1])),
        AnnealedLogisticRegression(schedule=UntilSchedule(InverseTemperatureSchedule(), 0.1)),
        AnnealedClassifier(Quadratic()),
        AnnealedClassifier(Distance()),
        AnnealedClassifier(solver=LBFGS(memory_size=5)),
        AnnealedClassifier(solver=ScaledConjugateGradient()),
        PooledGaussian(),
        make_pipeline(SecondOrderFeatures(), MELDA()),
    ],
    ids=str,
)
def test_settings_are_loaded_unchanged(tmp_path, estimator):
    table = label_table(TABLE.features.iloc[:, :3].assign(diagnosis=TABLE.labels), "diagnosis")
    pipeline = Pipeline([("table", make_vectorizer(table.columns)), ("model", estimator)])
    model = TableModel(pipeline.fit(table.conformed(), table.labels), table.columns, table.target, "own")
    save_model(model, tmp_path / "model.skops")
    assert load_model(tmp_path / "model.skops").predict(table.features).equals(model.predict(table.features))


@pytest.mark.parametrize("name", ["random-forest", "gradient-boosting"])
def test_models_that_could_not_be_loaded_are_not_written(tmp_path, name):
    with pytest.raises(InputError, match=f"A file of '{name}' would not be safe .* it would contain sklearn"):
        save_model(fit_table(TABLE, name), tmp_path / "model.skops")
    assert not list(tmp_path.iterdir())


def test_only_table_models_are_written(tmp_path, model):
    with pytest.raises(TypeError, match="must be a TableModel, as fit_table returns it. Got a Pipeline. Write"):
        save_model(model.pipeline, tmp_path / "model.skops")


def test_objects_that_are_not_data_are_not_written(tmp_path, model):
    with pytest.raises(InputError, match="'logistic' cannot be written to a model file"):
        save_model(replace(model, facts={"of the user's own": {}.keys()}), tmp_path / "model.skops")
    assert not list(tmp_path.iterdir())


def content_of(model, **change):
    parts = {"pipeline": model.pipeline, "columns": asdict(model.columns), "target": model.target, "name": model.name}
    return {"format": FORMAT, **parts, "facts": model.facts, **change}


def test_files_without_the_meaning_of_commas_or_a_column_of_weights(tmp_path, model):
    """As written by older versions."""
    columns = asdict(model.columns)
    del columns["commas"], columns["weights"]
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
def test_contents_of_the_wrong_type(tmp_path, model, change):
    skops.dump(content_of(model, **change), tmp_path / "model.skops")
    assert "is damaged. Fit the model again" in message_of(tmp_path / "model.skops")


def test_weights_of_the_wrong_type(tmp_path, model):
    skops.dump(content_of(model, columns=asdict(model.columns) | {"weights": 3}), tmp_path / "model.skops")
    assert "is damaged. Fit the model again" in message_of(tmp_path / "model.skops")


@pytest.mark.parametrize(
    ("step", "name", "value"),
    [(-1, "_point", None), (-1, "n_features_in_", 9), (0, "transformers_", [])],
)
def test_attributes_of_the_wrong_type(tmp_path, model, step, name, value):
    """Loading raises the error; otherwise prediction would raise one of another package."""
    pipeline = copy.deepcopy(model.pipeline)
    assert hasattr(pipeline[step], name)
    setattr(pipeline[step], name, value)
    skops.dump(content_of(model, pipeline=pipeline), tmp_path / "model.skops")
    assert "is damaged. Fit the model again" in message_of(tmp_path / "model.skops")


@pytest.mark.parametrize("name", ["temperatures", "free_energy", "posterior_scale", "validation_score", "coef"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_a_path_with_arrays_of_the_wrong_length(tmp_path, model, name, shape):
    pipeline = copy.deepcopy(model.pipeline)
    path = pipeline[-1].path_
    change = {"arrays": path.arrays | {name: np.ones(shape)}} if name in path.arrays else {name: np.ones(shape)}
    pipeline[-1].path_ = replace(path, **change)
    skops.dump(content_of(model, pipeline=pipeline), tmp_path / "model.skops")
    assert "is damaged. Fit the model again" in message_of(tmp_path / "model.skops")


def test_files_that_cannot_be_read(tmp_path, monkeypatch):
    assert "cannot be read: File name too long" in message_of(tmp_path / ("x" * 300))

    def fail(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.is_file", fail)
    assert "cannot be read: Permission denied" in message_of(tmp_path / "closed" / "model.skops")


def message_of(path):
    """Message of the error that loading a file raises; it has one line."""
    with pytest.raises(InputError) as caught:
        load_model(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_pickles_are_not_loaded(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    (tmp_path / "model.skops").write_bytes(pickle.dumps(Trap()))
    assert "is not a model file" in message_of(tmp_path / "model.skops")
    assert not (tmp_path / "sprung").exists()


def test_untrusted_types_are_named_and_not_loaded(tmp_path):
    content = {"format": "annealed table model, 1", "pipeline": FunctionTransformer(json.dumps)}
    skops.dump(content, tmp_path / "model.skops")
    assert "tampered with: it contains json.dumps" in message_of(tmp_path / "model.skops")


def test_other_files_and_no_file(tmp_path):
    skops.dump({"something": "else"}, tmp_path / "other.skops")
    assert "must be a model file of this version of annealed" in message_of(tmp_path / "other.skops")
    assert "There is no model file" in message_of(tmp_path / "absent.skops")


def test_tampered_type(tmp_path, model):
    path, forged = tmp_path / "model.skops", tmp_path / "forged.skops"
    save_model(model, path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(forged, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "schema.json":
                content = content.replace(b'"annealed.path.record"', b'"subprocess"').replace(
                    b'"AnnealingPath"', b'"Popen"'
                )
            new.writestr(name, content)
    assert "it contains subprocess.Popen" in message_of(forged)


@pytest.mark.parametrize("position", [0.1, 0.5, 0.99])
def test_damaged_bytes(tmp_path, model, position):
    path = tmp_path / "model.skops"
    save_model(model, path)
    content = bytearray(path.read_bytes())
    first = int(position * len(content))
    content[first : first + 200] = b"\0" * len(content[first : first + 200])
    path.write_bytes(content)
    assert "damaged" in message_of(path)
    path.write_bytes(content[: len(content) // 2])
    assert "damaged" in message_of(path)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "out.csv"
    write_then_rename(path, b"old")

    def fail(*names):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(InputError, match="cannot be written: No space left"):
        write_then_rename(path, b"new")
    assert [file.name for file in tmp_path.iterdir()] == ["out.csv"]
    assert path.read_bytes() == b"old"


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX permissions")
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path):
    path = tmp_path / "model.skops"
    write_then_rename(path, b"old")
    path.chmod(0o600)
    write_then_rename(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o600)


def test_names_of_any_length(tmp_path):
    path = tmp_path / ("x" * 250)
    write_then_rename(path, b"new")
    assert path.read_bytes() == b"new"
    with pytest.raises(InputError, match="cannot be written: File name too long"):
        check_writable(tmp_path / ("x" * 300))


def test_an_inaccessible_folder(tmp_path, monkeypatch):
    def fail(path, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.stat", fail)
    with pytest.raises(InputError, match="cannot be written: Permission denied"):
        check_writable(tmp_path / "closed" / "out.csv")


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(InputError, match="the folder .* does not exist"):
        write_then_rename(tmp_path / "absent" / "out.csv", b"")
