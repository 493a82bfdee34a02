"""Approximate leave-one-out: the scores of each row under a fit without it, by one Newton step.

Let s_i be the scores of row i, r_i its residual, D_i the Hessian of its loss by scores, w_i its weight (weights sum to
one), theta the penalized coefficients, G_i the derivative of s_i by the parameters, and M_i = G_i H^-1 G_i'. Then

    s_-i = s_i + (I - w_i M_i D_i)^-1 w_i (M_i r_i + kappa G_i H^-1 theta)

The second term arises because the weights of the other rows are normalized to sum to one, while the penalty keeps its
strength. `trace(w_i M_i D_i)` is the row's leverage; its sum over rows is the effective number of parameters.

Shapes: points (n_rows, width), scores (n_rows, n_scores), blocks M (n_rows, n_scores, n_scores).
"""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy import linalg

from annealed.problems.base import Problem
from annealed.problems.hessian import factored
from annealed.problems.hessian_sample import N_LEVELS
from annealed.problems.linear import LinearScores
from annealed.problems.penalized_linear import PenalizedLinearProblem
from annealed.problems.representer import RepresenterProblem
from annealed.rows.threads import blas_threads

N_PROBES = 128  # random vectors by which blocks are estimated: accuracy against time
MOST_EXACT_WORK = 4e9  # multiplications for the blocks of all rows, up to which they are exact


class NotTrusted(Exception):
    """Raised if leave-one-out is unreliable at the requested temperature, or costs too much."""


def leave_one_out(problem: Problem, parameters, temperature) -> tuple[np.ndarray, np.ndarray]:
    """Logits (n_rows, n_classes) of every row from a fit without it, and each row's leverage on the fit."""
    if not problem.place.is_host:
        raise ValueError('selection="loo" needs rows of NumPy or SciPy. Use selection="cv" or "holdout".')
    if isinstance(problem, PenalizedLinearProblem):
        return _left_out_in_blocks(problem, parameters[:1], temperature)
    if isinstance(problem, RepresenterProblem):
        return _left_out_of_combinations(problem, parameters[:1], temperature)
    raise ValueError('selection="loo" needs the inner-product or the quadratic family. Use selection="cv".')


def _left_out_in_blocks(problem: PenalizedLinearProblem, final, temperature):
    """Block of rows by block, from an inverse Hessian or an estimate of it."""
    blocks, n_numbers = _inverse_blocks(problem, final, temperature)
    scores, strength = problem.scores, problem.l2_strength * temperature
    contrasts, state = scores.table.contrasts, scores.forward(final, temperature, slice(0, 1))

    def kernel(block):
        inverse, pull = blocks(block)
        own = LinearScores.logits(scores, block, state)[:, 0]
        return leave_out(contrasts, own, block.labels, block.weight[:, 0], inverse, strength * pull)

    parts = list(problem.design.map_blocks(kernel, slice(0, 1), n_numbers=n_numbers))
    logits, leverage = (np.concatenate(part) for part in zip(*parts, strict=True))
    return logits, leverage


def _inverse_blocks(problem, final, temperature):
    """A function from a block of rows to their blocks of the inverse Hessian, and their number of entries per row.

    The blocks are exact if the Hessian of all rows is cheap; otherwise they are estimated from random probes.
    """
    fits, scores, table = slice(0, 1), problem.scores, problem.scores.table
    penalty, _ = problem.penalty(temperature, fits)
    theta = final[0] * (penalty > 0)
    if problem.design.n_rows * table.n_parameters**2 <= MOST_EXACT_WORK:
        _, _, hessian = problem.hessians.terms(final, temperature, fits)
        exact = ExactBlocks(hessian[0], table.contrasts, theta)

        def points(block):
            """Rows in the coordinates of the final fit, with a column of ones for the intercept."""
            turned = scores.coordinates.of_final.from_features(block.rows_as_array())
            return np.column_stack([turned, np.ones(len(turned))]) if table.fit_intercept else turned

        return lambda block: exact(points(block)), exact.inverse.size // table.width
    learned = problem.preconditioners.learn(final[0], temperature, N_LEVELS)

    def inverse_root(noise):
        """Rows of `noise` times a square root of the preconditioner."""
        diagonal = problem.curvature(temperature, fits) + penalty
        rooted = table.of(noise / np.sqrt(np.maximum(diagonal, np.finfo(float).tiny)))
        learned.improve_root(rooted, table.of(noise), problem.l2_strength * temperature)
        return rooted

    solve = partial(problem.precondition, temperature=temperature, fits=fits, learned=learned)
    probed = ProbedBlocks(inverse_root, solve, theta)
    state = scores.forward(probed.vectors, temperature, fits)
    return lambda block: probed(LinearScores.logits(scores, block, state)), len(probed.vectors) * table.n_scores


def _left_out_of_combinations(problem: RepresenterProblem, final, temperature):
    """From the Gram matrix of the rows."""
    design, contrasts = problem.design, problem.contrasts
    if (design.n_rows * contrasts.n_scores) ** 3 > MOST_EXACT_WORK:
        raise NotTrusted(f"Leave-one-out of {design.n_rows} samples with so many features would take too long.")
    alpha, image, intercept = (part[0] for part in problem.split(final))
    scores, weight, kappa = image + intercept, design.weight[:, 0], problem.l2_strength * temperature
    _, posterior = contrasts.loss_and_posterior(scores.copy(), design.labels)
    curvature = weight[:, None, None] * contrasts.whole_row_hessian(posterior)
    blocks, solved = row_blocks(problem.gram, curvature, kappa, alpha, problem.fit_intercept)
    return leave_out(contrasts, scores, design.labels, weight, blocks, kappa * solved)


def leave_out(contrasts, scores, labels, weight, blocks, pull):
    """Leave-one-out logits and leverages, from each row's block M and `pull` = kappa G H^-1 theta."""
    _, posterior = contrasts.loss_and_posterior(scores.copy(), labels)
    residual = posterior.copy()
    residual[np.arange(len(labels)), labels] -= 1
    residual = contrasts.pull(residual)
    share = weight[:, None, None] * (blocks @ contrasts.whole_row_hessian(posterior))
    leverage = np.trace(share, axis1=1, axis2=2)
    move = weight[:, None] * ((blocks @ residual[..., None])[..., 0] + pull)
    step = np.linalg.solve(np.eye(scores.shape[1]) - share, move[..., None])[..., 0]
    return contrasts.logits(scores + step), leverage


class ExactBlocks:
    """Blocks M from an explicit inverse Hessian by differences, (n_differences, width, n_differences, width).

    The reference score is fixed at zero, so scores have a common shift, which leaves the posterior unchanged.
    """

    def __init__(self, hessian, contrasts, theta):
        """`hessian` includes the penalty; theta (n_parameters,)."""
        self.contrasts = contrasts
        size = contrasts.n_differences
        balance = 1 / np.sqrt(np.maximum(np.diag(hessian), np.finfo(float).tiny))
        factor = factored(hessian * balance * balance[:, None]), True
        inverse = balance[:, None] * linalg.cho_solve(factor, np.diag(balance), check_finite=False)
        self.inverse = inverse.reshape(size, len(hessian) // size, size, -1)
        pull = contrasts.by_differences(theta.reshape(contrasts.n_scores, -1)).reshape(-1)
        self.solved = (inverse @ pull).reshape(size, -1)

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

    def __init__(self, inverse_root, solve, theta):
        """`inverse_root(x)`, x (n, n_parameters), has rows of covariance H^-1 for standard normal x."""
        noise = np.random.RandomState(0).standard_normal((N_PROBES, len(theta)))
        probes = inverse_root(noise).reshape(noise.shape) / np.sqrt(N_PROBES)
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
