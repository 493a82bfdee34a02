"""Writes a model of a table to a file, and reads it."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from annealed.app.comparison import HASH, make_candidate, make_pipeline
from annealed.app.model_files.classifiers import KINDS, restored_classifier
from annealed.app.model_files.content import (
    LONGEST_HEADER,
    Content,
    checked_text,
    distinct_texts,
    from_bytes,
    to_bytes,
)
from annealed.app.model_files.preparation import learned_preparation, restored_preparation
from annealed.app.tables import TableColumns, TableModel, check_names
from annealed.errors import InputError
from annealed.export import write_then_rename
from annealed.optional import require
from annealed.path import AnnealingPath

KNOWN_FACTS = {"rows", "class_counts", "left_out", "seconds", "row_hashes", "versions"}


def save_model(model: TableModel, path: Path) -> None:
    """Write a model to a file, completely or not at all; raises an error if `load_model` would refuse to load it."""
    if not isinstance(model, TableModel):
        raise TypeError(
            f"`model` must be a TableModel, as fit_table returns it. Got a {type(model).__name__}. Write other "
            "estimators with skops.io.dump or joblib.dump."
        )
    _check_saveable(model)
    try:
        data = to_bytes(_learned(model))
        again = _model(from_bytes(data))
    except Exception as error:
        raise InputError(f"{model.name!r} cannot be written to a model file: {str(error).rstrip('.')}.") from error
    if not np.array_equal(_probabilities(again), _probabilities(model)):
        raise InputError(f"{model.name!r} cannot be written to a model file: it would not predict the same.")
    write_then_rename(path, data)


def load_model(path: Path) -> TableModel:
    """Read a model that `save_model` wrote; any other file raises an error.

    A file holds only what was learned, as arrays, numbers and texts. The preparation and the classifier are made by the
    library with its own parameters, so no setting, function or type comes from the file.
    """
    data = _bytes_of(path)
    try:
        return _model(from_bytes(data))
    except Exception as error:  # any bytes may have been given: anything may be missing, of the wrong type or too large
        raise InputError(
            f"'{path}' is not a model file of this version of annealed, or it is damaged. Fit the model again."
        ) from error


def _bytes_of(path):
    try:
        if path.is_file():
            return path.read_bytes()
    except OSError as error:
        raise InputError(f"The model file '{path}' cannot be read: {error.strerror}.") from error
    raise InputError(f"There is no model file '{path}'.")


# --- writing ----------------------------------------------------------------------------------------------


def _check_saveable(model):
    """A file holds no settings, so those of the model must be the library's own."""
    if model.name not in KINDS:
        raise InputError(f"A model file can hold {', '.join(KINDS)}. Got {model.name!r}. Choose one of these.")
    if _settings(model.pipeline) != _settings(make_pipeline(model.columns, make_candidate(model.name))):
        raise InputError(
            f"A model file holds no settings, so those of {model.name!r} must be the library's own, as fit_table "
            "chooses them. Write other estimators with skops.io.dump or joblib.dump."
        )


def _settings(pipeline):
    return {name: (type(value), repr(value)) for name, value in pipeline.get_params().items()}


def _learned(model) -> dict[str, Any]:
    facts, columns = model.facts, asdict(model.columns)
    if facts.keys() != KNOWN_FACTS:
        raise ValueError(f"its facts must be those of fit_table. Got {', '.join(map(str, facts))}")
    preparation, classifier = model.pipeline
    return {
        "name": model.name,
        "target": model.target,
        "classes": model.classes.tolist(),
        "columns": columns | {"left_out": list(columns["left_out"].items())},
        "preparation": learned_preparation(preparation),
        "classifier": KINDS[model.name].learned(classifier),
        "facts": {
            "rows": facts["rows"],
            "class_counts": list(facts["class_counts"].values()),
            "seconds": facts["seconds"],
            "row_hashes": np.frombuffer(facts["row_hashes"], HASH),
            "versions": list(facts["versions"].items()),
        },
    }


# --- reading ----------------------------------------------------------------------------------------------


def _model(content: Content) -> TableModel:
    """Make the model and use it, so that a damaged file raises an error here and not when the model is used."""
    name, target = content.text("name"), content.text("target")
    if name not in KINDS:
        raise ValueError(f"One of {', '.join(KINDS)} was expected. Got {name!r}.")
    classes = _classes(content.values("classes"))
    columns = _columns(content.part("columns"), target)
    facts = _facts(content.part("facts"), classes, columns)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        preparation = restored_preparation(content.part("preparation"), columns)
        n_features = max(part.stop for part in preparation.output_indices_.values())
        classifier = restored_classifier(name, content.part("classifier"), classes, n_features)
        content.close()
        model = TableModel(Pipeline([("table", preparation), ("model", classifier)]), columns, target, name, facts)
        _probabilities(model)
        if hasattr(model.classifier, "path_"):
            _use_path(model.path)
    return model


def _classes(labels) -> np.ndarray:
    """Sorted labels, all of them texts or all of them whole numbers."""
    is_text = all(type(label) is str for label in labels)
    if not is_text and not all(type(label) is int for label in labels):
        raise TypeError("Texts or whole numbers were expected.")
    if is_text and len(labels) * max(map(len, labels), default=0) > LONGEST_HEADER:
        raise ValueError("The labels are too long.")  # in an array, each takes the space of the longest
    if is_text:
        distinct_texts(labels)
    classes = np.array(labels)
    if len(labels) < 2 or classes.dtype.kind not in "iuU" or np.unique(classes).tolist() != labels:
        raise ValueError("Two sorted classes or more were expected.")
    return classes


def _columns(content: Content, target) -> TableColumns:
    kinds = {name: content.texts(name) for name in ("numbers", "dates", "categories")}
    left_out, commas = dict(_pairs(content.values("left_out"))), content.text("commas")
    columns = TableColumns(
        **kinds,
        left_out=left_out,
        commas=commas,
        weights=content.text("weights") if "weights" in content else None,
    )
    content.close()
    names = [*columns.used, *left_out, target, *([] if columns.weights is None else [columns.weights])]
    check_names(names)
    if len(set(names)) < len(names) or not columns.used or commas not in ("", "decimal", "thousands"):
        raise ValueError("Different names of columns were expected.")
    return columns


def _facts(content: Content, classes, columns) -> dict[str, Any]:
    counts = content.values("class_counts")
    if any(type(count) is not int or count < 0 for count in counts):
        raise ValueError("Numbers of samples were expected.")
    facts = {
        "rows": content.whole("rows"),
        "class_counts": dict(zip(map(str, classes), counts, strict=True)),
        "left_out": columns.left_out,
        "seconds": content.number("seconds"),
        "row_hashes": content.array("row_hashes", (None,), "u").tobytes(),
        "versions": dict(_pairs(content.values("versions"))),
    }
    content.close()
    return facts


def _pairs(values):
    """Pairs of texts, of which the first ones differ."""
    distinct_texts([name for name, _ in values])
    return [(name, checked_text(text)) for name, text in values]


def _probabilities(model):
    """Probabilities of two rows that use all parts of the pipeline; `predict` raises an error if they are none."""
    cells = {name: [None, 0.0] for name in model.columns.numbers}
    cells |= {name: [None, "1970-01-01"] for name in model.columns.dates}
    cells |= {name: [None, "0"] for name in model.columns.categories}
    return model.predict(require("pandas", extra="cli").DataFrame(cells)).iloc[:, 1:].to_numpy(dtype=float)


def _use_path(path):
    """Use a path in all ways: print it, make a table, interpolate."""
    repr(path)
    path.to_frame()
    if isinstance(path, AnnealingPath):
        for temperature in path.temperatures[[0, path.best_index, -1]].tolist():
            path.at(temperature)
