"""A linear probe of the size of ImageNet on one GPU: 50 temperatures, scored on held-out samples.

SCIPY_ARRAY_API=1 python -m benchmarks.gpu_probe [--rows 1281167 --columns 768 --classes 1000 --device cuda]
"""

from __future__ import annotations

import argparse

import sklearn
import torch

from annealed import AnnealedLogisticRegression
from benchmarks.gpu_machine import Ladder, bandwidth, counted, gemm_rate, table
from benchmarks.gpu_rows import make_embeddings

TOL = 1e-4
MADE_IN = {"tf32": "half"}  # "tf32" products are computed in half precision, so that its rate gives the lower bound


def fitted(rows, precision, device, n_temperatures=50, coldest=1e-4):
    """A fitted probe and its cost."""
    with sklearn.config_context(array_api_dispatch=True), counted(device) as found:
        model = AnnealedLogisticRegression(
            schedule=Ladder(n_temperatures, coldest), selection="holdout", matmul_precision=precision, tol=TOL
        ).fit(rows.X, rows.y, X_val=rows.X_val, y_val=rows.y_val)
    return model, found


def warm_up(n_columns, n_classes, device, precisions=(None,)):
    """Load libraries and compile kernels on a few samples."""
    small = make_embeddings(max(4096, 30 * n_classes), n_columns, n_classes, max(1000, 5 * n_classes), device=device)
    for precision in precisions:
        fitted(small, precision, device, n_temperatures=3)


def row_of(rows, precision, rates, copied, device, **options):
    model, found = fitted(rows, precision, device, **options)
    with sklearn.config_context(array_api_dispatch=True):
        accuracy = (model.predict(rows.X_val) == rows.y_val).double().mean().item()
    path, best = model.path_, model.path_.best_index
    strict = {name: rates[MADE_IN.get(name, name)] for name in rates}
    return {
        "products": precision or str(rows.X.dtype).removeprefix("torch."),
        "seconds": found.seconds,
        "temperatures": len(path),
        "passes": found.passes,
        "ms per pass, total time": 1000 * found.seconds / max(found.passes, 1),
        "share of the floor": found.floor(rates, copied) / found.seconds,
        "within the passes": found.floor(rates, copied) / max(found.pass_seconds, 1e-9),
        "within the passes, at the rate of the products made": found.floor(strict, copied)
        / max(found.pass_seconds, 1e-9),
        "peak memory / X": found.peak_bytes / (rows.X.nbytes or 1),
        "held-out top-1": accuracy,
        "chosen": f"{best + 1} of {len(path)}",
        "certified excess at the chosen": float(path.certificate[best]),
        "largest gradient at the chosen": float(path.gradient_norm[best]),
        "all converged": bool(path.converged.all()),
    }


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_281_167)
    parser.add_argument("--columns", type=int, default=768)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--held-out", type=int, default=50_000)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precisions", nargs="*", default=["full", "tf32"])
    parser.add_argument("--product-size", type=int, default=8192)
    options = parser.parse_args(arguments)
    rates = {
        name: gemm_rate(torch.float32, name, options.product_size, options.device) for name in (None, "tf32", "half")
    }
    copied = bandwidth(options.product_size**2 * 16, options.device)
    print("products, Tflop/s:", {name or "float32": round(rate / 1e12, 1) for name, rate in rates.items()})
    print(f"memory: {copied / 1e12:.2f} TB/s", flush=True)
    precisions = [None if name == "full" else name for name in options.precisions]
    warm_up(options.columns, options.classes, options.device, precisions)
    rows = make_embeddings(
        options.rows, options.columns, options.classes, options.held_out, accuracy=0.85, device=options.device
    )
    found = []
    for precision in precisions:
        found.append(row_of(rows, precision, rates, copied, options.device))
        print(found[-1], flush=True)
    print(f"\n{options.rows} x {options.columns}, {options.classes} classes, {options.held_out} held-out samples\n")
    print(table(found))


if __name__ == "__main__":
    main()
