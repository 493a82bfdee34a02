"""Measured rates of the GPU, and the cost of a fit relative to them."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from annealed.path import Schedule
from annealed.problems.device_passes import DevicePasses

PRODUCT_SIZE = 8192
TRIES = 10


class Ladder(Schedule):
    """Geometric sequence from the first temperature that the data suggest, down to `coldest` times that."""

    def __init__(self, n_temperatures=50, coldest=1e-4):
        self.n_temperatures = n_temperatures
        self.coldest = coldest

    def temperatures(self, hot):
        start = hot()
        last = max(1, self.n_temperatures - 1)
        yield from (start * self.coldest ** (step / last) for step in range(self.n_temperatures))


def seconds_of(function, tries=TRIES, device="cuda") -> float:
    """Median seconds of a call, with the device synchronized."""
    function()
    found = []
    for _ in range(tries):
        wait(device)
        began = time.perf_counter()
        function()
        wait(device)
        found.append(time.perf_counter() - began)
    return sorted(found)[len(found) // 2]


def wait(device="cuda"):
    if str(device).startswith("cuda"):
        torch.cuda.synchronize()


def gemm_rate(dtype, precision=None, size=PRODUCT_SIZE, device="cuda") -> float:
    """Floating-point operations per second of a large product of random matrices."""
    kind = torch.float16 if precision == "half" else dtype
    left, right = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        return 2 * size**3 / seconds_of(lambda: left @ right, device=device)
    finally:
        torch.set_float32_matmul_precision(before)


def bandwidth(n_bytes=1 << 32, device="cuda") -> float:
    """Bytes read plus bytes written per second in a copy on the device."""
    source = torch.ones(n_bytes // 4, device=device)
    target = torch.empty_like(source)
    return 2 * n_bytes / seconds_of(lambda: target.copy_(source), device=device)


class Pass(NamedTuple):
    """Precision and number of operations of a pass over X, and the bytes of X that it reads at least."""

    precision: str | None
    operations: float
    bytes_read: float


@dataclass
class Counted:
    """Passes, times and memory of a fit.

    pass_seconds : time spent within passes, by the clock of the device
    """

    all_passes: list[Pass] = field(default_factory=list)
    pass_seconds: float = 0.0
    seconds: float = 0.0
    peak_bytes: int = 0

    @property
    def passes(self) -> int:
        return len(self.all_passes)

    def floor(self, rates, bandwidth) -> float:
        """Lower bound in seconds on these passes in sequence.

        Each takes at least its operations over the rate of products, or its bytes over the bandwidth of the memory.
        """
        return sum(max(one.operations / rates[one.precision], one.bytes_read / bandwidth) for one in self.all_passes)

    def floor_of_sums(self, rates, bandwidth) -> float:
        """Weaker lower bound: the larger of the time of all operations and that of all bytes."""
        operations = sum(one.operations / rates[one.precision] for one in self.all_passes)
        return max(operations, sum(one.bytes_read for one in self.all_passes) / bandwidth)


class _Clock:
    """Seconds between construction and `stop` by the clock of the device, without synchronizing."""

    def __init__(self, is_cuda):
        self.is_cuda = is_cuda
        self.first = self._now()

    def _now(self):
        if not self.is_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def stop(self):
        self.last = self._now()

    def seconds(self) -> float:
        return self.first.elapsed_time(self.last) / 1000 if self.is_cuda else self.last - self.first


@contextmanager
def counted(device="cuda"):
    """Count and time the passes of all fits made in the context."""
    found, original = Counted(), DevicePasses.sums

    def sums(passes, coef, intercept, fits, quick=False, is_split=False):
        design, precision = passes.design, passes.design.matmul_precision if quick else None
        size = design.n_rows * design.n_features
        operations = 4.0 * size * coef.shape[0] * coef.shape[1]
        found.all_passes.append(Pass(precision, operations, size * passes.place.row_bytes))
        clock.append(_Clock(is_cuda))
        try:
            return original(passes, coef, intercept, fits, quick, is_split)
        finally:
            clock[-1].stop()

    DevicePasses.sums = sums
    is_cuda, clock = str(device).startswith("cuda"), []
    if is_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    wait(device)
    began = time.perf_counter()
    try:
        yield found
    finally:
        wait(device)
        found.seconds = time.perf_counter() - began
        found.pass_seconds = sum(timer.seconds() for timer in clock)
        found.peak_bytes = torch.cuda.max_memory_allocated() if is_cuda else 0
        DevicePasses.sums = original


def table(rows: list[dict]) -> str:
    """A Markdown table with the columns of the first row."""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    lines += ["| " + " | ".join(_shown(row.get(name, "")) for name in names) + " |" for row in rows]
    return "\n".join(lines)


def _shown(value):
    return f"{value:.3g}" if isinstance(value, float) else str(value)
