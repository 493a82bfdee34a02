"""`python dev.py gates compare | record | certify | size`: parses the arguments, and prints a table."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from statistics import median
from time import process_time

from gates.size import report

POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
RECORD = Path(__file__).resolve().parent / "recorded.json"
SHOWN = ("work", "passes", "hessians", "factor_millions", "calls")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python dev.py gates", description="Judge results, certificates and operation counts without a clock."
    )
    parser.add_argument("verb", choices=("compare", "record", "certify", "size"))
    parser.add_argument("tables", nargs="*", help="tables of gates/tables.py; default: all")
    parser.add_argument("--estimators", nargs="*", help="estimators of gates/estimators.py; default: all")
    parser.add_argument("--exact", action="store_true", help="compare: fail unless results agree to rounding")
    parser.add_argument("--each", action="store_true", help="compare: fail if any single count grows, not only a sum")
    parser.add_argument("--all", action="store_true", help="compare: print unchanged fits too")
    parser.add_argument("--number", type=int, default=200, help="certify: number of random problems")
    parser.add_argument("--seed", type=int, default=0, help="certify: the first seed")
    parser.add_argument("--file", type=Path, default=RECORD, help="the record; default: gates/recorded.json")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.verb == "size":
        report()
        return 0
    for pool in POOLS:  # before NumPy is imported; counts hardly depend on it
        os.environ.setdefault(pool, "1")
    if options.verb == "certify":
        from gates.certifying import certify

        return certify(options.number, options.seed)
    if options.verb == "record":
        record(options)
        return 0
    return compare(options)


def chosen(options) -> list[tuple[str, str]]:
    """(table, estimator) of the fits to make."""
    from gates.estimators import ESTIMATORS
    from gates.tables import MAKERS, table

    for kind, names, known in (("table", options.tables, MAKERS), ("estimator", options.estimators or (), ESTIMATORS)):
        if unknown := sorted(set(names) - set(known)):
            raise SystemExit(f"there is no {kind} {', '.join(unknown)}. Choose among: {', '.join(known)}.")
    tables, estimators = options.tables or list(MAKERS), options.estimators or list(ESTIMATORS)
    return [(name, own) for name in tables for own in estimators if ESTIMATORS[own].suits(table(name))]


def versions() -> dict:
    import numpy
    import scipy
    import sklearn

    found = {"python": platform.python_version(), "numpy": numpy.__version__, "scipy": scipy.__version__}
    return found | {"sklearn": sklearn.__version__}


def record(options) -> None:
    """Write the record; with tables or estimators named, replace only their part of it."""
    from gates.measure import measured

    fits = read(options.file)["fits"] if options.file.exists() and (options.tables or options.estimators) else {}
    for table_name, estimator_name in chosen(options):
        fits[f"{table_name} | {estimator_name}"] = measured(table_name, estimator_name)
        print(f"{table_name} | {estimator_name}", flush=True)
    lines = [f"{json.dumps(name)}: {json.dumps(found)}" for name, found in fits.items()]
    text = '{"versions": ' + json.dumps(versions()) + ',\n"fits": {\n' + ",\n".join(lines) + "\n}}\n"
    options.file.write_text(text)
    print(f"{len(fits)} fits recorded in {options.file.name}, {len(text) / 1e3:.0f} kB")


def read(file: Path) -> dict:
    if not file.exists():
        raise SystemExit(f"there is no {file}: run `python dev.py gates record` first.")
    return json.loads(file.read_text())


def compare(options) -> int:
    from gates.comparing import MOST_GROWTH, verdict
    from gates.measure import measured

    recorded, began = read(options.file), process_time()
    is_same_stack = recorded["versions"] == versions()
    verdicts, n_new = {}, 0
    print(f"{'table':23}{'estimator':19}{'result':44}" + "".join(f"{_short(name):>10}" for name in SHOWN))
    for table_name, estimator_name in chosen(options):
        name = f"{table_name} | {estimator_name}"
        if name not in recorded["fits"]:
            n_new += 1
            print(f"{table_name:23}{estimator_name:19}not recorded", flush=True)
            continue
        found = verdict(
            recorded["fits"][name],
            measured(table_name, estimator_name),
            exact=options.exact,
            each=options.each,
            counts_calls=is_same_stack,
        )
        verdicts[name] = found
        is_shown = options.all or found.failures or found.agreement != "same"
        if is_shown or any(abs(ratio - 1) > MOST_GROWTH - 1 for ratio in found.ratios.values()):
            line = f"{table_name:23}{estimator_name:19}{found.agreement:44}"
            print(line + "".join(f"{found.ratios[name]:10.2f}" for name in SHOWN), flush=True)
            for failure in found.failures:
                print(f"{'':23}FAILS: {failure}", flush=True)
    failing = [name for name, found in verdicts.items() if found.failures]
    _summarize(verdicts, failing, n_new, is_same_stack, process_time() - began)
    return 1 if failing or n_new else 0


def _short(name) -> str:
    return name.replace("_millions", "s")


def _summarize(verdicts, failing, n_new, is_same_stack, seconds) -> None:
    from gates.comparing import COSTS, PARTS

    n_same = sum(found.agreement == "same" for found in verdicts.values())
    print(f"\n{len(verdicts)} fits in {seconds:.0f} s: {n_same} give the same, {len(failing)} fail, {n_new} are new")
    if not is_same_stack:
        print("calls are not judged: the record is of other versions of Python, NumPy, SciPy or scikit-learn")
    if not verdicts:
        return
    print("\ncount divided by the recorded one      median  smallest   largest")
    for name in (*COSTS, *PARTS):
        ratios = sorted(found.ratios[name] for found in verdicts.values())
        print(f"  {name:34}{median(ratios):10.2f}{ratios[0]:10.2f}{ratios[-1]:10.2f}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
