"""The linear families on a device: the penalized free energy (pADA), and soft means (dADA).

    Q / T = mean over rows of [ log_partition(logits) - logit of the true class ] + 1/2 <strength, (w - anchor)^2>

The base class, with the pass over the rows, is in `annealed/problems/array_linear.py`.
Shapes: parameters w (n_fits, n_classes, width), on the device, in its widest float.
"""

from __future__ import annotations

import numpy as np

from annealed.problems.array_linear import ArrayProblem
from annealed.problems.penalized_linear import PenalizedLinearProblem
from annealed.problems.smooth import HOT_LOGIT


class ArrayPenalizedProblem(ArrayProblem):
    """The penalized free energy (17): see `PenalizedLinearProblem`. Here two classes have two scores, of mean zero.

    The preconditioner is diagonal, `1 / (eigenvalue_k * mean of p_j (1 - p_j) + l2_strength T)`.
    """

    def __init__(self, host, matmul_precision=None):
        super().__init__(host, matmul_precision)
        self.l2_strength, self.fit_intercept = host.l2_strength, host.scores.table.fit_intercept
        self.width = self.rank + self.fit_intercept
        self.missing = self.place.wide(host.missing.weight)
        self._is_penalized = self.place.wide(np.arange(self.width) < self.rank)
        self._has_missing = host.missing.any(slice(None))

    def _split(self, table):
        if self.fit_intercept:
            return table[..., :-1], table[..., -1]
        return table, self.xp.sum(table, axis=-1) * 0.0

    def _join(self, coef, intercept):
        return self.xp.concat([coef, intercept[..., None]], axis=-1) if self.fit_intercept else coef

    def start(self, temperature):
        coef = self.place.zeros((self.n_fits, self.n_classes, self.rank))
        prior = np.log(self.class_shares + self.host.missing.weight)
        return self._join(coef, self.place.wide(prior - prior.mean(axis=1, keepdims=True)))

    def terms(self, parameters, temperature, fits):
        return self._split(parameters)

    def backward(self, pulled, residual_sum, parameters, temperature, fits):
        return self._join(pulled, residual_sum)

    def _loss(self, parameters, temperature, fits, quick, learn, fine=False):
        """Loss and gradient, plus an imaginary row at the centre for each class of which a fit has no row."""
        loss, slope, gradient = super()._loss(parameters, temperature, fits, quick, learn, fine)
        if not self._has_missing:
            return loss, slope, gradient
        xp, missing = self.xp, self.of_fits(self.missing, fits)
        intercept = parameters[..., -1]
        top = xp.max(intercept, axis=1, keepdims=True)
        log_partition = xp.log(xp.sum(xp.exp(intercept - top), axis=1, keepdims=True)) + top
        evidence = xp.sum(missing, axis=1, keepdims=True) * xp.exp(intercept - log_partition) - missing
        coef, intercept_gradient = self._split(gradient)
        loss = loss + xp.sum(missing * (log_partition - intercept), axis=1)
        return loss, slope + xp.sum(evidence * intercept, axis=1), self._join(coef, intercept_gradient + evidence)

    def penalty(self, temperature, fits):
        return self._strength(temperature, 3) * self._is_penalized, 0.0

    def _strength(self, temperature, ndim):
        """The penalty's strength: a number, or an array of `ndim` axes with one entry per temperature."""
        if np.ndim(temperature) == 0:
            return self.l2_strength * float(temperature)
        strength = self.place.wide(self.l2_strength * np.asarray(temperature))
        return self.xp.reshape(strength, (-1, *(1,) * (ndim - 1)))

    def _inverse_diagonal(self, temperature, fits):
        """One over mean `p (1 - p)` of a class times spectrum, plus penalty: (n_fits, n_classes, width)."""
        variance = self.of_fits(self.class_variance, fits) + self.of_fits(self.missing, fits)
        coef = variance[..., None] * self.of_fits(self.spectrum, fits)[:, None, :]
        return 1.0 / (self._join(coef, variance) + self.penalty(temperature, fits)[0])

    def precondition(self, vectors, temperature, fits):
        """Diagonal solve; a common shift of all classes leaves the posterior unchanged: only the penalty acts on it."""
        xp, inverse = self.xp, self._inverse_diagonal(temperature, fits)
        inverse = xp.reshape(inverse, (inverse.shape[0], *(1,) * (vectors.ndim - 3), *inverse.shape[1:]))
        solved = vectors * inverse
        common = xp.mean(vectors, axis=-2, keepdims=True) / self._strength(temperature, vectors.ndim)
        solved += common * self._is_penalized - xp.mean(solved, axis=-2, keepdims=True)
        return solved

    def certificate(self, gradient, temperature, fits):
        """|gradient|^2 / (2 l2_strength T) at the best intercept; see `PenalizedLinearProblem.certificate`."""
        xp = self.xp
        coef, intercept = self._split(gradient)
        length = xp.sqrt(xp.sum(coef * coef, axis=(1, 2)))
        squares = intercept * intercept
        if not self.fit_intercept:
            return length**2 / (2 * self._strength(temperature, 1))
        size = xp.sum(self.of_fits(self.spectrum, fits), axis=1)
        length = length + xp.sqrt(size * xp.sum(squares, axis=1))
        variance = self.of_fits(self.class_variance, fits) + self.of_fits(self.missing, fits)
        intercept_gain = xp.sum(squares / (2 * variance), axis=1)
        return length**2 / (2 * self._strength(temperature, 1)) + intercept_gain

    def hot_temperature(self):
        """At high T, coef is -gradient / (l2_strength T): solve for the T at which its logits have size HOT_LOGIT."""
        fits, place, quick = slice(0, 1), self.place, self.has_quick_rows
        with place.products_in(self.matmul_precision):
            _, _, gradient = self._loss(self.start(1.0)[fits, ...], 1.0, fits, quick, False)
            coef, intercept = self._split(gradient)
            (largest,) = place.host(self.xp.max(self.xp.abs(coef)))
            if largest <= self.host.gradient_noise():
                return 1.0
            rows = self._half_rows if quick else self._plain_rows
            table = rows.table(self.to_features(coef, fits)[0, ...], intercept[0, ...] * 0.0)

            def kernel(block):
                scores = rows.logits(rows.of_block(block), table)
                scores *= scores
                scores *= block.weight[:, :1]
                return (self.xp.sum(scores, axis=0),)

            (squares,) = rows.design.sum_rows(kernel)
        return float(np.sqrt(squares.max()) / (self.l2_strength * HOT_LOGIT))

    def _report(self, parameters, temperature, fits):
        """Arrays with mean zero over classes."""
        centered = parameters - self.xp.mean(parameters, axis=1, keepdims=True)
        return super()._report(centered, temperature, fits)

    def as_host(self, flat):
        """Parameters for the host problem, which has one score for two classes: (second - first) / sqrt(2)."""
        if self.n_classes != 2:
            return flat
        first, second = flat[:, : self.width], flat[:, self.width :]
        return np.sqrt(0.5) * (second - first)


class ArrayDistanceProblem(ArrayProblem):
    """Soft means as linear logits with tied intercepts: see `DistanceProblem`."""

    def __init__(self, host, matmul_precision=None):
        super().__init__(host, matmul_precision)
        self.anchor = host.anchor
        self.log_prior, self.shares = self.place.wide(host.scores.log_prior), self.place.wide(host.anchored_shares)
        self.class_means = self.place.wide(host.class_means)
        self.width = self.rank

    def start(self, temperature):
        return 2 / temperature * self.place.wide(self.host.start_means)

    def terms(self, parameters, temperature, fits):
        squares = self.xp.sum(parameters * parameters, axis=2)
        return parameters, self.of_fits(self.log_prior, fits) - temperature / 4 * squares

    def backward(self, pulled, residual_sum, parameters, temperature, fits):
        return pulled - temperature / 2 * parameters * residual_sum[..., None]

    def penalty(self, temperature, fits):
        strength = self.anchor * temperature / 4 * self.of_fits(self.shares, fits)
        return strength[..., None], 2 / temperature * self.of_fits(self.class_means, fits)

    def precondition(self, vectors, temperature, fits):
        variance = self.of_fits(self.class_variance, fits)
        curvature = variance[..., None] * self.of_fits(self.spectrum, fits)[:, None, :]
        diagonal = curvature + self.penalty(temperature, fits)[0]
        diagonal = self.xp.maximum(diagonal, diagonal * 0.0 + float(np.finfo(np.float32).tiny))
        return vectors / self.xp.reshape(diagonal, (diagonal.shape[0], *(1,) * (vectors.ndim - 3), *diagonal.shape[1:]))

    def hot_temperature(self):
        return float(self.host.hot_temperature())

    def _report(self, parameters, temperature, fits):
        means = self._turned(temperature / 2 * parameters, self.inverse_across, fits)
        return {**super()._report(parameters, temperature, fits), "means": means + self.center}


def on_device(problem, matmul_precision=None) -> ArrayProblem:
    """The device counterpart of a host problem whose rows are on a device."""
    kind = ArrayPenalizedProblem if isinstance(problem, PenalizedLinearProblem) else ArrayDistanceProblem
    return kind(problem, matmul_precision)
