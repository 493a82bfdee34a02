"""Random fits: each must end with one clear error, or with a model whose answers are finite, consistent and repeat.

`fuzz.cases` draws estimators, parameters and tables; `fuzz.judge` says what must hold. A case is made from random bytes
that its seed and number determine, so that it can be repeated alone:

    python -m fuzz.estimators --seed 0 --first 1234 --end 1235

Child processes take some cases each, one child for each processor; a case that ends its child, or that does not end,
fails alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings

from fuzz.cases import CLASSES, Case, cases
from fuzz.judge import GOOD, Failure, judge
from fuzz.lines import lines_of

NUMBER = 100_000
PATIENCE = 300.0  # seconds after which a child that prints nothing is ended
CASES_OF_A_CHILD = 250
BYTES = 1 << 13  # for the choices of a case; if they do not suffice, there is another attempt with other bytes


# --- one case ---------------------------------------------------------------------------------------------------


def drawn(seed: int, number: int) -> Case:
    """The case of this number."""
    found: list[Case] = []

    @settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(cases())
    def keep(case):
        found.append(case)

    rng = np.random.default_rng([seed, number])
    while not found:
        keep.hypothesis.fuzz_one_input(rng.bytes(BYTES))
    return found[0]


def outcome_of(case: Case) -> str:
    """One of GOOD, or what is wrong."""
    try:
        return judge(case)
    except Failure as failure:
        return str(failure)
    except Exception:
        return f"unexpectedly: {traceback.format_exc(limit=-6)}"


def work(seed: int, first: int, end: int) -> None:
    """Print a line for each case: its number, its estimator, the outcome, and the case if it failed."""
    warnings.simplefilter("ignore")
    for number in range(first, end):
        case = drawn(seed, number)
        outcome = outcome_of(case)
        print(json.dumps([number, case.estimator, outcome, "" if outcome in GOOD else repr(case)]), flush=True)


# --- all cases --------------------------------------------------------------------------------------------------


def main(number: int, seed: int) -> int:
    """Try so many cases, print the counts, and return 1 if any of them failed."""
    began = time.monotonic()
    blocks = [(seed, first, min(first + CASES_OF_A_CHILD, number)) for first in range(0, number, CASES_OF_A_CHILD)]
    results: list = []
    with ThreadPoolExecutor(_n_processors()) as pool:
        for block in pool.map(lambda block: list(run(*block)), blocks):
            results += block
            print(f"{len(results)} of {number} cases", file=sys.stderr, flush=True)
    failures = [result for result in results if result[2] not in GOOD]
    for name in CLASSES:
        of_name = Counter(outcome if outcome in GOOD else "failed" for _, kind, outcome, _ in results if kind == name)
        print(f"  {name:28} " + ", ".join(f"{of_name[outcome]} {outcome}" for outcome in (*GOOD, "failed")))
    for trial, _, outcome, case in failures[:20]:
        print(f"FAILED: case {trial} of seed {seed}: {outcome}\n  {case}")
    counts = Counter(outcome for _, _, outcome, _ in results)
    shown = ", ".join(f"{counts[outcome]} {outcome}" for outcome in GOOD)
    rate = len(results) / (time.monotonic() - began)
    print(f"{len(results)} cases of estimators: {shown}, {len(failures)} failed; {rate:.1f} cases per second")
    return 1 if failures else 0


def _n_processors():
    """How many this process may use, where the system says so."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(seed: int, first: int, end: int):
    """The results of some cases; a child that dies or hangs fails its case, and another one goes on."""
    while first < end:
        arguments = ["--seed", str(seed), "--first", str(first), "--end", str(end)]
        command = [sys.executable, "-m", "fuzz.estimators", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]) as child:
            for result in lines_of(child, PATIENCE):
                first = result[0] + 1
                yield result
            child.kill()
        if first < end:
            yield [first, "unknown", f"the child ended with {child.returncode}", repr(drawn(seed, first))]
            first += 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("--seed", "--first", "--end"):
        parser.add_argument(option, type=int)
    options = parser.parse_args()
    work(options.seed, options.first, options.end)
