"""`python dev.py bench [problems] [options]`: parses the arguments and limits threads before NumPy is imported."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python dev.py bench", description="Time the library and its peers.")
    parser.add_argument(
        "problems",
        nargs="*",
        help="modules of benchmarks/problems, or all; default: the quick ones. "
        "`ablation` measures what each mechanism is worth: see `bench ablation --help`; "
        "`population` compares the path with scikit-learn on random problems: see `bench population --help`; "
        "`lda` compares AnnealedLDA with LDA on spoilt columns: see `bench lda --help`",
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="number of interleaved timed rounds; medians are reported"
    )
    parser.add_argument("--threads", type=int, help="maximum number of threads and cores; default: all available")
    parser.add_argument(
        "--peers", choices=("usual", "all"), default="usual", help="all: run LogisticRegressionCV on large problems too"
    )
    parser.add_argument(
        "--grid",
        choices=("auto", "estimated", "whole"),
        default="auto",
        help="how LogisticRegressionCV is timed; auto: estimated from a part of its grid on large problems",
    )
    parser.add_argument(
        "--rows", type=int, help="rehearsal: use this many random samples of every table; left out of the report"
    )
    parser.add_argument("--no-memory", dest="memory", action="store_false", help="do not measure the peak memory")
    parser.add_argument(
        "--no-reference", dest="reference", action="store_false", help="compute certificates only, no reference optima"
    )
    parser.add_argument(
        "--report", action="store_true", help="run nothing; write docs/speed.md from the latest results"
    )
    parser.add_argument(
        "--results", type=Path, default=Path(__file__).resolve().parent / "results", help="folder of the result files"
    )
    options = parser.parse_args(arguments)
    if options.results.exists() and not options.results.is_dir():
        parser.error(f"--results must be a folder. Got the file {options.results}.")
    for name in ("repeats", "threads", "rows"):
        if (number := getattr(options, name)) is not None and number < 1:
            parser.error(f"--{name} must be at least 1. Got {number}.")
    return options


def limit_threads(n_threads: int) -> None:
    """Limit BLAS and OpenMP by environment variables, and everything else by the cores this process may use."""
    os.environ |= dict.fromkeys(POOLS, str(n_threads))
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:n_threads])


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["ablation"]:
        limit_threads(1)
        from benchmarks.ablation import main as ablate

        return ablate(arguments[1:])
    if arguments[:1] == ["population"]:
        os.environ |= dict.fromkeys(POOLS, "1")  # its processes use all cores
        from benchmarks.population import main as compare

        return compare(arguments[1:])
    if arguments[:1] == ["lda"]:
        limit_threads(1)
        from benchmarks.lda import main as compare_to_lda

        return compare_to_lda(arguments[1:])
    options = parse(arguments)
    if options.threads:
        limit_threads(options.threads)
    if options.report:
        from benchmarks.table import write_report

        write_report(options.results)
        return 0
    from benchmarks.runner import run_problems

    run_problems(options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
