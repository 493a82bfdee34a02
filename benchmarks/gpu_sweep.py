"""The path on one GPU beside what is done today: `torch.optim.LBFGS`, warm-started from penalty to penalty.

    SCIPY_ARRAY_API=1 python -m benchmarks.gpu_sweep [--rows 200000 --columns 768 --classes 100 --device cuda]

Both solve the same 50 penalties of standardized columns in float32; ours is also judged on held-out rows. The sweep
leaves each penalty by the first pass, also within a line search, whose objective is as low as ours there, up to
`--slack`, or after `--most` passes; these are as fast as the same block-wise products allow.
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
    """Mean cross-entropy and penalty of standardized rows, with its gradient, block by block."""

    def __init__(self, Z, y, n_classes):
        self.Z, self.y = Z, y
        self.weight = torch.zeros(n_classes, Z.shape[1], device=Z.device)
        self.bias = torch.zeros(n_classes, device=Z.device)
        self.passes = 0

    def closure(self, strength):
        """Value, with gradients left where torch.optim looks for them."""
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
    """A penalty is done, at this value."""

    def __init__(self, value):
        self.value = value


def sweep(probe, strengths, goals, slack, most):
    """Seconds and last values of a warm-started sweep that leaves each penalty by the first pass to meet its goal."""
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
    """The first value seen that is at most `goal`, or that of the last pass allowed; parameters stay where it was."""
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
    own = parser.parse_args(arguments)
    rows = make_embeddings(own.rows, own.columns, own.classes, own.held_out, accuracy=0.85, device=own.device)
    warm_up(own.columns, own.classes, own.device)
    model, found = fitted(rows, None, own.device)
    path = model.path_
    Z, _, _ = standardized(rows.X)
    torch.set_float32_matmul_precision("highest")
    strengths = path.temperatures.tolist()
    few = Probe(Z[: 30 * own.classes], rows.y[: 30 * own.classes], own.classes)
    sweep(few, strengths[:2], [0.0, 0.0], 0.0, most=5)  # its libraries are loaded and warm too
    probe = Probe(Z, rows.y, own.classes)
    goals = (path.free_energy / path.temperatures).tolist()
    seconds, values = sweep(probe, strengths, goals, own.slack, own.most)
    worse = max((value - goal) / goal for value, goal in zip(values, goals, strict=True))
    ours = {"method": "the path", "seconds": found.seconds, "passes": found.passes, "worst objective above ours": 0.0}
    peer = {"method": "torch.optim.LBFGS, warm", "seconds": seconds, "passes": probe.passes}
    peer["worst objective above ours"] = worse
    print(f"{own.rows} x {own.columns}, {own.classes} classes, float32, 50 penalties\n")
    print(table([ours, peer]))
    print(f"\nratio {peer['seconds'] / ours['seconds']:.1f}")


if __name__ == "__main__":
    main()
