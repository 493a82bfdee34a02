"""A model of a table as a .skops file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
from sklearn.pipeline import Pipeline

from annealed.app.tables import TableColumns, TableModel
from annealed.errors import InputError
from annealed.export.files import write_then_rename
from annealed.export.model_data import load_trusted, model_bytes, untrusted_types
from annealed.optional import require
from annealed.path import AnnealingPath

FORMAT = "annealed table model, 1"


def save_model(model: TableModel, path: Path) -> None:
    """Write a model to a file, completely or not at all; raises an error if `load_model` would refuse to load it."""
    if not isinstance(model, TableModel):
        raise TypeError(
            f"`model` must be a TableModel, as fit_table returns it. Got a {type(model).__name__}. Write other "
            "estimators with skops.io.dump or joblib.dump."
        )
    skops = require("skops.io", extra="cli")
    content = {
        "format": FORMAT,
        "pipeline": model.pipeline,
        "columns": asdict(model.columns),
        "target": model.target,
        "name": model.name,
        "facts": model.facts,
    }
    try:
        data = skops.dumps(content)
    except Exception as error:  # a setting cannot be represented as data
        raise InputError(f"{model.name!r} cannot be written to a model file: {error}.") from error
    untrusted = untrusted_types(data)
    if untrusted:
        raise InputError(
            f"A file of {model.name!r} would not be safe to load, because it would contain {untrusted[0]}. Choose "
            "another model, or settings without this type."
        )
    write_then_rename(path, data)


def load_model(path: Path) -> TableModel:
    """Read a model that `save_model` wrote; any other file raises an error."""
    content = load_trusted(path, model_bytes(path))
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"'{path}' must be a model file of this version of annealed. Fit the model again.")
    try:
        return _model(content)
    except Exception as error:  # anything missing or of the wrong type
        raise InputError(f"'{path}' is damaged. Fit the model again.") from error


def _model(content):
    """Build the model and check it, so that a damaged file raises an error here and not when the model is used."""
    columns = TableColumns(**content["columns"])
    model = TableModel(content["pipeline"], columns, content["target"], content["name"], content["facts"])
    texts = [model.target, model.name, columns.commas, *columns.used]
    texts += [] if columns.weights is None else [columns.weights]
    kinds = [
        (model.pipeline, Pipeline),
        (model.facts, dict),
        (columns.left_out, dict),
        *((text, str) for text in texts),
    ]
    for value, kind in kinds:
        if not isinstance(value, kind):
            raise TypeError(f"{kind.__name__} was expected. Got {value!r}.")
    if [*model.pipeline[0].feature_names_in_] != columns.used or len(model.classes) < 2:
        raise ValueError("The columns are not those of the pipeline, or the classes are missing.")
    _check_prediction(model)
    return model


def _check_prediction(model):
    """Predict a row of missing cells, which uses all parts of the pipeline, and check the path."""
    row = require("pandas", extra="cli").DataFrame({name: [None] for name in model.columns.used})
    posterior = model.predict(row).iloc[:, 1:].to_numpy(dtype=float)
    if not np.isfinite(posterior).all():
        raise ValueError(f"A posterior was expected. Got {posterior}.")
    path = getattr(model.classifier, "path_", None)
    if path is not None:
        _check_path(path)


def _check_path(path):
    """Use a path in all ways: print it, make a table, interpolate; every array has one entry per temperature."""
    repr(path)
    path.to_frame()
    if isinstance(path, AnnealingPath):
        attributes = {name: value for name, value in vars(path).items() if name != "columns"}
        arrays = [value for value in (*attributes.values(), *path.arrays.values()) if isinstance(value, np.ndarray)]
        if any(len(array) != len(path) for array in arrays):
            raise ValueError(f"{len(path)} temperatures were expected. Got {[len(array) for array in arrays]}.")
        for temperature in path.temperatures[[0, path.best_index, -1]].tolist():
            path.at(temperature)
