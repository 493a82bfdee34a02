"""Measured rates of this machine: a large matrix product and copying memory."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep

import numpy as np

PRODUCT_SIZE = 1536
COPIED_BYTES = 1 << 28
TRIES = 5
PROCESSOR_TIMES, IDLE = Path("/proc/stat"), [3, 4]  # fields "idle" and "iowait"
WATCHED_SECONDS = 1.0
BUSY = 0.5  # cores; above this load, threads that wait for each other slow small products of peers tenfold or more


@dataclass(frozen=True)
class Machine:
    """Number of threads, best float64 rates with them, and the number of cores that other processes kept busy."""

    threads: int
    gemm_gflops: float
    bandwidth_gbs: float
    load: float = 0.0

    def __str__(self):
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{threads}, matrix products at {self.gemm_gflops:.0f} GFlop/s, memory at {self.bandwidth_gbs:.0f} GB/s"

    @property
    def is_busy(self) -> bool:
        return self.load > BUSY


def measure_machine(product_size=PRODUCT_SIZE, copied_bytes=COPIED_BYTES) -> Machine:
    threads, load = allowed_threads(), running_elsewhere()
    return Machine(threads, gemm_gflops(product_size), bandwidth_gbs(threads, copied_bytes), load)


def running_elsewhere() -> float:
    """Number of cores that other processes keep busy while this one sleeps; zero if the system does not report it."""
    if not PROCESSOR_TIMES.exists():
        return 0.0
    before = _processor_times()
    sleep(WATCHED_SECONDS)
    spent = _processor_times() - before
    return float((spent.sum() - spent[IDLE].sum()) / max(spent.sum(), 1) * (os.cpu_count() or 1))


def _processor_times():
    """Times of all cores together, by kind of activity."""
    first = PROCESSOR_TIMES.read_text().splitlines()[0]
    return np.array(first.split()[1:], dtype=float)


def allowed_threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gemm_gflops(size: int) -> float:
    left = np.random.RandomState(0).standard_normal((size, size))
    out = np.empty_like(left)
    return 2 * size**3 / 1e9 / _best_seconds(lambda: np.matmul(left, left, out=out))


def bandwidth_gbs(threads: int, n_bytes: int) -> float:
    """Bytes read plus bytes written per second while `threads` threads copy."""
    source = np.ones(n_bytes // 8)
    target = np.zeros_like(source)
    parts = list(zip(np.array_split(target, threads), np.array_split(source, threads), strict=True))
    with ThreadPoolExecutor(threads) as pool:
        seconds = _best_seconds(lambda: list(pool.map(lambda part: np.copyto(*part), parts)))
    return 2 * source.nbytes / 1e9 / seconds


def _best_seconds(work) -> float:
    """Shortest of TRIES runs, after one warm-up."""
    seconds = []
    for _ in range(TRIES + 1):
        began = perf_counter()
        work()
        seconds.append(perf_counter() - began)
    return min(seconds[1:])
