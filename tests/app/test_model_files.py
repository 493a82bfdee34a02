"""Model files: a written model is loaded unchanged, and nothing else is loaded."""

import copy
import json
import os
import pickle
import tracemalloc
import zipfile
from dataclasses import replace
from numbers import Number

import numpy as np
import pytest
from scipy import sparse
from sklearn.pipeline import Pipeline

from annealed import AnnealedClassifier
from annealed.app import load_model, save_model
from annealed.app.comparison import CANDIDATES, NOT_SAVEABLE, OURS, fit_table
from annealed.app.model_files import KINDS
from annealed.app.tables import default_table, label_table
from annealed.callbacks import StopOnInterrupt
from annealed.errors import InputError
from annealed.export import check_writable, write_then_rename
from fuzz.mutations import SETTINGS, Parts

pandas = pytest.importorskip("pandas")
TABLE = default_table()
NOT_OURS = "is not a model file of this version of annealed, or it is damaged. Fit the model again."


def mixed_table():
    """Three classes of numbers, with missing cells, dates, and more towns than features for them."""
    rng = np.random.default_rng(0)
    kinds = np.arange(90) % 3
    frame = pandas.DataFrame(rng.normal(size=(90, 2)) + kinds[:, None], columns=["width", "height"])
    frame.loc[::7, "height"] = np.nan
    frame["town"] = [f"town {number}" for number in rng.permutation(90) % 45]
    frame["day"] = [f"2024-05-{day:02d}" for day in rng.integers(1, 29, 90)]
    return label_table(frame.assign(kind=kinds), "kind")


@pytest.fixture(scope="module")
def model():
    return fit_table(TABLE, "logistic")


@pytest.fixture(scope="module")
def kernel_model():
    return fit_table(TABLE, "kernel")


@pytest.fixture
def path(tmp_path, model):
    save_model(model, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def message_of(path):
    """Message of the error that loading a file raises; it has one line."""
    with pytest.raises(InputError) as caught:
        load_model(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- what is written --------------------------------------------------------------------------------------


def settings_of(estimator):
    return {name: repr(value) for name, value in estimator.get_params().items()}


def assert_same(left, right):
    """Compare two values with all that they hold."""
    assert type(left) is type(right) or isinstance(left, Number)
    if isinstance(left, np.ndarray):
        assert np.array_equal(left, right, equal_nan=left.dtype.kind == "f")
    elif isinstance(left, list | tuple):
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    elif isinstance(left, dict) or (hasattr(left, "__dict__") and not isinstance(left, type)):
        left, right = (value if isinstance(value, dict) else vars(value) for value in (left, right))
        assert left.keys() == right.keys()
        for name, value in left.items():
            assert_same(value, right[name])
    else:
        assert left == right or left != left


@pytest.mark.parametrize("table", [TABLE, mixed_table()], ids=["numbers", "mixed"])
@pytest.mark.parametrize("name", KINDS)
def test_every_model_is_loaded_unchanged(tmp_path, name, table):
    model = fit_table(table, name)
    if name == "sklearn-logistic":  # scikit-learn counts in 32 bits
        model.pipeline[-1].n_iter_ = model.pipeline[-1].n_iter_.astype(np.int64)
    save_model(model, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    assert_same(vars(again), vars(model))
    assert again.predict(table.features).equals(model.predict(table.features))
    if isinstance(model.classifier, AnnealedClassifier):
        features, between = model.features_of(table.conformed()), np.sqrt(np.prod(model.path.temperatures[:2]))
        hot = [each.classifier.at(between).predict_proba(features) for each in (model, again)]
        assert np.array_equal(*hot)
    assert settings_of(again.pipeline) == settings_of(model.pipeline)


def test_all_models_that_can_be_saved_are_known():
    assert {*KINDS, *NOT_SAVEABLE} == {*CANDIDATES}
    assert {*OURS} <= {*KINDS}


@pytest.mark.parametrize("name", NOT_SAVEABLE)
def test_models_that_could_not_be_loaded_are_not_written(tmp_path, model, name):
    with pytest.raises(InputError, match=f"A model file can hold logistic, .* Got '{name}'"):
        save_model(replace(model, name=name), tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


def test_only_table_models_are_written(tmp_path, model):
    with pytest.raises(TypeError, match="must be a TableModel, as fit_table returns it. Got a Pipeline. Write"):
        save_model(model.pipeline, tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    "setting",
    [
        {"memory": "folder"},
        {"table__n_jobs": 24},
        {"table__numbers__memory": "folder"},
        {"table__numbers__fill": StopOnInterrupt()},
        {"model__cv": 3},
        {"model__scoring": max},
        {"model__random_state": np.random.RandomState(0)},
        {"model": AnnealedClassifier()},
    ],
    ids=lambda setting: " ".join(setting),
)
def test_settings_other_than_the_librarys_own_are_not_written(tmp_path, model, setting):
    pipeline = copy.deepcopy(model.pipeline).set_params(**setting)
    with pytest.raises(InputError, match="those of 'logistic' must be the library's own, as fit_table chooses them"):
        save_model(replace(model, pipeline=pipeline), tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"model__kernel": "precomputed"}, "those of 'kernel' must be the library's own"),
        ({"model__kernel": max}, "those of 'kernel' must be the library's own"),
        ({"model__degree": 2}, "those of 'kernel' must be the library's own"),
        ({}, "its landmarks must be rows of an array. Got a csr_array"),
    ],
    ids=str,
)
def test_kernels_other_than_the_librarys_own_are_not_written(tmp_path, kernel_model, setting, message):
    pipeline = copy.deepcopy(kernel_model.pipeline).set_params(**setting)
    if not setting:
        pipeline[-1].fit(sparse.csr_array(pipeline[0].transform(TABLE.conformed())), TABLE.labels)
    with pytest.raises(InputError, match=message):
        save_model(replace(kernel_model, pipeline=pipeline), tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


def test_facts_that_fit_table_does_not_give_are_not_written(tmp_path, model):
    with pytest.raises(InputError, match="'logistic' cannot be written to a model file: its facts must be"):
        save_model(replace(model, facts={"of the user's own": {}.keys()}), tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_model_that_would_be_refused_is_not_written(tmp_path, model):
    pipeline = Pipeline([*model.pipeline.steps[:-1], ("model", copy.copy(model.pipeline[-1]))])
    pipeline[-1].path_ = replace(pipeline[-1].path_, best_index=10**6)
    with pytest.raises(InputError, match="'logistic' cannot be written to a model file: The temperatures"):
        save_model(replace(model, pipeline=pipeline), tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


# --- files that were not written by the library -------------------------------------------------------------


def edit(path, change):
    parts = Parts.of(path.read_bytes())
    change(parts)
    path.write_bytes(parts.packed())


def dictionaries_in(value):
    found = [value]
    for child in value.values():
        found += dictionaries_in(child) if isinstance(child, dict) else []
    return found


def test_the_edits_of_these_tests_alone_change_nothing(path, model):
    edit(path, lambda parts: None)
    assert load_model(path).predict(TABLE.features).equals(model.predict(TABLE.features))


@pytest.mark.parametrize("setting", SETTINGS)
def test_no_setting_comes_from_a_file(path, setting):
    content = path.read_bytes()
    for place in range(len(dictionaries_in(Parts.of(content).document))):
        path.write_bytes(content)
        edit(
            path, lambda parts, place=place: dictionaries_in(parts.document)[place].update({setting: SETTINGS[setting]})
        )
        assert NOT_OURS in message_of(path)


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (["name"], "random-forest"),
        (["name"], ["logistic"]),
        (["target"], 3),
        (["target"], "half of a pair: \ud800"),
        (["classes"], ["benign"]),
        (["classes"], ["malignant", "benign"]),
        (["classes"], ["benign", 3]),
        (["classes"], ["a" * 20_000_000, "b", "c"]),
        (["classes"], [0.5, 1.5]),
        (["columns", "numbers"], ["other"]),
        (["columns", "numbers"], 1),
        (["columns", "categories"], ["area error"]),
        (["columns", "left_out"], [["only a name"]]),
        (["columns", "weights"], "diagnosis"),
        (["columns", "weights"], "x" * 10_000),
        (["columns", "dates"], [f"c{number}" for number in range(200_000)]),
        (["columns", "commas"], "both"),
        (["preparation", "numbers", "n_rows"], True),
        (["classifier", "scaling"], "os.system"),
        (["classifier", "path", "best_index"], 10**6),
        (["classifier", "path", "best_index"], -1),
        (["classifier", "path", "rule"], "worst"),
        (["classifier", "path", "unit_C"], 0),
        (["facts", "class_counts"], [1]),
        (["facts", "versions"], [["numpy", 3]]),
        (["facts"], None),
    ],
    ids=lambda keys: str(keys)[:40],
)
def test_values_of_the_wrong_type(path, keys, value):
    def change(parts):
        place = parts.document
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    edit(path, change)
    assert NOT_OURS in message_of(path)


@pytest.mark.parametrize("name", ["temperatures", "free_energy", "posterior_scale", "validation_score", "arrays.coef"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)], ids=str)
def test_arrays_of_the_wrong_shape(path, name, shape):
    def change(parts):
        parts.header[f"classifier.path.{name}"]["shape"] = shape
        parts.arrays[f"classifier.path.{name}"] = bytearray(np.ones(shape).tobytes())

    edit(path, change)
    assert NOT_OURS in message_of(path)


def filled(name, value):
    """A change that sets all numbers of an array."""

    def change(parts):
        kind = {"F64": float, "I64": np.int64}[parts.header[name]["dtype"]]
        parts.arrays[name] = bytearray(np.full(len(parts.arrays[name]) // 8, value, kind).tobytes())

    return change


def reshaped(name, shape):
    def change(parts):
        parts.header[name]["shape"] = shape
        parts.arrays[name] = bytearray(8 * int(np.prod(shape)))

    return change


def set_value(place, name, value):
    return lambda parts: parts.document["classifier"].get(place, parts.document["classifier"]).update({name: value})


@pytest.mark.parametrize(
    "change",
    [
        set_value("", "gamma", 0),
        set_value("", "gamma", "cv"),
        set_value("", "approximation_error", None),
        set_value("path", "n_columns", 2**70),
        set_value("tried", "7", {}),
        set_value("", "kernel", "precomputed"),
        lambda parts: parts.document["classifier"]["tried"]["0"].update({"has_learned_scales": 1}),
        filled("classifier.landmarks.scale", 0.0),
        filled("classifier.landmarks.scale", np.nan),
        filled("classifier.landmarks.center", np.inf),
        filled("classifier.landmarks.landmarks", 1e200),
        filled("classifier.landmarks.landmarks", np.nan),
        filled("classifier.landmarks.indices", -1),
        filled("classifier.landmarks.indices", 3),
        filled("classifier.path.arrays.dual_coef", np.inf),
        reshaped("classifier.landmarks.indices", (0,)),
        reshaped("classifier.landmarks.indices", (10**6,)),
        reshaped("classifier.landmarks.landmarks", (250, 29)),
        reshaped("classifier.landmarks.landmarks", (249, 30)),
        reshaped("classifier.landmarks.scale", (31,)),
        reshaped("classifier.path.arrays.dual_coef", (1, 2, 250)),
    ],
)
def test_kernels_that_do_not_fit_together(tmp_path, kernel_model, change):
    path = tmp_path / "model.safetensors"
    save_model(kernel_model, path)
    edit(path, change)
    assert NOT_OURS in message_of(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("classifier.path.arrays.coef", np.nan),
        ("classifier.path.arrays.intercept", np.inf),
        ("classifier.path.temperatures", 1.0),
        ("classifier.path.posterior_scale", -1.0),
        ("classifier.path.posterior_scale", np.inf),
        ("preparation.numbers.scale", 0.0),
        ("preparation.numbers.scale", 1e-320),
        ("preparation.numbers.medians", np.inf),
        ("preparation.numbers.mean", -np.inf),
    ],
)
def test_numbers_that_would_give_no_probabilities(path, name, value):
    """Loading raises the error, before a prediction ends in a traceback or in rows that are no probabilities."""
    edit(path, filled(name, value))
    assert NOT_OURS in message_of(path)


def test_a_row_that_overflows_is_one_clear_error(model):
    """A scale that suits the rows tried while loading, but not a number that is far from them."""
    pipeline = copy.deepcopy(model.pipeline)
    pipeline[0].named_transformers_["numbers"]["scale"].scale_[:] = 1e-250
    far = TABLE.features.head(3).assign(**{"mean radius": [14.0, 1e90, 15.0]})
    with pytest.raises(InputError, match="The model gives no probabilities for row 2: its numbers are too far"):
        replace(model, pipeline=pipeline).predict(far)


def bomb(folder):
    """A megabyte that becomes 256, in an archive such as other packages write."""
    path = folder / "bomb.skops"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("schema.json", "w", force_zip64=True) as member:
            for _ in range(64):
                member.write(bytes(1 << 22))
    return path


def claimed(path):
    """An array that claims a terabyte."""
    parts = Parts.of(path.read_bytes())
    parts.header["classifier.path.temperatures"] |= {"shape": [2**37], "data_offsets": [0, 2**40]}
    path.write_bytes(parts.packed(is_fitting=False))
    return path


def nested(path):
    """A text of brackets only."""
    text = b"[" * 2_000_000
    path.write_bytes(np.array(len(text), "<u8").tobytes() + text)
    return path


@pytest.mark.parametrize("kind", ["zip bomb", "claimed size", "nested text", "length"])
def test_a_file_takes_no_more_memory_than_its_size(tmp_path, path, kind):
    if kind == "length":
        path.write_bytes(np.array(2**63 - 1, "<u8").tobytes() + path.read_bytes()[8:])
    else:
        path = {"zip bomb": bomb(tmp_path), "claimed size": claimed(path), "nested text": path}[kind]
        path = nested(path) if kind == "nested text" else path
    tracemalloc.start()
    try:
        assert NOT_OURS in message_of(path)
        assert tracemalloc.get_traced_memory()[1] < 3 * path.stat().st_size + 1_000_000
    finally:
        tracemalloc.stop()


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_pickles_are_not_loaded(tmp_path):
    trap, path = Trap(tmp_path / "sprung"), tmp_path / "model.safetensors"
    path.write_bytes(pickle.dumps(trap))
    assert NOT_OURS in message_of(path)
    np.save(tmp_path / "model.npy", np.array([trap], object))
    assert NOT_OURS in message_of(tmp_path / "model.npy")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("position", [0.001, 0.1, 0.5, 0.99])
def test_damaged_bytes(path, position):
    content = bytearray(path.read_bytes())
    first = int(position * len(content))
    content[first : first + 200] = b"\xff" * len(content[first : first + 200])
    path.write_bytes(content)
    assert NOT_OURS in message_of(path)
    path.write_bytes(content[: len(content) // 2])
    assert NOT_OURS in message_of(path)


def test_other_files_and_no_file(tmp_path):
    for content in (b"", b"hello", json.dumps({"format": "other"}).encode(), bytes(100)):
        (tmp_path / "other").write_bytes(content)
        assert NOT_OURS in message_of(tmp_path / "other")
    assert "There is no model file" in message_of(tmp_path / "absent")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-32-be"])
def test_a_header_in_another_encoding(path, encoding):
    """To guess the encoding, as json does with bytes, imports modules."""
    content = path.read_bytes()
    begin = 8 + int(np.frombuffer(content, "<u8", 1)[0])
    header = content[8:begin].decode().encode(encoding)
    path.write_bytes(np.array(len(header), "<u8").tobytes() + header + content[begin:])
    assert NOT_OURS in message_of(path)


def test_files_that_cannot_be_read(tmp_path, monkeypatch):
    assert "cannot be read: File name too long" in message_of(tmp_path / ("x" * 300))

    def fail(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.is_file", fail)
    assert "cannot be read: Permission denied" in message_of(tmp_path / "closed" / "model.safetensors")


# --- writing ------------------------------------------------------------------------------------------------


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
    path = tmp_path / "model.safetensors"
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
