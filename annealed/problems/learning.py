"""When a penalized problem of linear scores computes a Hessian for its preconditioner, and how much of it.

The decision compares the estimated time of the Hessian with that of a pass over the rows. If the blocks of single
classes take a fraction of the time of a Hessian in all coordinates, they come first, and the full Hessian only after
the steps have cost as much. Otherwise a Hessian of leading coordinates grows level by level.

Shapes: parameters of one fit (n_parameters,); times in nanoseconds, costs in passes of the whole stack of fits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from annealed.problems import gibbs
from annealed.problems.contrasts import Contrasts
from annealed.problems.curvature import ClassCurvature, LearnedCurvature
from annealed.problems.hessian_sample import ALL_LEVELS, HessianSample

REUSE_DISCOUNT = 0.8  # factor on the cost of a Hessian, because the next temperatures use it too
CLASSES_SHARE = 0.25  # time of the class blocks over that of a full Hessian, up to which the blocks come first
FEWEST_CLASSES = 8  # smallest number of classes for class blocks: fewer classes have few pairs
FEWEST_LEADING = 8  # smallest number of leading coordinates for which a Hessian is useful
PASS_TIME, GROUP_TIME = 3e5, 2.4e5  # ns: overhead of a pass, and of each group of rows in it
SCORE_TIME = 4.0  # ns per score of a row: its posterior
MULTIPLICATION_TIME = {True: 0.03, False: 0.1}  # ns per entry of a row and score, with float32 rows and without


class CurvatureLearning:
    """Mixin of a penalized problem of linear scores: Hessians for the preconditioner of L-BFGS, and their cost."""

    design: Any
    coordinates: Any
    contrasts: Contrasts
    fit_intercept: bool
    has_float32_rows: Any
    n_fits: int
    n_scores: int
    _logits_of: Any
    _float32_rows: Any
    _sample: HessianSample | None

    def learning_cost(self, level):
        """Time of a Hessian and its factor, divided by that of a pass of the whole stack of fits."""
        n_leading = self._n_leading(level)
        if n_leading < min(FEWEST_LEADING, self.coordinates.rank):
            return np.inf
        if self._learns_classes and n_leading < self.coordinates.rank:
            return np.inf
        return REUSE_DISCOUNT * self._time(n_leading) / self._pass_time

    def learn_curvature(self, parameters, temperature, level):
        return LearnedCurvature(*self._sample_and_posterior(self._n_leading(level), parameters, temperature))

    def class_learning_cost(self):
        """As `learning_cost`, for the blocks of single classes; infinite if they do not pay."""
        return self._time_of_classes / self._pass_time if self._learns_classes else np.inf

    def learn_classes(self, parameters, temperature):
        return ClassCurvature(*self._sample_and_posterior(self._n_in_classes, parameters, temperature))

    def _sample_and_posterior(self, n_leading, parameters, temperature):
        """The sampled rows in `n_leading` coordinates, and their posterior."""
        if self._sample is None or self._sample.n_leading != n_leading:
            self._sample = HessianSample(
                self.design,
                self.coordinates.of_final,
                self.fit_intercept,
                n_leading,
                self.contrasts,
                self._float32_rows,
            )
        logits = self._logits_of(self._sample.rows, parameters[None], temperature, [0])
        return self._sample, gibbs.posterior(logits[:, 0])

    @property
    def _learns_classes(self) -> bool:
        is_cheap = self._time_of_classes <= CLASSES_SHARE * self._time(self._most_leading(ALL_LEVELS))
        return self.n_scores >= FEWEST_CLASSES and is_cheap

    def _n_leading(self, level):
        return self._most_leading(ALL_LEVELS if self._learns_classes else level)

    def _most_leading(self, level):
        return HessianSample.count_leading(self.coordinates, self.contrasts, self.fit_intercept, level)

    @property
    def _n_in_classes(self):
        return HessianSample.count_in_classes(self.coordinates, self.contrasts, self.fit_intercept)

    def _time(self, n_leading):
        width = n_leading + self.fit_intercept
        return HessianSample.time(self.design.n_rows, width, self.contrasts, self.has_float32_rows)

    @property
    def _time_of_classes(self):
        width = self._n_in_classes + self.fit_intercept
        return HessianSample.time_of_classes(self.design.n_rows, width, self.contrasts, self.has_float32_rows)

    @property
    def _pass_time(self):
        score_time = SCORE_TIME + MULTIPLICATION_TIME[self.has_float32_rows] * self.design.n_features
        overhead = PASS_TIME + GROUP_TIME * (1 if self._float32_rows is None else self._float32_rows.n_groups)
        return overhead + self.design.n_rows * self.n_fits * self.n_scores * score_time
