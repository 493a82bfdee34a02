"""Interleaved repeated runs, with wall and CPU seconds, peak extra memory, and limits on CPU seconds."""

from __future__ import annotations

import gc
import signal
import tracemalloc
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from time import perf_counter, process_time, sleep

from sklearn.exceptions import ConvergenceWarning

from benchmarks.contract import Method

SETTLE_SECONDS = 0.03  # slept per check; a spinning thread uses most of it, an idle process next to nothing


@dataclass(frozen=True)
class Timing:
    """Wall-clock seconds, and CPU seconds of all threads together."""

    wall_seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Estimate:
    """Result of a `solve` that ran part of its work and extrapolated the time of the whole."""

    timing: Timing
    note: str


@dataclass(frozen=True)
class Run:
    """One run of one method."""

    method: Method
    repeat: int
    result: object
    timing: Timing
    complaint: str = ""


def quietly(solve):
    """The result of `solve`, and "not converged" if it raised scikit-learn's ConvergenceWarning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = solve()
    is_unconverged = any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    return result, "not converged" if is_unconverged else ""


def settle() -> None:
    """Wait until no thread of this process is running.

    OpenBLAS threads spin for a tenth of a second after their last call and would slow down the next method.
    """
    used = -1.0
    while process_time() - used > SETTLE_SECONDS / 10:
        used = process_time()
        sleep(SETTLE_SECONDS)


class TooSlow(Exception):
    """A run took longer than its limit."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TooSlow after so many CPU seconds, in the main thread and where the system has such a timer."""
    if not (isfinite(seconds) and hasattr(signal, "setitimer")):
        yield
        return

    def give_up(*_):
        raise TooSlow

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, max(seconds, 1e-6))  # zero would stop the timer
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def timed(solve) -> tuple[object, Timing, str]:
    wall, cpu = perf_counter(), process_time()
    result, complaint = quietly(solve)
    timing = Timing(perf_counter() - wall, process_time() - cpu)
    if isinstance(result, Estimate):
        timing = result.timing
    return result, timing, complaint


def peak_extra_bytes(solve) -> tuple[object, int]:
    """The result, and the peak memory allocated during the solve beyond what was allocated before.

    `tracemalloc` counts Python objects and NumPy arrays, but no workspaces inside BLAS.
    """
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        result, _ = quietly(solve)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return result, peak - before


def interleaved(methods: Sequence[Method], repeats: int) -> Iterator[Run]:
    """Run every method once per round, so that a slow minute of the machine affects all of them alike."""
    spent: dict[str, float] = defaultdict(float)
    for repeat in range(repeats):
        for method in methods:
            if repeat and spent[method.name] > method.patience:
                continue
            gc.collect()
            settle()
            began = perf_counter()
            result, timing, complaint = timed(method.solve)
            spent[method.name] += perf_counter() - began
            yield Run(method, repeat, result, timing, complaint)
