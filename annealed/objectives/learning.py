"""When a penalized problem of linear scores learns its Hessian, and how much of it: by what that takes beside a pass.

Where the blocks of single classes take a fraction of the time of a Hessian with all coordinates, they are learned
first, and that one only when steps have cost as much; elsewhere a Hessian of leading coordinates grows by levels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from annealed.objectives import gibbs
from annealed.objectives.contrasts import Contrasts
from annealed.objectives.curvature import ClassCurvature, LearnedCurvature
from annealed.objectives.hessian_sample import ALL_LEVELS, HessianSample

REUSE_DISCOUNT = 0.8  # of what a Hessian costs: the next temperatures have it too
CLASSES_SHARE = 0.25  # of the time of a Hessian with all coordinates, up to which blocks of classes come first
FEWEST_CLASSES = 8  # whose blocks do: pairs of fewer classes are few
FEWEST_LEADING = 8  # coordinates: a Hessian of fewer tells next to nothing
PASS_TIME, GROUP_TIME = 3e5, 2.4e5  # nanoseconds, about, of its calls: in all, and for each group of rows
SCORE_TIME = 4.0  # the posterior of one score
MULTIPLICATION_TIME = {True: 0.03, False: 0.1}  # both products with one number of a row


class CurvatureLearning:
    """What L-BFGS asks of a penalized problem where steps become many."""

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
        """The time of a Hessian and its factor against that of a pass of the whole stack."""
        n_leading = self._n_leading(level)
        if n_leading < min(FEWEST_LEADING, self.coordinates.rank):
            return np.inf
        if self._learns_classes and n_leading < self.coordinates.rank:
            return np.inf
        return REUSE_DISCOUNT * self._time(n_leading) / self._pass_time

    def learn_curvature(self, parameters, temperature, level):
        return LearnedCurvature(*self._seen(self._n_leading(level), parameters, temperature))

    def class_learning_cost(self):
        """Likewise, of the blocks of single classes; infinite where they are not worth it."""
        return self._time_of_classes / self._pass_time if self._learns_classes else np.inf

    def learn_classes(self, parameters, temperature):
        return ClassCurvature(*self._seen(self._n_in_classes, parameters, temperature))

    def _seen(self, n_leading, parameters, temperature):
        """Rows in so many coordinates, and their posterior."""
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
        of_score = SCORE_TIME + MULTIPLICATION_TIME[self.has_float32_rows] * self.design.n_features
        calls = PASS_TIME + GROUP_TIME * (1 if self._float32_rows is None else self._float32_rows.n_groups)
        return calls + self.design.n_rows * self.n_fits * self.n_scores * of_score
