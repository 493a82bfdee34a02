"""When a penalized problem of linear scores computes a Hessian for its preconditioner, and how much of it.

The decision compares the estimated time of the Hessian with that of a pass over the rows. If the blocks of single
classes take a fraction of the time of a Hessian in all coordinates, they come first, and the full Hessian only after
the steps have cost as much. Otherwise a Hessian of leading coordinates grows level by level.

Shapes: parameters of one fit (n_parameters,); times in nanoseconds, costs in passes of the whole stack of fits.
"""

from __future__ import annotations

import numpy as np

from annealed.problems import gibbs
from annealed.problems.curvature import ClassCurvature, LearnedCurvature
from annealed.problems.hessian_sample import ALL_LEVELS, HessianSample
from annealed.rows.cost import pass_time

REUSE_DISCOUNT = 0.8  # factor on the cost of a Hessian, because the next temperatures use it too
CLASSES_SHARE = 0.25  # time of the class blocks over that of a full Hessian, up to which the blocks come first
FEWEST_CLASSES = 8  # smallest number of classes for class blocks: fewer classes have few pairs
FEWEST_LEADING = 8  # smallest number of leading coordinates for which a Hessian is useful


class Preconditioners:
    """Hessians for the preconditioner of a `PenalizedLinearProblem`, and their cost in passes of the whole stack.

    Each `level` includes more coordinates than the one before, until all are included.
    """

    def __init__(self, problem):
        self.problem, self.scores, self.table = problem, problem.scores, problem.scores.table

    def cost(self, level) -> float:
        """Time of a Hessian and its factor, divided by that of a pass; infinite if it does not pay."""
        n_leading = self._n_leading(level)
        if n_leading < (self.table.rank if self._learns_classes else min(FEWEST_LEADING, self.table.rank)):
            return np.inf
        return REUSE_DISCOUNT * self._time(n_leading) / self._pass_time

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
        whole = self._time(HessianSample.count_leading(self.table, ALL_LEVELS))
        return self.table.n_scores >= FEWEST_CLASSES and self._time_of_classes <= CLASSES_SHARE * whole

    def _n_leading(self, level):
        return HessianSample.count_leading(self.table, ALL_LEVELS if self._learns_classes else level)

    def _time(self, n_leading):
        return HessianSample.time(self.scores.design.n_rows, n_leading, self.table, self.scores.has_quick_rows)

    @property
    def _time_of_classes(self):
        return HessianSample.time_of_classes(self.scores.design.n_rows, self.table, self.scores.has_quick_rows)

    @property
    def _pass_time(self):
        float32_rows, n_scores = self.scores.float32_rows, self.problem.n_fits * self.table.n_scores
        n_blocks = 1 if float32_rows is None else float32_rows.n_groups
        design = self.scores.design
        return pass_time(design.n_rows, design.n_features, n_scores, self.scores.has_quick_rows, n_blocks)
