"""The results of commands as tables for a terminal, at most 60 characters wide."""

from __future__ import annotations

from annealed.app.comparison import Result, standard_error
from annealed.optional import require

COMPARED = "Chosen by the compared log loss: the validation log loss plus penalties for calibration and for certainty."
DETAILS = (  # columns of a path that only --json prints
    "free_energy",
    "entropy",
    "label_saturation",
    "validation_spread",
    "posterior_scale",
    "seconds",
    "gradient_norm",
    "converged",
    "n_iter",
    "certificate",
)


def comparison_table(ranked: list[Result], n_rows: int, n_classes: int):
    """Results of a comparison, the lowest log-loss first; annealed estimators are bold and their peers dim."""
    n_folds = max(len(result.errors) for result in ranked)
    table = _table(f"{n_rows} samples, {n_classes} classes, {n_folds} folds; best first")
    table.add_column("model", no_wrap=True)
    for heading in ("error, %", "log-loss", "seconds"):
        table.add_column(heading, justify="right")
    for result in ranked:
        style = "bold" if result.is_ours else "dim"
        if result.failure:
            table.add_row(result.name, "", require("rich.markup", extra="cli").escape(result.failure), "", style=style)
            continue
        error = f"{100 * result.errors.mean():.2f} ± {100 * standard_error(result.errors):.2f}"
        loss = f"{result.log_loss:.4f} ± {standard_error(result.log_losses):.4f}"
        table.add_row(result.name, error, loss, f"{result.seconds:.2f}", style=style)
    return table


def path_table(record):
    """A path, one row per temperature, hot to cold; negated losses of scikit-learn are shown as positive losses."""
    frame = record.to_frame().drop(columns=list(DETAILS), errors="ignore")
    chosen = frame.pop("chosen") if "chosen" in frame else [False] * len(frame)
    if getattr(record, "score_name", "").startswith("neg_"):
        score = record.score_name.removeprefix("neg_")
        losses = {name: f"{name.removesuffix('score')}{score}" for name in frame if name.endswith("_score")}
        frame = frame.assign(**{name: -frame[name] for name in losses}).rename(columns=losses)
    caption = COMPARED if "compared_log_loss" in frame else None
    title = f"{len(frame)} temperatures" + (", hot to cold; -> marks the chosen one" if any(chosen) else "")
    table = _table("1 temperature" if len(frame) == 1 else title, caption)
    table.add_column("", width=2)
    texts = {name: [f"{cell:.4g}" for cell in frame[name]] for name in frame}
    for name, cells in texts.items():
        words = name.split("_")
        table.add_column(" ".join(words), justify="right", width=max(map(len, [*words, *cells])))
    for *cells, is_chosen in zip(*texts.values(), chosen, strict=True):
        mark, style = ("->", "bold") if is_chosen else ("", None)
        table.add_row(mark, *cells, style=style)
    return table


def _table(title, caption=None):
    lines = require("rich.box", extra="cli").SIMPLE_HEAD
    tight = {"padding": (0, 1, 0, 0), "pad_edge": False, "show_edge": False}
    table = require("rich.table", extra="cli").Table
    return table(title=title, caption=caption, box=lines, title_justify="left", caption_justify="left", **tight)
