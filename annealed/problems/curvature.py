"""Preconditioners computed from the Hessian of the rows.

The Hessian H of the final fit at its current parameters is used for every fold and for the next temperatures, because
they share most of their rows and the path is smooth. H is full on the coordinates of largest variance, and diagonal on
the others; each `level` allows twice as many parameters as the one before. When the temperature changes, only the sum
of H and the penalty is factored again. `LearnedCurvature` holds H in differences of scores
(`annealed/problems/contrasts.py`).

With many classes or columns, the diagonal blocks of single classes (`ClassCurvature`) cost a fraction of H: one block
per class instead of one per pair of classes, fewer rows for each, and small factors. They neglect the coupling of
classes, which then costs more steps.

Shapes: vectors (n_fits, n_scores, width), H (n_differences * n_leading, n_differences * n_leading).
"""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy import linalg
from scipy.linalg import blas, lapack

from annealed.problems.hessian_sample import HessianSample
from annealed.rows.threads import blas_threads

RIDGES = {np.float64: (1e-12, 1e-9, 1e-6, 1.0), np.float32: (1e-6, 1e-4, 1e-2, 1.0)}  # on a unit diagonal, in turn
BY_FACTOR = {np.float32: (blas.strsv, lapack.spotrs), np.float64: (blas.dtrsv, lapack.dpotrs)}  # one vector, several
SMALLEST_CURVATURE = 1e-12  # floor on the curvature of a class that almost every row excludes
STALE = 0.3  # relative change of the smallest factored diagonal entry from which H is factored again
KEPT_BYTES = 1 << 27  # of the factors that are kept


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
        full = _solved(factor, pull.T.astype(self.sample.dtype)).T * balance
        solved[..., self.sample.leading] = self._from_differences(full)

    def improve_root(self, rooted, noise, strength):
        """As `improve`, with a square root of the inverse: standard normal noise gets the inverse as covariance."""
        balance, factor = self._factor(strength)
        drawn = noise[:, : self.sample.contrasts.n_differences, self.sample.leading]
        flat = drawn.reshape(len(noise), -1).T.astype(self.sample.dtype)
        root = linalg.solve_triangular(factor, flat, trans=1, lower=True, check_finite=False).T * balance
        rooted[..., self.sample.leading] = self._from_differences(root)

    def _from_differences(self, flat):
        contrasts = self.sample.contrasts
        return contrasts.from_differences(flat.reshape(len(flat), contrasts.n_differences, -1), self.reference)

    def _factor(self, strength):
        """Scales that give the Hessian plus penalty a unit diagonal, and the Cholesky factor of the scaled matrix."""
        square, penalty = self.sample.contrasts.square, self.sample.penalty(strength)
        diagonal = np.maximum(np.diag(self.hessian), SMALLEST_CURVATURE)
        balance = 1 / np.sqrt(diagonal + np.tile(penalty, len(square)) * square[0, 0])
        with blas_threads(len(balance)):
            factor = _first_factor(partial(self._balanced, balance, penalty), self.sample.dtype)
        return balance / np.tile(self.sample.spread, len(square)), factor

    def _balanced(self, balance, penalty, diagonal):
        """diag(balance) (Hessian + penalty) diag(balance), with another diagonal; a copy that LAPACK may overwrite."""
        square, each = self.sample.contrasts.square, np.arange(len(penalty))
        balance = balance.astype(self.hessian.dtype)
        balanced = self.hessian * balance
        balanced *= balance[:, None]
        table = balance.reshape(len(square), -1).T  # (width, n_differences)
        penalties = (penalty[:, None, None] * square) * (table[:, :, None] * table[:, None, :])
        balanced.reshape(len(square), len(penalty), len(square), -1)[:, each, :, each] += penalties
        np.fill_diagonal(balanced, diagonal)
        return balanced.T


class ClassCurvature:
    """The diagonal blocks of single classes of the loss's Hessian, on leading coordinates.

    `improve` is as that of `LearnedCurvature`.
    """

    def __init__(self, sample: HessianSample, posterior):
        self.sample, self.blocks = sample, sample.class_blocks(posterior)
        self._diagonal = np.maximum(np.einsum("kii->ki", self.blocks), SMALLEST_CURVATURE)
        flattest = (self._diagonal * sample.spread**2).min()
        self._factors = _Factors(self._factor, flattest, self.blocks.nbytes)

    def improve(self, solved, vectors, strength):
        balance, factors = self._factors.near(strength)
        leading = self.sample.leading
        pull = (vectors[..., leading] * balance).astype(self.sample.dtype)
        full = [_solved(factor, pull[:, label].T).T for label, factor in enumerate(factors)]
        solved[..., leading] = np.stack(full, axis=1) * balance

    def _factor(self, strength):
        balance = (1 / np.sqrt(self._diagonal + self.sample.penalty(strength))).astype(self.sample.dtype)
        pairs = zip(self.blocks, balance, strict=True)
        factors = [_first_factor(partial(_between, *pair), self.sample.dtype) for pair in pairs]
        return balance / self.sample.spread, factors


class _Factors:
    """Factors of a matrix plus a penalty, at a few strengths of the penalty: temperatures that are solved together need
    one each.

    make : function of the strength; flattest : the smallest curvature of the matrix
    """

    def __init__(self, make, flattest, n_bytes):
        self.make, self.flattest, self.most = make, flattest, max(1, KEPT_BYTES // n_bytes)
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


def _between(block, balance, diagonal):
    """diag(balance) block diag(balance) with another diagonal, as a copy that LAPACK may overwrite."""
    balanced = block * balance
    balanced *= balance[:, None]
    np.fill_diagonal(balanced, diagonal)
    return balanced.T


def _first_factor(make, dtype):
    """Lower Cholesky factor of `make(1 + ridge)`, with the smallest of RIDGES for which it exists."""
    for ridge in RIDGES[dtype]:
        try:
            return linalg.cho_factor(make(1 + ridge), lower=True, overwrite_a=True, check_finite=False)[0]
        except linalg.LinAlgError:  # rounding has made it indefinite
            continue
    raise AssertionError("a matrix of positive curvatures with a whole ridge has a factor")


def _solved(factor, vectors):
    """(L L')^-1 vectors from the lower factor L; the routine for one vector is much faster than that for a matrix."""
    solve_one, solve_all = BY_FACTOR[factor.dtype.type]
    if vectors.shape[1] > 1:
        return solve_all(factor, vectors, lower=1)[0]
    half = solve_one(factor, vectors[:, 0], lower=1)
    return solve_one(factor, half, lower=1, trans=1)[:, None]
