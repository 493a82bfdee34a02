"""Penalty scaling: the scaling of features in which the L2 penalty acts, and the choice among scalings.

Along the principal directions of the standardized columns, with variances v_k, the penalty is

    (l2_strength T / 2) sum_k v_k^(2 power) |coef_k|^2

with power 0 for "standardize" and `POWERS` for the others. Validation chooses the scaling; if columns far outnumber
rows, a least-squares fit chooses the one to start with.
"""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import xlogy

from annealed.arrays import to_host
from annealed.rows.coordinates import SMALLEST_EIGENVALUE, WIDEST_EIGENPROBLEM, rows_of_fits
from annealed.rows.shrinkage import ridge_effect

PENALTY_SCALINGS = ("auto", "cv", "none", "standardize", "half-whiten", "whiten")
WHITENING = 0.5  # power of the variance that gives every principal direction variance one
POWERS = {"half-whiten": 0.25, "whiten": WHITENING}  # power of its variance by which a principal direction is divided
PERTURBATION = 0.05  # power, towards "half-whiten", at which validation estimates whether the alternative is better
LEAST_LEARNED = 0.02  # reduction of the priors' log-loss below which sparse columns are always tried standardized
LEAST_PENALTY = 0.1  # penalty over free energy below which no other scaling gains much
MANY_COLUMNS = 15  # columns per row from which the least-squares test of a ridge is reliable
SMALL_GAIN = 0.005  # relative reduction of the squared error by the best ridge: with less, no ridge is needed
CLEAR_COST = 0.07  # relative increase of the squared error by a large ridge: with more, it hides information
LARGE_GAIN = 0.1  # relative reduction of the squared error by the best ridge: with more, a ridge is needed


class ScalingChoices:
    """Mixin of a penalized problem: the other scalings that validation may try.

    With "cv" all of them are tried. With "auto" there is one alternative, tried if a small perturbation towards it
    improves the score. Sparse columns start with "none" and have the alternative "standardize". Dense columns start
    with "standardize" and have the alternative "half-whiten", or "whiten" if columns outnumber rows; if they far
    outnumber rows, the path may start with "whiten".
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
        """With "auto", "whiten" if columns far outnumber rows and a ridge only harms a least-squares fit."""
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
        """Whether columns are dense and, after whitening, all rows of a class are one point."""
        return not sparse.issparse(self.original.X) and self.class_points is not None

    @cached_property
    def _ridge_effect(self):
        training = next(rows_of_fits(self.design, self.fit_intercept))
        indicators = np.eye(self.design.n_classes)[to_host(self.design.labels)[training.is_seen]]
        return ridge_effect(training.rows, training.weight, indicators, self.fit_intercept)

    def alternatives(self):
        """With "cv", the problem in the other scalings: "standardize" for sparse rows, the `POWERS` for dense ones.

        The `POWERS` need an eigendecomposition; they are left out if that would take too long.
        """
        if not self._offers_all:
            return
        if sparse.issparse(self.original.X):
            yield self._standardized()
        elif self.coordinates.rank <= WIDEST_EIGENPROBLEM:
            yield from (self._with_scaling(penalty_scaling, power) for penalty_scaling, power in POWERS.items())

    def with_perturbed_scaling(self, parameters, temperature, value):
        """With "auto", the problem whose penalty of each coordinate is multiplied by a small power of its variance.

        None if the penalty is negligible, because then no other scaling changes much.
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
        """True where the alternative takes little time and often helps.

        For dense columns: all rows of a class are one point after whitening, and least squares need no ridge. The
        shared directions of many dense columns may carry no information on the classes and hide those that do. For
        sparse columns: there are few of them, or nothing was learned so far. Sparse columns may mix indicators with
        numbers in other units, and one such column can hide all others.
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
            return self._standardized()
        penalty_scaling = "half-whiten" if self.span is None else "whiten"
        return self._with_scaling(penalty_scaling, POWERS[penalty_scaling])

    def _standardized(self):
        make: Any = type(self)
        return make(
            self.given, l2_strength=self.l2_strength, penalty_scaling="standardize", fit_intercept=self.fit_intercept
        )

    def _with_scaling(self, penalty_scaling, power):
        """A copy of the problem in one of the `POWERS`."""
        other = copy(self)
        other.penalty_scaling = penalty_scaling
        other.class_variance = self.prior_variance
        is_rotated = not self.span and self.coordinates.basis.ndim == 2
        other._solve_in(self.coordinates.raised(power) if is_rotated else self._coordinates(power))
        return other
