"""The model card: data, settings, versions, and scores with their intervals, as rows of text."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np

from annealed.export.report.base import QUANTILE, ReportData, effective_rows, share_interval, written
from annealed.tables import TableModel

LEAST = 1e-15  # probability, so that a certain mistake costs a finite loss
MOST_LISTED = 12
MOST_TABLED = 50  # classes of a confusion matrix in words


def live_numbers(data: ReportData) -> list[dict[str, str]]:
    """What stands beside the slider at each temperature."""
    return [
        {
            "temperature": f"{temperature:.3g}",
            "note": "chosen by validation" if place == data.chosen and len(data.shown) > 1 else "",
            **_scores(data, place),
        }
        for place, temperature in enumerate(data.temperatures)
    ]


def confusion_table(data: ReportData) -> list[list[str]]:
    """Lines of cells at the chosen temperature, the first with the names of the predicted classes; none of many."""
    if len(data.classes) > MOST_TABLED:
        return []
    counts = data.confusion(data.predicted[data.chosen])
    lines = [[name, *map(written, own)] for name, own in zip(data.classes, counts, strict=True)]
    return [[f"true, predicted ({data.unit})", *data.classes], *lines]


def judged_by(model: TableModel, data: ReportData) -> str:
    """Whether the rows were judged by a fit that saw them."""
    n_held_out, n_flattered = int(data.is_held_out.sum()), int((data.was_seen & ~data.is_held_out).sum())
    if n_held_out == len(data.labels):
        return "each judged by a fit that did not see it"
    if n_held_out:
        return f"{n_held_out} judged by fits that did not see them, the others, new to it, by the model"
    if n_flattered:
        return f"judged by the model, which was fitted on rows equal to {n_flattered} of them"
    if "row_hashes" not in model.facts:  # of an older version
        return "judged by the model, whose file does not say whether it was fitted on them"
    return "judged by the model, to which they are new"


def weighted_by(model: TableModel) -> str:
    return "" if model.columns.weights is None else f" weighted by {model.columns.weights!r}"


def _chosen_with(data):
    return " (the temperature was chosen with all rows that the model was fitted on)" if data.is_held_out.any() else ""


def card(model: TableModel, data: ReportData) -> dict[str, list[tuple[str, str]]]:
    """Sections of (what, text), the texts as they are."""
    facts, columns = model.facts, model.columns
    counts = list(facts.get("class_counts", {}).items())
    more = f" and {len(counts) - MOST_LISTED} more" if len(counts) > MOST_LISTED else ""
    left_out = "; ".join(f"{name}: {reason}" for name, reason in columns.left_out.items())
    return {
        "Data": [
            ("target", model.target),
            ("fitted on", f"{facts.get('rows')} rows{weighted_by(model)}"),
            (
                "columns",
                f"{len(columns.numbers)} numbers, {len(columns.categories)} categories, {len(columns.dates)} dates",
            ),
            ("features", f"{len(data.feature_names)} after coding"),
            ("classes", ", ".join(f"{name} ({count})" for name, count in counts[:MOST_LISTED]) + more),
            ("left out", left_out or "none"),
        ],
        "Scores at the chosen temperature": [
            ("error", _error_interval(data)),
            ("log-loss", _loss_interval(data)),
            ("of", f"{len(data.labels)} rows{weighted_by(model)}, {judged_by(model, data)}{_chosen_with(data)}"),
        ],
        "Model": [
            ("estimator", f"{type(model.pipeline[-1]).__name__} ({model.name})"),
            ("temperature", f"{model.classifier.temperature_:.4g}, {len(model.path)} visited"),
            ("posterior scale", f"{model.classifier.posterior_scale_:.3g}"),
            *_settings(model.pipeline[-1]),
        ],
        "Made with": [
            *((name, version) for name, version in facts.get("versions", {}).items()),
            ("this report", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
        ],
    }


def _settings(estimator) -> list[tuple[str, str]]:
    plain: dict[str, Any] = {
        name: value for name, value in estimator.get_params(deep=False).items() if value is not None
    }
    return [(name, str(value)) for name, value in plain.items()]


def _losses(data, place):
    given = data.posterior[place, np.arange(len(data.labels)), data.labels]
    return -np.log(np.maximum(given, LEAST))


def _scores(data, place):
    return {
        "error": f"{_error(data, place):.2%}",
        "loss": f"{_mean(data, _losses(data, place)):.4f}",
        "certainty": f"{_mean(data, data.posterior[place].max(axis=1)):.1%}",
    }


def _mean(data, values) -> float:
    return float(np.average(values, weights=data.weights))


def _error(data, place) -> float:
    return _mean(data, data.predicted[place] != data.labels)


def _error_interval(data) -> str:
    error = _error(data, data.chosen)
    low, high = share_interval(error, effective_rows(data.weights))
    return f"{error:.2%} (95 % interval {low:.2%} to {high:.2%})"


def _loss_interval(data) -> str:
    losses = _losses(data, data.chosen)
    mean = _mean(data, losses)
    half = QUANTILE * np.sqrt(_mean(data, (losses - mean) ** 2) / effective_rows(data.weights))
    return f"{mean:.4f} (95 % interval {max(mean - half, 0):.4f} to {mean + half:.4f})"
