"""Imaginary rows at the centre, one for each class of which a fit has no row, so that its intercept has a minimum."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from annealed.arrays import HOST, Place, take
from annealed.problems import gibbs
from annealed.problems.contrasts import ParameterTable

MISSING_CLASS_WEIGHT = 0.5  # weight, in rows, of the imaginary row for a class that a fit lacks
MOST_ROWS = 1e12  # upper bound on the total weight, in rows


@dataclass(frozen=True)
class MissingClasses:
    """Loss of the imaginary rows, whose only score is the intercept, and its derivatives.

    weight : of each class in each fit, (n_fits, n_classes); zero if the fit has rows of the class
    place : where parameters live
    """

    weight: np.ndarray
    table: ParameterTable
    place: Place = HOST

    @cached_property
    def placed_weight(self):
        """The weight beside the parameters."""
        return self.place.wide(self.weight)

    def any(self, fits) -> bool:
        return self.table.fit_intercept and bool(self.weight[fits].any())

    def with_loss(self, loss, gradient, parameters, fits):
        """Loss (n_fits,) and gradient (n_fits, n_parameters), including those of the imaginary rows."""
        if not self.any(fits):
            return loss, gradient
        xp, weight = self.place.xp, take(self.placed_weight, fits)
        intercept = self.table.class_intercept(parameters)
        top = xp.max(intercept, axis=1, keepdims=True)
        log_partition = xp.log(xp.sum(xp.exp(intercept - top), axis=1, keepdims=True)) + top
        evidence = xp.sum(weight, axis=1, keepdims=True) * xp.exp(intercept - log_partition) - weight
        coef, intercept_gradient = self.table.split(gradient)
        gradient = self.table.join(coef, intercept_gradient + self.table.contrasts.pull(evidence))
        return loss + xp.sum(weight * (log_partition - intercept), axis=1), gradient

    def add_hessian(self, hessian, parameters, fits):
        """Add the Hessian by differences of intercepts, (n_fits, n_differences, width, n_differences, width)."""
        if self.any(fits):
            contrasts, posterior = self.table.contrasts, gibbs.posterior(self.table.class_intercept(parameters))
            covariance = contrasts.pair_covariance(posterior)[:, contrasts.numbers]
            hessian[..., -1, :, -1] += self.weight[fits].sum(axis=1)[:, None, None] * covariance

    def add_product(self, product, parameters, along, fits):
        """Add the Hessian times `along`, a product in the shape of the parameters."""
        if self.any(fits):
            posterior = gibbs.posterior(self.table.class_intercept(parameters))
            curved = self.table.contrasts.curved(posterior, self.table.split(along)[1])
            self.table.of(product)[..., -1] += self.weight[fits].sum(axis=1)[:, None] * curved


def missing_class_weight(class_shares, total_weight, unweighted):
    """Weight (n_fits, n_classes) of an imaginary row for each class of which a fit has no row, else zero.

    unweighted : its weight, in rows, if the final fit (the first) has no row of the class either. It is tiny, so
        that the class is never predicted.
    """
    weight = np.where(class_shares[0] > 0, MISSING_CLASS_WEIGHT, unweighted)
    return np.where(class_shares > 0, 0, weight / np.minimum(total_weight, MOST_ROWS)[:, None])
