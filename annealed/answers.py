"""What the commands answer, as tables for a terminal: they fit in 60 columns."""

from __future__ import annotations

from annealed.comparison import Result, standard_error
from annealed.optional import require

DETAILS = (  # of a path, left to --json
    "validation_spread",
    "posterior_scale",
    "seconds",
    "gradient_norm",
    "converged",
    "n_iter",
    "certificate",
)


def comparison_table(ranked: list[Result], n_rows: int, n_classes: int):
    """Best first; ours in bold, peers dim."""
    n_folds = max(len(result.errors) for result in ranked)
    shown = _table(f"{n_rows} rows, {n_classes} classes, {n_folds} folds; best first")
    shown.add_column("model", no_wrap=True)
    for heading in ("error, %", "log-loss", "seconds"):
        shown.add_column(heading, justify="right")
    for result in ranked:
        style = "bold" if result.is_ours else "dim"
        if result.failure:
            shown.add_row(result.name, "", require("rich.markup", extra="cli").escape(result.failure), "", style=style)
            continue
        error = f"{100 * result.errors.mean():.2f} ± {100 * standard_error(result.errors):.2f}"
        loss = f"{result.log_loss:.4f} ± {standard_error(result.log_losses):.4f}"
        shown.add_row(result.name, error, loss, f"{result.seconds:.2f}", style=style)
    return shown


def path_table(record):
    """Hot to cold; losses without the minus that scikit-learn gives them."""
    frame = record.to_frame().drop(columns=list(DETAILS), errors="ignore")
    chosen = frame.pop("chosen") if "chosen" in frame else [False] * len(frame)
    if getattr(record, "score_name", "").startswith("neg_"):
        score = record.score_name.removeprefix("neg_")
        losses = {name: f"{name.removesuffix('score')}{score}" for name in frame if name.endswith("_score")}
        frame = frame.assign(**{name: -frame[name] for name in losses}).rename(columns=losses)
    title = f"{len(frame)} temperatures" + (", hot to cold; -> is the chosen one" if any(chosen) else "")
    shown = _table("1 temperature" if len(frame) == 1 else title)
    shown.add_column("", width=2)
    texts = {name: [f"{cell:.4g}" for cell in frame[name]] for name in frame}
    for name, cells in texts.items():
        words = name.split("_")
        shown.add_column(" ".join(words), justify="right", width=max(map(len, [*words, *cells])))
    for *cells, is_chosen in zip(*texts.values(), chosen, strict=True):
        mark, style = ("->", "bold") if is_chosen else ("", None)
        shown.add_row(mark, *cells, style=style)
    return shown


def _table(title):
    lines = require("rich.box", extra="cli").SIMPLE_HEAD
    tight = {"padding": (0, 1, 0, 0), "pad_edge": False, "show_edge": False}
    return require("rich.table", extra="cli").Table(title=title, box=lines, title_justify="left", **tight)
