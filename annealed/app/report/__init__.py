"""The report of a model: one HTML file that opens offline, with a slider for the temperature."""

from __future__ import annotations

from pathlib import Path

from annealed.app.report.card import card, confusion_table, evaluated_by, live_numbers, weighted_by
from annealed.app.report.figures import figures
from annealed.app.report.page import page
from annealed.app.report.points import report_data
from annealed.app.tables import TableModel
from annealed.export.files import write_then_rename

__all__ = ["write_report"]


def write_report(model: TableModel, frame, path: Path) -> None:
    """Evaluate a model on the rows of a table at every temperature, and write a report.

    Parameters
    ----------
    model : TableModel
        A fitted model with an annealing path. If it can predict at every temperature, the report has a slider.
    frame : pandas DataFrame
        A table with the model's columns, its target and, if the model was fitted with weights, their column. If it
        contains at least half of the training samples, these are predicted by cross-validation.
    path : Path
        The HTML file, which is written completely or not at all.
    """
    data = report_data(model, frame)
    estimator = type(model.pipeline[-1]).__name__
    samples = f"{len(data.labels)} samples{weighted_by(model)}, {evaluated_by(model, data)}"
    slider = " Move the slider to change the temperature, the strength of regularization." * (len(data.shown) > 1)
    text = page(
        title=f"Prediction of {model.target}",
        subtitle=f"{estimator}, {len(data.classes)} classes. Scores on {samples}.{slider}",
        figures=figures(data),
        tables={"confusion": confusion_table(data)},
        card=card(model, data),
        numbers=live_numbers(data),
        chosen=data.chosen,
        classes=data.classes,
    )
    write_then_rename(path, text.encode())
