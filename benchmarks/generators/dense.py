"""Dense problems: Gaussian, clustered, ill-conditioned, heavy-tailed, counts, wide, images, curves, and others."""

from __future__ import annotations

from math import sqrt

import numpy as np
from scipy import ndimage
from sklearn.preprocessing import StandardScaler

from benchmarks.generators.base import between, class_shares, drawn_labels, kind, labels_of
from benchmarks.generators.sparse import codes_of


@kind("gaussian")
def gaussian(draw, size):
    n_classes = size.classes()
    n_samples, n_features = size.shape(n_classes)
    X = draw.normal(size=(n_samples, n_features))
    n_informative = int(between(draw, 1, n_features))
    y, words = labels_of(draw, X[:, :n_informative] @ draw.normal(size=(n_informative, n_classes)))
    return X, y, f"{n_informative} informative, {words}"


@kind("clusters")
def clusters(draw, size):
    """Classes are clouds of their own covariance, from overlapping to far apart."""
    n_classes = size.classes()
    n_samples, n_features = size.shape(n_classes)
    shares, words = class_shares(draw, n_classes)
    y = drawn_labels(draw, n_samples, shares)
    distance = between(draw, 0.3, 30.0)
    centers = distance * draw.normal(size=(n_classes, n_features)) / sqrt(n_features)
    spreads = draw.lognormal(0, 0.5, (n_classes, n_features))
    X = centers[y] + spreads[y] * draw.normal(size=(n_samples, n_features))
    return X, y, f"distance {distance:.2g}, {words}"


@kind("ill-conditioned")
def ill_conditioned(draw, size):
    n_classes = size.classes()
    n_samples, n_features = size.shape(n_classes, (5, 300))
    decades = draw.uniform(1, 7)
    spread = 10 ** np.linspace(0, -decades, n_features)
    Z = draw.normal(size=(n_samples, n_features))
    y, words = labels_of(draw, Z @ draw.normal(size=(n_features, n_classes)))
    X = (Z * spread) @ np.linalg.qr(draw.normal(size=(n_features, n_features)))[0]
    return X, y, f"{decades:.1f} decades, {words}"


@kind("heavy tails")
def heavy_tails(draw, size):
    n_classes = size.classes()
    n_samples, n_features = size.shape(n_classes, (2, 100))
    shape = str(draw.choice(["Student", "log-normal", "outliers"]))
    Z = draw.normal(size=(n_samples, n_features))
    if shape == "Student":
        freedom = draw.uniform(1.0, 3.0)
        X, shape = draw.standard_t(freedom, size=Z.shape), f"Student {freedom:.1f}"
    elif shape == "log-normal":
        width = draw.uniform(0.5, 3.0)
        X, shape = np.exp(width * Z), f"log-normal {width:.1f}"
    else:
        X = np.where(draw.random((n_samples, 1)) < 0.01, 10 ** draw.uniform(1, 4), 1.0) * Z
    scores = (Z if draw.random() < 0.5 else np.arcsinh(X)) @ draw.normal(size=(n_features, n_classes))
    y, words = labels_of(draw, scores)
    return X, y, f"{shape}, {words}"


@kind("collinear")
def collinear(draw, size):
    """Few factors behind many columns, copies, constants, sentinels, and columns that hardly vary."""
    n_classes = size.classes()
    n_samples, n_features = size.shape(n_classes, (6, 200))
    rank = int(between(draw, 1, n_features / 2))
    Z = draw.normal(size=(n_samples, rank))
    X = Z @ draw.normal(size=(rank, n_features))
    noise = 10 ** draw.uniform(-9, 0)
    X += noise * draw.normal(size=X.shape)
    y, words = labels_of(draw, Z @ draw.normal(size=(rank, n_classes)))
    X[:, 0] = draw.choice([0.0, 1e6])
    X[:, 1] = X[:, 2]
    X[draw.integers(n_samples, size=3), 3] = -999.0
    X[:, 4] = 1.0 + (draw.random(n_samples) < 5 / n_samples)
    return X, y, f"rank {rank}, noise {noise:.0e}, {words}"


@kind("mixed units")
def mixed_units(draw, size):
    """Numbers in all units beside one-hot columns, dense."""
    n_classes = size.classes(10)
    n_samples, n_features = size.shape(n_classes, (8, 120))
    n_numbers = max(2, n_features // 3)
    numbers = draw.normal(size=(n_samples, n_numbers))
    codes = codes_of(draw, n_samples, n_features - n_numbers)
    scores = numbers @ draw.normal(size=(n_numbers, n_classes)) + codes @ draw.normal(size=(codes.shape[1], n_classes))
    y, words = labels_of(draw, scores)
    units = 10 ** draw.uniform(-6, 6, n_numbers)
    X = np.hstack([(numbers + draw.normal(size=n_numbers) * 10) * units, codes.toarray()])
    return X, y, f"{n_numbers} numbers, {words}"


@kind("squares")
def squares(draw, size):
    """Columns beside their squares, and sometimes their products."""
    n_classes = size.classes(12)
    n_samples, n_columns = size.shape(n_classes, (4, 120))
    has_products = draw.random() < 0.3
    n_features = max(2, int(sqrt(2 * n_columns)) - 1 if has_products else n_columns // 2)
    tail = draw.uniform(0.0, 1.2)
    Z = draw.normal(size=(n_samples, n_features))
    X = np.sign(Z) * np.expm1(tail * np.abs(Z)) / tail if tail > 0.05 else Z
    X = X + draw.uniform(0, 5) * (draw.random() < 0.5)
    first, second = np.triu_indices(n_features) if has_products else [np.arange(n_features)] * 2
    X = np.hstack([X, X[:, first] * X[:, second]])
    y, words = labels_of(draw, StandardScaler().fit_transform(X) @ draw.normal(size=(X.shape[1], n_classes)))
    return X, y, f"tail {tail:.1f}{', products' if has_products else ''}, {words}"


@kind("counts")
def counts(draw, size):
    """Overdispersed counts, raw or as logarithms, with many zeros."""
    n_classes = size.classes()
    n_samples, n_features = size.shape(n_classes, (5, 400))
    shares, words = class_shares(draw, n_classes)
    y = drawn_labels(draw, n_samples, shares)
    contrast = between(draw, 0.05, 1.5)
    rates = draw.lognormal(0, 1.5, n_features) * draw.lognormal(0, contrast, (n_classes, n_features))
    depth = draw.lognormal(0, 0.5, (n_samples, 1))
    X = draw.poisson(np.minimum(rates[y] * depth * draw.gamma(1.0, 1.0, (n_samples, n_features)), 1e6)).astype(float)
    if draw.random() < 0.4:
        X, words = np.log1p(X), f"logarithms, {words}"
    return X, y, f"contrast {contrast:.2f}, {words}"


@kind("wide")
def wide(draw, size):
    """Many more columns than samples, in correlated groups, as expressions of genes."""
    n_classes = size.classes(6)
    n_samples = max(10 * n_classes, int(between(draw, 30, 400)))
    n_features = int(min(20_000, max(2 * n_samples, 4 * size.n_values / n_samples)))
    shares, words = class_shares(draw, n_classes)
    y = drawn_labels(draw, n_samples, shares)
    n_factors = int(between(draw, 3, 60))
    factors = draw.normal(size=(n_samples, n_factors))
    loadings = draw.normal(size=(n_factors, n_features)) * (draw.random((n_factors, n_features)) < 0.1)
    effect = between(draw, 0.05, 3.0)
    n_informative = int(between(draw, 3, n_features / 3))
    centers = np.zeros((n_classes, n_features))
    centers[:, :n_informative] = effect * draw.normal(size=(n_classes, n_informative))
    X = centers[y] + factors @ loadings + draw.normal(size=(n_samples, n_features))
    if draw.random() < 0.4:
        X, words = np.exp(X), f"log-normal, {words}"
    return X, y, f"{n_informative} informative, effect {effect:.2f}, {words}"


@kind("images")
def images(draw, size):
    """Smooth correlated pixels: an image of its class, deformed, shifted and noisy; some pixels are constant."""
    n_classes = size.classes(20)
    side = int(between(draw, 6, min(32, max(7, sqrt(size.n_values / (8 * n_classes))))))
    n_samples, _ = size.shape(n_classes, (side**2, side**2))
    shares, words = class_shares(draw, n_classes)
    y = drawn_labels(draw, n_samples, shares)
    noise, blur = between(draw, 0.02, 3.0), between(draw, 0.8, side / 5)
    X = images_of(draw, y, side, blur, noise)
    if draw.random() < 0.5:
        X = np.round(255 * X)
    return X, y, f"{side} x {side} pixels, blur {blur:.1f}, noise {noise:.2f}, {words}"


def smooth_images(draw, number, side, blur):
    fields = ndimage.gaussian_filter(draw.normal(size=(number, side, side)), (0, blur, blur))
    return fields / np.maximum(fields.std(axis=(1, 2), keepdims=True), 1e-12)


def images_of(draw, y, side, blur, noise):
    """Pixels from 0 to 1: the prototype of the class, shifted, with smooth noise, dark where no object is."""
    prototypes = smooth_images(draw, y.max() + 1, side, blur)
    shifts = draw.integers(-1, 2, size=(len(y), 2))
    X = np.empty((len(y), side, side))
    for down, right in {tuple(shift) for shift in shifts.tolist()}:
        chosen = (shifts == [down, right]).all(axis=1)
        X[chosen] = np.roll(prototypes, (down, right), axis=(1, 2))[y[chosen]]
    X += noise * smooth_images(draw, len(y), side, blur)
    return np.clip(0.3 + X / 4, 0, 1).reshape(len(y), -1)


@kind("curves")
def curves(draw, size):
    """Spectra and sounds: peaks and bands on smooth curves, hence hundreds of nearly collinear columns."""
    n_classes = size.classes(26)
    n_samples, n_features = size.shape(n_classes, (50, 700))
    shares, words = class_shares(draw, n_classes)
    y = drawn_labels(draw, n_samples, shares)
    noise, width = between(draw, 0.03, 3.0), between(draw, 1.0, 15.0)
    X = curves_of(draw, y, n_features, width, noise)
    return X, y, f"width {width:.1f}, noise {noise:.2f}, {words}"


def curves_of(draw, y, n_features, width, noise):
    def smooth(number, width):
        found = ndimage.gaussian_filter1d(draw.normal(size=(number, n_features)), width, axis=1)
        return found / np.maximum(found.std(axis=1, keepdims=True), 1e-12)

    X = smooth(y.max() + 1, width)[y] + noise * smooth(len(y), width)
    X += draw.normal(size=(len(y), 1)) + 0.02 * draw.normal(size=X.shape)  # a baseline, and rough noise
    return X * draw.lognormal(0, 0.2, (len(y), 1))


@kind("many classes")
def many_classes(draw, size):
    n_classes = int(between(draw, 20, min(150, max(21, size.n_values / 100))))
    n_samples, n_features = size.shape(n_classes, (4, 100))
    rank = min(n_features, 20)
    X = draw.normal(size=(n_samples, n_features))
    y, words = labels_of(draw, X[:, :rank] @ draw.normal(size=(rank, n_classes)))
    return X, y, words
