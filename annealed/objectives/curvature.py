"""A preconditioner learned from the Hessian of the rows.

The Hessian of the final fit at its current parameters serves every fold and the next temperatures: they share most of
their rows, and the path is smooth. It is kept whole for the coordinates of the largest spectrum (how many, `level`
says: each holds twice as many parameters as the one before) and diagonal for the rest, and only its sum with the
penalty is factored anew when the temperature changes. It is by differences of scores
(`annealed/objectives/contrasts.py`).

Of many classes or columns the blocks of single classes cost a fraction of the whole: as many squares as classes, not as
pairs of them, of fewer rows each, and small factors. What classes have to do with each other is left to the steps.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy import linalg
from scipy.linalg import blas, lapack

from annealed.design.threads import blas_threads
from annealed.objectives.hessian_sample import HessianSample

RIDGES = {np.float64: (1e-12, 1e-9, 1e-6, 1.0), np.float32: (1e-6, 1e-4, 1e-2, 1.0)}  # the first that gives a factor
BY_FACTOR = {np.float32: (blas.strsv, lapack.spotrs), np.float64: (blas.dtrsv, lapack.dpotrs)}  # of one vector, of more
SMALLEST_CURVATURE = 1e-12  # of a class, in units of its spread: rows that all but exclude it tell no more
STALE = 0.3  # change of the smallest entry of the factored diagonal that asks for a new factor
LARGE_FACTOR, COSTLY_FACTOR = 1000, 8.0  # parameters, and passes of a fit that its factor is worth, from which
COLDER_STALE, WARMER_STALE = 0.7, 8.0  # the penalty may fall or rise by more before


class LearnedCurvature:
    """The Hessian of the loss on leading coordinates; `improve` replaces that part of a diagonal solve."""

    def __init__(self, sample: HessianSample, posterior):
        self.sample = sample
        # Differences from the score of most curvature: the others' own curvatures then keep their digits.
        self.reference = int(np.argmax(np.einsum("n,nc,nc->c", sample.weight, posterior, 1 - posterior)))
        self.hessian = sample.hessian(posterior, self.reference)
        curvature = np.diag(self.hessian) * np.tile(sample.spread, sample.contrasts.n_differences) ** 2
        self._flattest = curvature.min()
        self._factored: tuple[float, tuple] | None = None

    def improve(self, solved, vectors, strength):
        """Overwrite the leading part of `solved`, vectors divided by a diagonal, by the full solve.

        solved, vectors : (n_fits, n_scores, width); strength : penalty on each coefficient
        """
        if self._factored is None or self._is_stale(self._factored[0], strength):
            self._factored = None  # gives its memory back before the next takes as much
            self._factored = strength, self._factor(strength)
        balance, factor = self._factored[1]
        contrasts, leading = self.sample.contrasts, self.sample.leading
        pull = contrasts.by_differences(vectors[..., leading], self.reference).reshape(len(vectors), -1) * balance
        full = _solved(factor, pull.T.astype(self.sample.dtype)).T * balance
        solved[..., self.sample.leading] = self._from_differences(full)

    def improve_root(self, rooted, noise, strength):
        """As `improve`, with a root of the inverse instead: standard normal noise gets its covariance."""
        balance, factor = self._factor(strength)
        drawn = noise[:, : self.sample.contrasts.n_differences, self.sample.leading]
        flat = drawn.reshape(len(noise), -1).T.astype(self.sample.dtype)
        root = linalg.solve_triangular(factor, flat, trans=1, lower=True, check_finite=False).T * balance
        rooted[..., self.sample.leading] = self._from_differences(root)

    def _from_differences(self, flat):
        contrasts = self.sample.contrasts
        return contrasts.from_differences(flat.reshape(len(flat), contrasts.n_differences, -1), self.reference)

    def _is_stale(self, old, new):
        """Whether the penalty asks for a new factor."""
        limit, size = STALE, len(self.hessian)
        n_passes = size**2 / (12 * len(self.sample.rows))  # size^3 / 6 multiplications, by two products of rows each
        if size >= LARGE_FACTOR and n_passes >= COSTLY_FACTOR:
            limit = WARMER_STALE if new > old else COLDER_STALE
        return _has_moved(old, new, self._flattest, limit)

    def _factor(self, strength):
        """Factors of the sum with the penalty, balanced to a unit diagonal, and what balances."""
        square, penalty = self.sample.contrasts.square, self.sample.penalty(strength)
        diagonal = np.maximum(np.diag(self.hessian), SMALLEST_CURVATURE)
        balance = 1 / np.sqrt(diagonal + np.tile(penalty, len(square)) * square[0, 0])
        with blas_threads(len(balance)):
            factor = _first_factor(partial(self._balanced, balance, penalty), self.sample.dtype)
        return balance / np.tile(self.sample.spread, len(square)), factor

    def _balanced(self, balance, penalty, diagonal):
        """The Hessian and its penalty between two `balance`, symmetric, in one copy that LAPACK can overwrite."""
        square, each = self.sample.contrasts.square, np.arange(len(penalty))
        balance = balance.astype(self.hessian.dtype)
        balanced = self.hessian * balance
        balanced *= balance[:, None]
        table = balance.reshape(len(square), -1).T  # (width, n_differences)
        own = (penalty[:, None, None] * square) * (table[:, :, None] * table[:, None, :])
        balanced.reshape(len(square), len(penalty), len(square), -1)[:, each, :, each] += own
        np.fill_diagonal(balanced, diagonal)
        return balanced.T


class ClassCurvature:
    """The blocks of single classes of the loss's Hessian, on leading coordinates; `improve` is that of
    `LearnedCurvature`.
    """

    def __init__(self, sample: HessianSample, posterior):
        self.sample, self.blocks = sample, sample.class_blocks(posterior)
        self._own = np.maximum(np.einsum("kii->ki", self.blocks), SMALLEST_CURVATURE)
        self._flattest = (self._own * sample.spread**2).min()
        self._factored_at: float | None = None  # strength

    def improve(self, solved, vectors, strength):
        if self._factored_at is None or _has_moved(self._factored_at, strength, self._flattest, STALE):
            self._factor(strength)
        leading = self.sample.leading
        pull = (vectors[..., leading] * self._balance).astype(self.sample.dtype)
        full = [_solved(factor, pull[:, own].T).T for own, factor in enumerate(self._factors)]
        solved[..., leading] = np.stack(full, axis=1) * self._balance

    def _factor(self, strength):
        balance = (1 / np.sqrt(self._own + self.sample.penalty(strength))).astype(self.sample.dtype)
        pairs = zip(self.blocks, balance, strict=True)
        self._factors = [_first_factor(partial(_between, *pair), self.sample.dtype) for pair in pairs]
        self._balance, self._factored_at = balance / self.sample.spread, strength


def _has_moved(old, new, flattest, limit):
    """Whether the penalty has changed by more than a share of the flattest direction's curvature."""
    return abs(new - old) > limit * (old + flattest)


def _between(block, balance, diagonal):
    """A block between two `balance`, with another diagonal, in one copy that LAPACK can overwrite."""
    balanced = block * balance
    balanced *= balance[:, None]
    np.fill_diagonal(balanced, diagonal)
    return balanced.T


def _first_factor(make, dtype):
    """The lower factor of `make(diagonal)`, with the least ridge on its unit diagonal that rounding allows."""
    for ridge in RIDGES[dtype]:
        try:
            return linalg.cho_factor(make(1 + ridge), lower=True, overwrite_a=True, check_finite=False)[0]
        except linalg.LinAlgError:  # rounding has made it indefinite
            continue
    raise AssertionError("a matrix of positive curvatures with a whole ridge has a factor")


def _solved(factor, vectors):
    """(L L')^-1 vectors, from the lower factor; one vector is much faster by itself than as a matrix of one column."""
    solve_one, solve_all = BY_FACTOR[factor.dtype.type]
    if vectors.shape[1] > 1:
        return solve_all(factor, vectors, lower=1)[0]
    half = solve_one(factor, vectors[:, 0], lower=1)
    return solve_one(factor, half, lower=1, trans=1)[:, None]
