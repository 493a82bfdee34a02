"""Runs problems: rehearses and interleaves methods, appends a row per run and prints a line per method."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import datetime
from math import isnan, nan
from statistics import median

import numpy as np
import scipy
import sklearn

from benchmarks import ours, rows
from benchmarks.contract import Anchor, Method, Skipped, Table
from benchmarks.machine import Machine, measure_machine
from benchmarks.measure import Estimate, Run, interleaved, peak_extra_bytes, quietly
from benchmarks.peers import PEERS
from benchmarks.problems import PROBLEMS, QUICK
from benchmarks.quality import Yardstick

VERSIONS = f"NumPy {np.__version__}, SciPy {scipy.__version__}, scikit-learn {sklearn.__version__}"


def chosen_problems(names: list[str]) -> list[str]:
    """The quick problems if no name is given, all of them for the name `all`."""
    unknown = sorted(set(names) - {*PROBLEMS, "all"})
    if unknown:
        raise SystemExit(f"there is no problem {', '.join(unknown)}. Choose among: all, {', '.join(PROBLEMS)}.")
    if "all" in names:
        return list(PROBLEMS)
    return names or QUICK


def run_problems(options) -> None:
    names = chosen_problems(options.problems)
    machine = measure_machine()
    print(f"{machine}; {VERSIONS}", flush=True)
    if machine.is_busy:
        print(f"this machine is busy (load {machine.load:.1f}): repeat on an idle machine before reporting", flush=True)
    run = datetime.now().isoformat(timespec="seconds")
    for name in names:
        run_problem(name, options, machine, run)


def run_problem(name: str, options, machine: Machine, run: str) -> None:
    module = PROBLEMS[name]
    print(f"\n{name}: {module.TITLE}", flush=True)
    try:
        for table in module.tables():
            table = replace(table, problem=name, is_large=not module.IS_QUICK)
            run_table(table.first_rows(options.rows) if options.rows else table, options, machine, run)
    except OSError as error:  # data are missing
        print(f"  skipped: {error}", flush=True)


def run_table(table: Table, options, machine: Machine, run: str) -> None:
    n_rows, n_features, n_classes = table.shape
    kind = "sparse" if table.is_sparse else "dense"
    print(f"\n  {table.name}: {n_rows} x {n_features} {kind}, {n_classes} classes", flush=True)
    yardstick = Yardstick(table, options.reference)
    session = Session(table, options, machine, run)
    for run_ in interleaved(plan(table, session, yardstick, options), options.repeats):
        session.record(run_)
    session.summarize()


def plan(table: Table, session: Session, yardstick: Yardstick, options) -> list[Method]:
    """Methods to run on a table. Ours is rehearsed first, because peers are fitted at the C that it chose."""
    module = PROBLEMS.get(table.problem)
    if hasattr(module, "methods"):
        methods = list(module.methods(table, yardstick))
    else:
        first = ours.default(table, yardstick)
        anchor = Anchor.of(session.rehearse(first))
        if not anchor.is_of_columns:
            # Peers cannot use this scaling. They use C and the range of the path with "standardize", another objective.
            anchor = Anchor.of(ours.standardized(table))
        peers = (method for peer in PEERS for method in peer.methods(table, anchor, yardstick, options))
        methods = [first, ours.fifty(table, anchor, yardstick), *session.without_skipped(peers)]
    for method in methods:
        if options.memory and method.is_rehearsed and method.name not in session.descriptions:
            session.rehearse(method)
    return methods


class Session:
    """The runs of one table. Descriptions and memory are taken once per method, seconds in every run."""

    def __init__(self, table: Table, options, machine: Machine, run: str):
        self.table, self.options, self.machine, self.run = table, options, machine, run
        self.descriptions: dict[str, dict] = {}
        self.rows: dict[str, list[dict]] = {}

    def without_skipped(self, methods):
        for method in methods:
            if isinstance(method, Skipped):
                print(f"    {method.name:42} skipped: {method.reason}", flush=True)
            else:
                yield method

    def rehearse(self, method: Method):
        """Run once untimed to warm up; record peak memory and description."""
        memory = {}
        if self.options.memory:
            result, memory["peak_extra_bytes"] = peak_extra_bytes(method.solve)
        else:
            result, _ = quietly(method.solve)
        self.descriptions[method.name] = memory | method.describe(result)
        return result

    def record(self, run: Run) -> None:
        name = run.method.name
        if name not in self.descriptions:
            self.descriptions[name] = run.method.describe(run.result)
        row = self._place() | self.descriptions[name]
        row |= {
            "method": name,
            "repeat": run.repeat,
            "is_estimated": isinstance(run.result, Estimate),
            "wall_seconds": run.timing.wall_seconds,
            "cpu_seconds": run.timing.cpu_seconds,
            "note": "; ".join(filter(None, [run.complaint, row.get("note")])),
        }
        row |= self._rates(row)
        rows.append(row, self.options.results)
        if self.table.is_large:  # show progress
            print(f"    round {run.repeat + 1}  {name:40} {run.timing.wall_seconds:9.2f} s", flush=True)
        self.rows.setdefault(name, []).append(row)

    def _place(self) -> dict:
        n_rows, n_features, n_classes = self.table.shape
        return {
            "run": self.run,
            "problem": self.table.problem,
            "table": self.table.name,
            "n_rows": n_rows,
            "n_features": n_features,
            "n_classes": n_classes,
            "n_bytes": self.table.n_bytes,
            "is_rehearsal": self.table.is_rehearsal,
            "threads": self.machine.threads,
            "gemm_gflops": self.machine.gemm_gflops,
            "bandwidth_gbs": self.machine.bandwidth_gbs,
            "load": self.machine.load,
            "versions": VERSIONS,
        }

    def _rates(self, row: dict) -> dict:
        """Fractions of this machine's rates that the passes over X reached; other work is not counted."""
        if "passes" not in row:
            return {}
        flops = row["passes"] * ours.pass_flops(self.table, row["n_fits"])
        return {
            "gemm_fraction": flops / row["wall_seconds"] / 1e9 / self.machine.gemm_gflops,
            "bandwidth_fraction": row["passes"]
            * self.table.n_bytes
            / row["wall_seconds"]
            / 1e9
            / self.machine.bandwidth_gbs,
        }

    def summarize(self, file=None) -> None:
        for name, runs in self.rows.items():
            print(f"    {name:42} {line(runs)}", file=file or sys.stdout, flush=True)


def line(runs: list[dict]) -> str:
    """Medians of one method's runs as a line of text."""
    wall, cpu = (median(row[column] for row in runs) for column in ("wall_seconds", "cpu_seconds"))
    row = runs[0]
    parts = [f"{wall:9.3f} s  CPU {cpu:9.3f} s"]
    if "peak_extra_bytes" in row:
        parts.append(f"{row['peak_extra_bytes'] / 1e6:7.1f} MB")
    parts.append(quality_text(row))
    if "n_temperatures" in row:
        n_temperatures = row["n_temperatures"]
        gemm = median(row["gemm_fraction"] for row in runs)
        parts.append(
            f"{n_temperatures} temperatures at {1e3 * wall / n_temperatures:.1f} ms, {row['n_iter']} iterations, "
            f"{row['passes']} passes, {gemm:.0%} of GEMM, {median(row['bandwidth_fraction'] for row in runs):.0%} "
            "of bandwidth"
        )
    parts.append(row["note"])
    return "  ".join(part for part in parts if part)


def quality_text(row: dict) -> str:
    excess, bound = row.get("reference_suboptimality", nan), row.get("suboptimality", nan)
    between = row.get("suboptimality_between", nan)
    words = [] if isnan(excess) else [f"{excess:.1e} above the optimum"]
    words += [] if isnan(bound) else [f"certified {bound:.1e}"]
    words += [] if isnan(between) else [f"between temperatures {between:.1e}"]
    return ", ".join(words)
