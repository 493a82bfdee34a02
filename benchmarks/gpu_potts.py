"""One sweep of PottsDA over all samples on one GPU, and the part of it that passes over the samples.

SCIPY_ARRAY_API=1 python -m benchmarks.gpu_potts [--rows 1000000 --columns 64 --prototypes 256 --device cuda]
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from annealed.potts.on_device import ArrayLabelledRows
from annealed.potts.state import MetricPrior, PottsState
from annealed.potts.sweep import Multilinear
from annealed.rows.threads import threads_over_blocks
from benchmarks.gpu_machine import bandwidth, gemm_rate, seconds_of, table
from benchmarks.gpu_rows import make_embeddings

TRIES = 100  # timed sweeps; a fit makes hundreds


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=64)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--prototypes", type=int, default=256)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--product-size", type=int, default=8192)
    options = parser.parse_args(arguments)
    made = make_embeddings(options.rows, options.columns, options.classes, 1, decay=0.3, device=options.device)
    X = made.X.sub_(made.X.mean(0)).div_(made.X.std(0))
    labels = made.y.cpu().numpy()
    rows = ArrayLabelledRows(
        X, labels, torch.ones(options.rows, dtype=torch.float64, device=options.device), options.classes
    )
    picked = np.random.RandomState(0).choice(options.rows, options.prototypes, replace=False)
    state = PottsState(
        X[torch.as_tensor(picked, device=options.device)].double().cpu().numpy(),
        np.eye(options.classes)[labels[picked]],
        np.eye(options.columns),
        0.0,
        rows.second_moment,
    )
    prior = MetricPrior(0.01, 1.0)
    sweeper = Multilinear(rows, 8.0)
    with threads_over_blocks():  # as the estimator does
        state = sweeper.sweep(state, 1.0, prior).state
        seconds = seconds_of(lambda: sweeper.sweep(state, 0.5, prior), TRIES, options.device)
        in_pass = seconds_of(lambda: rows.sums(state, 2.0, 8.0), TRIES, options.device)
    operations = 4.0 * options.rows * options.prototypes * options.columns
    single, half = (gemm_rate(torch.float32, name, options.product_size, options.device) for name in (None, "half"))
    copied = bandwidth(options.product_size**2 * 16, options.device)
    floor = max(operations / single, 4.0 * options.rows * options.columns / copied)
    print(f"products, Tflop/s: float32 {single / 1e12:.1f}, half precision {half / 1e12:.0f}")
    found = {
        "one sweep": f"{options.rows} x {options.columns}, {options.prototypes} prototypes",
        "ms": 1000 * seconds,
        "share of the floor": floor / seconds,
        "ms of the pass": 1000 * in_pass,
        "within the pass": floor / in_pass,
        "within the pass, at the rate of the products made": 3 * operations / half / in_pass,
    }
    print(table([found]))


if __name__ == "__main__":
    main()
