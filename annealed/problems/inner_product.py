"""Inner-product family (pADA, eq. 13): scores are `lambda_j'x`, with the penalty of (17)."""

from __future__ import annotations

from annealed.problems.base import Objective, unit_C
from annealed.problems.penalized_linear import PenalizedLinearProblem


class InnerProduct(Objective):
    """Inner-product discriminants (13) with the penalty of (17).

    Parameters
    ----------
    l2_strength : float, default=1.0
        The paper's epsilon.
    penalty_scaling : {"auto", "cv", "none", "standardize", "half-whiten", "whiten"}, default="auto"
        Units of the penalty; see :class:`annealed.AnnealedLogisticRegression`.
    fit_intercept : bool, default=True
        Whether the scores have a free, unpenalized intercept.
    """

    runs_on_devices = True
    cooling_rate = 0.4  # temperatures in between are interpolated to within the tolerance
    learns_late = True  # directions of small variance enter the fit last

    def __init__(self, *, l2_strength=1.0, penalty_scaling="auto", fit_intercept=True) -> None:
        self.l2_strength = l2_strength
        self.penalty_scaling = penalty_scaling
        self.fit_intercept = fit_intercept

    def unit_C(self, total_weight, n_classes):
        return unit_C(self.l2_strength, total_weight, n_classes)

    def prepare(self, design, random_state=None):
        return PenalizedLinearProblem(
            design, l2_strength=self.l2_strength, penalty_scaling=self.penalty_scaling, fit_intercept=self.fit_intercept
        )
