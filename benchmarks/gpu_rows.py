"""Samples for the GPU benchmarks, made on the device: embeddings with a decaying spectrum and overlapping classes.

A sample is `mean of its class + loudness * noise`. Both terms have the variances `spectrum`; then a random rotation and
an offset are applied. Classes come in families that share half of their mean. `loudness` is log-normal, so that some
samples are hard to classify. Some samples have a wrong label. The distance between classes is set such that the nearest
true mean is the right one for a share `accuracy` of the samples.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

SAMPLE = 20_000  # samples used to set the distance between classes
FAMILY = 20  # number of classes that share half of their mean
MISLABELLED = 0.05  # share of samples with the label of a random class of their family


class Embeddings(NamedTuple):
    """Training and held-out samples with their labels."""

    X: torch.Tensor
    y: torch.Tensor
    X_val: torch.Tensor
    y_val: torch.Tensor


def make_embeddings(
    n_rows, n_columns, n_classes, n_val, *, accuracy=0.8, decay=1.0, dtype=torch.float32, device="cuda"
):
    """Embeddings whose k-th variance is `(k + 1) ** -decay`."""
    generator = torch.Generator(device=device).manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, device=device, dtype=dtype)

    spread = torch.arange(1, n_columns + 1, device=device, dtype=dtype) ** (-decay / 2)
    rotation = torch.linalg.qr(normal(n_columns, n_columns)).Q
    families = normal(1 + (n_classes - 1) // FAMILY, n_columns)
    owner = torch.arange(n_classes, device=device) // FAMILY
    means = (families[owner] + normal(n_classes, n_columns)) / 2**0.5
    apart = _apart(means, n_classes, accuracy, normal, generator, device)
    offset = normal(n_columns) * spread.mean()

    def draw(n):
        y = torch.randint(n_classes, (n,), generator=generator, device=device)
        wrong_label = (
            y // FAMILY * FAMILY + torch.randint(FAMILY, (n,), generator=generator, device=device)
        ) % n_classes
        is_wrong = torch.rand(n, generator=generator, device=device) < MISLABELLED
        X = torch.empty(n, n_columns, device=device, dtype=dtype)
        for rows in torch.arange(n, device=device).split(1 << 17):
            X[rows] = ((apart * means[y[rows]] + _noise(normal, len(rows), n_columns)) * spread) @ rotation + offset
        return X, torch.where(is_wrong, wrong_label, y)

    return Embeddings(*draw(n_rows), *draw(n_val))


def _noise(normal, n, n_columns):
    return normal(n, n_columns) * torch.exp(0.3 * normal(n, 1))


def _apart(means, n_classes, accuracy, normal, generator, device):
    """Factor on the means such that the nearest mean is the right one for a share `accuracy` of the samples."""
    y = torch.randint(n_classes, (SAMPLE,), generator=generator, device=device)
    noise = _noise(normal, SAMPLE, means.shape[1])
    low, high = 0.0, 4.0
    for _ in range(20):
        middle = (low + high) / 2
        points = middle * means[y] + noise
        scores = points @ (middle * means).T - 0.5 * middle**2 * (means**2).sum(1)
        right = (scores.argmax(1) == y).double().mean().item()
        low, high = (middle, high) if right < accuracy else (low, middle)
    return (low + high) / 2
