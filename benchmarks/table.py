"""The latest results as Markdown tables and a figure: the measured part of docs/speed.md and its picture.

Only methods of the same run are compared, because only these were interleaved. Rehearsals are left out.
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
    "samples x features, classes",
    "path, s (CPU)",
    "temperatures",
    "path / one fit",
    "50 temperatures / one fit",
    "CV grid / path",
    "glmnet / path",
    "suboptimality of the path, at most",
    "of one fit",
    "of the CV grid's fit",
    "of glmnet's path, at most",
    "peak extra memory / X, MB",
)
COLOURS = {ours.DEFAULT: "#0072B2", ONE_FIT: "#8C8C8C", GLMNET: "#009E73", WHOLE_GRID: "#D55E00"}
LABELS = {
    ours.DEFAULT: "AnnealedLogisticRegression: the path, 5 folds, final fit",
    ONE_FIT: "LogisticRegression: one fit at the chosen C",
    GLMNET: "glmnet: 50 penalties, 6 paths, no scoring",
    WHOLE_GRID: "LogisticRegressionCV: 50 C, 5 folds (hollow: estimated)",
}


# --- reading ----------------------------------------------------------------------------------------


def latest(folder: Path = rows.RESULTS) -> pd.DataFrame:
    """Result rows of the last run of each table and number of threads, in the order of the problems."""
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
    """One row per (threads, table, method): medians of seconds and fractions, the first value of other columns."""
    measured = ["wall_seconds", "cpu_seconds", "gemm_fraction", "bandwidth_fraction"]
    keys = ["threads", "problem", "table", "method"]
    other = [column for column in raw.columns if column not in (*measured, *keys, "repeat")]
    how = dict.fromkeys(measured, "median") | dict.fromkeys(other, "first")
    return raw.groupby(keys, sort=False).agg(how).reset_index()


# --- Markdown ---------------------------------------------------------------------------------------


def markdown(header, lines) -> str:
    rule = ["---"] * len(header)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *lines))


def measured_lines(table: pd.DataFrame) -> list[list[str]]:
    """One line per table with a default path of ours; cells of methods that did not run are empty."""
    lines = []
    for name, methods in table.groupby("table", sort=False):
        by_method = methods.set_index("method")
        if ours.DEFAULT not in by_method.index:
            continue
        path = by_method.loc[ours.DEFAULT]
        one_fit, grid, fifty, glmnet = (_row(by_method, name) for name in (ONE_FIT, WHOLE_GRID, ours.FIFTY, GLMNET))
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
    """Seconds of a fixed list of temperatures at each size, and the relative cost of finer lists and more folds."""
    seconds = table[table["problem"] == "scaling"].pivot_table(
        index="n_rows", columns="method", values="wall_seconds", sort=False
    )
    if scaling.BASE not in seconds:
        return []
    base = seconds[scaling.BASE].sort_index()
    return [
        [
            str(n_rows),
            f"{base_seconds:.3g}",
            f"{base_seconds / base.iloc[0] * base.index[0] / n_rows:.2f}",
            _number(seconds.get(scaling.FINER, base * np.nan)[n_rows] / base_seconds, "{:.2f}"),
            _number(seconds.get(scaling.MORE_FOLDS, base * np.nan)[n_rows] / base_seconds, "{:.2f}"),
        ]
        for n_rows, base_seconds in base.items()
    ]


SCALING_HEADER = (
    "samples",
    "50 temperatures, 5 folds, s",
    "seconds per sample, relative",
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
    """Every method of every table, in more detail than docs/speed.md."""
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
    ratio = f"{above.wall_seconds / below.wall_seconds:.2g}"
    return f"{ratio} (estimated)" if above.is_estimated or below.is_estimated else ratio


def _excess(row) -> str:
    """Excess over the reference optimum if there is one, else the certified bound."""
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
    for threads, results in table.groupby("threads", sort=True):
        first = results.iloc[0]
        busy = "; other programs were running" if results["load"].max() > BUSY else ""
        parts.append(
            f"**{threads} thread{'' if threads == 1 else 's'}**, on a machine that multiplies matrices at "
            f"{results['gemm_gflops'].max():.0f} GFlop/s and copies memory at "
            f"{results['bandwidth_gbs'].max():.0f} GB/s; {first.versions}{busy}."
        )
        if lines := measured_lines(results):
            parts.append(markdown(HEADER, lines))
        if lines := scaling_lines(results):
            parts.append(markdown(SCALING_HEADER, lines))
    return "\n\n".join(parts)


# --- the picture ------------------------------------------------------------------------------------


def draw(table: pd.DataFrame, path: Path) -> None:
    """Seconds of the path and its peers, one line per table, at the largest number of threads measured."""
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
        of_method = shown[shown["method"] == method]
        places = [names.index(name) for name in of_method["table"]]
        faces = ["white" if is_estimated else colour for is_estimated in of_method["is_estimated"]]
        size, level = (25, 3) if method == ours.DEFAULT else (70, 2)  # small and on top: equal times stay visible
        ax.scatter(of_method["wall_seconds"], places, s=size, c=faces, edgecolors=colour, linewidths=1.5, zorder=level)
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
        print(f"\nmeasured on a busy machine, to be repeated: {', '.join(busy)}")
    details = folder / "every_method.md"
    details.write_text(markdown(DETAILS, detail_lines(table)) + "\n")
    print(f"\nall methods: {details.name}, in the folder of the raw results")
