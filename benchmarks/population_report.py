"""What `python dev.py bench population` prints: ratios of times, the worst problems, every warning, and the targets."""

from __future__ import annotations

import csv
from collections import defaultdict
from math import inf, nan
from pathlib import Path

import numpy as np

SLOW = 2.0  # CPU seconds of a path, above which the targets for its time hold
MOST_ACCURATE_FITS, MOST_FITS = 20.0, 40.0
MOST_UNCONVERGED = 0.005  # share of problems
N_WORST = 10
QUANTILES = {"min": 0.0, "p1": 0.01, "p10": 0.1, "median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


class Result:
    """One row of population.csv. A ratio to a run that was cut off is a bound, which `bound` tells."""

    def __init__(self, row: dict):
        self.row, self.name, self.error = row, row["name"], row["error"]
        self.seconds, self.is_cut = self._number("path_seconds"), row["path_is_cut"] == "True"
        self.warnings = [text for text in row["warnings"].split(" | ") if text]

    @property
    def is_slow(self) -> bool:
        return self.is_cut or self.seconds > SLOW

    @property
    def per_fit(self) -> float:
        return self.seconds / self._number("one_seconds")

    @property
    def per_accurate_fit(self) -> float:
        return self.seconds / self._number("tight_seconds")

    @property
    def cv_per_path(self) -> float:
        """Infinite if LogisticRegressionCV fails; not known if the path and it were both cut off."""
        if self.row["cv_error"]:
            return inf
        if self.is_cut and self.row["cv_is_cut"] == "True":
            return nan
        return self._number("cv_seconds") / self.seconds

    @property
    def bound(self) -> str:
        return ">" if self.is_cut else ""

    def _number(self, name) -> float:
        return float(self.row[name] or nan)

    def line(self) -> str:
        row = self.row
        accurate = f"{self.per_accurate_fit:8.1f}" if row["tight_seconds"] else f"{'':8}"
        accurate += "-" if row["tight_is_cut"] == "True" else " "  # the accurate fit was cut off: at most this
        cv = "+" if row["cv_is_cut"] == "True" else " "
        return (
            f"{self.bound:>1}{self.per_fit:7.1f}{accurate}{self.cv_per_path:8.1f}{cv}{self.seconds:9.3f}"
            f"{self._number('one_seconds'):9.4f}{row['n_temperatures']:>6}{row['most_iter']:>6}  "
            f"{row['solver'][:12]:12} {self.name[:110]}"
        )


HEADER = "    /fit/accurate CV/path   path, s   fit, s temps  iter  solver       problem"


def results_of(file: Path) -> list[Result]:
    if not file.exists():
        raise SystemExit("there are no results yet: run `python dev.py bench population` first.")
    with file.open(newline="") as open_file:
        return [Result(row) for row in csv.DictReader(open_file)]


def print_report(file: Path) -> None:
    found = results_of(file)
    fitted = [own for own in found if not np.isnan(own.seconds)]
    slow = [own for own in fitted if own.is_slow]
    print(f"\n{len(found)} problems, of which {len(slow)} have a path of more than {SLOW:.0f} s of CPU\n")
    print(f"{'':38}" + "".join(f"{name:>9}" for name in QUANTILES))
    _print_quantiles("path / one fit", [own.per_fit for own in fitted])
    _print_quantiles("path / one fit, slow paths", [own.per_fit for own in slow])
    _print_quantiles("path / accurate fit, slow paths", [own.per_accurate_fit for own in slow])
    _print_quantiles("LogisticRegressionCV / path, at least", [own.cv_per_path for own in fitted])
    _print_quantiles("path, s", [own.seconds for own in fitted])
    _print_worst("Worst slow paths", slow)
    _print_worst("Worst of the others", [own for own in fitted if not own.is_slow])
    print(
        "\n  /fit: path / one fit; > path cut off   /accurate: path / one fit to 1e-6; - that fit was cut off: at most"
        "\n  CV/path: + LogisticRegressionCV was cut off: at least   iter: most iterations at one temperature"
    )
    _print_kinds(fitted)
    _print_told(found)
    _print_targets(found, fitted, slow)


def _print_quantiles(name, values):
    values = [value for value in values if not np.isnan(value)]
    if values:
        found = np.quantile(np.minimum(values, 1e300), list(QUANTILES.values()), method="inverted_cdf")
        print(f"{name:38}" + "".join(f"{value:9.3g}" if value < 1e300 else f"{'fails':>9}" for value in found))


def _print_worst(title, results):
    if results:
        print(f"\n{title}\n{HEADER}")
        for own in sorted(results, key=lambda own: -own.per_fit)[:N_WORST]:
            print(own.line())


def _print_kinds(fitted):
    kinds: dict[str, list[Result]] = defaultdict(list)
    for own in fitted:
        kinds[own.row["kind"]].append(own)
    print(f"\n{'':32}{'number':>6}{'/fit':>8}{'worst':>8}{'CV/path':>9}{'least':>8}{'path, s':>9}{'longest':>9}")
    for kind, own in sorted(kinds.items(), key=lambda item: -np.median([each.per_fit for each in item[1]])):
        per_fit, seconds = [each.per_fit for each in own], [each.seconds for each in own]
        cv = np.nan_to_num([each.cv_per_path for each in own], nan=1.0)
        print(
            f"{kind:32}{len(own):6}{np.median(per_fit):8.1f}{max(per_fit):8.1f}{np.median(cv):9.2f}{min(cv):8.2f}"
            f"{np.median(seconds):9.2f}{max(seconds):9.2f}"
        )


def _print_told(found):
    told = [(own.name, text) for own in found for text in own.warnings]
    told += [(own.name, f"error: {own.error}") for own in found if own.error]
    print(f"\n{len(told)} warnings and errors")
    for name, text in told:
        print(f"  {name}\n      {text:.300}")


def _print_targets(found, fitted, slow):
    def of_category(name):
        return [own for own in found if any(text.startswith(name) for text in own.warnings)]

    where = f"where it takes more than {SLOW:.0f} s"
    unconverged = of_category("ConvergenceWarning")
    targets = {
        "never slower than LogisticRegressionCV": [own for own in fitted if own.is_cut or own.cv_per_path < 1],
        f"path at most {MOST_ACCURATE_FITS:.0f} times one fit to 1e-6, {where}": [
            own for own in slow if own.is_cut or own.per_accurate_fit > MOST_ACCURATE_FITS
        ],
        f"path at most {MOST_FITS:.0f} times one default fit, {where}": [
            own for own in slow if own.is_cut or own.per_fit > MOST_FITS
        ],
        f"convergence warnings on under {MOST_UNCONVERGED:.1%} of the problems": unconverged,
        "no RuntimeWarning": of_category("RuntimeWarning"),
        "no error": [own for own in found if own.error],
    }
    print("\nTargets")
    for words, misses in targets.items():
        allowed = MOST_UNCONVERGED * len(found) if misses is unconverged else 1
        print(f"  {'MISS' if misses and len(misses) >= allowed else 'pass'}  {words}: {len(misses)} of {len(found)}")
        for own in sorted(misses, key=lambda own: -own.seconds):
            print(f"          {own.name}")
