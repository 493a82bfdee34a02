"""Preconditioners computed from the Hessian of the rows, and when they are.

The Hessian H of the final fit at its current parameters is used for every fold and for the next temperatures, because
they share most of their rows and the path is smooth. H is full on the coordinates of largest variance, and diagonal on
the others; each `level` allows twice as many parameters as the one before. When the temperature changes, only the sum
of H and the penalty is factored again. `LearnedCurvature` holds H in differences of scores
(`annealed/problems/contrasts.py`).

With many classes or columns, the diagonal blocks of single classes (`ClassCurvature`) cost a fraction of H: one block
per class instead of one per pair of classes, fewer rows for each, and small factors. They neglect the coupling of
classes, which then costs more steps. They come first if they take a fraction of the time of a Hessian in all
coordinates, which follows when the steps have cost as much as it does.

Shapes: vectors (n_fits, n_scores, width), H (n_differences * n_leading, n_differences * n_leading), parameters of one
fit (n_parameters,); times in nanoseconds, costs in passes of the whole stack of fits.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg
from scipy.linalg import blas, lapack

from annealed.problems import gibbs
from annealed.problems.hessian import factored
from annealed.problems.hessian_sample import N_LEVELS, NEGLIGIBLE, HessianSample
from annealed.rows.cost import BLOCK, STORED_BYTES, factor_time, pass_time, row_length
from annealed.rows.threads import blas_threads

CLASSES_SHARE = 0.25  # time of the class blocks over that of a full Hessian, up to which the blocks come first
STALE = 0.3  # relative change of the smallest factored diagonal entry from which H is factored again


class Preconditioners:
    """Hessians for the preconditioner of a `PenalizedLinearProblem`, and their cost in passes of the whole stack.

    Each `level` includes more coordinates than the one before, until all are included.
    """

    def __init__(self, problem):
        self.problem, self.scores, self.table = problem, problem.scores, problem.scores.table

    def cost(self, level) -> float:
        """Time of a Hessian and its factor, divided by that of a pass; infinite if it does not pay."""
        n_leading = self._n_leading(level)
        if n_leading < (self.table.rank if self._learns_classes else 1):
            return np.inf
        return self._time(n_leading) / self._pass_time

    def learn(self, parameters, temperature, level) -> LearnedCurvature:
        """A Hessian at the final fit's parameters; it is accurate enough for the folds too."""
        return LearnedCurvature(*self._sample_and_posterior(self._n_leading(level), parameters, temperature))

    def class_cost(self) -> float:
        """As `cost`, for the blocks of single classes."""
        return self._time_of_classes / self._pass_time if self._learns_classes else np.inf

    def learn_classes(self, parameters, temperature) -> ClassCurvature:
        """As `learn`, with the diagonal blocks of single classes only, at a fraction of the cost."""
        n_leading = HessianSample.count_in_classes(self.table)
        return ClassCurvature(*self._sample_and_posterior(n_leading, parameters, temperature))

    def _sample_and_posterior(self, n_leading, parameters, temperature):
        """The sampled rows in `n_leading` coordinates, and their posterior."""
        scores = self.scores
        if scores.sample is None or scores.sample.n_leading != n_leading:
            coordinates = scores.coordinates.of_final
            scores.sample = HessianSample(scores.design, coordinates, self.table, n_leading, scores.float32_rows)
        logits = self.problem.logits_of(scores.sample.rows, parameters[None], temperature, [0])
        return scores.sample, gibbs.posterior(logits[:, 0])

    @property
    def _learns_classes(self) -> bool:
        return self._time_of_classes <= CLASSES_SHARE * self._time(HessianSample.count_leading(self.table, N_LEVELS))

    def _n_leading(self, level):
        return HessianSample.count_leading(self.table, N_LEVELS if self._learns_classes else level)

    def _time(self, n_leading):
        """Of a Hessian and its factor."""
        n_pairs, width = self.table.contrasts.n_pairs, n_leading + self.table.fit_intercept
        return n_pairs * self._block_time(width) + factor_time(self.table.contrasts.n_differences * width)

    @property
    def _time_of_classes(self):
        width = HessianSample.count_in_classes(self.table) + self.table.fit_intercept
        return self.table.n_scores * (self._block_time(width) + factor_time(width))

    def _block_time(self, width):
        return BLOCK + HessianSample.block_time(self.scores.design, self.scores.coordinates, width)

    @property
    def _pass_time(self):
        float32_rows, n_scores = self.scores.float32_rows, self.problem.n_fits * self.table.n_scores
        n_blocks = 1 if float32_rows is None else float32_rows.n_groups
        design = self.scores.design
        return pass_time(design.n_rows, row_length(design.X), n_scores, self.scores.has_quick_rows, n_blocks)


class LearnedCurvature:
    """The Hessian of the loss on leading coordinates; `improve` replaces that part of a diagonal solve.

    reference : the score of largest curvature, so that the curvatures of the differences keep their digits
    """

    def __init__(self, sample: HessianSample, posterior):
        self.sample = sample
        self.reference = int(np.argmax(np.einsum("n,nc,nc->c", sample.weight, posterior, 1 - posterior)))
        self.hessian = sample.hessian(posterior, self.reference)
        curvature = np.diag(self.hessian) * np.tile(sample.spread, sample.contrasts.n_differences) ** 2
        self._factors = _Factors(self._factor, curvature.min(), self.hessian.nbytes)

    def improve(self, solved, vectors, strength):
        """Overwrite the leading part of `solved` by the solve with the full matrix.

        solved : `vectors` divided by the diagonal, (n_fits, n_scores, width), as `vectors`
        strength : penalty on each coefficient
        """
        balance, factor = self._factors.near(strength)
        contrasts, leading = self.sample.contrasts, self.sample.leading
        pull = contrasts.by_differences(vectors[..., leading], self.reference).reshape(len(vectors), -1) * balance
        full = _solved(factor, pull.T).T * balance
        solved[..., self.sample.leading] = self._from_differences(full)

    def improve_root(self, rooted, noise, strength):
        """As `improve`, with a square root of the inverse: standard normal noise gets the inverse as covariance."""
        balance, factor = self._factor(strength)
        drawn = noise[:, : self.sample.contrasts.n_differences, self.sample.leading]
        flat = drawn.reshape(len(noise), -1).T.astype(np.float32)
        root = linalg.solve_triangular(factor, flat, trans=1, lower=True, check_finite=False).T * balance
        rooted[..., self.sample.leading] = self._from_differences(root)

    def _from_differences(self, flat):
        contrasts = self.sample.contrasts
        return contrasts.from_differences(flat.reshape(len(flat), contrasts.n_differences, -1), self.reference)

    def _factor(self, strength):
        """Scales that give the Hessian plus penalty a unit diagonal, and the Cholesky factor of the scaled matrix."""
        square, penalty = self.sample.contrasts.square, self.sample.penalty(strength)
        diagonal = np.maximum(np.diag(self.hessian), NEGLIGIBLE)
        balance = 1 / np.sqrt(diagonal + np.tile(penalty, len(square)) * square[0, 0])
        balanced = _between(self.hessian, balance.astype(self.hessian.dtype))
        table, each = balance.reshape(len(square), -1).T, np.arange(len(penalty))  # table (width, n_differences)
        penalties = (penalty[:, None, None] * square) * (table[:, :, None] * table[:, None, :])
        balanced.reshape(len(square), len(penalty), len(square), -1)[:, each, :, each] += penalties
        with blas_threads(len(balance)):
            factor = factored(balanced)
        return balance / np.tile(self.sample.spread, len(square)), factor


class ClassCurvature:
    """The diagonal blocks of single classes of the loss's Hessian, on leading coordinates.

    `improve` is as that of `LearnedCurvature`.
    """

    def __init__(self, sample: HessianSample, posterior):
        self.sample, self.blocks = sample, sample.class_blocks(posterior)
        self._diagonal = np.maximum(np.einsum("kii->ki", self.blocks), NEGLIGIBLE)
        flattest = (self._diagonal * sample.spread**2).min()
        self._factors = _Factors(self._factor, flattest, self.blocks.nbytes)

    def improve(self, solved, vectors, strength):
        balance, factors = self._factors.near(strength)
        leading = self.sample.leading
        pull = vectors[..., leading] * balance
        full = [_solved(factor, pull[:, label].T).T for label, factor in enumerate(factors)]
        solved[..., leading] = np.stack(full, axis=1) * balance

    def _factor(self, strength):
        balance = (1 / np.sqrt(self._diagonal + self.sample.penalty(strength))).astype(self.blocks.dtype)
        factors = [factored(_between(*pair)) for pair in zip(self.blocks, balance, strict=True)]
        return balance / self.sample.spread, factors


class _Factors:
    """Factors of a matrix plus a penalty, at a few strengths of the penalty: temperatures that are solved together need
    one each.

    make : function of the strength; flattest : the smallest curvature of the matrix
    """

    def __init__(self, make, flattest, n_bytes):
        self.make, self.flattest, self.most = make, flattest, max(1, STORED_BYTES // n_bytes)
        self.known: list[tuple] = []  # strengths and factors, the latest used last

    def near(self, strength):
        """A factor at this strength, or at one so near that the smallest curvature with the penalty is about equal."""
        for position, (known, factor) in enumerate(self.known):
            if abs(strength - known) <= STALE * (known + self.flattest):
                self.known.append(self.known.pop(position))
                return factor
        del self.known[: max(0, len(self.known) - self.most + 1)]  # frees memory before the next factor is allocated
        self.known.append((strength, self.make(strength)))
        return self.known[-1][1]


def _between(matrix, balance):
    """diag(balance) matrix diag(balance)."""
    balanced = matrix * balance
    balanced *= balance[:, None]
    return balanced


def _solved(factor, vectors):
    """(L L')^-1 vectors from the lower factor L; the routine for one vector is much faster than that for a matrix."""
    if vectors.shape[1] > 1:
        solve = lapack.dpotrs if factor.dtype == np.float64 else lapack.spotrs
        return solve(factor, vectors, lower=1)[0]
    solve = blas.dtrsv if factor.dtype == np.float64 else blas.strsv
    half = solve(factor, vectors[:, 0], lower=1)
    return solve(factor, half, lower=1, trans=1)[:, None]
