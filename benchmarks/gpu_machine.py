"""What the GPU can do, measured, and what a fit costs beside it."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from annealed.objectives.array_linear import ArrayProblem
from annealed.schedules import Schedule

PRODUCT_SIZE = 8192
TRIES = 10


class Ladder(Schedule):
    """So many temperatures from the hot end that the data suggest, down to a share of it."""

    def __init__(self, n_temperatures=50, coldest=1e-4):
        self.n_temperatures = n_temperatures
        self.coldest = coldest

    def temperatures(self, hot):
        start = hot()
        last = max(1, self.n_temperatures - 1)
        yield from (start * self.coldest ** (step / last) for step in range(self.n_temperatures))


def seconds_of(function, tries=TRIES, device="cuda") -> float:
    """Median seconds of a call, with the device waited for."""
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
    """Floating-point operations a second of a large product of random matrices."""
    kind = {"bf16": torch.bfloat16, "half": torch.float16}.get(precision, dtype)
    left, right = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        return 2 * size**3 / seconds_of(lambda: left @ right, device=device)
    finally:
        torch.set_float32_matmul_precision(before)


def bandwidth(n_bytes=1 << 32, device="cuda") -> float:
    """Bytes read plus bytes written a second, in a copy on the device."""
    source = torch.ones(n_bytes // 4, device=device)
    target = torch.empty_like(source)
    return 2 * n_bytes / seconds_of(lambda: target.copy_(source), device=device)


class Pass(NamedTuple):
    """The precision and the number of a pass's operations, and the bytes of X that it must read once."""

    precision: str | None
    operations: float
    bytes_read: float


@dataclass
class Counted:
    """What a fit did.

    pass_seconds : within the passes alone, as the device's own clock has it
    """

    all_passes: list[Pass] = field(default_factory=list)
    pass_seconds: float = 0.0
    seconds: float = 0.0
    peak_bytes: int = 0

    @property
    def passes(self) -> int:
        return len(self.all_passes)

    def floor(self, rates, bandwidth) -> float:
        """Seconds below which these passes, one after the other, cannot be: each has its operations at the products'
        rate, or its bytes at the memory's.
        """
        return sum(max(own.operations / rates[own.precision], own.bytes_read / bandwidth) for own in self.all_passes)

    def floor_of_sums(self, rates, bandwidth) -> float:
        """The larger one of all operations and of all bytes: lower, where passes differ."""
        operations = sum(own.operations / rates[own.precision] for own in self.all_passes)
        return max(operations, sum(own.bytes_read for own in self.all_passes) / bandwidth)


class _Clock:
    """Seconds from here to `stop`, on the device: nothing waits for it."""

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
    """Count the passes of the fits made inside, and time them."""
    found, original = Counted(), ArrayProblem._loss

    def loss(problem, parameters, temperature, fits, quick, learn, fine=False):
        design, precision = problem.design, problem.matmul_precision if quick else None
        size = design.n_rows * design.n_features
        operations = 4.0 * size * parameters.shape[0] * parameters.shape[1]
        found.all_passes.append(Pass(precision, operations, size * problem.place.row_bytes))
        clock.append(_Clock(is_cuda))
        try:
            return original(problem, parameters, temperature, fits, quick, learn, fine)
        finally:
            clock[-1].stop()

    ArrayProblem._loss = loss
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
        found.pass_seconds = sum(own.seconds() for own in clock)
        found.peak_bytes = torch.cuda.max_memory_allocated() if is_cuda else 0
        ArrayProblem._loss = original


def table(rows: list[dict]) -> str:
    """A markdown table, its columns those of the first row."""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    lines += ["| " + " | ".join(_shown(row.get(name, "")) for name in names) + " |" for row in rows]
    return "\n".join(lines)


def _shown(value):
    return f"{value:.3g}" if isinstance(value, float) else str(value)
