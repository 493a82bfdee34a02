"""One sweep of PottsDA over all rows on one GPU.

SCIPY_ARRAY_API=1 python -m benchmarks.gpu_potts [--rows 1000000 --columns 64 --prototypes 256 --device cuda]
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from annealed.objectives.array_potts import ArrayLabelledRows
from annealed.objectives.potts import MetricPrior, Multilinear, PottsState
from benchmarks.gpu_machine import bandwidth, gemm_rate, seconds_of, table
from benchmarks.gpu_rows import make_embeddings


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=64)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--prototypes", type=int, default=256)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--product-size", type=int, default=8192)
    own = parser.parse_args(arguments)
    made = make_embeddings(own.rows, own.columns, own.classes, 1, decay=0.3, device=own.device)
    X = made.X.sub_(made.X.mean(0)).div_(made.X.std(0))
    labels = made.y.cpu().numpy()
    rows = ArrayLabelledRows(X, labels, torch.ones(own.rows, dtype=torch.float64, device=own.device), own.classes)
    picked = np.random.RandomState(0).choice(own.rows, own.prototypes, replace=False)
    state = PottsState(
        X[torch.as_tensor(picked, device=own.device)].double().cpu().numpy(),
        np.eye(own.classes)[labels[picked]],
        np.eye(own.columns),
        0.0,
        rows.second_moment,
    )
    prior = MetricPrior(0.01, np.ones(own.columns))
    sweeper = Multilinear(rows, 8.0)
    state = sweeper.sweep(state, 1.0, prior).state
    seconds = seconds_of(lambda: sweeper.sweep(state, 0.5, prior), device=own.device)
    operations = 4.0 * own.rows * own.prototypes * (own.columns + own.classes)
    floor = max(
        operations / gemm_rate(torch.float32, None, own.product_size, own.device),
        4.0 * own.rows * own.prototypes * 2 / bandwidth(own.product_size**2 * 16, own.device),
    )
    name = f"{own.rows} x {own.columns}, {own.prototypes} prototypes"
    print(table([{"one sweep": name, "ms": 1000 * seconds, "share of the floor": floor / seconds}]))


if __name__ == "__main__":
    main()
