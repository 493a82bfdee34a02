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
    parser.add_argument("--resume", action="store_true", help="keep the corpora that an earlier run has measured")
    parser.add_argument(
        "--results", type=Path, default=Path(__file__).resolve().parent / "results", help="folder of tables and figures"
    )
    for module in EXPERIMENTS.values():
        if hasattr(module, "add_options"):
            module.add_options(parser)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    EXPERIMENTS[options.name].run(options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
