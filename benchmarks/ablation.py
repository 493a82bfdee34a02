"""`python dev.py bench ablation`: what the library loses without each mechanism, on random problems of every kind.

Every mechanism of `mechanisms.py` is switched off in turn. A first run with it off tells by counts and probabilities
whether it acts on a problem at all. If it does, runs with and without it alternate, in one process and one thread, and
CPU seconds are compared pair by pair. A mechanism that buys less than LEAST_WORTH everywhere is marked "goes".
"""

from __future__ import annotations

import argparse
import csv
import gc
import sys
import warnings
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean, median
from time import process_time

import numpy as np

from annealed import AnnealedLDA, AnnealedLogisticRegression, PottsDA
from annealed.rows.threads import one_thread
from benchmarks.measure import TooSlow, limited
from benchmarks.mechanisms import MECHANISMS, Mechanism
from gates.counting import counting
from gates.random_tables import random_table
from gates.tables import Table

LEAST_WORTH = 1.05  # time without the mechanism over time with it
MUCH_WORSE, NEGLIGIBLE_LOSS = 0.01, 0.002  # relative rise of the held-out log-loss, and nats, that count as a loss
ALIKE = 1e-12  # largest difference of probabilities between runs in which the mechanism did nothing
SLOWEST = 15.0  # times the usual seconds, after which a run is given up
HOPELESS = 4.0  # times the usual seconds, from which one run is enough
LONG_SECONDS = 1.5  # a problem that takes longer is timed once, or twice
SMALLEST_PROBABILITY = 1e-15
COLUMNS = (
    "mechanism",
    "fit",
    "problem",
    "state",
    "seconds",
    "time_ratio",
    "is_clear",
    "work_ratio",
    "loss_change",
    "note",
)


@dataclass(frozen=True)
class Fit:
    """What is fitted, and on how large problems."""

    make: object
    n_problems: int
    most_values: int
    takes_sparse: bool = True


FITS = {
    "logistic": Fit(AnnealedLogisticRegression, 16, 400_000),
    "lda": Fit(AnnealedLDA, 8, 200_000),
    "potts": Fit(lambda: PottsDA(random_state=0), 6, 10_000, takes_sparse=False),
}
QUICK = {"logistic": (3, 6_000), "lda": (1, 6_000), "potts": (1, 600)}  # problems and entries with --quick


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python dev.py bench ablation", description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only mechanisms whose name holds one of these words; default: all")
    parser.add_argument("--quick", action="store_true", help="few small problems, one pair of runs each")
    parser.add_argument("--repeats", type=int, default=3, help="pairs of runs with and without a mechanism")
    parser.add_argument("--seed", type=int, default=100, help="seed of the first problem")
    parser.add_argument("--fits", nargs="*", choices=tuple(FITS), default=tuple(FITS), help="default: all")
    parser.add_argument(
        "--results", type=Path, default=Path(__file__).resolve().parent / "results", help="folder of ablation.csv"
    )
    parser.add_argument("--report", action="store_true", help="run nothing; print the table of the latest results")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    file = options.results / "ablation.csv"
    if not options.report:
        options.results.mkdir(parents=True, exist_ok=True)
        with one_thread(), file.open("w", newline="") as open_file:
            writer = csv.DictWriter(open_file, COLUMNS)
            writer.writeheader()
            for row in _rows(options):
                writer.writerow(row)
                open_file.flush()
    report(file)
    return 0


# --- running ----------------------------------------------------------------------------------------


@dataclass
class Problem:
    """A table, its usual result, and the CPU seconds of all its usual runs."""

    table: Table
    fit: Fit
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self):
        self.run()  # warm up
        self.usual, self.proba, self.loss = self.counted()

    def run(self, limit=np.inf):
        """A fitted model, and its CPU seconds."""
        model = self.fit.make()
        gc.collect()
        began = process_time()
        with limited(limit), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            weight = {} if self.table.weight is None else {"sample_weight": self.table.weight}
            model.fit(self.table.X, self.table.y, **weight)
        return model, process_time() - began

    def counted(self, limit=np.inf):
        """Counts, probabilities of held-out samples, and their log-loss."""
        with counting(self.table.n_values, with_calls=False) as tally:
            model, _ = self.run(limit)
        proba = model.predict_proba(self.table.X_test).astype(np.float64)
        true = proba[np.arange(len(proba)), np.searchsorted(model.classes_, self.table.y_test)]
        return tally.summary(), proba, float(-np.log(np.maximum(true, SMALLEST_PROBABILITY)).mean())

    def usual_seconds(self) -> float:
        if not self.seconds:
            self.seconds.append(self.run()[1])
        return median(self.seconds)


def problems(options, name) -> list[Problem]:
    fit = FITS[name]
    n_problems, most_values = QUICK[name] if options.quick else (fit.n_problems, fit.most_values)
    found: list[Problem] = []
    seed = options.seed
    while len(found) < n_problems:
        table = random_table(seed, most_values)
        seed += 1
        if fit.takes_sparse or not table.is_sparse:
            found.append(Problem(table, fit))
            print(f"  {name:9} {found[-1].usual_seconds():6.2f} s  {table.name}", flush=True)
    return found


def _rows(options):
    mechanisms = [own for own in MECHANISMS if not options.words or any(word in own.name for word in options.words)]
    if not mechanisms:
        raise SystemExit(f"no mechanism holds {' or '.join(options.words)} in its name.")
    repeats = 1 if options.quick else options.repeats
    for name in options.fits:
        serving = [mechanism for mechanism in mechanisms if name in mechanism.fits]
        made = problems(options, name) if serving else []
        for mechanism in serving:
            began = process_time()
            rows = [ablated(mechanism, problem, repeats) for problem in made]
            for problem, row in zip(made, rows, strict=True):
                yield {"mechanism": mechanism.name, "fit": name, "problem": problem.table.name, **row}
            n_active = sum(row["state"] != "idle" for row in rows)
            worst = max(row["time_ratio"] for row in rows)
            seconds = process_time() - began
            print(
                f"  {name:9} {mechanism.name:75} acts on {n_active:2}, {worst:5.2f} at worst ({seconds:.0f} s)",
                flush=True,
            )


def ablated(mechanism: Mechanism, problem: Problem, repeats: int) -> dict:
    """One row of results: the problem without the mechanism."""
    usual = problem.usual_seconds()
    limit = SLOWEST * usual + 1.0
    row = {"state": "acts", "seconds": usual, "is_clear": True, "work_ratio": np.nan, "loss_change": 0.0, "note": ""}
    began = process_time()
    try:
        with mechanism.off():
            counts, proba, loss = problem.counted(limit)
    except TooSlow:
        return row | {"time_ratio": SLOWEST, "note": "given up"}
    except Exception as error:
        return row | {"state": "fails", "time_ratio": SLOWEST, "note": f"{type(error).__name__}: {error}"[:80]}
    first = process_time() - began
    acts = not _alike(counts, proba, problem)
    if not (acts or mechanism.is_silent):
        return row | {"state": "idle", "time_ratio": 1.0, "work_ratio": 1.0, "is_clear": False}
    change = loss - problem.loss
    row |= {
        "work_ratio": counts["work"] / problem.usual["work"],
        "loss_change": change / problem.loss if abs(change) > NEGLIGIBLE_LOSS else 0.0,
    }
    if first > HOPELESS * usual + 0.5:
        return row | {"time_ratio": first / usual}
    return row | _timed(mechanism, problem, min(repeats, max(1, int(3 * LONG_SECONDS / usual))))


def _timed(mechanism, problem, repeats) -> dict:
    """Median ratio of alternating runs, and whether nearly all of them are on the same side of one."""
    ratios = []
    for turn in range(repeats):
        pair = {}
        for is_off in (True, False) if turn % 2 else (False, True):
            with mechanism.off() if is_off else nullcontext():
                _, pair[is_off] = problem.run()
        problem.seconds.append(pair[False])
        ratios.append(pair[True] / pair[False])
    ratio = median(ratios)
    is_clear = all((own > 1.02) == (ratio > 1.02) for own in ratios)
    return {"time_ratio": ratio, "is_clear": is_clear}


def _alike(counts, proba, problem) -> bool:
    same_result = proba.shape == problem.proba.shape and np.abs(proba - problem.proba).max() <= ALIKE
    return bool(same_result and counts == problem.usual)


# --- the table --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Worth:
    """What the problems lose without a mechanism, over those on which it acts; `overall` is over all problems."""

    name: str
    n_acts: int
    n_problems: int
    overall: float
    median: float
    worst: float
    best: float
    work_median: float
    work_worst: float
    loss_median: float
    loss_worst: float
    loss_best: float
    n_fails: int

    @property
    def pays(self) -> bool:
        return self.worst >= LEAST_WORTH or self.loss_worst >= MUCH_WORSE or self.n_fails > 0


def worths(file: Path) -> list[Worth]:
    by_mechanism: dict[str, list[dict]] = defaultdict(list)
    with file.open(newline="") as open_file:
        for row in csv.DictReader(open_file):
            by_mechanism[row["mechanism"]].append(row)
    found = [_worth(name, rows) for name, rows in by_mechanism.items()]
    return sorted(found, key=lambda worth: (-worth.pays, -worth.overall, -worth.worst))


def _worth(name, rows) -> Worth:
    acting = [row for row in rows if row["state"] != "idle"]
    times = [float(row["time_ratio"]) for row in acting] or [1.0]
    clear = [float(row["time_ratio"]) for row in acting if row["is_clear"] == "True"] or [1.0]
    work = [float(row["work_ratio"]) for row in acting if row["work_ratio"] != "nan"] or [1.0]
    loss = [float(row["loss_change"]) for row in acting] or [0.0]
    return Worth(
        name,
        len(acting),
        len(rows),
        geometric_mean([float(row["time_ratio"]) for row in rows]),
        median(times),
        max(1.0, *clear),
        min(1.0, *clear),
        median(work),
        max(work),
        median(loss),
        max(loss),
        min(loss),
        sum(row["state"] == "fails" for row in acting),
    )


def report(file: Path) -> None:
    """Print the mechanisms, those that pay most first."""
    if not file.exists():
        raise SystemExit("there are no results yet: run `python dev.py bench ablation` first.")
    found, trades = worths(file), {mechanism.name: mechanism.trades for mechanism in MECHANISMS}
    print(
        "\nRatios without the mechanism to with it: above 1 it saves time or work. "
        "Held-out log-loss: above 0 it helps.\n"
        f"goes: less than {LEAST_WORTH - 1:.0%} of time and {MUCH_WORSE:.0%} of log-loss on every problem.\n"
    )
    print(
        f"{'':6}{'mechanism':76}{'acts on':>8}{'all':>6} |{'time':>6}{'worst':>7}{'best':>6} |{'work':>6}{'worst':>7} |"
        f"{'log-loss':>9}{'worst':>7}{'best':>7}   trades"
    )
    for worth in found:
        print(
            f"{'' if worth.pays else 'goes':6}{worth.name:76}{worth.n_acts:4}/{worth.n_problems:<3}"
            f"{worth.overall:6.2f} |"
            f"{worth.median:6.2f}{worth.worst:7.2f}{worth.best:6.2f} |{worth.work_median:6.2f}{worth.work_worst:7.2f} |"
            f"{worth.loss_median:9.1%}{worth.loss_worst:7.1%}{worth.loss_best:7.1%}   "
            + trades.get(worth.name, "")
            + (f"; fails {worth.n_fails}" if worth.n_fails else "")
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
