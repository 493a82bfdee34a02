"""Slow and simple versions of what the package computes: loops, finite differences, textbook formulas.

Nothing here imports the package. Scores are g_j(x), before division by the temperature; `weight` (n_rows,) sums to one;
a penalty is given by its matrix M, as `l2_strength / 2 sum_j lambda_j' M lambda_j`.
"""

from decimal import Decimal, localcontext
from math import exp, log
from typing import NamedTuple

import numpy as np
from scipy import linalg, optimize

# --- the Gibbs posterior and the free energy --------------------------------------------------------


def exact_posterior(scores, temperature):
    """Equation (7) as printed, in decimal arithmetic that neither overflows nor underflows."""
    rows = []
    with localcontext() as context:
        context.prec = 40
        for row in np.asarray(scores, dtype=float):
            weights = [(Decimal(float(score)) / Decimal(float(temperature))).exp() for score in row]
            rows.append([float(weight / sum(weights)) for weight in weights])
    return np.array(rows)


def posterior(scores, temperature):
    """Equation (7), sample by sample: exp(g_j / T - log_partition)."""
    rows = []
    for row in np.asarray(scores, dtype=float).tolist():
        partition = log_partition(row, temperature)
        rows.append([exp(score / temperature - partition) for score in row])
    return np.array(rows)


def log_partition(row, temperature):
    """Logarithm of sum_j exp(g_j / T) of one sample, relative to its largest score."""
    largest = max(row)
    return largest / temperature + log(sum(exp((score - largest) / temperature) for score in row))


def free_energy(scores, labels, temperature, weight=None):
    """Q of equation (9): the mean over samples, or the weighted sum if weights are given."""
    weight = np.full(len(labels), 1 / len(labels)) if weight is None else weight
    total = 0.0
    for row, label, sample_weight in zip(scores, labels, weight, strict=True):
        total += sample_weight * (temperature * log_partition(row, temperature) - row[label])
    return total


def zero_temperature_energy(scores, labels):
    """L of equation (3), the limit of (9): by how much the score of the true class is below the largest score."""
    return np.mean([max(row) - row[label] for row, label in zip(scores, labels, strict=True)])


def mean_negative_log_likelihood(scores, labels, temperature):
    return np.mean([-log(row[label]) for row, label in zip(posterior(scores, temperature), labels, strict=True)])


def mean_entropy(scores, temperature, weight=None):
    weight = np.full(len(scores), 1 / len(scores)) if weight is None else weight
    total = 0.0
    for row, sample_weight in zip(posterior(scores, temperature), weight, strict=True):
        total -= sample_weight * sum(p * log(p) for p in row if p > 0)
    return total


def linear_scores(X, lambda_, intercept):
    """Equation (13), with an intercept, in loops."""
    scores = np.zeros((len(X), len(lambda_)))
    for i, row in enumerate(X):
        for j, lambda_j in enumerate(lambda_):
            scores[i, j] = sum(a * b for a, b in zip(lambda_j, row, strict=True)) + intercept[j]
    return scores


def distance_scores(X, means, covariance):
    """Equation (10)."""
    scores = np.zeros((len(X), len(means)))
    for i, row in enumerate(X):
        for j, mean in enumerate(means):
            scores[i, j] = -(row - mean) @ np.linalg.solve(covariance, row - mean)
    return scores


def penalized_free_energy(X, labels, lambda_, intercept, temperature, l2_strength, matrix, weight=None):
    """Q_new of equation (17)."""
    scores = linear_scores(X, lambda_, intercept)
    penalty = sum(lambda_j @ matrix @ lambda_j for lambda_j in lambda_)
    return free_energy(scores, labels, temperature, weight) + l2_strength / 2 * penalty


def penalized_gradient(X, labels, lambda_, intercept, temperature, l2_strength, matrix, weight=None):
    """Equation (18), corrected: (dQ_new / dlambda, dQ_new / dintercept) in the units of X, in loops."""
    weight = np.full(len(labels), 1 / len(labels)) if weight is None else weight
    by_lambda = np.array([l2_strength * matrix @ lambda_j for lambda_j in lambda_])
    by_intercept = np.zeros(len(lambda_))
    p = posterior(linear_scores(X, lambda_, intercept), temperature)
    for row, sample_posterior, label, sample_weight in zip(X, p, labels, weight, strict=True):
        for j in range(len(lambda_)):
            residual = sample_weight * (sample_posterior[j] - (j == label))
            by_lambda[j] += residual * row
            by_intercept[j] += residual
    return by_lambda, by_intercept


def slope(function, point, step=1e-5):
    """Gradient by central differences, one parameter at a time, improved by Richardson's extrapolation.

    `function` may return an array; the last axis of the result then runs over the parameters.
    """
    point = np.asarray(point, dtype=float)
    columns = []
    for index in np.ndindex(point.shape):
        coarse, fine = (_difference(function, point, index, h) for h in (2 * step, step))
        columns.append((4 * fine - coarse) / 3)
    return np.stack(columns, axis=-1)


def _difference(function, point, index, step):
    up, down = point.copy(), point.copy()
    up[index] += step
    down[index] -= step
    return (np.asarray(function(up)) - np.asarray(function(down))) / (2 * step)


# --- penalties and moments --------------------------------------------------------------------------


def moments(X, weight=None):
    """Mean and covariance (divided by n) of weighted samples."""
    weight = np.full(len(X), 1 / len(X)) if weight is None else weight / np.sum(weight)
    mean = sum(sample_weight * row for sample_weight, row in zip(weight, X, strict=True))
    covariance = sum(
        sample_weight * np.outer(row - mean, row - mean) for sample_weight, row in zip(weight, X, strict=True)
    )
    return mean, covariance


def penalty_matrix(X, penalty_scaling, weight=None):
    """M of the penalty `lambda' M lambda`, for each `penalty_scaling` of the package."""
    _, covariance = moments(X, weight)
    if penalty_scaling == "half-whiten":  # between the diagonal and the covariance: the root of the correlation matrix
        spread = np.sqrt(np.diag(covariance))
        units = np.outer(spread, spread)
        return linalg.sqrtm(covariance / units).real * units
    return {
        "none": np.eye(X.shape[1]),
        "standardize": np.diag(np.diag(covariance)),
        "whiten": covariance,
    }[penalty_scaling]


def gradient_norm(by_lambda, by_intercept, center, matrix):
    """Norm of (18) in the units of the penalty, around `center`: independent of the units of X."""
    around = by_lambda - np.outer(by_intercept, center)
    spread = np.sqrt(np.diag(matrix))
    scaled = around / spread
    correlation = matrix / np.outer(spread, spread)
    square = sum(scaled_j @ np.linalg.solve(correlation, scaled_j) for scaled_j in scaled)
    return np.sqrt(square + by_intercept @ by_intercept)


def class_means(X, labels, weight=None):
    weight = np.ones(len(X)) if weight is None else weight
    members_of_classes = [labels == label for label in range(labels.max() + 1)]
    return np.stack([np.average(X[members], axis=0, weights=weight[members]) for members in members_of_classes])


def pooled_covariance(X, labels, weight=None):
    """Within-class covariance, divided by n."""
    weight = np.full(len(X), 1 / len(X)) if weight is None else weight / np.sum(weight)
    residual = X - class_means(X, labels, weight)[labels]
    return sum(sample_weight * np.outer(row, row) for sample_weight, row in zip(weight, residual, strict=True))


def lda_posterior(X, labels, X_new, class_prior):
    """Linear discriminant analysis by its formula, with the pooled covariance divided by n."""
    means, covariance = class_means(X, labels), pooled_covariance(X, labels)
    densities = np.exp(distance_scores(X_new, means, covariance) / 2) * class_prior
    return densities / densities.sum(axis=1, keepdims=True)


# --- reference minimizers ---------------------------------------------------------------------------


class Optimum(NamedTuple):
    """Logits `X @ coef.T + intercept`, centred over classes, and the value at the optimum."""

    coef: np.ndarray
    intercept: np.ndarray
    value: float


def multinomial_optimum(X, labels, strength, weight=None, fit_intercept=True, n_classes=None):
    """Minimum of `sum_i weight_i NLL_i + 1/2 sum_j coef_j' strength coef_j`: L-BFGS-B, then Newton's method.

    `strength` is a matrix (n_features, n_features); zero gives plain maximum likelihood.
    """
    n_classes = n_classes or labels.max() + 1
    weight = np.full(len(X), 1 / len(X)) if weight is None else weight
    design = np.column_stack([X, np.ones(len(X))]) if fit_intercept else np.asarray(X, dtype=float)
    penalty = np.zeros((design.shape[1], design.shape[1]))
    penalty[: X.shape[1], : X.shape[1]] = strength

    def value_and_gradient(flat):
        return _multinomial(flat, design, labels, weight, penalty, n_classes)[:2]

    flat = np.zeros(n_classes * design.shape[1])
    options = {"maxiter": 10000, "maxfun": 20000, "ftol": 0, "gtol": 1e-7}
    flat = optimize.minimize(value_and_gradient, flat, jac=True, method="L-BFGS-B", options=options).x
    for _ in range(10):
        _, gradient, hessian = _multinomial(flat, design, labels, weight, penalty, n_classes)
        flat = flat - np.linalg.lstsq(hessian, gradient, rcond=1e-13)[0]
    value, gradient, _ = _multinomial(flat, design, labels, weight, penalty, n_classes)
    assert np.abs(gradient).max() < 1e-11, "the oracle itself did not converge"
    table = flat.reshape(n_classes, -1)
    table = table - table.mean(axis=0)
    if fit_intercept:
        return Optimum(table[:, :-1], table[:, -1], value)
    return Optimum(table, np.zeros(n_classes), value)


def _multinomial(flat, design, labels, weight, penalty, n_classes):
    coef = flat.reshape(n_classes, -1)
    logits = design @ coef.T
    logits -= logits.max(axis=1, keepdims=True)
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    targets = np.eye(n_classes)[labels]
    value = -weight @ np.log(p[np.arange(len(labels)), labels]) + 0.5 * np.sum(coef @ penalty * coef)
    gradient = ((p - targets) * weight[:, None]).T @ design + coef @ penalty
    blocks = np.einsum("i,ij,jk->ijk", weight, p, np.eye(n_classes)) - np.einsum("i,ij,ik->ijk", weight, p, p)
    hessian = np.einsum("ijk,ia,ib->jakb", blocks, design, design, optimize=True)
    for j in range(n_classes):
        hessian[j, :, j, :] += penalty
    return value, gradient.ravel(), hessian.reshape(flat.size, flat.size)


def generalized_iterative_scaling(X, y, n_iterations):
    """Darroch and Ratcliff's algorithm for the log-linear model (3) without penalty: an approximate `Optimum`.

    Columns are rescaled to [0, 1 / D] and a slack column completes every row to one, so that the features
    delta(k, k') phi_i(x) are non-negative and add up to C = 1. Every iteration increases each weight by
    log(observed / expected) / C; convergence is slow. No column may be constant. The intercepts follow from the slack,
    because the features of a row have a constant sum.
    """
    n_features = X.shape[1]
    lowest, spread = X.min(axis=0), X.max(axis=0) - X.min(axis=0)
    features = (X - lowest) / spread / n_features
    features = np.column_stack([features, 1 - features.sum(axis=1)])
    observed = np.array([features[y == label].sum(axis=0) for label in range(y.max() + 1)])
    assert (observed > 0).all(), "a feature never occurs with a class: its weight would diverge to minus infinity"
    weights = np.zeros_like(observed)
    for _ in range(n_iterations):
        p = np.exp(features @ weights.T)
        p /= p.sum(axis=1, keepdims=True)
        expected = p.T @ features
        weights += np.log(observed / expected)
    weights -= weights.mean(axis=0)
    coef = (weights[:, :-1] - weights[:, -1:]) / (spread * n_features)
    intercept = weights[:, -1] - coef @ lowest
    return Optimum(coef, intercept, mean_negative_log_likelihood(X @ coef.T + intercept, y, 1.0))


def scaled_conjugate_gradient(value_and_gradient, start, n_iterations):
    """Netlab's `scg` for one problem, line by line: the point and value after every iteration."""
    x = start.copy()
    value, gradient = value_and_gradient(x)
    direction = -gradient
    success, n_success, scale = True, 0, 1.0
    visited = []
    for _ in range(n_iterations):
        if success:
            slope_along = direction @ gradient
            if slope_along >= 0:
                direction = -gradient
                slope_along = direction @ gradient
            size = direction @ direction
            reach = 1e-4 / np.sqrt(size)
            _, ahead = value_and_gradient(x + reach * direction)
            curvature = direction @ (ahead - gradient) / reach
        delta = curvature + scale * size
        if delta <= 0:
            delta = scale * size
            scale = scale - curvature / size
        length = -slope_along / delta
        new_value, new_gradient = value_and_gradient(x + length * direction)
        trust = 2 * (new_value - value) / (length * slope_along)
        success = trust >= 0
        old_gradient = gradient
        if success:
            n_success += 1
            x, value, gradient = x + length * direction, new_value, new_gradient
        if trust < 0.25:
            scale = min(4 * scale, 1e100)
        if trust > 0.75:
            scale = max(0.5 * scale, 1e-15)
        if n_success == len(x):
            direction, n_success = -gradient, 0
        elif success:
            conjugate = (old_gradient - gradient) @ gradient / slope_along
            direction = conjugate * direction - gradient
        visited.append((x.copy(), value))
    return visited
