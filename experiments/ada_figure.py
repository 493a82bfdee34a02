"""A figure of Wang, Zhang and Lochovsky: runs its splits, prints its table with the published numbers, draws it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from joblib import Parallel, delayed, parallel_config

from experiments.ada_panels import PARTS, RATES, STARTS, Point, Range, measure
from experiments.text_corpora import REPRESENTATIONS, Collection

OPTIONS = ("resume", "splits", "jobs")
PUBLISHED = Path(__file__).resolve().parent / "published" / "ada.csv"
REPRESENTATION = "counts"  # reproduces LDA and unpenalized logistic regression best, on both collections
SPLITS = 5
SHOWN = 9  # number of temperatures in a printed panel
TITLES = {
    "a": "dADA from three starts",
    "b": "dADA, four cooling rates",
    "c": "seconds per temperature",
    "d": "pADA, four penalties",
}
LINES = {"a": STARTS, "b": tuple(map(str, RATES)), "c": tuple(map(str, RATES))}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#8C8C8C")


@dataclass(frozen=True)
class Figure:
    """The figure of one collection: how its texts are loaded, and its settings."""

    name: str
    corpus: str
    load: Callable[[], Collection]
    n_columns: int
    span: Range = field(default_factory=Range)


def run(figure: Figure, options) -> None:
    """Measure the splits, print the tables, store points and picture."""
    try:
        texts = figure.load()
    except OSError as error:
        print(f"{figure.name}: skipped, {error}")
        return
    points = measured(figure, texts, options)
    published = pd.read_csv(PUBLISHED).query("corpus == @figure.corpus").set_index("method")["accuracy"]
    lines = report_lines(points, published)
    print("\n".join(lines))
    (options.results / f"{figure.name}.md").write_text("\n".join(lines) + "\n")
    print(f"\nfigure: {draw(points, options.results / f'{figure.name}.png')}")


def measured(figure: Figure, texts: Collection, options) -> pd.DataFrame:
    """The points of all splits, stored in one file per part of a split, so that a later run can resume."""
    folder = options.results / figure.name
    files = {
        (split, part): folder / f"{split}-{part}.csv" for split in range(options.splits or SPLITS) for part in PARTS
    }
    missing = [task for task, file in files.items() if not (options.resume and file.exists())]
    with parallel_config("loky", n_jobs=options.jobs, inner_max_num_threads=1):
        Parallel()(delayed(measure_part)(figure, texts, *task, files[task]) for task in missing)
    points = pd.concat([pd.read_csv(file, dtype={"line": str}) for file in files.values()])
    # The last digit of temperatures differs between machines.
    return points.assign(place=[float(f"{place:.9g}") for place in points["place"]])


def measure_part(figure: Figure, texts: Collection, split: int, part: str, file: Path) -> None:
    began = time.perf_counter()
    points = measure(texts, figure.n_columns, REPRESENTATION, figure.span, split, (part,))
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".part")
    pd.DataFrame(points, columns=Point._fields).to_csv(unfinished, index=False)
    unfinished.replace(file)
    print(f"{figure.name}: split {split}, {part} took {time.perf_counter() - began:.0f} s", flush=True)


# --- numbers ----------------------------------------------------------------------------------------


def per_split(points: pd.DataFrame, panel: str, line: str) -> pd.DataFrame:
    """Values of a line, one row per split; columns are temperatures from hot to cold, or numbers of steps."""
    of_line = points[(points["panel"] == panel) & (points["line"] == line)]
    values = of_line.pivot(index="split", columns="place", values="value")
    return values if panel == "steps" else values[values.columns[::-1]]


def penalties(points: pd.DataFrame) -> list[str]:
    """The lines of pADA, strongest penalty first."""
    return sorted(set(points[points["panel"] == "d"]["line"]), key=float, reverse=True)


def lines_of(points: pd.DataFrame, panel: str) -> list[str]:
    return penalties(points) if panel == "d" else list(LINES[panel])


def mean_sd(values) -> str:
    """Mean and standard deviation over the splits, as text."""
    values = np.asarray(values, dtype=float)
    return f"{values.mean():.1f} ± {values.std(ddof=1):.1f}" if len(values) > 1 else f"{values.mean():.1f}"


def baseline(points: pd.DataFrame, name: str, representation: str = REPRESENTATION) -> np.ndarray:
    return per_split(points, name, representation).to_numpy()[:, 0]


def headlines(points: pd.DataFrame) -> dict[str, tuple[np.ndarray, str]]:
    """The numbers that the text of the paper reports, for each split, and how they are read off."""
    weakest = per_split(points, "d", penalties(points)[-1])
    validated = points[points["panel"] == "pADA, validated"]
    return {
        "LDA": (baseline(points, "LDA, diagonal"), "the class means, diagonal covariance"),
        "dADA": (per_split(points, "a", "means").to_numpy()[:, -1], "coldest temperature, from the class means"),
        "pADA": (
            weakest.max(axis=1).to_numpy(),
            "highest point of the curve, as in the paper",
        ),
        "pADA validated": (validated["value"].to_numpy(), "temperature chosen on a fifth of the training samples"),
        "logistic regression": (baseline(points, "logistic regression"), "no penalty; number of steps limited"),
    }


def largest_shift(points: pd.DataFrame) -> tuple[float, float]:
    """Largest difference between pADA's curves at the same penalty x temperature: (posterior, accuracy in points)."""
    differences = []
    for strong, weak in pairwise(penalties(points)):
        strong_curve, weak_curve = (per_split(points, "d", penalty) for penalty in (strong, weak))
        # The stronger penalty has the product of the weaker penalty's first point at this temperature.
        first = strong_curve.columns[0] * float(weak) / float(strong)
        shift = int(np.argmin(np.abs(np.log(strong_curve.columns / first))))
        differences.append(
            np.abs(strong_curve.to_numpy()[:, shift:] - weak_curve.to_numpy()[:, : weak_curve.shape[1] - shift]).max()
        )
    return points[points["panel"] == "shift"]["value"].max(), float(max(differences))


# --- text -------------------------------------------------------------------------------------------


def report_lines(points: pd.DataFrame, published: pd.Series) -> list[str]:
    lines = ["", "| accuracy, % | ours | published | how it is read |", "|---|---|---|---|"]
    for name, (values, how) in headlines(points).items():
        printed = f"{published[name]:.1f}" if name in published else ""
        lines.append(f"| {name} | {mean_sd(values)} | {printed} | {how} |")
    lines += [
        "",
        "| representation | LDA, diagonal | LDA, full covariance | logistic regression |",
        "|---|---|---|---|",
    ]
    for name in REPRESENTATIONS:
        cells = [
            mean_sd(baseline(points, kind, name)) for kind in ("LDA, diagonal", "LDA, whole", "logistic regression")
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [line for panel in TITLES for line in ("", *panel_lines(points, panel))]
    return [*lines, "", *evidence_lines(points)]


def panel_lines(points: pd.DataFrame, panel: str) -> list[str]:
    """Some temperatures of a panel; a line without that temperature shows its last one before."""
    curves = {line: per_split(points, panel, line) for line in lines_of(points, panel)}
    finest = next(iter(curves.values())).columns
    shown = finest[np.unique(np.linspace(0, len(finest) - 1, SHOWN).round().astype(int))[::-1]][::-1]
    lines = [
        f"({panel}) {TITLES[panel]}",
        "",
        f"| temperature | {' | '.join(curves)} |",
        "|---" * (1 + len(curves)) + "|",
    ]
    for temperature in shown:
        cells = [panel_cell(values, temperature, panel) for values in curves.values()]
        lines.append(f"| {temperature:.3g} | {' | '.join(cells)} |")
    return lines


def panel_cell(values: pd.DataFrame, temperature: float, panel: str) -> str:
    place = values.columns[values.columns >= temperature * (1 - 1e-9)][-1]
    return f"{values[place].mean():.2g}" if panel == "c" else mean_sd(values[place])


def evidence_lines(points: pd.DataFrame) -> list[str]:
    """The predictions of the theory about the figures, with the numbers of this run."""
    posterior, accuracy = largest_shift(points)
    standing, loss = per_split(points, "steps", "accuracy"), per_split(points, "steps", "training loss")
    merged = [per_split(points, "a", start).iloc[:, -1] for start in STARTS]
    best = standing.mean().idxmax()
    return [
        f"pADA's curves for penalties {', '.join(penalties(points))}, plotted against penalty x temperature, "
        f"differ by at most {posterior:.1e} in any posterior of a test sample and {accuracy:.2f} points of accuracy.",
        "",
        f"dADA's three starts end within {max(np.ptp(np.stack(merged), axis=0)):.1f} points of each other.",
        "",
        "Early stopping: the same optimizer at one fixed temperature reaches "
        + ", ".join(f"{mean_sd(standing[step])} after {int(step)} steps" for step in some_steps(standing.columns))
        + f"; its best mean is {standing[best].mean():.1f} after {int(best)}. Its training loss falls from "
        f"{loss.iloc[:, 0].mean():.3f} to {loss.iloc[:, -1].mean():.3f}; logistic regression without a penalty is at "
        f"{baseline(points, 'its training loss').mean():.3f} and {mean_sd(baseline(points, 'logistic regression'))} %.",
    ]


def some_steps(steps: pd.Index) -> list[float]:
    return sorted({steps[np.argmin(np.abs(steps - wanted))] for wanted in np.geomspace(steps[0], steps[-1], 6)})


# --- picture ----------------------------------------------------------------------------------------


def draw(points: pd.DataFrame, path: Path) -> Path:
    """The four panels, and two of our own; lines are means over the splits, bands their range."""
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(11.0, 6.4), layout="constrained")
    axes = dict(zip([*TITLES, "shift", "steps"], picture.subplots(2, 3).T.reshape(-1), strict=True))
    for panel, title in TITLES.items():
        draw_panel(axes[panel], points, panel)
        axes[panel].set_title(f"({panel}) {title}", loc="left", fontsize=9)
    regression = baseline(points, "logistic regression").mean()
    for penalty, colour in zip(penalties(points), COLOURS, strict=True):
        means = per_split(points, "d", penalty).mean()
        axes["shift"].plot(means.index * float(penalty), means, color=colour, label=penalty)
    axes["shift"].set_xlabel("penalty x temperature")
    axes["shift"].set_title("the curves of (d) against the product", loc="left", fontsize=9)
    axes["shift"].invert_xaxis()
    axes["steps"].plot(per_split(points, "steps", "accuracy").mean(), color=COLOURS[0], label="dADA, temperature fixed")
    axes["steps"].set_xlabel("steps of the optimizer")
    axes["steps"].set_title("dADA's optimizer at a fixed temperature", loc="left", fontsize=9)
    for panel in ("d", "shift", "steps"):
        axes[panel].axhline(regression, color="black", linestyle="--", linewidth=1, label="logistic regression")
    for panel, ax in axes.items():
        ax.set_xscale("log")
        ax.xaxis.set_minor_formatter("")  # minor labels would overlap if the axis has few decades
        ax.set_ylabel("seconds" if panel == "c" else "accuracy on test samples, %")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(edgecolor="none", fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=130)
    return path


def draw_panel(ax, points: pd.DataFrame, panel: str) -> None:
    for line, colour in zip(lines_of(points, panel), COLOURS, strict=False):
        values = per_split(points, panel, line)
        ax.plot(values.columns, values.mean(), color=colour, label=line, marker="." if values.shape[1] < 10 else "")
        if panel != "c" and len(values) > 1:
            ax.fill_between(values.columns, values.min(), values.max(), color=colour, alpha=0.12, linewidth=0)
    ax.set_xlabel("temperature")
    ax.invert_xaxis()
