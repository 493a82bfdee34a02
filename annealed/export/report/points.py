"""What a model says of rows at every temperature: the arrays of a report.

Rows that the model was fitted on are judged by fits of folds that did not see them, along the same temperatures and at
the posterior's own scale; other rows by the model itself. Where only a few of the rows that it was fitted on are there,
no fold of them would stand for the model: it judges them itself, and the report says so.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.base import clone
from sklearn.decomposition import PCA

from annealed.comparison import HASH, UNFIT, row_hashes, table_splits
from annealed.estimators.discriminant_axes import class_weights_of, directions_of, score_moments
from annealed.export.report.base import OneTemperature, Plane, Prototypes, ReportData
from annealed.schedules import FixedSchedule
from annealed.tables import InputError, TableModel

MOST_ROWS = 20_000
MOST_TEMPERATURES = 30
N_FOLDS = 5
N_PLACES = 80  # along each axis of the plane
MARGIN = 0.05  # of the rows' range, left free on each side
LEAST_INFORMATION = 1e-9  # nats, below which a direction tells classes apart by rounding alone


def report_data(model: TableModel, frame) -> ReportData:
    """Judge the rows of a table at every temperature."""
    classifier, path = model.classifier, model.path
    if not _has_path_of_models(classifier):
        path = OneTemperature(np.array([classifier.temperature_]))
    labels = model.label_codes(frame)
    rows = model.columns.conform(model.recognised(frame))
    weights = model.row_weights(frame)
    rows, labels, weights = rows[weights > 0], labels[weights > 0], weights[weights > 0]
    if len(labels) < 2:
        raise InputError("A report needs at least two rows. Got 1.")
    was_seen = _was_seen(model, rows, labels)
    is_held_out = was_seen & _stand_for(model, labels[was_seen])
    _warn_of_flattery(model, was_seen & ~is_held_out)
    kept = _sampled(2 * labels + was_seen)
    rows = rows.iloc[kept]
    labels, weights, was_seen, is_held_out = (own[kept] for own in (labels, weights, was_seen, is_held_out))
    shown = _shown(len(path.temperatures), path.best_index)
    posterior = _judged(model, rows, labels, weights, is_held_out, path, shown)
    known = np.isfinite(posterior[0, :, 0])
    labels, posterior = labels[known], posterior[:, known]
    matrix = np.asarray(model.pipeline[0].transform(rows[known]), dtype=float)
    return ReportData(
        path=path,
        shown=shown,
        classes=[str(label) for label in model.classes],
        labels=labels,
        weights=weights[known],
        posterior=posterior,
        was_seen=was_seen[known],
        is_held_out=is_held_out[known],
        plane=_plane(classifier, matrix, labels, path.temperatures[shown]),
        feature_names=model.feature_names,
        strength=_strength(classifier, matrix),
        prototypes=_prototypes(classifier, matrix),
    )


def _has_path_of_models(classifier):
    """At every temperature of its path; prototypes that grew speak only at the end."""
    return hasattr(classifier, "at")


def _was_seen(model, rows, labels):
    """Whether each row equals one that the model was fitted on; none where its file does not tell."""
    known = np.frombuffer(model.facts.get("row_hashes", b""), dtype=HASH)
    return np.isin(row_hashes(rows, model.classes[labels]), known)


def _stand_for(model, labels):
    """Whether rows of these labels are enough of those that the model was fitted on: half of them, of every class.

    Of single rows of every class none can be left out.
    """
    n_classes = len(model.classes)
    return 2 * len(labels) >= model.facts.get("rows", 0) and len(np.unique(labels)) == n_classes < len(labels)


def _warn_of_flattery(model, is_judged_by_itself):
    if "row_hashes" not in model.facts:
        warnings.warn(
            "The model's file is of an older version, which does not say what rows it was fitted on: if these are "
            "among them, the scores may flatter it. Fit it again to have them judged by folds.",
            stacklevel=3,
        )
    if is_judged_by_itself.any():
        warnings.warn(
            f"{is_judged_by_itself.sum()} of {len(is_judged_by_itself)} rows equal rows that the model was fitted on, "
            "but they are too few to judge by folds, so that the scores may flatter it. Give other rows, "
            "or all that it was fitted on.",
            stacklevel=3,
        )


def _sampled(strata):
    """Positions of about MOST_ROWS rows, the same share of every stratum and at least one."""
    if len(strata) <= MOST_ROWS:
        return np.arange(len(strata))
    share = MOST_ROWS / len(strata)
    order = np.random.RandomState(0).permutation(len(strata))
    parts = [order[strata[order] == own] for own in np.unique(strata)]
    return np.sort(np.concatenate([part[: int(np.ceil(share * len(part)))] for part in parts]))


def _shown(n_temperatures, best_index):
    """At most MOST_TEMPERATURES, evenly along the path, the ends and the chosen one among them."""
    even = np.linspace(0, n_temperatures - 1, min(n_temperatures, MOST_TEMPERATURES - 1)).round().astype(int)
    return np.unique([*even, best_index])


def _posterior(classifier, matrix, path, shown):
    """(n_shown, n_rows, n_classes), at the scale that the path found."""
    if not _has_path_of_models(classifier):
        return classifier.predict_proba(matrix)[None]
    parts = []
    for place in shown:
        point = classifier.at(path.temperatures[place])
        point.posterior_scale_ = float(path.posterior_scale[place])
        parts.append(point.predict_proba(matrix))
    return np.stack(parts)


def _judged(model, rows, labels, weights, is_held_out, path, shown):
    """The posterior, of the rows to be held out by fits of folds, of the others by the model."""
    posterior = np.empty((len(shown), len(labels), len(model.classes)))
    if is_held_out.any():
        own = labels[is_held_out], weights[is_held_out]
        posterior[:, is_held_out] = _held_out(model, rows[is_held_out], *own, path, shown)
    if not is_held_out.all():
        others = model.pipeline[0].transform(rows[~is_held_out])
        posterior[:, ~is_held_out] = _posterior(model.classifier, others, path, shown)
    return posterior


def _held_out(model, rows, labels, weights, path, shown):
    """The posterior of every row that some fold left out, of the others nan."""
    posterior = np.full((len(shown), len(labels), len(model.classes)), np.nan)
    for train, test in table_splits(labels, N_FOLDS):
        vectorizer = clone(model.pipeline[0]).fit(rows.iloc[train])
        classifier = _same_path(model.classifier)
        with warnings.catch_warnings():  # what a fold has to say was said by the fit itself
            warnings.simplefilter("ignore")
            _fit_fold(classifier, vectorizer.transform(rows.iloc[train]), labels[train], weights[train])
        posterior[:, test] = _posterior(classifier, vectorizer.transform(rows.iloc[test]), path, shown)
    return posterior


def _fit_fold(classifier, matrix, labels, weights):
    try:
        classifier.fit(matrix, labels, weights)
    except UNFIT as error:
        raise InputError(
            "A report judges rows that the model was fitted on by fits that did not see them, but without some of "
            f"them it cannot be fitted: {str(error).splitlines()[0].rstrip('.')}. Give rows that it was not fitted on."
        ) from error


def _same_path(classifier):
    """Unfitted, to walk the same temperatures under the settings that validation chose."""
    if not _has_path_of_models(classifier):
        return clone(classifier)
    settings = {"schedule": FixedSchedule(classifier.path_.temperatures), "selection": "last"}
    for name in ("penalty_scaling", "objective__penalty_scaling"):
        if name in classifier.get_params() and hasattr(classifier, "penalty_scaling_"):
            settings[name] = classifier.penalty_scaling_
    return clone(classifier).set_params(**settings)


def _plane(classifier, matrix, labels, temperatures) -> Plane:
    """Two directions that tell the classes apart, and what the model says of the typical row at each place."""
    mean = matrix.mean(axis=0)
    centred = matrix - mean
    points = centred @ _directions(classifier, centred, labels)
    typical = np.linalg.lstsq(points, centred, rcond=None)[0]  # (2, n_features): the rows expected at a place
    axes = tuple(_axis(column) for column in points.T)
    places = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    models = [classifier.at(own) for own in temperatures] if _has_path_of_models(classifier) else [classifier]
    posterior = np.stack([own.predict_proba(mean + places @ typical) for own in models])
    shape = (len(temperatures), N_PLACES, N_PLACES)
    return Plane(points, axes, posterior.argmax(axis=2).reshape(shape), posterior.max(axis=2).reshape(shape))


def _directions(classifier, centred, labels):
    """(n_features, 2): discriminants of the model's own scores where they are linear, completed by main directions."""
    if _is_linear(classifier):
        of_features = class_weights_of(classifier)[0].T
    else:
        of_features = np.linalg.qr(centred.T)[0]  # a basis of the rows
    found = (of_features @ _discriminants(centred @ of_features, labels))[:, :2]
    while found.shape[1] < 2:
        points = centred @ found
        rest = centred - points @ np.linalg.lstsq(points, centred, rcond=None)[0]
        second = _main_direction(rest)
        found = np.hstack([found, second - found @ np.linalg.lstsq(points, centred @ second, rcond=None)[0]])
    return found


def _discriminants(scores, labels):
    """(n_scores, n_found), the strongest first; none where the classes do not differ."""
    n_scores = scores.shape[1]
    directions = directions_of(score_moments(scores, labels, None, np.eye(n_scores), np.arange(labels.max() + 1)))
    return directions.of_scores[directions.information > LEAST_INFORMATION].T


def _main_direction(rows):
    with np.errstate(invalid="ignore", divide="ignore"):  # of equal rows any direction is the main one
        return PCA(1).fit(rows).components_.T


def _axis(column):
    low, high = float(column.min()), float(column.max())
    room = MARGIN * (high - low) or 1.0
    return np.linspace(low - room, high + room, N_PLACES)


def _strength(classifier, matrix):
    """How far a standard deviation of each feature moves each class's logit."""
    if not _is_linear(classifier):
        return None
    return class_weights_of(classifier)[0] * matrix.std(axis=0)


def _is_linear(classifier):
    """In its columns; coefficients of a quadratic family are of products too."""
    return hasattr(classifier, "coef_") and classifier.coef_.shape[1] == classifier.n_features_in_


def _prototypes(classifier, matrix):
    if not hasattr(classifier, "prototypes_"):
        return None
    spread = matrix.std(axis=0)
    places = (classifier.prototypes_ - matrix.mean(axis=0)) / np.where(spread > 0, spread, 1)
    return Prototypes(places, classifier.prototype_labels_)
