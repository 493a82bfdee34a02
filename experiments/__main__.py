"""`python dev.py reproduce NAME [options]`: parses the arguments and runs an experiment of the registry."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments.registry import EXPERIMENTS


def parse(arguments: list[str]) -> argparse.Namespace:
    known = "; ".join(f"{name}: {module.TITLE}" for name, module in EXPERIMENTS.items())
    parser = argparse.ArgumentParser(
        prog="python dev.py reproduce", description="Reproduce a paper's table or figure.", epilog=known
    )
    parser.add_argument("name", choices=sorted(EXPERIMENTS), help="which experiment")
    parser.add_argument("--corpora", nargs="+", help="only these corpora, named as in the paper's table")
    parser.add_argument(
        "--resume", action="store_true", help="keep the results of an earlier run (suite, keel and kernel always do)"
    )
    parser.add_argument("--splits", type=int, help="number of random splits, for experiments that draw them")
    parser.add_argument(
        "--jobs", type=int, default=1, help="number of processes with one BLAS thread each; -1: one per core"
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=Path(__file__).resolve().parent / "results",
        help="folder for tables and figures",
    )
    for module in EXPERIMENTS.values():
        if hasattr(module, "add_options"):
            module.add_options(parser)
    options = parser.parse_args(arguments)
    if options.results.exists() and not options.results.is_dir():
        parser.error(f"--results must be a folder. Got the file {options.results}.")
    if options.splits is not None and options.splits < 1:
        parser.error(f"--splits must be at least 1. Got {options.splits}.")
    if options.jobs == 0:
        parser.error("--jobs must not be 0.")
    accepted = EXPERIMENTS[options.name].OPTIONS
    for option in sorted(set(vars(options)) - {"name", "results", *accepted}):
        if getattr(options, option) != parser.get_default(option):
            parser.error(f"{options.name} takes no --{option}. It takes {', '.join(f'--{name}' for name in accepted)}.")
    return options


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    EXPERIMENTS[options.name].run(options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
