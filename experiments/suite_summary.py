"""Summary of the results of the suite: ranks, wins and losses, lost tables, and the targets.

Only complete tables count, on which every method has been run on every split. The score of a table is the mean over its
splits. A method that failed on a split shares the last rank of that table, and loses to methods that did not fail. A
win is a relative difference in log-loss of more than MARGIN; smaller differences are ties.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.rank_figure import critical_difference, draw_ranks
from experiments.suite_methods import METHODS

MEASURES = ["error", "log_loss", "brier", "calibration", "fit_seconds", "cpu_seconds"]
MARGIN = 0.02
WORST_ALLOWED = 0.10
TIME_SHARE = 0.1
LDA_SHARE = 0.8
NOTHING = 1e-9  # added to both sides of a ratio, because log-losses can be exactly zero
FRAIL = 0.1  # largest share of failed tables for which mean scores of a method are shown
MAIN, RIVAL = "AnnealedLogisticRegression", "LRCV"
TEXT, FIGURE = "suite_summary.md", "suite_ranks.png"


def report(rows_file: Path, folder: Path) -> None:
    """Print and store the summary of a result file, and draw the figure of ranks."""
    rows = read_rows(rows_file)
    tables = Tables(rows)
    if not tables.names:
        print("no table has been run with every method yet")
        return
    lines = [
        f"{len(tables.names)} tables, {len(tables.methods)} methods, {len(rows)} fits",
        *section("Targets", target_lines(tables)),
        *section("Means over tables", mean_lines(tables)),
        *section("Wins, ties and losses in log-loss beyond 2 %", duel_lines(tables)),
        *section(f"Where {MAIN} loses to a linear peer", loss_lines(tables)),
        *section("Failures and warnings", trouble_lines(rows)),
        *section("Log-loss of each table", table_lines(tables, "log_loss")),
        *section("Error of each table, percent", table_lines(tables, "error", 100)),
    ]
    print("\n".join(lines))
    (folder / TEXT).write_text("\n".join(lines) + "\n")
    ranks = {"log-loss": tables.ranks("log_loss").mean(), "error": tables.ranks("error").mean()}
    print(f"\nranks: {draw_ranks(ranks, len(tables.names), ours(tables.methods), folder / FIGURE)}")


def section(title: str, lines: list[str]) -> list[str]:
    return ["", f"### {title}", "", *lines]


def read_rows(path: Path) -> pd.DataFrame:
    """The last row written for each (table, split, method)."""
    rows = pd.read_csv(path, keep_default_na=False, na_values={name: [""] for name in MEASURES})
    return rows.drop_duplicates(["table", "split", "method"], keep="last")


def ours(methods: list[str]) -> list[str]:
    return [name for name in methods if METHODS[name].is_ours]


class Tables:
    """Means over the splits of the complete tables, as frames with one row per table and one column per method."""

    def __init__(self, rows: pd.DataFrame, methods: Iterable[str] = METHODS):
        self.methods = [name for name in methods if name in set(rows["method"])]
        n_splits = rows.groupby(["table", "method"])["split"].nunique().unstack().reindex(columns=self.methods)
        self.names = [name for name, counts in n_splits.iterrows() if counts.notna().all() and counts.nunique() == 1]
        self.rows = rows[rows["table"].isin(self.names)]
        self._means = self.rows.groupby(["table", "method"])[MEASURES].agg(_strict_mean).unstack()
        self._spreads = self.rows.groupby(["table", "method"])[MEASURES].std().unstack()

    def means(self, measure: str) -> pd.DataFrame:
        return self._means[measure].reindex(columns=self.methods)

    def spread(self, measure: str, table: str, method: str) -> float:
        """Standard deviation over the splits; NaN for a single split."""
        return self._spreads[measure].loc[table, method]

    def ranks(self, measure: str, methods: list[str] | None = None) -> pd.DataFrame:
        """Rank 1 is best; ties share a rank, failures share the last. float32 makes means equal up to rounding tie."""
        return self.means(measure)[methods or self.methods].fillna(np.inf).astype(np.float32).rank(axis=1)

    def ratio(self, method: str, other: str, measure: str = "log_loss") -> pd.Series:
        """Ratio of two methods' scores per table; 0 if the other one failed, infinite if `method` failed."""
        mine, theirs = (self.means(measure)[name].fillna(np.inf) + NOTHING for name in (method, other))
        is_both = np.isinf(mine) & np.isinf(theirs)
        return (mine / theirs.where(~is_both, 1.0)).where(~is_both, 1.0)

    def traits(self, table: str) -> pd.Series:
        return self.rows[self.rows["table"] == table].iloc[0]


def _strict_mean(values: pd.Series) -> float:
    return values.mean(skipna=False)


# --- comparisons ------------------------------------------------------------------------------------


def duel(ratio: pd.Series) -> tuple[int, int, int]:
    """(wins, ties, losses) of log-loss ratios beyond the margin."""
    wins, losses = int((ratio < 1 - MARGIN).sum()), int((ratio > 1 + MARGIN).sum())
    return wins, len(ratio) - wins - losses, losses


def duel_lines(tables: Tables) -> list[str]:
    mine = ours(tables.methods)
    lines = [table_row(["against", *mine]), table_row(["---"] * (1 + len(mine)))]
    for other in tables.methods:
        cells = ["" if name == other else " / ".join(map(str, duel(tables.ratio(name, other)))) for name in mine]
        lines.append(table_row([other, *cells]))
    return lines


def mean_lines(tables: Tables) -> list[str]:
    """A line per method with ranks, seconds, failures, and mean scores over tables without failed sturdy methods."""
    failed = tables.means("log_loss").isna()
    sturdy = [name for name in tables.methods if failed[name].mean() <= FRAIL]
    common = tables.means("log_loss").index[~failed[sturdy].any(axis=1)]
    columns = ["rank log-loss", "rank error", "error %", "log-loss", "Brier", "calibration", "CPU seconds", "failures"]
    lines = [table_row(["method", *columns]), table_row(["---"] * (1 + len(columns)))]
    ranks = {measure: tables.ranks(measure).mean() for measure in ("log_loss", "error")}
    for name in sorted(tables.methods, key=ranks["log_loss"].get):
        numbers = {measure: tables.means(measure).loc[common, name].mean() for measure in MEASURES}
        cells = [f"{ranks[measure][name]:.2f}" for measure in ranks]
        if name in sturdy:
            cells += [f"{100 * numbers['error']:.2f}", *(f"{numbers[measure]:.3f}" for measure in MEASURES[1:4])]
        else:
            cells += [""] * 4
        seconds = tables.means("cpu_seconds")[name].sum()
        lines.append(table_row([name, *cells, f"{seconds:.0f}", str(int(failed[name].sum()))]))
    distance = critical_difference(len(tables.methods), len(tables.names))
    return [
        *lines,
        "",
        f"Mean ranks over {len(tables.names)} tables; differences below {distance:.2f} are not significant (Nemenyi "
        f"test, 5 %). Scores are means over the {len(common)} tables on which none of the methods with scores failed; "
        "seconds are sums over tables.",
    ]


def loss_lines(tables: Tables) -> list[str]:
    """Tables on which our main method loses to a linear peer by more than the margin, with a likely reason."""
    peers = [name for name in tables.methods if METHODS[name].is_linear and not METHODS[name].is_ours]
    lines = []
    for other in peers if MAIN in tables.methods else []:
        ratio = tables.ratio(MAIN, other).sort_values(ascending=False)
        for table, value in ratio[ratio > 1 + MARGIN].items():
            losses = [tables.means("log_loss").loc[table, name] for name in (MAIN, other)]
            both = f"{losses[0]:.4f} against {losses[1]:.4f}"
            lines.append(
                f"- {table}, {other}: {100 * (value - 1):+.0f} %, {both}: {guess(tables, table, MAIN, other)}."
            )
    return lines or ["none"]


def guess(tables: Tables, table: str, method: str, other: str) -> str:
    """A likely reason why a method lost, from the results."""
    log_loss, error = (tables.means(measure).loc[table] for measure in ("log_loss", "error"))
    spread, traits = tables.spread("log_loss", table, other), tables.traits(table)
    if np.isnan(log_loss[method]):
        return "it failed"
    if log_loss[method] - log_loss[other] < spread:
        return f"within the spread of the splits, {spread:.3f}"
    if error[method] <= error[other]:
        return "its error is not higher: calibration, not the decision boundary"
    if traits["n_features"] > traits["n_train"]:
        return "more features than samples: the penalty scaling"
    if {"LDA", "LDA shrunk"} & {other}:
        return "classes close to Gaussian: a generative classifier needs fewer samples"
    return "unexplained"


# --- targets ----------------------------------------------------------------------------------------


def target_lines(tables: Tables) -> list[str]:
    """Each target of the suite: whether it is met, with the number."""
    needed = {MAIN, RIVAL, "AnnealedLDA", "LDA", "LDA shrunk"}
    if not needed <= set(tables.methods):
        return [f"not evaluated: {', '.join(sorted(needed - set(tables.methods)))} has not been run"]
    return [f"- {'yes' if is_met else 'NO'}: {text}" for is_met, text in targets(tables)]


def targets(tables: Tables) -> list[tuple[bool, str]]:
    rival = tables.ratio(MAIN, RIVAL)
    wins, ties, losses = duel(rival)
    worst = rival.idxmax()
    seconds = tables.means("cpu_seconds")[[MAIN, RIVAL]]
    share = seconds[MAIN].sum() / seconds[RIVAL].sum()
    of_table = seconds[MAIN] / seconds[RIVAL]
    beats = sum((tables.ratio("AnnealedLDA", "LDA") < 1) & (tables.ratio("AnnealedLDA", "LDA shrunk") < 1))
    troubled = int(((tables.rows["failure"] != "") | (tables.rows["warnings"] != ""))[of_ours(tables.rows)].sum())
    return [
        best_rank(tables, "log_loss", "log-loss"),
        best_rank(tables, "error", "error"),
        (wins >= 2 * losses, f"{MAIN} against {RIVAL} beyond 2 %: {wins} wins, {ties} ties, {losses} losses"),
        (
            rival.max() <= 1 + WORST_ALLOWED,
            f"its worst table against {RIVAL}: {worst}, {100 * (rival[worst] - 1):+.1f} %",
        ),
        (
            share <= TIME_SHARE,
            f"its total time is {share:.3f} of {RIVAL}'s (median over tables {of_table.median():.3f}; "
            f"a tenth or less on {int((of_table <= TIME_SHARE).sum())} of {len(of_table)})",
        ),
        (
            beats >= LDA_SHARE * len(tables.names),
            f"AnnealedLDA has a lower log-loss than both LDAs on {beats} of {len(tables.names)} tables",
        ),
        (troubled == 0, f"our fits that failed or warned: {troubled}"),
    ]


def best_rank(tables: Tables, measure: str, name: str) -> tuple[bool, str]:
    """Whether our main method has the best mean rank of the linear methods, possibly tied, with all these ranks."""
    linear = [method for method in tables.methods if METHODS[method].is_linear]
    ranks = tables.ranks(measure, linear).mean().sort_values(kind="stable")
    text = ", ".join(f"{method} {rank:.2f}" for method, rank in ranks.items())
    return bool(ranks[MAIN] == ranks.min()), f"mean rank of the linear methods in {name}: {text}"


def of_ours(rows: pd.DataFrame) -> pd.Series:
    return rows["method"].isin(ours(list(METHODS)))


def trouble_lines(rows: pd.DataFrame) -> list[str]:
    """Every kind of failure, and the warnings of our methods, with their tables."""
    failures, warned = rows[rows["failure"] != ""], rows[(rows["warnings"] != "") & of_ours(rows)]
    lines = [
        f"- {method} {what}: {text} ({', '.join(sorted(set(group['table'])))})"
        for what, part in (("failure", failures), ("warnings", warned))
        for (method, text), group in part.groupby(["method", what])
    ]
    n_peers = int(((rows["warnings"] != "") & ~of_ours(rows)).sum())
    return [*lines, f"- fits of peers that warned: {n_peers} of {int((~of_ours(rows)).sum())}"]


# --- tables -----------------------------------------------------------------------------------------


def table_lines(tables: Tables, measure: str, factor: float = 1.0) -> list[str]:
    means = factor * tables.means(measure)
    lines = [table_row(["table", *tables.methods]), table_row(["---"] * (1 + len(tables.methods)))]
    for name, numbers in means.iterrows():
        cells = ["failed" if np.isnan(number) else f"{number:.{2 if factor > 1 else 4}f}" for number in numbers]
        lines.append(table_row([name, *cells]))
    return lines


def table_row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
