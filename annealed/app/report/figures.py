"""The figures of a report, made with plotly: one frame per temperature, named by its position on the slider.

All texts from the data are escaped, because plotly interprets some HTML in labels.
"""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from annealed.app.report.base import LONGEST, ReportData, effective_sample_size, formatted, share_interval
from annealed.optional import require
from annealed.plots.projection import CLASS_COLOURS

VALIDATION, TRAIN, CHOSEN = "#0072B2", "#E69F00", "#D55E00"  # from the palette of Okabe and Ito, as in the displays
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x")
MOST_LISTED = 12  # classes in a legend; with more classes, only hovering shows their names
GRID = "rgba(128,128,128,0.25)"
MOST_WRITTEN = 12  # classes up to which the cells of the confusion matrix contain numbers
N_BINS = 10
N_FEATURES = 10
MOST_DRAWN = 2_000  # samples in the plane
LONGEST_IN_LEGEND = 30
DECIMALS = 4  # of the numbers in a figure, to keep the file small


def figures(data: ReportData) -> dict[str, Any]:
    """All figures of the report by name."""
    result = {"path": _path(data)} if len(data.shown) > 1 else {}
    result |= {
        "confusion": _confusion(data),
        "reliability": _reliability(data),
        "plane": _plane(data),
    }
    if data.strength is not None:
        result["features"] = _features(data)
    if data.prototypes is not None:
        result["prototypes"] = _prototypes(data)
    return result


def _figure(traces, frames=(), **layout):
    objects = require("plotly.graph_objects", extra="cli")
    axis = {"gridcolor": GRID, "zeroline": False, "automargin": True}
    return objects.Figure(
        data=traces,
        frames=[
            objects.Frame(data=new, name=str(index), traces=positions) for index, (new, positions) in enumerate(frames)
        ],
        layout={
            "template": "none",
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "margin": {"l": 10, "r": 20, "t": 10, "b": 10},
            "font": {"family": "system-ui, sans-serif", "size": 13},
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
            **layout,
            "xaxis": axis | layout.get("xaxis", {}),
            "yaxis": axis | layout.get("yaxis", {}),
        },
    )


def _path(data):
    objects = require("plotly.graph_objects", extra="cli")
    path = data.path
    sign = -1 if path.score_name.startswith("neg_") else 1
    traces, curve = [], sign * path.train_score
    if path.validation_score is not None:
        mean, spread = sign * path.validation_score.mean(axis=1), path.validation_score.std(axis=1)
        traces += _band(objects, path.temperatures, mean, spread)
        curve = mean
    train = {"color": TRAIN, "dash": "dash"}
    traces.append(
        objects.Scatter(x=path.temperatures, y=sign * path.train_score, mode="lines", name="training", line=train)
    )
    chosen, moving = path.temperatures[path.best_index], len(traces)
    marker = {"color": CHOSEN, "size": 13, "line": {"color": "white", "width": 2}}
    options = {"mode": "markers", "name": "temperature of the slider", "marker": marker}
    traces.append(objects.Scatter(x=[chosen], y=[curve[path.best_index]], **options))
    decades = np.log10(path.temperatures[0] / path.temperatures[-1])
    frames = [([objects.Scatter(x=[path.temperatures[index]], y=[curve[index]])], [moving]) for index in data.shown]
    return _figure(
        traces,
        frames,
        xaxis={
            "type": "log",
            "autorange": "reversed",
            "title": "temperature (cooling to the right)",
            "dtick": max(1, int(np.ceil(decades / 5))),  # few enough labels for the screen of a phone
            "tickangle": 0,
            "exponentformat": "power",
        },
        yaxis={"title": path.score_name.removeprefix("neg_").replace("_", " ")},
        shapes=[
            {"type": "line", "x0": chosen, "x1": chosen, "yref": "paper", "y0": 0, "y1": 1, "line": {"color": CHOSEN}}
        ],
    )


def _band(objects, temperatures, mean, spread):
    around = np.concatenate([temperatures, temperatures[::-1]])
    edge = np.concatenate([mean + spread, (mean - spread)[::-1]])
    options = {"hoverinfo": "skip", "showlegend": False, "line": {"width": 0}, "mode": "lines"}
    return [
        objects.Scatter(x=around, y=edge, fill="toself", fillcolor="rgba(0,114,178,0.2)", **options),
        objects.Scatter(
            x=temperatures,
            y=mean,
            mode="lines",
            name="validation, mean ± std of folds",
            line={"color": VALIDATION, "width": 3},
        ),
    ]


def _confusion(data):
    objects = require("plotly.graph_objects", extra="cli")
    names = _names(data.classes)
    n_classes = len(names)
    hover = (
        f"true class: %{{customdata[0]}}<br>predicted class: %{{customdata[1]}}<br>%{{text}} ({data.unit}), "
        "%{z:.1%} of the true class"
    )
    pairs = [[(true, predicted) for predicted in names] for true in names]

    def matrix(predicted):
        counts = data.confusion(predicted)
        of_class = counts.sum(axis=1, keepdims=True)
        share = counts / np.where(of_class > 0, of_class, 1)
        return objects.Heatmap(z=_rounded(share), text=[[formatted(count) for count in row] for row in counts])

    first = matrix(data.predicted[data.chosen]).update(
        customdata=pairs,
        zmin=0,
        zmax=1,
        colorscale=[[0, "#E8F1F8"], [1, VALIDATION]],
        showscale=False,
        hovertemplate=f"{hover}<extra></extra>",
        texttemplate="%{text}" if n_classes <= MOST_WRITTEN else None,
        xgap=2,
        ygap=2,
    )
    frames = [([matrix(predicted)], [0]) for predicted in data.predicted]
    return _figure(
        [first],
        frames,
        xaxis={"title": "predicted class", "autotickangles": [0, 90], **_ticks(data.classes)},
        yaxis={"title": {"text": "true class", "standoff": 12}, "autorange": "reversed", **_ticks(data.classes)},
    )


def _reliability(data):
    objects = require("plotly.graph_objects", extra="cli")

    def curve(posterior, predicted):
        confidence = posterior.max(axis=1)
        bins = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
        counts = np.bincount(bins, minlength=N_BINS)
        filled = np.flatnonzero(counts)
        weights = np.bincount(bins, data.weights, N_BINS)[filled]
        expected = np.bincount(bins, data.weights * confidence, N_BINS)[filled] / weights
        accuracy = np.bincount(bins, data.weights * (predicted == data.labels), N_BINS)[filled] / weights
        size = 8 + 22 * np.sqrt(weights / weights.sum())
        n_samples = np.array([effective_sample_size(data.weights[bins == index]) for index in filled])
        low, high = share_interval(accuracy, n_samples)
        bars = {"array": _rounded(high - accuracy), "arrayminus": _rounded(accuracy - low)}
        return objects.Scatter(
            x=_rounded(expected), y=_rounded(accuracy), customdata=counts[filled], marker={"size": size}, error_y=bars
        )

    first = curve(data.posterior[data.chosen], data.predicted[data.chosen]).update(
        mode="lines+markers",
        name="bins of samples, 95 % intervals",
        cliponaxis=False,
        marker_color=VALIDATION,
        line={"color": VALIDATION, "width": 1},
        error_y={"symmetric": False, "thickness": 1, "width": 0, "color": VALIDATION},
        hovertemplate="mean confidence: %{x:.1%}<br>accuracy: %{y:.1%}<br>%{customdata} samples<extra></extra>",
    )
    ideal = objects.Scatter(x=[0, 1], y=[0, 1], mode="lines", name="ideal", line={"color": "gray", "dash": "dot"})
    frames = [([curve(*values)], [1]) for values in zip(data.posterior, data.predicted, strict=True)]
    share = {"range": [0, 1], "tickformat": ".0%"}
    return _figure(
        [ideal, first],
        frames,
        xaxis={"title": "confidence", **share},
        yaxis={"title": "accuracy", **share},
    )


def _plane(data):
    objects = require("plotly.graph_objects", extra="cli")
    plane, names, listed = data.plane, _names(data.classes), _short(data.classes, LONGEST_IN_LEGEND)
    n_classes = len(names)
    shade = np.round(plane.regions + np.clip(plane.confidence, 0, 0.99), 2)
    drawn = np.random.RandomState(0).permutation(len(data.labels))[:MOST_DRAWN]
    points, labels = _rounded(plane.points[drawn]), data.labels[drawn]
    wrong = [points[predicted[drawn] != labels] for predicted in data.predicted]
    regions = objects.Heatmap(
        x=_rounded(plane.axes[0]),
        y=_rounded(plane.axes[1]),
        z=shade[data.chosen],
        zmin=0,
        zmax=n_classes,
        colorscale=_class_scale(n_classes),
        showscale=False,
        hoverinfo="skip",
    )
    samples = [
        objects.Scatter(
            x=points[labels == code, 0],
            y=points[labels == code, 1],
            mode="markers",
            name=listed[code],
            text=[names[code]] * int((labels == code).sum()),
            marker={
                "color": _colour(code),
                "symbol": _symbol(code),
                "size": 7,
                "line": {"color": "white", "width": 0.7},
            },
            hovertemplate="%{text}<extra></extra>",
        )
        for code in range(n_classes)
    ]
    mark = {"symbol": "circle-open", "size": 11, "opacity": 0.7, "color": "#000000", "line": {"width": 1.5}}
    errors = objects.Scatter(mode="markers", marker=mark, hoverinfo="skip", showlegend=False)
    frames = [
        ([objects.Heatmap(z=shades), objects.Scatter(x=circles[:, 0], y=circles[:, 1])], [0, n_classes + 1])
        for shades, circles in zip(shade, wrong, strict=True)
    ]
    circles = wrong[data.chosen]
    errors.update(x=circles[:, 0], y=circles[:, 1])
    hidden = {"showticklabels": False, "showgrid": False, "ticks": ""}
    return _figure(
        [regions, *samples, errors],
        frames,
        showlegend=n_classes <= MOST_LISTED,
        xaxis={"title": "first direction", **hidden},
        yaxis={"title": "second direction", **hidden},
    )


def _features(data):
    """One trace per class; the page shows one of them."""
    objects = require("plotly.graph_objects", extra="cli")
    bars = []
    for code, strength in enumerate(data.strength):
        order = np.argsort(-np.abs(strength))[:N_FEATURES][::-1]
        names = [data.feature_names[index] for index in order]
        bars.append(
            objects.Bar(
                x=_rounded(strength[order]),
                y=[f"{position}" for position in range(len(order))],
                text=_short(names),
                customdata=_names(names),
                orientation="h",
                marker={"color": [VALIDATION if value > 0 else CHOSEN for value in strength[order]]},
                visible=code == 0,
                textposition="none",
                hovertemplate="%{customdata}: %{x:+.3f}<extra></extra>",
            )
        )
    ticks = {"type": "category", "tickmode": "array", "tickvals": bars[0].y, "ticktext": bars[0].text}
    return _figure(bars, showlegend=False, xaxis={"title": "change of the logit"}, yaxis=ticks)


def _prototypes(data):
    """A heatmap of the features in which the prototypes differ most; each row is named by its most probable class."""
    objects = require("plotly.graph_objects", extra="cli")
    positions, labels = data.prototypes.positions, data.prototypes.labels
    features = np.argsort(-positions.std(axis=0), kind="stable")[:N_FEATURES]
    order = np.lexsort([-labels.max(axis=1), labels.argmax(axis=1)])
    classes = [f"{labels[index].max():.0%} {data.classes[labels[index].argmax()]}" for index in order]
    widest = float(np.abs(positions[:, features]).max()) or 1.0
    names = [data.feature_names[index] for index in features]
    shades = objects.Heatmap(
        z=_rounded(positions[np.ix_(order, features)]),
        customdata=[[_names([label, name]) for name in names] for label in classes],
        zmin=-widest,
        zmax=widest,
        colorscale=[[0, CHOSEN], [0.5, "#F4F6F8"], [1, VALIDATION]],
        showscale=False,
        xgap=1,
        ygap=1,
        hovertemplate="%{customdata[0]}<br>%{customdata[1]}: %{z:+.2f} standard deviations<extra></extra>",
    )
    return _figure(
        [shades],
        xaxis={"tickangle": 90, **_ticks(names)},
        yaxis={"autorange": "reversed", **_ticks(classes)},
    )


def _names(texts):
    """Texts of the data, escaped for plotly."""
    return [escape(str(text), quote=False) for text in texts]


def _short(texts, longest=LONGEST):
    """Names cut at the end, or in the middle if they would be equal, such as those of one column's categories."""
    texts = [str(text) for text in texts]
    cut = [text if len(text) <= longest else f"{text[: longest - 1]}…" for text in texts]
    half = longest // 2
    return _names(
        short if cut.count(short) == 1 or len(text) <= longest else f"{text[: half - 1]}…{text[-half:]}"
        for text, short in zip(texts, cut, strict=True)
    )


def _ticks(names):
    return {"tickmode": "array", "tickvals": list(range(len(names))), "ticktext": _short(names), "showgrid": False}


def _rounded(values):
    return np.round(np.asarray(values, dtype=float), DECIMALS)


def _colour(code):
    return CLASS_COLOURS[code % len(CLASS_COLOURS)]


def _symbol(code):
    """With more classes than colours, the symbols differ."""
    return SYMBOLS[code // len(CLASS_COLOURS) % len(SYMBOLS)]


def _class_scale(n_classes):
    """For each class, a scale from transparent to its colour; a value is the class index plus the confidence."""
    scale = []
    for code in range(n_classes):
        red, green, blue = (int(_colour(code)[start : start + 2], 16) for start in (1, 3, 5))
        scale.append([code / n_classes, f"rgba({red},{green},{blue},0.0)"])
        scale.append([(code + 1) / n_classes, f"rgba({red},{green},{blue},0.55)"])
    return scale
