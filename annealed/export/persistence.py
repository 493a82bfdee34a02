"""Models as .skops files: arrays and plain settings, never a pickle.

A file names the types it wants built; only those of TRUSTED, and the ones that skops itself knows to be harmless, are.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
from sklearn.pipeline import Pipeline

from annealed.export.base import write_then_rename
from annealed.optional import require
from annealed.path import AnnealingPath
from annealed.tables import InputError, TableColumns, TableModel

FORMAT = "annealed table model, 1"
TRUSTED = [
    "annealed.estimators.base.AnnealedClassifier",
    "annealed.estimators.annealed_lda.AnnealedLDA",
    "annealed.estimators.annealed_logistic_regression.AnnealedLogisticRegression",
    "annealed.estimators.melda.MELDA",
    "annealed.estimators.pooled_gaussian.PooledGaussian",
    "annealed.estimators.potts_da.PottsDA",
    "annealed.estimators.second_order_features.SecondOrderFeatures",
    "annealed.objectives.distance.Distance",
    "annealed.objectives.inner_product.InnerProduct",
    "annealed.objectives.linear.LinearPredictor",
    "annealed.objectives.quadratic.Quadratic",
    "annealed.objectives.quadratic.QuadraticPredictor",
    "annealed.path.AnnealingPath",
    "annealed.prototypes.columns.Columns",
    "annealed.prototypes.record.PrototypePath",
    "annealed.prototypes.refinement.CalibratedPosterior",
    "annealed.schedules.adaptive.AdaptiveSchedule",
    "annealed.schedules.c_grid.CGrid",
    "annealed.schedules.exponential.ExponentialSchedule",
    "annealed.schedules.fixed.FixedSchedule",
    "annealed.schedules.inverse.InverseTemperatureSchedule",
    "annealed.schedules.until.UntilSchedule",
    "annealed.solvers.lbfgs.LBFGS",
    "annealed.solvers.newton.Newton",
    "annealed.solvers.scaled_conjugate_gradient.ScaledConjugateGradient",
    "annealed.solvers.subspace.Subspace",
    "numpy.dtype",
]


def save_model(model: TableModel, path: Path) -> None:
    """Write a model, whole or not at all; one that `load_model` would not open is refused."""
    if not isinstance(model, TableModel):
        raise TypeError(
            f"save_model writes what fit_table returns, a TableModel. Got a {type(model).__name__}. Write an estimator "
            "of your own with skops.io.dump or joblib.dump."
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
    except Exception as error:  # of settings that are no data
        raise InputError(f"A model file cannot hold all of {model.name!r}: {error}.") from error
    foreign = _foreign(data)
    if foreign:
        raise InputError(
            f"No file of {model.name!r} is safe to open: it would ask for {foreign[0]}. Take another model, or "
            "settings without it."
        )
    write_then_rename(path, data)


def load_model(path: Path) -> TableModel:
    """Read a model that `save_model` wrote; anything else is refused."""
    content = _loaded(path, _bytes(path))
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"'{path}' is no model that `annealed fit` of this version wrote.")
    try:
        return _model(content)
    except Exception as error:  # whatever is missing or of another kind
        raise InputError(f"'{path}' is damaged: fit the model again.") from error


def _model(content):
    """Contents of another kind are found now, and not by what is asked of the model later."""
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
    _ask(model)
    return model


def _ask(model):
    """Predict a row whose every cell is missing: it goes through all parts of the pipeline."""
    row = require("pandas", extra="cli").DataFrame({name: [None] for name in model.columns.used})
    posterior = model.predict(row).iloc[:, 1:].to_numpy(dtype=float)
    if not np.isfinite(posterior).all():
        raise ValueError(f"A posterior was expected. Got {posterior}.")
    path = getattr(model.classifier, "path_", None)
    if path is not None:
        _follow(path)


def _follow(path):
    """Print a path, lay it out as a table and ask what lies at its ends; all that it holds has an entry a step."""
    repr(path)
    path.to_frame()
    if isinstance(path, AnnealingPath):
        own = {name: part for name, part in vars(path).items() if name != "columns"}
        parts = [part for part in (*own.values(), *path.arrays.values()) if isinstance(part, np.ndarray)]
        if any(len(part) != len(path) for part in parts):
            raise ValueError(f"{len(path)} steps were expected. Got {[len(part) for part in parts]}.")
        for temperature in path.temperatures[[0, path.best_index, -1]].tolist():
            path.at(temperature)


def _bytes(path):
    try:
        if path.is_file():
            return path.read_bytes()
    except OSError as error:
        raise InputError(f"The model file '{path}' cannot be read: {error.strerror}.") from error
    raise InputError(f"There is no model file '{path}'.")


def _loaded(path, data):
    skops = require("skops.io", extra="cli")
    try:
        foreign = _foreign(data)
    except Exception as error:  # whatever a strange file does to the reader, it is no model of ours
        raise InputError(f"'{path}' is not a model file, or it is damaged: fit the model again.") from error
    if foreign:
        raise InputError(
            f"'{path}' was not written by annealed, or it was tampered with: it asks for {foreign[0]}, "
            "which is not loaded."
        )
    try:
        return skops.loads(data, trusted=TRUSTED)
    except Exception as error:
        raise InputError(f"'{path}' is damaged: fit the model again.") from error


def _foreign(data):
    return [name for name in require("skops.io", extra="cli").get_untrusted_types(data=data) if name not in TRUSTED]
