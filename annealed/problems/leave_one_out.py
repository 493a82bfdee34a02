"""Approximate leave-one-out: the scores of each row under a fit without it, by one Newton step.

Let s_i be the scores of row i, r_i its residual, D_i the Hessian of its loss by scores, w_i its weight (weights sum to
one), theta the penalized coefficients, G_i the derivative of s_i by the parameters, and M_i = G_i H^-1 G_i'. Then

    s_-i = s_i + (I - w_i M_i D_i)^-1 w_i (M_i r_i + kappa G_i H^-1 theta)

The second term arises because the weights of the other rows are normalized to sum to one, while the penalty keeps its
strength. `trace(w_i M_i D_i)` is the row's leverage; its sum over rows is the effective number of parameters.

Shapes: points (n_rows, width), scores (n_rows, n_scores), blocks M (n_rows, n_scores, n_scores).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from annealed.rows.threads import blas_threads

FEWEST_PROBES, MOST_PROBES = 64, 256  # bounds on the number of probes: accuracy against time
PROBES = 1000  # probes if n_parameters = n_rows; they fall with the squared ratio, as blocks then matter less
MOST_EXACT_WORK = 2e9  # multiplications for the blocks of all rows, above which they are estimated by probes
MOST_EXACT_SCORES = 1500  # rows times scores up to which blocks are computed from the Gram matrix of the rows


class NotTrusted(Exception):
    """Raised if leave-one-out is unreliable at the requested temperature, or costs too much."""


@dataclass(frozen=True)
class LeftOut:
    """Scores of every row from a fit without it, and the row's leverage on the fit with all rows."""

    scores: np.ndarray
    leverage: np.ndarray


def leave_out(contrasts, scores, labels, weight, blocks, pull) -> LeftOut:
    """Leave-one-out scores from each row's block M and `pull` = kappa G H^-1 theta."""
    _, posterior = contrasts.loss_and_posterior(scores.copy(), labels)
    residual = posterior.copy()
    residual[np.arange(len(labels)), labels] -= 1
    residual = contrasts.pull(residual)
    share = weight[:, None, None] * (blocks @ contrasts.whole_row_hessian(posterior))
    leverage = np.trace(share, axis1=1, axis2=2)
    move = weight[:, None] * ((blocks @ residual[..., None])[..., 0] + pull)
    step = np.linalg.solve(np.eye(scores.shape[1]) - share, move[..., None])[..., 0]
    return LeftOut(scores + step, leverage)


class ExactBlocks:
    """Blocks M from an explicit inverse Hessian by differences, (n_differences, width, n_differences, width).

    The reference score is fixed at zero, so scores have a common shift, which leaves the posterior unchanged.
    """

    def __init__(self, hessian, contrasts, theta):
        """`hessian` includes the penalty; theta (n_parameters,)."""
        self.contrasts = contrasts
        size = contrasts.n_differences
        factor = linalg.cho_factor(hessian, lower=True, check_finite=False)
        inverse = linalg.cho_solve(factor, np.eye(len(hessian)), check_finite=False)
        self.inverse = inverse.reshape(size, len(hessian) // size, size, -1)
        pull = contrasts.by_differences(theta.reshape(contrasts.n_scores, -1)).reshape(-1)
        self.solved = linalg.cho_solve(factor, pull, check_finite=False).reshape(size, -1)

    def __call__(self, points):
        """M and G H^-1 theta of rows, from their points (n_rows, width)."""
        size, width = self.solved.shape
        through = points @ np.moveaxis(self.inverse, 1, 0).reshape(width, -1)
        through = through.reshape(len(points), size * size, width)
        rest = (0, self.contrasts.n_scores - size)
        blocks = (through @ points[..., None]).reshape(len(points), size, size)
        return np.pad(blocks, [(0, 0), rest, rest]), np.pad(points @ self.solved.T, [(0, 0), rest])


class ProbedBlocks:
    """Blocks M estimated from random vectors of covariance H^-1, with the same random numbers at every temperature."""

    def __init__(self, inverse_root, solve, n_rows, theta):
        """`inverse_root(x)`, x (n, n_parameters), has rows of covariance H^-1 for standard normal x."""
        n_probes = int(max(FEWEST_PROBES, min(MOST_PROBES, PROBES * (len(theta) / n_rows) ** 2)))
        noise = np.random.RandomState(0).standard_normal((n_probes, len(theta)))
        probes = inverse_root(noise).reshape(noise.shape) / np.sqrt(n_probes)
        self.vectors = np.concatenate([probes, solve(theta[None])])

    def __call__(self, scores):
        """M and G H^-1 theta of rows, from their scores (n_rows, n_vectors, n_scores) under `vectors`."""
        probed = np.ascontiguousarray(scores[:, :-1])
        return np.swapaxes(probed, 1, 2) @ probed, scores[:, -1]


def row_blocks(gram, curvature, kappa, alpha, has_intercept):
    """Blocks M of all rows, and M alpha (n_rows, n_scores), for a fit that is a combination `alpha` of its rows.

    With K the inner products `gram` and W the rows' `curvature` (n_rows, n_scores, n_scores), M is (kappa K^-1 + W)^-1.
    Intercepts, which shift all rows by E, add U Q^-1 U' with U = E - M W E and Q = E' W U.
    """
    inverse = _RowInverse(gram / kappa, curvature)
    blocks, solved = inverse.blocks(), inverse.times(alpha)
    if not has_intercept:
        return blocks, solved
    n_rows, n_scores = alpha.shape
    free = np.eye(n_scores) - inverse.times(curvature)
    core = np.einsum("iab,iac->bc", curvature, free)
    if n_scores > 1:  # a common shift of all intercepts has no curvature; any positive value makes Q invertible
        core += np.trace(core)
    lifted = np.linalg.solve(core, free.reshape(-1, n_scores).T).reshape(n_scores, n_rows, n_scores)
    return blocks + free @ lifted.swapaxes(0, 1), solved + free @ np.einsum("cia,ia->c", lifted, alpha)


class _RowInverse:
    """(K^-1 + W)^-1 = K - Z' Z,   Z = L^-1 R' K,   L L' = I + R' K R,   W = R R',   for all scores of all rows."""

    def __init__(self, gram, curvature):
        self.gram, n_rows = gram, len(gram)
        eigenvalues, vectors = np.linalg.eigh(curvature)
        root = vectors * np.sqrt(np.maximum(eigenvalues, 0))[:, None]
        through = np.einsum("ica,ij->iajc", root, gram)
        size = root.shape[0] * root.shape[2]
        system = np.einsum("iajc,jcb->iajb", through, root).reshape(size, size)
        np.einsum("ii->i", system)[:] += 1
        with blas_threads(size):
            factor = linalg.cholesky(system, lower=True, overwrite_a=True, check_finite=False)
            reduced = linalg.solve_triangular(factor, through.reshape(size, size), lower=True, check_finite=False)
        self.reduced = reduced.reshape(size, n_rows, -1)

    def blocks(self):
        """The diagonal block of each row, (n_rows, n_scores, n_scores)."""
        diagonal = np.diag(self.gram)[:, None, None] * np.eye(self.reduced.shape[2])
        return diagonal - np.einsum("zia,zib->iab", self.reduced, self.reduced)

    def times(self, vectors):
        """Product with vectors (n_rows, n_scores, ...)."""
        flat, reduced = vectors.reshape(len(vectors), -1), self.reduced.reshape(len(self.reduced), -1)
        less = reduced.T @ (reduced @ vectors.reshape(len(reduced), -1))
        return (self.gram @ flat).reshape(vectors.shape) - less.reshape(vectors.shape)
