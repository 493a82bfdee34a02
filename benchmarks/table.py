"""The latest results as a Markdown table and a plot: the measured part of docs/speed.md, and the picture above it.

Only methods of one run are compared, since only they were interleaved. Rehearsals are left out.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import ours, rows
from benchmarks.machine import BUSY
from benchmarks.peers.coordinate_descent import NAME as GLMNET
from benchmarks.peers.logistic_regression import ONE_FIT
from benchmarks.peers.logistic_regression_cv import WHOLE_GRID
from benchmarks.problems import PROBLEMS, scaling

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "speed.md"
PICTURE = ROOT / "docs" / "images" / "speed.png"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

HEADER = (
    "table",
    "rows x columns, classes",
    "path, s (CPU)",
    "temperatures",
    "path / one fit",
    "50 temperatures / one fit",
    "CV grid / path",
    "glmnet / path",
    "path is above its optimum by at most",
    "one fit is above it by",
    "CV's fit by",
    "glmnet's path by at most",
    "peak extra memory / X, MB",
)
COLOURS = {ours.DEFAULT: "#0072B2", ONE_FIT: "#8C8C8C", GLMNET: "#009E73", WHOLE_GRID: "#D55E00"}
LABELS = {
    ours.DEFAULT: "AnnealedLogisticRegression: the path, 5 folds, final fit",
    ONE_FIT: "LogisticRegression: one fit at the chosen C",
    GLMNET: "glmnet: 50 penalties, 6 paths, nothing scored",
    WHOLE_GRID: "LogisticRegressionCV: 50 C, 5 folds (hollow: estimated)",
}


# --- reading ----------------------------------------------------------------------------------------


def latest(folder: Path = rows.RESULTS) -> pd.DataFrame:
    """The rows of each table's last run at each number of threads, in the order of the problems."""
    files = [folder / f"{problem}.csv" for problem in PROBLEMS]
    frames = [pd.read_csv(file) for file in files if file.exists()]
    raw = (
        pd.concat([frame[~frame["is_rehearsal"]] for frame in frames], ignore_index=True) if frames else pd.DataFrame()
    )
    if raw.empty:
        raise SystemExit("there are no results yet: run `python dev.py bench` first.")
    last = raw.groupby(["table", "threads"])["run"].transform("max")
    return raw[raw["run"] == last]


def medians(raw: pd.DataFrame) -> pd.DataFrame:
    """One row per (threads, table, method): medians of seconds and shares, the first of everything else."""
    measured = ["wall_seconds", "cpu_seconds", "gemm_fraction", "bandwidth_fraction"]
    keys = ["threads", "problem", "table", "method"]
    other = [column for column in raw.columns if column not in (*measured, *keys, "repeat")]
    how = dict.fromkeys(measured, "median") | dict.fromkeys(other, "first")
    return raw.groupby(keys, sort=False).agg(how).reset_index()


# --- words ------------------------------------------------------------------------------------------


def markdown(header, lines) -> str:
    rule = ["---"] * len(header)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *lines))


def measured_lines(table: pd.DataFrame) -> list[list[str]]:
    """One line a table that has our default path; cells of what did not run are empty."""
    lines = []
    for name, methods in table.groupby("table", sort=False):
        of = methods.set_index("method")
        if ours.DEFAULT not in of.index:
            continue
        path = of.loc[ours.DEFAULT]
        one_fit, grid, fifty, glmnet = (_row(of, name) for name in (ONE_FIT, WHOLE_GRID, ours.FIFTY, GLMNET))
        lines.append(
            [
                str(name),
                f"{path.n_rows} x {path.n_features}, {path.n_classes}",
                f"{path.wall_seconds:.3g} ({path.cpu_seconds:.3g})",
                f"{path.n_temperatures:.0f}",
                _ratio(path, one_fit),
                _ratio(fifty, one_fit),
                _ratio(grid, path),
                _ratio(glmnet, path),
                f"{_number(path.suboptimality)}, between {_number(path.suboptimality_between)}",
                _excess(one_fit),
                _excess(grid),
                "" if glmnet is None else _number(glmnet.suboptimality),
                _number(path.peak_extra_bytes / 1e6, "{:.3g}") + f" / {path.n_bytes / 1e6:.3g}",
            ]
        )
    return lines


def scaling_lines(table: pd.DataFrame) -> list[list[str]]:
    """Seconds of the fixed ladder at each size, and what finer ladders and more folds cost beside it."""
    seconds = table[table["problem"] == "scaling"].pivot_table(
        index="n_rows", columns="method", values="wall_seconds", sort=False
    )
    if scaling.BASE not in seconds:
        return []
    base = seconds[scaling.BASE].sort_index()
    return [
        [
            str(n_rows),
            f"{own:.3g}",
            f"{own / base.iloc[0] * base.index[0] / n_rows:.2f}",
            _number(seconds.get(scaling.FINER, base * np.nan)[n_rows] / own, "{:.2f}"),
            _number(seconds.get(scaling.MORE_FOLDS, base * np.nan)[n_rows] / own, "{:.2f}"),
        ]
        for n_rows, own in base.items()
    ]


SCALING_HEADER = (
    "rows",
    "50 temperatures, 5 folds, s",
    "seconds per row, relative",
    "200 temperatures / 50",
    "10 folds / 5",
)


DETAILS = (
    "table",
    "threads",
    "method",
    "s",
    "CPU s",
    "extra MB",
    "certified",
    "above the optimum",
    "iterations",
    "note",
)


def detail_lines(table: pd.DataFrame) -> list[list[str]]:
    """Every method of every table, for a look behind the page."""
    return [
        [
            row.table,
            str(row.threads),
            row.method,
            f"{row.wall_seconds:.3g}",
            f"{row.cpu_seconds:.3g}",
            _number(row.peak_extra_bytes / 1e6, "{:.3g}"),
            _number(row.suboptimality),
            _number(row.reference_suboptimality),
            _number(row.n_iter, "{:.0f}"),
            row.note if isinstance(row.note, str) else "",
        ]
        for row in table.itertuples()
    ]


def _row(of: pd.DataFrame, method: str):
    return of.loc[method] if method in of.index else None


def _ratio(above, below) -> str:
    if above is None or below is None:
        return ""
    words = f"{above.wall_seconds / below.wall_seconds:.2g}"
    return f"{words} (estimated)" if above.is_estimated or below.is_estimated else words


def _excess(row) -> str:
    """Above the reference optimum where there is one, else the certified bound."""
    if row is None:
        return ""
    if not np.isnan(row.reference_suboptimality):
        return _number(row.reference_suboptimality)
    return "" if np.isnan(row.suboptimality) else f"at most {_number(row.suboptimality)}"


def _number(value, form="{:.0e}") -> str:
    return "" if np.isnan(value) else form.format(value)


def measured_block(table: pd.DataFrame) -> str:
    """Everything between the marks of docs/speed.md."""
    parts = []
    for threads, own in table.groupby("threads", sort=True):
        first = own.iloc[0]
        busy = "; other programs were running" if own["load"].max() > BUSY else ""
        parts.append(
            f"**{threads} thread{'' if threads == 1 else 's'}**, on a machine that multiplies matrices at "
            f"{own['gemm_gflops'].max():.0f} GFlop/s and copies memory at {own['bandwidth_gbs'].max():.0f} GB/s; "
            f"{first.versions}{busy}."
        )
        if lines := measured_lines(own):
            parts.append(markdown(HEADER, lines))
        if lines := scaling_lines(own):
            parts.append(markdown(SCALING_HEADER, lines))
    return "\n\n".join(parts)


# --- the picture ------------------------------------------------------------------------------------


def draw(table: pd.DataFrame, path: Path) -> None:
    """Seconds of the path and its peers, a line a table, at the largest number of threads measured."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = table[(table["threads"] == table["threads"].max()) & table["method"].isin(COLOURS)]
    names = list(dict.fromkeys(shown["table"]))[::-1]
    figure, ax = pyplot.subplots(figsize=(8, 1.4 + 0.3 * len(names)), layout="constrained")
    for place, name in enumerate(names):
        seconds = shown.loc[shown["table"] == name, "wall_seconds"]
        ax.plot([seconds.min(), seconds.max()], [place, place], color="#DDDDDD", linewidth=2, zorder=1)
    for method, colour in COLOURS.items():
        own = shown[shown["method"] == method]
        places = [names.index(name) for name in own["table"]]
        faces = ["white" if is_estimated else colour for is_estimated in own["is_estimated"]]
        size, level = (25, 3) if method == ours.DEFAULT else (70, 2)  # within the peer's, where both take as long
        ax.scatter(own["wall_seconds"], places, s=size, c=faces, edgecolors=colour, linewidths=1.5, zorder=level)
        ax.scatter([], [], s=size, color=colour, label=LABELS[method])
    ax.set_xscale("log")
    ax.set_xlabel("seconds")
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(-0.6, len(names) - 0.4)
    ax.grid(axis="x", color="#EEEEEE")
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper left", frameon=False, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


# --- the page ---------------------------------------------------------------------------------------


def put_between_marks(text: str, block: str) -> str:
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page must hold the lines {BEGIN} and {END}.")
    return f"{before}{BEGIN}\n\n{block}\n\n{END}{after}"


def write_report(folder: Path = rows.RESULTS, page: Path = PAGE, picture: Path = PICTURE) -> None:
    table = medians(latest(folder))
    block = measured_block(table)
    if (table["method"] == ours.DEFAULT).any():
        draw(table, picture)
    page.write_text(put_between_marks(page.read_text(), block))
    print(block)
    busy = table.loc[table["load"] > BUSY, "table"].unique()
    if len(busy):
        print(f"\nmeasured while the machine was busy, measure again: {', '.join(busy)}")
    details = folder / "every_method.md"
    details.write_text(markdown(DETAILS, detail_lines(table)) + "\n")
    print(f"\nevery method: {details.name} beside the raw rows")
