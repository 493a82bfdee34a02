"""A cross-validated path and scikit-learn's array-API LogisticRegression, both on one GPU.

    SCIPY_ARRAY_API=1 python -m benchmarks.gpu_folds [--rows 1000000 --columns 1024 --classes 10 --device cuda]

The peer fits once, at the penalty that our path chose, on standardized features, from zero. It is run at two
tolerances: the default, and a lower one at which its objective is about as near the optimum as ours.
"""

from __future__ import annotations

import argparse
import time
import warnings

import sklearn
import torch
from sklearn.linear_model import LogisticRegression

from annealed import AnnealedLogisticRegression
from benchmarks.gpu_machine import Ladder, bandwidth, counted, gemm_rate, table, wait
from benchmarks.gpu_rows import make_embeddings

PEER_TOLERANCES = (1e-4, 1e-6)


def objective(Z, y, coef, intercept, strength):
    """Mean loss plus penalty in float64."""
    total = 0.0
    for rows in torch.arange(len(y), device=Z.device).split(1 << 17):
        logits = Z[rows].double() @ coef.double().T + intercept.double()
        total += torch.nn.functional.cross_entropy(logits, y[rows], reduction="sum").item()
    coef = coef.double() - coef.double().mean(0)
    return total / len(y) + 0.5 * strength * (coef**2).sum().item()


def standardized(X):
    """A standardized copy of X, with the mean and scale used; variances are summed over blocks."""
    mean = X.mean(0)
    scale = torch.stack([(part - mean).square().sum(0) for part in X.split(1 << 17)]).sum(0).div(len(X)).sqrt()
    return (X - mean).div_(scale), mean, scale


def peer(Z, y, strength, tol):
    model = LogisticRegression(C=1 / (strength * len(y)), solver="lbfgs", tol=tol, max_iter=2000)
    wait(Z.device)
    began = time.perf_counter()
    with sklearn.config_context(array_api_dispatch=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(Z, y)
    wait(Z.device)
    return model, time.perf_counter() - began


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=1024)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--product-size", type=int, default=8192)
    parser.add_argument("--no-peer", action="store_true")
    options = parser.parse_args(arguments)
    dtype = torch.float64
    rates = {None: gemm_rate(dtype, None, options.product_size, options.device)}
    copied = bandwidth(options.product_size**2 * 16, options.device)
    print(f"float64 products: {rates[None] / 1e12:.1f} Tflop/s, memory: {copied / 1e12:.2f} TB/s", flush=True)
    rows = make_embeddings(
        options.rows, options.columns, options.classes, 1000, accuracy=0.85, dtype=dtype, device=options.device
    )
    with sklearn.config_context(array_api_dispatch=True):
        AnnealedLogisticRegression(schedule=Ladder(3)).fit(rows.X[:4096], rows.y[:4096])  # load libraries, warm up
        with counted(options.device) as found:
            model = AnnealedLogisticRegression(schedule=Ladder(50)).fit(rows.X, rows.y)
    path = model.path_
    ours = {
        "method": "the path: 50 temperatures, 5 folds and refit",
        "seconds": found.seconds,
        "passes or iterations": found.passes,
        "share of the floor": found.floor(rates, copied) / found.seconds,
        "within the passes": found.floor(rates, copied) / max(found.pass_seconds, 1e-9),
        "within the passes, floor of the sums": found.floor_of_sums(rates, copied) / max(found.pass_seconds, 1e-9),
        "peak memory / X": found.peak_bytes / (rows.X.nbytes or 1),
        "relative excess over the best objective": float(path.certificate[path.best_index]),
    }
    print(ours, f"chosen {path.best_index + 1} of {len(path)}, converged {bool(path.converged.all())}", flush=True)
    found_rows, values = [ours], []
    if not options.no_peer:
        Z, mean, scale = standardized(rows.X)
        arrays, _ = path.at(model.temperature_)
        coef, intercept = arrays["coef"] * scale, arrays["intercept"] + arrays["coef"] @ mean
        values.append(objective(Z, rows.y, coef, intercept, model.temperature_))
        peer(Z[:4096], rows.y[:4096], model.temperature_, PEER_TOLERANCES[0])  # warm-up, as for ours
        for tol in PEER_TOLERANCES:
            fit, seconds = peer(Z, rows.y, model.temperature_, tol)
            values.append(objective(Z, rows.y, fit.coef_, fit.intercept_, model.temperature_))
            name = f"scikit-learn {sklearn.__version__}, one fit, tol {tol:g}"
            found_rows.append({"method": name, "seconds": seconds, "passes or iterations": int(fit.n_iter_[0])})
            print(found_rows[-1], values, flush=True)
        best = min(values)
        for row, value in zip(found_rows, values, strict=True):
            row["relative excess over the best objective"] = (value - best) / best
    print(f"\n{options.rows} x {options.columns}, {options.classes} classes, float64\n")
    print(table(found_rows))


if __name__ == "__main__":
    main()
