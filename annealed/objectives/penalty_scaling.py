"""The units of the penalty: along the principal directions of the standardized columns, of variances v_k, it is

    (l2_strength T / 2) sum_k v_k^(2 power) |coef_k|^2

with the power 0 in the diagonal metric and `POWERS` in others. Which is best is for validation to say, or for least
squares beforehand, where columns outnumber rows.
"""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import xlogy

from annealed.arrays import to_host
from annealed.design.coordinates import SMALLEST_EIGENVALUE, WIDEST_EIGENPROBLEM, rows_of_fits
from annealed.design.shrinkage import ridge_effect

PENALTY_SCALINGS = ("auto", "cv", "none", "standardize", "half-whiten", "whiten")
WHITENING = 0.5  # a power of the variance that leaves none
POWERS = {"half-whiten": 0.25, "whiten": WHITENING}  # of the variance, by which each principal direction is divided
PERTURBATION = 0.05  # power of the variance, on the way to "half-whiten", at which validation is asked where that leads
LEAST_LEARNED = 0.02  # of the log-loss of the priors: with less, sparse columns are tried in the other metric unasked
LEAST_PENALTY = 0.1  # of the free energy: with less, no other metric gains much
MANY_COLUMNS = 15  # for each row: with fewer, least squares may take a ridge for useless by luck
SMALL_GAIN = 0.005  # by a ridge, of the squared error: none is needed
CLEAR_COST = 0.07  # likewise, of a ridge that is as large as most directions: there is something that it hides
LARGE_GAIN = 0.1  # likewise: without a ridge little is learned


class ScalingChoices:
    """The other metrics of a problem: all of them where its own is "cv", one to lean to where it is "auto".

    Sparse columns are taken as they are, and may lean to the "standardize" scaling. That is where dense ones begin,
    which may lean to "half-whiten", or to "whiten" where they outnumber rows; far outnumbered ones may begin there.
    """

    given: Any
    original: Any
    design: Any
    coordinates: Any
    span: Any
    class_points: Any
    penalty_scaling: str
    l2_strength: float
    fit_intercept: bool
    class_shares: np.ndarray
    class_variance: np.ndarray
    prior_variance: np.ndarray
    _is_penalized: np.ndarray
    _offers_all: bool
    _may_change_scaling: bool
    _split: Any
    _join: Any
    _solve_in: Any
    _coordinates: Any

    def chosen(self):
        return {"penalty_scaling": self.penalty_scaling}

    def initial_scaling(self):
        """With the metric "auto", whitened where columns far outnumber rows and least squares only lose by a ridge."""
        is_wide = self.span is not None and self.original.n_features >= MANY_COLUMNS * (self.span.rows.shape[1] + 1)
        if not (self._may_change_scaling and is_wide and self._becomes_points):
            return self
        effect = self._ridge_effect
        if not (effect.gain <= SMALL_GAIN and effect.cost >= CLEAR_COST):
            return self
        other = self.with_alternative_scaling()
        other._may_change_scaling = False
        return other

    @property
    def _becomes_points(self) -> bool:
        """Whether columns are dense and the rows of a class are one point when whitened."""
        return not sparse.issparse(self.original.X) and self.class_points is not None

    @cached_property
    def _ridge_effect(self):
        seen = next(rows_of_fits(self.design, self.fit_intercept))
        indicators = np.eye(self.design.n_classes)[to_host(self.design.labels)[seen.is_seen]]
        return ridge_effect(seen.rows, seen.weight, indicators, self.fit_intercept)

    def alternatives(self):
        """With the metric "cv", the same problem in the other metrics: of sparse rows the diagonal one, of
        dense ones those of the eigenbasis, unless that alone takes long.
        """
        if not self._offers_all:
            return
        if sparse.issparse(self.original.X):
            yield self._diagonal()
        elif self.coordinates.rank <= WIDEST_EIGENPROBLEM:
            yield from (self._with_scaling(penalty_scaling, power) for penalty_scaling, power in POWERS.items())

    def with_perturbed_scaling(self, parameters, temperature, value):
        """With the metric "auto", the penalty of each coordinate times its variance to a small power.

        None where the penalty is next to nothing: no other metric then changes much.
        """
        if (
            not self._may_change_scaling
            or self.coordinates.basis.ndim != 2
            or self.coordinates.rank > WIDEST_EIGENPROBLEM
        ):
            return None
        coef, _ = self._split(parameters[None])
        size, variance = np.sum(coef**2), self.coordinates.spectrum
        if 0.5 * self.l2_strength * temperature * size < LEAST_PENALTY * value:
            return None
        weight = np.maximum(variance, SMALLEST_EIGENVALUE * variance.max()) ** (2 * PERTURBATION)
        weight *= size / np.sum(weight * coef**2)
        other = copy(self)
        other._is_penalized = self._join(np.broadcast_to(weight, coef.shape), np.zeros(coef.shape[:2]))[0]
        return other

    def always_tries_alternative(self, score):
        """Where trying takes little time and often helps: of rows fewer than columns, whose classes are points when
        whitened, unless least squares need a ridge; of few sparse columns, and where nothing was learned.

        Sparse columns may hold numbers beside indicators, in other units: one of them can hide all others. Dense ones
        that outnumber rows share directions that tell the classes nothing, and these can hide what does.
        """
        if not self._may_change_scaling:
            return False
        if not sparse.issparse(self.original.X):
            return self._becomes_points and not self._ridge_effect.gain > LARGE_GAIN
        is_small = self.span is not None or self.original.n_features <= WIDEST_EIGENPROBLEM
        has_learned = score > (1 - LEAST_LEARNED) * np.sum(xlogy(self.class_shares[0], self.class_shares[0]))
        return is_small or not has_learned

    def with_alternative_scaling(self):
        if sparse.issparse(self.original.X):
            return self._diagonal()
        penalty_scaling = "half-whiten" if self.span is None else "whiten"
        return self._with_scaling(penalty_scaling, POWERS[penalty_scaling])

    def _diagonal(self):
        make: Any = type(self)
        return make(
            self.given, l2_strength=self.l2_strength, penalty_scaling="standardize", fit_intercept=self.fit_intercept
        )

    def _with_scaling(self, penalty_scaling, power):
        other = copy(self)
        other.penalty_scaling = penalty_scaling
        other.class_variance = self.prior_variance
        is_rotated = not self.span and self.coordinates.basis.ndim == 2
        other._solve_in(self.coordinates.raised(power) if is_rotated else self._coordinates(power))
        return other
