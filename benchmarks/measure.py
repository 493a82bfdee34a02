"""Interleaved repeated runs; wall and CPU seconds; peak extra memory."""

from __future__ import annotations

import gc
import tracemalloc
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter, process_time, sleep

from sklearn.exceptions import ConvergenceWarning

from benchmarks.contract import Method

SETTLE_SECONDS = 0.03  # of sleep: a spinning thread uses most of it, an idle process next to nothing


@dataclass(frozen=True)
class Timing:
    """Seconds on the clock, and seconds of all threads together."""

    wall_seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Estimate:
    """The result of a `solve` that ran a part of its work and says what the whole would take."""

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
    """Solve, and what scikit-learn's ConvergenceWarning complained of, in a few words."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = solve()
    is_unconverged = any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    return result, "not converged" if is_unconverged else ""


def settle() -> None:
    """Wait until no thread of this process works. Those of OpenBLAS spin for a tenth of a second after their last call,
    on cores that whoever comes next needs.
    """
    used = -1.0
    while process_time() - used > SETTLE_SECONDS / 10:
        used = process_time()
        sleep(SETTLE_SECONDS)


def timed(solve) -> tuple[object, Timing, str]:
    wall, cpu = perf_counter(), process_time()
    result, complaint = quietly(solve)
    timing = Timing(perf_counter() - wall, process_time() - cpu)
    if isinstance(result, Estimate):
        timing = result.timing
    return result, timing, complaint


def peak_extra_bytes(solve) -> tuple[object, int]:
    """The result, and the most memory that solving held beyond what was there before.

    Of Python and NumPy arrays, as `tracemalloc` counts them: workspaces inside BLAS are not seen.
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
    """Every method in turn, round after round, so that a slow minute of the machine is shared by all."""
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
