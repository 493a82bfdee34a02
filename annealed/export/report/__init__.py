"""The report: one HTML file that opens offline, with a slider along the temperatures."""

from __future__ import annotations

from pathlib import Path

from annealed.export.base import write_then_rename
from annealed.export.report.card import card, confusion_table, judged_by, live_numbers, weighted_by
from annealed.export.report.figures import figures
from annealed.export.report.page import page
from annealed.export.report.points import report_data
from annealed.tables import TableModel

__all__ = ["write_report"]


def write_report(model: TableModel, frame, path: Path) -> None:
    """Judge the rows of a table along the path of a model and write what is seen.

    Parameters
    ----------
    model : TableModel
        One of our estimators, fitted; those that speak at every temperature get a slider.
    frame : pandas DataFrame
        Rows with the model's columns, its target and the column of weights that it was fitted with, if any. Those
        that it was fitted on are judged by folds, where at least half of them are there.
    path : Path
        The HTML file, whole or not there at all.
    """
    data = report_data(model, frame)
    invitation = " Move the slider to cool the model." if len(data.shown) > 1 else ""
    rows = f"{len(data.labels)} rows{weighted_by(model)}"
    text = page(
        title=f"{model.target}: {type(model.pipeline[-1]).__name__}",
        subtitle=f"{rows}, {judged_by(model, data)}; {len(data.classes)} classes.{invitation}",
        figures=figures(data),
        tables={"confusion": confusion_table(data)},
        card=card(model, data),
        numbers=live_numbers(data),
        chosen=data.chosen,
        classes=data.classes,
    )
    write_then_rename(path, text.encode())
