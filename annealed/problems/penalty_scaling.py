"""Penalty scaling: the scaling of features in which the L2 penalty acts, and the choice among scalings.

Along the principal directions of the standardized columns, with variances v_k, the penalty is

    (l2_strength T / 2) sum_k v_k^(2 power) |coef_k|^2

with power 0 for "standardize" and `POWERS` for the others. Validation chooses the scaling; if columns far outnumber
rows, a least-squares fit chooses the one to start with.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from annealed.arrays import to_host
from annealed.lazy import cached_property
from annealed.problems.base import Features, check_choice
from annealed.rows import Design
from annealed.rows.class_points import class_point_coordinates
from annealed.rows.coordinates import (
    SMALLEST_EIGENVALUE,
    WIDEST_EIGENPROBLEM,
    Coordinates,
    coordinates_of_fits,
    diagonal_coordinates,
    principal_coordinates,
    rows_of_fits,
)
from annealed.rows.shrinkage import ridge_cost

PENALTY_SCALINGS = ("auto", "cv", "none", "standardize", "half-whiten", "whiten")
POWERS = {"half-whiten": 0.25, "whiten": 0.5}  # power of its variance by which a principal direction is divided
PERTURBATION = 0.05  # power, towards "half-whiten", at which validation estimates whether the alternative is better
FEW_ROWS = 600  # sparse rows up to which the alternative scaling takes so little time that it is always tried
LEAST_PENALTY = 0.1  # penalty over free energy below which no other scaling gains much
CLEAR_COST = 0.05  # relative increase of the squared error by a ridge: with more, it hides information


class Scaling(NamedTuple):
    """The penalty scaling of a problem: what the user asked for, its name, and the rows before any was applied."""

    asked: str
    name: str
    design: Design

    @classmethod
    def of(cls, asked, design) -> Scaling:
        check_choice(asked, "penalty_scaling", PENALTY_SCALINGS)
        usual = "none" if sparse.issparse(design.X) else "standardize"
        return cls(asked, usual if asked in ("auto", "cv") else asked, design)


def scaled_coordinates(
    rows: Design, features: Features, power, is_centered, class_points: Callable | None = None
) -> Coordinates:
    """The coordinates in which the penalty of a scaling is the identity.

    class_points : returns `class_point_coordinates` if they are known
    """
    if features.span and not power:  # the basis of the span is already the eigenbasis
        return diagonal_coordinates(features.scale, rows.column_variance())
    if features.span and rows.n_fits > 1:
        points = None
        if power == POWERS["whiten"]:
            points = class_points() if class_points else class_point_coordinates(rows, is_centered)
        return points or coordinates_of_fits(rows, power, is_centered=is_centered)
    return principal_coordinates(rows, features.scale, power)


class ScalingChoices:
    """The other scalings of a problem that validation may try; none for families without penalty scaling.

    With "cv" all of them are tried. With "auto" there is one alternative, tried if a small perturbation towards it
    improves the score. Sparse columns start with "none" and have the alternative "standardize". Dense columns start
    with "standardize" and have the alternative "half-whiten", or "whiten" if columns outnumber rows. Least squares may
    tell then that the path should start with "whiten", or that it need not be tried.
    """

    def __init__(self, problem):
        self.problem = problem
        self.scaling: Scaling | None = getattr(problem, "scaling", None)
        self.is_open = self.scaling is not None and self.scaling.asked == "auto"  # whether validation may change it

    def chosen(self) -> dict[str, Any]:
        """Settings that the family or validation chose, by name; the estimator exposes them with an underscore."""
        return {} if self.scaling is None else {"penalty_scaling": self.scaling.name}

    def initial(self) -> ScalingChoices:
        """The choices from the scaling to start with.

        With "auto" that is "whiten" if columns outnumber rows and a ridge harms a least-squares fit.
        """
        if not (self.is_open and self._class_points and self._ridge_cost >= CLEAR_COST):
            return self
        other = ScalingChoices(self.alternative())
        other.is_open = False
        return other

    @property
    def _is_sparse(self) -> bool:
        return sparse.issparse(self.problem.scaling.design.X)

    @cached_property
    def _class_points(self) -> Coordinates | None:
        """Coordinates in which, after whitening, all rows of a class are one point.

        None if columns are sparse, or if that is not so.
        """
        if self._is_sparse or not self.problem.features.span:
            return None
        return class_point_coordinates(self.problem.design, self.problem.scores.table.fit_intercept)

    @cached_property
    def _ridge_cost(self):
        design, is_centered = self.problem.design, self.problem.scores.table.fit_intercept
        training = next(rows_of_fits(design, is_centered))
        indicators = np.eye(design.n_classes)[to_host(design.labels)[training.is_seen]]
        return ridge_cost(training.rows, training.weight, indicators, is_centered)

    def others(self):
        """With "cv", the problem in the other scalings: "standardize" for sparse rows, the `POWERS` for dense ones.

        The `POWERS` need an eigendecomposition; they are left out if that would take too long.
        """
        if self.scaling is None or self.scaling.asked != "cv":
            return
        if self._is_sparse:
            yield self._standardized()
        elif self.problem.scores.coordinates.rank <= WIDEST_EIGENPROBLEM:
            yield from map(self._with_scaling, POWERS)

    def perturbed(self, parameters, temperature, value):
        """With "auto", the problem whose penalty of each coordinate is multiplied by a small power of its variance.

        It is in a scaling a small step towards the alternative; validation uses it to estimate whether that would
        improve the score. The penalty of the final fit's parameters is unchanged. None if the penalty is negligible,
        because then no other scaling changes much.
        """
        if not self.is_open or not self.problem.place.is_host:
            return None
        problem, scores = self.problem, self.problem.scores
        if scores.coordinates.basis.ndim != 2 or scores.table.rank > WIDEST_EIGENPROBLEM:
            return None
        coef, _ = scores.table.split(parameters)
        size, variance = np.sum(coef**2), scores.coordinates.spectrum
        if 0.5 * problem.l2_strength * temperature * size < LEAST_PENALTY * value:
            return None
        weight = np.maximum(variance, SMALLEST_EIGENVALUE * variance.max()) ** (2 * PERTURBATION)
        weight *= size / np.sum(weight * coef**2)
        other = copy(problem)
        other.penalty_weight = scores.table.join(np.broadcast_to(weight, coef.shape), np.zeros(coef.shape[:2]))[0]
        return other

    def tries_alternative(self, has_learned: bool) -> bool:
        """Whether to try the alternative without the perturbation.

        has_learned : whether the path in the present scaling predicts better than the priors

        True where the alternative takes little time and often helps. For dense columns: all rows of a class are one
        point after whitening, and least squares need no ridge. The shared directions of many dense columns may carry no
        information on the classes and hide those that do. For sparse columns: they or the rows are few, nothing was
        learned so far, or one has more variance than all others together: indicators may stand beside numbers in other
        units, and one such column can hide all others.
        """
        if not self._is_sparse:
            return self._class_points is not None and not self._ridge_cost <= 0
        design, variance = self.problem.design, self.problem.scores.coordinates.spectrum
        is_small = design.n_rows <= FEW_ROWS or design.n_features <= WIDEST_EIGENPROBLEM
        return is_small or not has_learned or bool(variance.max() > variance.sum() / 2)

    def alternative(self):
        """The problem in the scaling towards which `perturbed` goes."""
        if self._is_sparse:
            return self._standardized()
        return self._with_scaling("half-whiten" if self.problem.features.span is None else "whiten")

    def _standardized(self):
        problem = self.problem
        table, design = problem.scores.table, problem.scaling.design
        options = {"l2_strength": problem.l2_strength, "fit_intercept": table.fit_intercept}
        return type(problem)(design, penalty_scaling="standardize", **options)

    def _with_scaling(self, name):
        """A copy of the problem in one of the `POWERS`."""
        other, power = copy(self.problem), POWERS[name]
        other.scaling = other.scaling._replace(name=name)
        other.class_variance = other.place.wide(other.class_shares * (1 - other.class_shares))
        coordinates, span = other.scores.host_coordinates, other.features.span
        if not span and coordinates.basis.ndim == 2:
            other.solve_in(coordinates.raised(power))
        else:
            is_centered, points = other.scores.table.fit_intercept, lambda: self._class_points
            other.solve_in(scaled_coordinates(other.design, other.features, power, is_centered, points))
        return other
