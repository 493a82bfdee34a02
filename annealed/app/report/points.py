"""Computes the arrays of a report: the predictions of a model at every temperature.

Samples that the model was fitted on are predicted by cross-validation, with the same temperatures and the posterior
scales of the model's path, and with its kernel if it has one; other samples are predicted by the model. If the table
contains only a few of the training samples, fits on them would not represent the model. Then the model predicts them
too, and the report says so.
"""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import replace

import numpy as np
from sklearn.base import clone
from sklearn.decomposition import PCA

from annealed.app.comparison import FIT_ERRORS, HASH, row_hashes, table_splits
from annealed.app.report.base import OneTemperature, Plane, Prototypes, ReportData, is_kernel
from annealed.app.tables import TableModel, check_rows
from annealed.errors import InputError
from annealed.estimators.discriminant_axes import class_weights_of, directions_of, score_moments
from annealed.path import FixedSchedule

MOST_ROWS = 20_000
MOST_TEMPERATURES = 30
N_FOLDS = 5
N_POINTS = 80  # grid points along each axis of the plane
MARGIN = 0.05  # free space on each side of the plane, relative to the range of the samples
LEAST_INFORMATION = 1e-9  # nats; below it, a direction separates the classes by rounding errors only


def report_data(model: TableModel, frame) -> ReportData:
    """Predict the rows of a table at every temperature."""
    classifier, path = model.classifier, model.path
    if not _has_path_of_models(classifier):
        path = OneTemperature(np.array([classifier.temperature_]))
    labels = model.label_codes(frame)
    rows = model.columns.conform(model.recognised(frame))
    model.features_of(rows)  # raises an error that names a row whose numbers overflow
    weights = model.row_weights(frame)
    rows, labels, weights = rows[weights > 0], labels[weights > 0], weights[weights > 0]
    if len(labels) < 2:
        raise InputError(
            f"The table of a report must have at least two rows of positive weight. Got {len(labels)}. Add rows."
        )
    in_training = _in_training(model, rows, labels)
    is_held_out = in_training & _represent_training(model, labels[in_training])
    _warn_of_optimistic_scores(model, in_training & ~is_held_out)
    drawn = _drawn(2 * labels + in_training)
    rows = rows.iloc[drawn]
    labels, weights, in_training, is_held_out = (array[drawn] for array in (labels, weights, in_training, is_held_out))
    shown = _shown(len(path.temperatures), path.best_index)
    posterior = _predicted(model, rows, labels, weights, is_held_out, path, shown)
    known = np.isfinite(posterior[0, :, 0])
    labels, posterior = labels[known], posterior[:, known]
    matrix = model.features_of(rows[known])
    return ReportData(
        path=path,
        shown=shown,
        classes=[str(label) for label in model.classes],
        labels=labels,
        weights=weights[known],
        posterior=posterior,
        in_training=in_training[known],
        is_held_out=is_held_out[known],
        plane=_plane(classifier, matrix, labels, path.temperatures[shown]),
        feature_names=model.feature_names,
        strength=_strength(classifier, matrix),
        prototypes=_prototypes(classifier, matrix),
    )


def _has_path_of_models(classifier):
    """Whether a classifier predicts at every temperature of its path; PottsDA, whose prototypes grow, does not."""
    return hasattr(classifier, "at")


def _in_training(model, rows, labels):
    """Whether each row equals one that the model was fitted on; False if the model file has no record of them."""
    known = np.frombuffer(model.facts.get("row_hashes", b""), dtype=HASH)
    return np.isin(row_hashes(rows, model.classes[labels]), known)


def _represent_training(model, labels):
    """Whether training samples with these labels suffice for cross-validation.

    They must be half of all training samples and include every class, and some class must have more than one.
    """
    n_classes = len(model.classes)
    return 2 * len(labels) >= model.facts.get("rows", 0) and len(np.unique(labels)) == n_classes < len(labels)


def _warn_of_optimistic_scores(model, is_optimistic):
    if "row_hashes" not in model.facts:
        warnings.warn(
            "The model does not record which rows it was fitted on. If it was fitted on some of these, the "
            "scores are optimistic. Fit it again, so that the report can cross-validate.",
            stacklevel=3,
        )
    if is_optimistic.any():
        warnings.warn(
            f"{is_optimistic.sum()} of {len(is_optimistic)} rows equal rows that the model was fitted on, but they are "
            "too few for cross-validation, and the scores are optimistic. Give new rows, or all rows of the fit.",
            stacklevel=3,
        )


def _drawn(strata):
    """Indices of about MOST_ROWS rows: the same share of every stratum, and at least one row."""
    if len(strata) <= MOST_ROWS:
        return np.arange(len(strata))
    share = MOST_ROWS / len(strata)
    order = np.random.RandomState(0).permutation(len(strata))
    parts = [order[strata[order] == stratum] for stratum in np.unique(strata)]
    return np.sort(np.concatenate([part[: int(np.ceil(share * len(part)))] for part in parts]))


def _shown(n_temperatures, best_index):
    """Indices of at most MOST_TEMPERATURES temperatures, spread along the path, with its ends and the chosen one."""
    even = np.linspace(0, n_temperatures - 1, min(n_temperatures, MOST_TEMPERATURES - 1)).round().astype(int)
    return np.unique([*even, best_index])


def _posterior(classifier, matrix, path, shown):
    """The posterior of a classifier, (n_shown, n_samples, n_classes), with the posterior scales of `path`."""
    if not _has_path_of_models(classifier):
        return classifier.predict_proba(matrix)[None]
    calibrated = copy(classifier)
    calibrated.path_ = replace(classifier.path_, posterior_scale=path.posterior_scale)
    return np.stack([calibrated.at(path.temperatures[index]).predict_proba(matrix) for index in shown])


def _predicted(model, rows, labels, weights, is_held_out, path, shown):
    """The posterior of all rows: by cross-validation where `is_held_out`, and by the model elsewhere."""
    posterior = np.empty((len(shown), len(labels), len(model.classes)))
    if is_held_out.any():
        targets = labels[is_held_out], weights[is_held_out]
        posterior[:, is_held_out] = _held_out(model, rows[is_held_out], *targets, path, shown)
    if not is_held_out.all():
        others = model.features_of(rows[~is_held_out])
        posterior[:, ~is_held_out] = _posterior(model.classifier, others, path, shown)
        check_rows(np.isfinite(posterior[:, ~is_held_out]).all(axis=(0, 2)))
    return posterior


def _held_out(model, rows, labels, weights, path, shown):
    """The cross-validated posterior; NaN for rows that no fold holds out."""
    posterior = np.full((len(shown), len(labels), len(model.classes)), np.nan)
    for train, test in table_splits(labels, N_FOLDS):
        features_of, classifier = _features_of_fold(model, rows.iloc[train]), _same_path(model.classifier)
        with warnings.catch_warnings():  # the fit of the model has given the same warnings
            warnings.simplefilter("ignore")
            _fit_fold(classifier, features_of(rows.iloc[train]), labels[train], weights[train])
        posterior[:, test] = _posterior(classifier, features_of(rows.iloc[test]), path, shown)
    return posterior


def _features_of_fold(model, rows):
    """The function that makes the features of a fold, learned from its training rows.

    The scales of a kernel were chosen for the features of the model, so that its folds have these, in units of the
    scales.
    """
    if not is_kernel(model.classifier):
        return clone(model.pipeline[0]).fit(rows).transform
    return lambda rows: model.features_of(rows) / model.classifier.scale_


def _fit_fold(classifier, matrix, labels, weights):
    try:
        classifier.fit(matrix, labels, weights)
    except FIT_ERRORS as error:
        raise InputError(
            "The report predicts training rows by cross-validation, but without some of them the model cannot be "
            f"fitted: {str(error).splitlines()[0].rstrip('.')}. Give rows that it was not fitted on."
        ) from error


def _same_path(classifier):
    """An unfitted copy with the temperatures of the path and the settings that validation chose."""
    if not _has_path_of_models(classifier):
        return clone(classifier)
    settings = {"schedule": FixedSchedule(classifier.path_.temperatures), "selection": "last"}
    for name in ("penalty_scaling", "objective__penalty_scaling"):
        if name in classifier.get_params() and hasattr(classifier, "penalty_scaling_"):
            settings[name] = classifier.penalty_scaling_
    if is_kernel(classifier):
        settings |= {"gamma": classifier.gamma_, "n_landmarks": classifier.n_landmarks_, "scale": "none"}
    return clone(classifier).set_params(**settings)


def _plane(classifier, matrix, labels, temperatures) -> Plane:
    """The samples projected onto two directions that separate the classes, and the predictions on a grid.

    The prediction at a grid point is that of the sample that linear regression on the two coordinates expects there.
    """
    mean = matrix.mean(axis=0)
    centred = matrix - mean
    points = centred @ _directions(classifier, centred, labels)
    slopes = np.linalg.lstsq(points, centred, rcond=None)[0]  # (2, n_features)
    axes = tuple(_axis(column) for column in points.T)
    grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    is_path = _has_path_of_models(classifier)
    models = [classifier.at(temperature) for temperature in temperatures] if is_path else [classifier]
    posterior = np.stack([model.predict_proba(mean + grid @ slopes) for model in models])
    shape = (len(temperatures), N_POINTS, N_POINTS)
    return Plane(points, axes, posterior.argmax(axis=2).reshape(shape), posterior.max(axis=2).reshape(shape))


def _directions(classifier, centred, labels):
    """Discriminant directions, completed by principal directions, (n_features, 2).

    They lie in the span of the coefficients of a linear model, and in the span of the samples for other models.
    """
    if _is_linear(classifier):
        basis = class_weights_of(classifier)[0].T
    else:
        basis = np.linalg.qr(centred.T)[0]
    directions = (basis @ _discriminants(centred @ basis, labels))[:, :2]
    while directions.shape[1] < 2:
        points = centred @ directions
        rest = centred - points @ np.linalg.lstsq(points, centred, rcond=None)[0]
        second = _principal_direction(rest)
        slopes = np.linalg.lstsq(points, centred @ second, rcond=None)[0]
        directions = np.hstack([directions, second - directions @ slopes])
    return directions


def _discriminants(scores, labels):
    """Discriminant directions, (n_scores, n_directions), the strongest first; none if the classes do not differ."""
    n_scores = scores.shape[1]
    directions = directions_of(score_moments(scores, labels, np.ones(len(labels)), np.eye(n_scores)))
    return directions.of_scores[directions.information > LEAST_INFORMATION].T


def _principal_direction(rows):
    with np.errstate(invalid="ignore", divide="ignore"):  # if all rows are equal, any direction is a principal one
        return PCA(1).fit(rows).components_.T


def _axis(column):
    low, high = float(column.min()), float(column.max())
    margin = MARGIN * (high - low) or 1.0
    return np.linspace(low - margin, high + margin, N_POINTS)


def _strength(classifier, matrix):
    """Change of each class's logit for one standard deviation of each feature, (n_classes, n_features)."""
    if not _is_linear(classifier):
        return None
    return class_weights_of(classifier)[0] * matrix.std(axis=0)


def _is_linear(classifier):
    """Whether a classifier is linear in its features; a quadratic family also has coefficients of products."""
    return hasattr(classifier, "coef_") and classifier.coef_.shape[1] == classifier.n_features_in_


def _prototypes(classifier, matrix):
    if not hasattr(classifier, "prototypes_"):
        return None
    spread = matrix.std(axis=0)
    positions = (classifier.prototypes_ - matrix.mean(axis=0)) / np.where(spread > 0, spread, 1)
    return Prototypes(positions, classifier.prototype_labels_)
