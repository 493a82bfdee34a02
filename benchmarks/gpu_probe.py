"""A linear probe of the size of ImageNet on one GPU: 50 temperatures, judged on held-out rows.

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
MADE_IN = {"tf32": "half"}  # products rounded to TF32 are made in half precision, whose own rate is the stricter floor


def fitted(rows, precision, device, n_temperatures=50, coldest=1e-4):
    """A fitted probe, and what it cost."""
    with sklearn.config_context(array_api_dispatch=True), counted(device) as found:
        model = AnnealedLogisticRegression(
            schedule=Ladder(n_temperatures, coldest), selection="holdout", matmul_precision=precision, tol=TOL
        ).fit(rows.X, rows.y, X_val=rows.X_val, y_val=rows.y_val)
    return model, found


def warm_up(n_columns, n_classes, device, precisions=(None,)):
    """Load the libraries and have their kernels compiled, on a few rows."""
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
        "ms a pass, all in": 1000 * found.seconds / max(found.passes, 1),
        "share of the floor": found.floor(rates, copied) / found.seconds,
        "in the passes alone": found.floor(rates, copied) / max(found.pass_seconds, 1e-9),
        "by the rate of the products made": found.floor(strict, copied) / max(found.pass_seconds, 1e-9),
        "peak memory / X": found.peak_bytes / (rows.X.nbytes or 1),
        "held-out top-1": accuracy,
        "chosen": f"{best + 1} of {len(path)}",
        "certified excess there": float(path.certificate[best]),
        "largest gradient there": float(path.gradient_norm[best]),
        "all converged": bool(path.converged.all()),
    }


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_281_167)
    parser.add_argument("--columns", type=int, default=768)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--held-out", type=int, default=50_000)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precisions", nargs="*", default=["full", "tf32", "bf16"])
    parser.add_argument("--product-size", type=int, default=8192)
    own = parser.parse_args(arguments)
    rates = {
        name: gemm_rate(torch.float32, name, own.product_size, own.device) for name in (None, "tf32", "bf16", "half")
    }
    copied = bandwidth(own.product_size**2 * 16, own.device)
    print("products, Tflop/s:", {name or "float32": round(rate / 1e12, 1) for name, rate in rates.items()})
    print(f"memory: {copied / 1e12:.2f} TB/s", flush=True)
    precisions = [None if name == "full" else name for name in own.precisions]
    warm_up(own.columns, own.classes, own.device, precisions)
    rows = make_embeddings(own.rows, own.columns, own.classes, own.held_out, accuracy=0.85, device=own.device)
    found = []
    for precision in precisions:
        found.append(row_of(rows, precision, rates, copied, own.device))
        print(found[-1], flush=True)
    print(f"\n{own.rows} x {own.columns}, {own.classes} classes, {own.held_out} held-out rows\n")
    print(table(found))


if __name__ == "__main__":
    main()
