"""What a model says of rows at every temperature: the arrays of a report.

Rows that the model was fitted on are judged by fits of folds that did not see them, along the same temperatures and at
the posterior's own scale; other rows by the model itself.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from annealed.comparison import fingerprint, table_splits
from annealed.estimators.melda import class_weights_of
from annealed.export.report.base import OneTemperature, Plane, Prototypes, ReportData
from annealed.schedules import FixedSchedule
from annealed.tables import InputError, TableModel

MOST_ROWS = 20_000
MOST_TEMPERATURES = 30
N_FOLDS = 5
N_PLACES = 80  # along each axis of the plane
MARGIN = 0.05  # of the rows' range, left free on each side


def report_data(model: TableModel, frame) -> ReportData:
    """Judge the rows of a table at every temperature."""
    classifier, path = model.classifier, model.path
    if not _speaks_anywhere(classifier):
        path = OneTemperature(np.array([classifier.temperature_]))
    if len(frame) < 2:
        raise InputError("A report needs at least two rows. Got 1.")
    labels = model.label_codes(frame)
    rows = model.columns.conform(frame)
    is_held_out = fingerprint(rows, model.classes[labels]) == model.facts.get("fingerprint")
    rows, labels = _sampled(rows, labels)
    shown = _shown(len(path.temperatures), path.best_index)
    if is_held_out:
        rows, labels, posterior = _held_out(model, rows, labels, path, shown)
    else:
        posterior = _posterior(classifier, model.pipeline[0].transform(rows), path, shown)
    matrix = np.asarray(model.pipeline[0].transform(rows), dtype=float)
    return ReportData(
        path=path,
        shown=shown,
        classes=[str(label) for label in model.classes],
        labels=labels,
        posterior=posterior,
        is_held_out=is_held_out,
        plane=_plane(classifier, matrix, labels, path.temperatures[shown]),
        feature_names=model.feature_names,
        strength=_strength(classifier, matrix),
        prototypes=_prototypes(classifier, matrix),
    )


def _speaks_anywhere(classifier):
    """At every temperature of its path; prototypes that grew speak only at the end."""
    return hasattr(classifier, "at")


def _sampled(rows, labels):
    if len(labels) <= MOST_ROWS:
        return rows, labels
    kept = np.sort(np.random.RandomState(0).permutation(len(labels))[:MOST_ROWS])
    return rows.iloc[kept], labels[kept]


def _shown(n_temperatures, best_index):
    """At most MOST_TEMPERATURES, evenly along the path, the ends and the chosen one among them."""
    even = np.linspace(0, n_temperatures - 1, min(n_temperatures, MOST_TEMPERATURES - 1)).round().astype(int)
    return np.unique([*even, best_index])


def _posterior(classifier, matrix, path, shown):
    """(n_shown, n_rows, n_classes), at the scale that the path found."""
    if not _speaks_anywhere(classifier):
        return classifier.predict_proba(matrix)[None]
    parts = []
    for place in shown:
        point = classifier.at(path.temperatures[place])
        point.posterior_scale_ = float(path.posterior_scale[place])
        parts.append(point.predict_proba(matrix))
    return np.stack(parts)


def _held_out(model, rows, labels, path, shown):
    """Rows, labels and posterior of every row that some fold left out."""
    posterior = np.full((len(shown), len(labels), len(model.classes)), np.nan)
    for train, test in table_splits(labels, N_FOLDS):
        vectorizer = clone(model.pipeline[0]).fit(rows.iloc[train])
        classifier = _same_path(model.classifier)
        with warnings.catch_warnings():  # what a fold has to say was said by the fit itself
            warnings.simplefilter("ignore")
            classifier.fit(vectorizer.transform(rows.iloc[train]), labels[train])
        posterior[:, test] = _posterior(classifier, vectorizer.transform(rows.iloc[test]), path, shown)
    is_judged = np.isfinite(posterior[0, :, 0])
    return rows[is_judged], labels[is_judged], posterior[:, is_judged]


def _same_path(classifier):
    """Unfitted, to walk the same temperatures under the settings that validation chose."""
    if not _speaks_anywhere(classifier):
        return clone(classifier)
    settings = {"schedule": FixedSchedule(classifier.path_.temperatures), "selection": "last"}
    for name in ("metric", "objective__metric"):
        if name in classifier.get_params() and hasattr(classifier, "metric_"):
            settings[name] = classifier.metric_
    return clone(classifier).set_params(**settings)


def _plane(classifier, matrix, labels, temperatures) -> Plane:
    """Two directions that tell the classes apart, and what the model says of the typical row at each place."""
    mean = matrix.mean(axis=0)
    centred = matrix - mean
    points = centred @ _directions(classifier, centred, labels)
    typical = np.linalg.lstsq(points, centred, rcond=None)[0]  # (2, n_features): the rows expected at a place
    axes = tuple(_axis(column) for column in points.T)
    places = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    speakers = [classifier.at(own) for own in temperatures] if _speaks_anywhere(classifier) else [classifier]
    posterior = np.stack([own.predict_proba(mean + places @ typical) for own in speakers])
    shape = (len(temperatures), N_PLACES, N_PLACES)
    return Plane(points, axes, posterior.argmax(axis=2).reshape(shape), posterior.max(axis=2).reshape(shape))


def _directions(classifier, centred, labels):
    """(n_features, 2): discriminants of the model's own scores where they are linear, completed by a main direction."""
    is_linear = hasattr(classifier, "coef_")
    of_features = class_weights_of(classifier)[0].T if is_linear else np.eye(centred.shape[1])
    found = (of_features @ _scalings(centred @ of_features, labels))[:, :2]
    if found.shape[1] < 2:
        points = centred @ found
        rest = centred - points @ np.linalg.lstsq(points, centred, rcond=None)[0]
        second = PCA(1).fit(rest).components_.T
        found = np.hstack([found, second - found @ np.linalg.lstsq(points, centred @ second, rcond=None)[0]])
    return found


def _scalings(scores, labels):
    """Discriminants of scores, (n_scores, n_found); the first score itself where the rows are too few to tell."""
    n_classes = len(np.unique(labels))
    if n_classes < 2 or len(labels) <= n_classes:
        return np.eye(scores.shape[1])[:, :1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scores of K classes have K - 1 dimensions, which LDA remarks on
        return LinearDiscriminantAnalysis().fit(scores, labels).scalings_


def _axis(column):
    low, high = float(column.min()), float(column.max())
    room = MARGIN * (high - low) or 1.0
    return np.linspace(low - room, high + room, N_PLACES)


def _strength(classifier, matrix):
    """How far a standard deviation of each feature moves each class's logit."""
    if not hasattr(classifier, "coef_"):
        return None
    return class_weights_of(classifier)[0] * matrix.std(axis=0)


def _prototypes(classifier, matrix):
    if not hasattr(classifier, "prototypes_"):
        return None
    spread = matrix.std(axis=0)
    places = (classifier.prototypes_ - matrix.mean(axis=0)) / np.where(spread > 0, spread, 1)
    return Prototypes(places, classifier.prototype_labels_)
