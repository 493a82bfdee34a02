"""The texts of a report: the model card (data, scores with intervals, settings, versions) and the slider's numbers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np

from annealed.app.report.base import (
    QUANTILE,
    OneTemperature,
    ReportData,
    effective_sample_size,
    formatted,
    is_kernel,
    share_interval,
)
from annealed.app.tables import TableModel

LEAST = 1e-15  # clips probabilities, so that the loss of a sample is finite
MOST_LISTED = 12  # classes listed with their numbers of samples
MOST_TABLED = 50  # classes up to which the confusion matrix is also given as a table


def live_numbers(data: ReportData) -> list[dict[str, str]]:
    """The numbers above the slider at each temperature."""
    return [
        {
            "temperature": f"{temperature:.3g}",
            "note": "chosen by validation" if index == data.chosen and len(data.shown) > 1 else "",
            **_scores(data, index),
        }
        for index, temperature in enumerate(data.temperatures)
    ]


def confusion_table(data: ReportData) -> list[list[str]]:
    """The confusion matrix at the chosen temperature as text, with a header; empty if there are many classes."""
    if len(data.classes) > MOST_TABLED:
        return []
    counts = data.confusion(data.predicted[data.chosen])
    lines = [[name, *map(formatted, row)] for name, row in zip(data.classes, counts, strict=True)]
    return [[f"true class, predicted class ({data.unit})", *data.classes], *lines]


def evaluated_by(model: TableModel, data: ReportData) -> str:
    """Whether the samples were predicted by fits without them."""
    n_held_out, n_optimistic = int(data.is_held_out.sum()), int((data.in_training & ~data.is_held_out).sum())
    if n_held_out == len(data.labels):
        return "each predicted by a cross-validation fit without it"
    if n_held_out:
        return f"{n_held_out} predicted by cross-validation fits without them, and the new ones by the model"
    if n_optimistic:
        return f"predicted by the model, which was fitted on samples equal to {n_optimistic} of them"
    if "row_hashes" not in model.facts:  # a model that `fit_table` did not make
        return "predicted by the model, which does not record whether it was fitted on them"
    return "predicted by the model, which was not fitted on them"


def weighted_by(model: TableModel) -> str:
    return "" if model.columns.weights is None else f" weighted by {model.columns.weights!r}"


def _chosen_with(model, data):
    if not data.is_held_out.any() or isinstance(data.path, OneTemperature):
        return ""
    chosen = "the temperature and the kernel were" if is_kernel(model.classifier) else "the temperature was"
    return f" ({chosen} chosen with all training samples)"


def card(model: TableModel, data: ReportData) -> dict[str, list[tuple[str, str]]]:
    """The sections of the model card, each with pairs of a name and an unescaped text."""
    facts, columns = model.facts, model.columns
    counts = list(facts.get("class_counts", {}).items())
    more = f" and {len(counts) - MOST_LISTED} more" if len(counts) > MOST_LISTED else ""
    left_out = "; ".join(f"{name}: {reason}" for name, reason in columns.left_out.items())
    return {
        "Data": [
            ("target", model.target),
            ("fitted on", f"{facts.get('rows')} samples{weighted_by(model)}"),
            (
                "columns",
                f"{len(columns.numbers)} numbers, {len(columns.categories)} categories, {len(columns.dates)} dates",
            ),
            ("features", f"{len(data.feature_names)} after encoding"),
            ("classes", ", ".join(f"{name} ({count})" for name, count in counts[:MOST_LISTED]) + more),
            ("columns left out", left_out or "none"),
        ],
        "Scores at the chosen temperature": [
            ("error", _error_interval(data)),
            ("log-loss", _loss_interval(data)),
            (
                "samples",
                f"{len(data.labels)}{weighted_by(model)}, {evaluated_by(model, data)}{_chosen_with(model, data)}",
            ),
        ],
        "Model": [
            ("estimator", f"{type(model.pipeline[-1]).__name__} (--model {model.name})"),
            ("temperature", f"{model.classifier.temperature_:.4g}"),
            ("length of the path", str(len(model.path))),
            *_kernel(model.classifier),
            ("posterior scale", f"{model.classifier.posterior_scale_:.3g} (calibration factor of the logits)"),
            *_settings(model.pipeline[-1]),
        ],
        "Versions": [
            *((name, version) for name, version in facts.get("versions", {}).items()),
            ("date of this report", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
        ],
    }


def _kernel(classifier) -> list[tuple[str, str]]:
    """What a fit has chosen for a kernel."""
    if not is_kernel(classifier):
        return []
    chosen = f"gamma {classifier.gamma_:.3g}, {classifier.n_landmarks_} landmarks"
    return [("chosen kernel", f"{chosen}, {classifier.n_support_} of them in predictions")]


def _settings(estimator) -> list[tuple[str, str]]:
    plain: dict[str, Any] = {
        name: value for name, value in estimator.get_params(deep=False).items() if value is not None
    }
    return [(name, str(value)) for name, value in plain.items()]


def _losses(data, index):
    probability = data.posterior[index, np.arange(len(data.labels)), data.labels]
    return -np.log(np.maximum(probability, LEAST))


def _scores(data, index):
    return {
        "error": f"{_error(data, index):.2%}",
        "loss": f"{_mean(data, _losses(data, index)):.4f}",
        "confidence": f"{_mean(data, data.posterior[index].max(axis=1)):.1%}",
    }


def _mean(data, values) -> float:
    return float(np.average(values, weights=data.weights))


def _error(data, index) -> float:
    return _mean(data, data.predicted[index] != data.labels)


def _error_interval(data) -> str:
    error = _error(data, data.chosen)
    low, high = share_interval(error, effective_sample_size(data.weights))
    return f"{error:.2%} (95 % interval {low:.2%} to {high:.2%})"


def _loss_interval(data) -> str:
    losses = _losses(data, data.chosen)
    mean = _mean(data, losses)
    half = QUANTILE * np.sqrt(_mean(data, (losses - mean) ** 2) / effective_sample_size(data.weights))
    return f"{mean:.4f} (95 % interval {max(mean - half, 0):.4f} to {mean + half:.4f})"
