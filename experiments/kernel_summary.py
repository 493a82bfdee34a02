"""Summary of the comparison of AnnealedKernelClassifier: log-losses, ranks, errors, CPU time, certificates, targets.

The score of a table is the mean over its splits. A method ended on a table if it has a score on every split. Ranks are
given over the tables on which all methods ended, on which all ended except those with a limit of training samples, and
over all tables, where methods without a score share the last rank. Tables without all fits yet do not count.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from experiments import suite_summary
from experiments.kernel_methods import MAIN, METHODS, RIVAL
from experiments.suite_summary import Tables, section, table_row

TEXT = "kernel_summary.md"
TIME_SHARE = 0.5
UNSCORED = {"NotTried": "not tried", "Limit": "limit"}  # what a table shows for these failures; "failed" for others


def report(rows_file: Path, folder: Path, names: list[str] | None, methods: list[str], n_splits: int) -> None:
    """Print and store the summary of the chosen rows of a result file; `names` are the tables, None all of them."""
    rows = suite_summary.read_rows(rows_file)
    is_chosen = rows["method"].isin(methods) & (rows["split"] < n_splits)
    rows = rows[is_chosen & rows["table"].isin(names)] if names else rows[is_chosen]
    tables = Tables(rows, methods)
    if not tables.names:
        print("no table has been run with every chosen method on every split yet")
        return
    lines = summary_lines(tables, rows["table"].nunique())
    print("\n".join(lines))
    (folder / TEXT).write_text("\n".join(lines) + "\n")


def summary_lines(tables: Tables, n_begun: int) -> list[str]:
    counts = f"{len(tables.names)} tables, {len(tables.methods)} methods, {len(tables.rows)} fits"
    unfinished = n_begun - len(tables.names)
    return [
        counts + (f"; {unfinished} unfinished tables do not count" if unfinished else ""),
        *section("Mean log-loss of each table, the best in bold", loss_lines(tables)),
        *section("Ranks, errors and CPU time", method_lines(tables)),
        *section(f"CPU time of {MAIN} and {RIVAL}", time_lines(tables)),
        *section(f"Certificates of {MAIN}", certificate_lines(tables.rows)),
        *section("Targets", target_lines(tables)),
        *section("Fits without a score, and warnings", trouble_lines(tables.rows)),
    ]


def ended(tables: Tables, methods: list[str]) -> list[str]:
    """The tables on which all these methods ended."""
    losses = tables.means("log_loss")[methods]
    return list(losses.index[losses.notna().all(axis=1)])


def has(tables: Tables, *methods: str) -> bool:
    return set(methods) <= set(tables.methods)


# --- tables -----------------------------------------------------------------------------------------


def loss_lines(tables: Tables) -> list[str]:
    losses = tables.means("log_loss")
    lines = [table_row(["table", *tables.methods]), table_row(["---"] * (1 + len(tables.methods)))]
    for name, numbers in losses.iterrows():
        texts = numbers.map("{:.4f}".format)
        best = texts[numbers.notna()].min()
        cells = [
            unscored(tables.rows, name, method) if pd.isna(number) else _bold(texts[method], texts[method] == best)
            for method, number in numbers.items()
        ]
        lines.append(table_row([name, *cells]))
    return lines


def _bold(text: str, is_best: bool) -> str:
    return f"**{text}**" if is_best else text


def unscored(rows: pd.DataFrame, table: str, method: str) -> str:
    failures = rows.loc[(rows["table"] == table) & (rows["method"] == method), "failure"]
    kind = failures[failures != ""].iloc[0].partition(":")[0]
    return UNSCORED.get(kind, "failed")


def method_lines(tables: Tables) -> list[str]:
    """A line per method, the best mean rank over all tables first; ranks and mean errors over each set of tables."""
    unlimited = [name for name in tables.methods if METHODS[name].most_rows == float("inf")]
    parts = [(tables.methods, ended(tables, tables.methods), f"all {len(tables.methods)} methods ended")]
    if len(unlimited) < len(tables.methods):
        limited = ", ".join(name for name in tables.methods if name not in unlimited)
        parts.append((unlimited, ended(tables, unlimited), f"all methods but {limited} ended"))
    parts.append((tables.methods, tables.names, "all tables, methods without a score last"))
    everywhere = tables.ranks("log_loss").mean().sort_values(kind="stable")
    columns = [f"{what} {number}" for number in range(1, 1 + len(parts)) for what in ("rank", "error %")]
    columns += ["CPU seconds", "tables ended"]
    lines = [table_row(["method", *columns]), table_row(["---"] * (1 + len(columns)))]
    for name in everywhere.index:
        cells = [cell for methods, names, _ in parts for cell in rank_and_error(tables, name, methods, names)]
        seconds = tables.means("cpu_seconds")[name].sum()
        lines.append(table_row([name, *cells, f"{seconds:.1f}", str(len(ended(tables, [name])))]))
    notes = [f"- {number}: {what} ({len(names)} tables)" for number, (_, names, what) in enumerate(parts, start=1)]
    return [
        *lines,
        "",
        "Mean ranks in log-loss and mean errors over these tables:",
        "",
        *notes,
        "",
        "CPU seconds are means over the splits, summed over tables; a fit that was ended counts with its limit.",
    ]


def rank_and_error(tables: Tables, name: str, methods: list[str], names: list[str]) -> tuple[str, str]:
    """Mean rank in log-loss among `methods`, and mean error, over the tables `names`; empty where there is none."""
    if name not in methods or not names:
        return "", ""
    error = 100 * tables.means("error").loc[names, name].mean(skipna=False)
    return f"{tables.ranks('log_loss', methods).loc[names, name].mean():.2f}", "" if pd.isna(error) else f"{error:.2f}"


def time_lines(tables: Tables) -> list[str]:
    if not has(tables, MAIN, RIVAL):
        return [f"not evaluated: {MAIN} and {RIVAL} must both be run"]
    both = ended(tables, [MAIN, RIVAL])
    seconds = tables.means("cpu_seconds").loc[both]
    ratio = seconds[MAIN] / seconds[RIVAL]
    if not both:
        return ["there is no table on which both ended"]
    return [
        f"- sum over the {len(both)} tables on which both ended: {seconds[MAIN].sum():.1f} s / "
        f"{seconds[RIVAL].sum():.1f} s = {seconds[MAIN].sum() / seconds[RIVAL].sum():.3f}",
        f"- ratio of a table: median {ratio.median():.3f}, largest {ratio.max():.3f} ({ratio.idxmax()}), "
        f"at most {TIME_SHARE} on {int((ratio <= TIME_SHARE).sum())} tables",
    ]


# --- certificates -----------------------------------------------------------------------------------


def of_paths(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per fit of our method that has a score, with the numbers of its path."""
    scored = rows[(rows["method"] == MAIN) & (rows["failure"] == "")]
    names = ["gamma", "n_landmarks", "n_support", "n_temperatures", "n_unconverged", "n_uncertified", "certificate"]
    return scored[["table", "split"]].join(scored[names].apply(pd.to_numeric))


def certificate_lines(rows: pd.DataFrame) -> list[str]:
    paths = of_paths(rows)
    if paths.empty:
        return [f"{MAIN} has no scores"]
    total = int(paths["n_temperatures"].sum())
    worst = paths["certificate"].max()
    lines = [f"- {len(paths)} fits, {total} temperatures, largest certificate {worst:.1e}"]
    for column, what in (("n_unconverged", "not converged"), ("n_uncertified", "without a certificate")):
        where = sorted(set(paths.loc[paths[column] > 0, "table"]))
        lines.append(f"- {what}: {int(paths[column].sum())} of {total} temperatures" + _listed(where))
    columns = ["gamma", "n_landmarks", "n_support"]
    medians = paths.groupby("table")[columns].median()
    lines += ["", table_row(["table", *(f"{name}, median" for name in columns)]), table_row(["---"] * 4)]
    return lines + [table_row([name, *(f"{number:.4g}" for number in row)]) for name, row in medians.iterrows()]


def _listed(names: list[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


# --- targets ----------------------------------------------------------------------------------------


def target_lines(tables: Tables) -> list[str]:
    """Each target: whether it is met, with the number."""
    if not has(tables, MAIN, RIVAL):
        return [f"not evaluated: {MAIN} and {RIVAL} must both be run"]
    return [f"- {'yes' if is_met else 'NO'}: {text}" for is_met, text in targets(tables)]


def targets(tables: Tables) -> list[tuple[bool, str]]:
    both = ended(tables, [MAIN, RIVAL])
    seconds, errors = (tables.means(measure).loc[both, [MAIN, RIVAL]] for measure in ("cpu_seconds", "error"))
    share = seconds[MAIN].sum() / seconds[RIVAL].sum()
    main, rival = 100 * errors.mean()
    paths = of_paths(tables.rows)
    n_bad = int(paths[["n_unconverged", "n_uncertified"]].sum().sum())
    n_failed = int(((tables.rows["method"] == MAIN) & (tables.rows["failure"] != "")).sum())
    on = f"on the {len(both)} tables on which both ended"
    return [
        best_rank(tables, ended(tables, tables.methods), "on which all methods ended"),
        best_rank(tables, tables.names, "in all, methods without a score last"),
        (bool(main <= rival), f"mean error {main:.2f} %, {RIVAL} {rival:.2f} %, {on}"),
        (bool(share <= TIME_SHARE), f"CPU time {share:.3f} of that of {RIVAL}, {on}"),
        (
            n_bad + n_failed == 0,
            f"temperatures not converged or without a certificate: {n_bad}; failed fits: {n_failed}",
        ),
    ]


def best_rank(tables: Tables, names: list[str], which: str) -> tuple[bool, str]:
    """Whether our method has the best mean rank in log-loss, possibly tied, over some tables."""
    ranks = tables.ranks("log_loss").loc[names].mean().sort_values(kind="stable")
    text = ", ".join(f"{method} {rank:.2f}" for method, rank in ranks.items())
    return bool(ranks[MAIN] == ranks.min()), f"mean rank in log-loss over {len(names)} tables {which}: {text}"


def trouble_lines(rows: pd.DataFrame) -> list[str]:
    """Every kind of failure, and the warnings of our method, with their tables; numbers of warnings of the others."""
    failures = rows[rows["failure"] != ""]
    warned = rows[rows["warnings"] != ""]
    lines = [
        f"- {method} {what}: {text} ({', '.join(sorted(set(group['table'])))})"
        for what, part in (("failure", failures), ("warnings", warned[warned["method"] == MAIN]))
        for (method, text), group in part.groupby(["method", what])
    ]
    counts = warned.loc[warned["method"] != MAIN, "method"].value_counts()
    lines += [f"- {method}: {count} fits with warnings" for method, count in counts.items()]
    return lines or ["none"]
