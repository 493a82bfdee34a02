"""`python dev.py reproduce NAME [options]`: the arguments, and what is there to reproduce."""

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
    parser.add_argument("--corpora", nargs="+", help="only these corpora, by their names in the paper's table")
    parser.add_argument(
        "--resume", action="store_true", help="keep what an earlier run has measured (the suite always does)"
    )
    parser.add_argument("--splits", type=int, help="how many random splits, where an experiment draws them")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with one BLAS thread; -1 is one a core")
    parser.add_argument(
        "--results", type=Path, default=Path(__file__).resolve().parent / "results", help="folder of tables and figures"
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
    heeded = EXPERIMENTS[options.name].OPTIONS
    for option in sorted(set(vars(options)) - {"name", "results", *heeded}):
        if getattr(options, option) != parser.get_default(option):
            parser.error(f"{options.name} takes no --{option}. It takes {', '.join(f'--{own}' for own in heeded)}.")
    return options


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    EXPERIMENTS[options.name].run(options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
