"""Mutated model files: each must be refused with the library's one error, or be equal to the original, or be valid.

A child process takes the files one after the other, in at most 1 GB of memory and 10 s each, while `fuzz.watch` looks
for code that runs. Files that are accepted predict a table, and some of them write a report.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import pandas

from annealed.app import fit_table, label_table, load_model, save_model, write_report
from annealed.app.answers import path_table
from annealed.app.model_files import KINDS
from annealed.app.predictions import json_of, write_predictions
from annealed.app.tables import TableModel
from annealed.errors import InputError
from fuzz.lines import lines_of
from fuzz.mutations import MUTATIONS
from fuzz.watch import watching

NUMBER = 10_000
MEMORY = 1 << 30  # bytes
SECONDS = 10.0  # of CPU time for one file
PATIENCE = 900.0  # seconds after which a child that prints nothing is ended
REPORT_EVERY = 10  # files: of these, those that are accepted write a report
FILES_OF_A_CHILD = 1000
REFUSED = "is not a model file of this version of annealed, or it is damaged. Fit the model again."
GOOD = ("refused", "refused at prediction", "equal", "valid")


# --- the models -------------------------------------------------------------------------------------------


class Base(NamedTuple):
    """An unharmed file, the table of its model, and its predictions."""

    data: bytes
    frame: Any
    probabilities: np.ndarray


def make_bases(folder: Path) -> None:
    """Small models of all kinds, with missing cells, dates and rare categories."""
    for index, name in enumerate(KINDS):
        frame = _frame(index, n_classes=2 + index % 2)
        save_model(fit_table(label_table(frame, "kind"), name), folder / f"{name}.model")
        frame.to_pickle(folder / f"{name}.frame")


def _frame(seed, n_classes):
    rng = np.random.default_rng(seed)
    kinds = np.arange(90) % n_classes
    frame = pandas.DataFrame(rng.normal(size=(90, 3)) + kinds[:, None], columns=["width", "height", "depth"])
    frame.loc[::7, "height"] = np.nan
    frame["colour"] = np.array(["red", "green", "blue"])[(kinds + (rng.random(90) < 0.3)) % 3]
    frame["town"] = [f"town {number}" for number in rng.permutation(90) % 45]
    frame["day"] = [f"2024-05-{day:02d}" for day in rng.integers(1, 29, 90)]
    frame["kind"] = np.array(["ash", "birch", "cedar"])[kinds] if seed % 3 else kinds
    return frame


def _read_bases(folder: Path) -> list[Base]:
    bases = []
    for name in KINDS:
        frame = pandas.read_pickle(folder / f"{name}.frame")
        path = folder / f"{name}.model"
        bases.append(Base(path.read_bytes(), frame, _probabilities(load_model(path).predict(frame))))
    return bases


def _probabilities(predictions):
    return predictions.iloc[:, 1:].to_numpy(dtype=float)


# --- one file ---------------------------------------------------------------------------------------------


def mutated(bases: list[Base], seed: int, number: int) -> tuple[str, Base, bytes]:
    """Name of the mutation, the original, and the file of a trial; some files are changed twice."""
    rng = np.random.default_rng([seed, number])
    base, other = (bases[index] for index in rng.integers(len(bases), size=2))
    first, second = rng.choice(np.array(MUTATIONS, object), 2)
    data = first(rng, base.data, other.data)
    if rng.random() < 0.25:
        try:
            data = second(rng, data, other.data)
        except Exception:  # the first one left no file with parts to change
            pass
    return first.__name__, base, data


def judge(path: Path, base: Base, reports: bool) -> str:
    """One of GOOD, or what is wrong."""
    try:
        model = load_model(path)
    except InputError as error:
        if isinstance(error.__cause__, MemoryError):
            return "needed more memory than it may"
        return "refused" if str(error).endswith(REFUSED) and "\n" not in str(error) else f"refused with: {error}"
    try:
        outcome = _use(model, base, path.parent, reports)
    except InputError as error:
        return "refused at prediction" if "\n" not in str(error) else f"refused at prediction with: {error}"
    return outcome


def _use(model: TableModel, base: Base, folder: Path, reports: bool) -> str:
    predictions = model.predict(base.frame)
    probabilities = _probabilities(predictions)
    is_valid = np.isfinite(probabilities).all() and (probabilities >= 0).all()
    if not is_valid or np.abs(probabilities.sum(axis=1) - 1).max() > 1e-6:
        return "probabilities that are none"
    if reports:
        write_predictions(predictions, folder / "predictions.csv")
        record = model.path
        path_table(record)
        json_of(record.to_frame())
        write_report(model, base.frame, folder / "report.html")
    return "equal" if np.array_equal(probabilities, base.probabilities) else "valid"


# --- the child --------------------------------------------------------------------------------------------


def work(folder: Path, seed: int, first: int, end: int) -> None:
    """Print a line for each file: its number, its mutation, and the outcome."""
    bases = _read_bases(folder)
    warnings.simplefilter("ignore")
    path = folder / "mutated.model"
    for base in bases:  # imports what is imported lazily
        path.write_bytes(base.data)
        assert judge(path, base, True) in GOOD
    for number in range(first, end):
        name, base, data = mutated(bases, seed, number)
        path.write_bytes(data)
        began = process_time()
        with limited_memory(), watching(folder) as events:
            try:
                outcome = judge(path, base, number % REPORT_EVERY == 0)
            except Exception:
                outcome = traceback.format_exc(limit=-4)
        if events:
            outcome = f"ran {sorted(set(events))[:5]}"
        elif process_time() - began > SECONDS:
            outcome = f"took {process_time() - began:.0f} s"
        print(json.dumps([number, name, outcome]), flush=True)


@contextmanager
def limited_memory():
    """Let the process use at most MEMORY; only Linux says how much of its address space is in use."""
    status = Path("/proc/self/status")
    if not status.exists():
        yield
        return
    import resource

    used = dict(re.findall(r"(VmData|VmRSS):\s+(\d+)", status.read_text()))  # in kB
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = 1024 * (int(used["VmData"]) - int(used["VmRSS"])) + MEMORY
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)


# --- all files --------------------------------------------------------------------------------------------


def main(number: int, seed: int) -> int:
    """Try so many files, print the counts, and return 1 if any of them failed."""
    with tempfile.TemporaryDirectory() as folder:
        make_bases(Path(folder))
        results = list(run(Path(folder), seed, number))
    counts = Counter(outcome for _, _, outcome in results if outcome in GOOD)
    failures = [result for result in results if result[2] not in GOOD]
    for mutation in MUTATIONS:
        of_mutation = Counter(outcome for _, name, outcome in results if name == mutation.__name__)
        shown = ", ".join(f"{of_mutation[outcome]} {outcome}" for outcome in GOOD if of_mutation[outcome])
        print(f"  {mutation.__name__:28} {shown}")
    for trial, name, outcome in failures[:20]:
        print(f"FAILED: file {trial} of seed {seed}, {name}: {outcome}")
    shown = ", ".join(f"{counts[outcome]} {outcome}" for outcome in GOOD)
    print(f"{len(results)} mutated model files: {shown}, {len(failures)} failed")
    return 1 if failures else 0


def run(folder: Path, seed: int, number: int):
    """The results of all files; a child that dies or hangs fails its file, and another one goes on."""
    first = 0
    while first < number:
        end = min(first + FILES_OF_A_CHILD, number)
        arguments = ["--folder", str(folder), "--seed", str(seed), "--first", str(first), "--end", str(end)]
        command = [sys.executable, "-m", "fuzz.models", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]) as child:
            for result in lines_of(child, PATIENCE):
                first = result[0] + 1
                yield result
            child.kill()
        print(f"{first} of {number} files", file=sys.stderr, flush=True)
        if first < end:
            yield [first, "unknown", f"the child ended with {child.returncode}"]
            first += 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path)
    for option in ("--seed", "--first", "--end"):
        parser.add_argument(option, type=int)
    options = parser.parse_args()
    work(options.folder, options.seed, options.first, options.end)
