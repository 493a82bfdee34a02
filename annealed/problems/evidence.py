"""Score test of what the penalty still suppresses.

The statistic is the sum of squared gradients of the loss over their variance if nothing were left to learn. At the
minimum the gradient of the loss is minus that of the penalty. Directions of small variance enter the fit last, however
informative they are; those whose penalty exceeds the curvature of the loss are tested.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from annealed.arrays import to_host
from annealed.problems.base import Problem
from annealed.problems.penalized_linear import PenalizedLinearProblem

TESTED_SHARE = 0.2  # tested parameters per row, up to which the score test is valid
NARROWEST = 100.0  # smallest spread of a tested coordinate, in rounding errors of the widest coordinate's spread


class Evidence(NamedTuple):
    """Score test: excess of the statistic over its expectation under chance.

    errors : the excess in standard errors
    nats : the excess in nats per row
    """

    errors: float
    nats: float


NO_EVIDENCE = Evidence(np.nan, np.nan)


def evidence_held_back(problem: Problem, parameters, temperature) -> Evidence:
    """Score test of the final fit; NaN for other families, and with as many parameters as rows: it has no power then.

    On a device, coordinates so narrow that rounding errors of the widest one may hide them are left out.
    """
    if not isinstance(problem, PenalizedLinearProblem):
        return NO_EVIDENCE
    final, narrowest = parameters[None, ...], 0.0 if problem.place.is_host else NARROWEST * problem.place.rounding
    if problem.hessians is not None:  # steps with a Hessian set no variance
        problem.loss(final, temperature, slice(0, 1), quick=True)
    return excess(problem, final, temperature, problem.class_variance, narrowest)


def excess(problem: PenalizedLinearProblem, final, temperature, class_variance, narrowest=0.0) -> Evidence:
    """The evidence at the minimum of the final fit, (1, n_parameters).

    class_variance : mean of p (1 - p) there
    narrowest : spread relative to the largest one, below which a coordinate is rounding error
    """
    fits, strength, scores = slice(0, 1), problem.l2_strength * temperature, problem.scores
    terms = problem.place.host(problem.curvature(temperature, fits, class_variance), final)
    curvature, coef = (scores.table.split(term)[0] for term in terms)
    spectrum = scores.host_coordinates.of_fits(fits).spectrum.reshape(-1)
    is_tested = (curvature < strength) & (spectrum > narrowest**2 * spectrum.max())
    n_rows, n_tested = 1 / np.sum(to_host(problem.design.weight)[:, 0] ** 2), int(is_tested.sum())
    if n_tested > TESTED_SHARE * n_rows:
        return NO_EVIDENCE
    squares = (strength * coef[is_tested]) ** 2 / np.maximum(curvature[is_tested], np.finfo(float).tiny)
    total = float(n_rows * squares.sum() - n_tested)
    return Evidence(total / np.sqrt(2 * max(n_tested, 1)), total / (2 * n_rows))
