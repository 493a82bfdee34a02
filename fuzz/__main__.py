"""`python dev.py fuzz [models | estimators] [--number N] [--seed S]`: the parts named, or all of them."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module

for pool in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # before NumPy is imported
    os.environ.setdefault(pool, "1")

# Modules with a function `main(number, seed)` that returns the exit code.
PARTS = {"models": "fuzz.models", "estimators": "fuzz.estimators"}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python dev.py fuzz", description="Random trials that must not fail.")
    parser.add_argument("part", nargs="?", choices=PARTS, help="default: all of them")
    parser.add_argument("--number", type=int, help="number of trials of each part; default: that of docs/tested.md")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first trial; each trial has its own")
    options = parser.parse_args(arguments)
    modules = [import_module(PARTS[name]) for name in ([options.part] if options.part else PARTS)]
    return max(module.main(options.number or module.NUMBER, options.seed) for module in modules)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
