"""The path on one GPU and the usual alternative: `torch.optim.LBFGS`, warm-started from penalty to penalty.

    SCIPY_ARRAY_API=1 python -m benchmarks.gpu_sweep [--rows 200000 --columns 768 --classes 100 --device cuda]

Both solve the same 50 penalties on standardized features in float32; ours is also scored on held-out samples. The sweep
leaves a penalty after the first pass, also within a line search, whose objective is at most ours times 1 + `--slack`,
or after `--most` passes. Its passes use the same block-wise products as ours and a gradient by hand.
"""

from __future__ import annotations

import argparse
import time

import torch

from benchmarks.gpu_folds import standardized
from benchmarks.gpu_machine import table, wait
from benchmarks.gpu_probe import fitted, warm_up
from benchmarks.gpu_rows import make_embeddings

BLOCK = 1 << 16


class Probe:
    """Mean cross-entropy plus penalty of standardized samples, with its gradient, block by block."""

    def __init__(self, Z, y, n_classes):
        self.Z, self.y = Z, y
        self.weight = torch.zeros(n_classes, Z.shape[1], device=Z.device)
        self.bias = torch.zeros(n_classes, device=Z.device)
        self.passes = 0

    def closure(self, strength):
        """The objective; gradients are stored where torch.optim expects them."""
        value = 0.5 * strength * self.weight.double().square().sum()
        pull, push = strength * self.weight, torch.zeros_like(self.bias)
        for first in range(0, len(self.y), BLOCK):
            Z, y = self.Z[first : first + BLOCK], self.y[first : first + BLOCK]
            posterior = torch.addmm(self.bias, Z, self.weight.T).log_softmax(1)
            value -= posterior.gather(1, y[:, None]).double().sum() / len(self.y)
            residual = posterior.exp_().scatter_add_(1, y[:, None], -torch.ones(len(y), 1, device=y.device))
            pull.addmm_(residual.T, Z, alpha=1 / len(self.y))
            push.add_(residual.sum(0), alpha=1 / len(self.y))
        self.weight.grad, self.bias.grad = pull, push
        self.passes += 1
        return value


class Ended(Exception):
    """Raised when a penalty is done, with its objective."""

    def __init__(self, value):
        self.value = value


def sweep(probe, strengths, goals, slack, most):
    """Seconds and last objectives of a warm-started sweep that leaves each penalty once its goal is met."""
    values, began = [], time.perf_counter()
    for strength, goal in zip(strengths, goals, strict=True):
        optimizer = torch.optim.LBFGS(
            [probe.weight, probe.bias], max_iter=most, max_eval=most, history_size=10, line_search_fn="strong_wolfe",
            tolerance_grad=0.0, tolerance_change=0.0,
        )  # fmt: skip
        values.append(descended(probe, optimizer, strength, goal * (1 + slack), most))
    wait(probe.Z.device)
    return time.perf_counter() - began, values


def descended(probe, optimizer, strength, goal, most) -> float:
    """First objective that is at most `goal`, or that of the last pass allowed; parameters stay at that point."""
    last = probe.passes + most

    def closure():
        value = probe.closure(strength)
        if value.item() <= goal or probe.passes >= last:
            raise Ended(value.item())
        return value

    try:
        while True:
            optimizer.step(closure)
    except Ended as end:
        return end.value


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--columns", type=int, default=768)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--held-out", type=int, default=10_000)
    parser.add_argument("--slack", type=float, default=1e-5)
    parser.add_argument("--most", type=int, default=300)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(arguments)
    rows = make_embeddings(
        options.rows, options.columns, options.classes, options.held_out, accuracy=0.85, device=options.device
    )
    warm_up(options.columns, options.classes, options.device)
    model, found = fitted(rows, None, options.device)
    path = model.path_
    Z, _, _ = standardized(rows.X)
    torch.set_float32_matmul_precision("highest")
    strengths = path.temperatures.tolist()
    few = Probe(Z[: 30 * options.classes], rows.y[: 30 * options.classes], options.classes)
    sweep(few, strengths[:2], [0.0, 0.0], 0.0, most=5)  # warm-up, as for ours
    probe = Probe(Z, rows.y, options.classes)
    goals = (path.free_energy / path.temperatures).tolist()
    seconds, values = sweep(probe, strengths, goals, options.slack, options.most)
    worse = max((value - goal) / goal for value, goal in zip(values, goals, strict=True))
    ours = {
        "method": "the path",
        "seconds": found.seconds,
        "passes": found.passes,
        "worst relative excess over ours": 0.0,
    }
    peer = {"method": "torch.optim.LBFGS, warm", "seconds": seconds, "passes": probe.passes}
    peer["worst relative excess over ours"] = worse
    print(f"{options.rows} x {options.columns}, {options.classes} classes, float32, 50 penalties\n")
    print(table([ours, peer]))
    print(f"\nratio {peer['seconds'] / ours['seconds']:.1f}")


if __name__ == "__main__":
    main()
