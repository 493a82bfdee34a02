"""Problems with gradients: penalized mean negative log-likelihoods, summed in one pass over the rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from annealed.arrays import ROUNDING, at_least
from annealed.problems import gibbs
from annealed.problems.base import Features, Problem, TrainingSummary
from annealed.rows import Block, Design, SinglePrecisionRows
from annealed.rows.cost import BLOCK_BYTES

HOT_LOGIT = 0.1  # root mean square logit at the hot end of an automatic schedule
LEAST_RISE = 1.01  # smallest ratio of the logits' spread between two trial temperatures that counts as a response


class Rounding(NamedTuple):
    """Precision of a pass.

    loss : relative rounding error of a mean loss
    decrease : predicted relative decrease below which a step only follows rounding errors; zero in float64 on the host
    """

    loss: float
    decrease: float

    @property
    def is_exact(self) -> bool:
        """Whether final fits are certified by passes like this one wherever they are solved."""
        return self.decrease == 0


EXACT, OF_FLOAT32 = Rounding(64 * np.finfo(np.float64).eps, 0.0), Rounding(1e-7, 1e-7)


def calibrated_loss_and_entropy(logits, labels, weight, scale, knows_entropy=False):
    """Weighted sums over rows of the calibrated loss and, unless it is known, of the entropy: each (n_points,).

    logits : (n_rows, n_points, n_classes), overwritten
    scale : posterior scale of each point, (n_points, 1)
    """
    entropy = () if knows_entropy else (weight @ gibbs.entropy(logits),)
    logits *= scale
    return weight @ gibbs.negative_log_likelihood(logits, labels), *entropy


class Scores(ABC):
    """How the logits of rows depend on the parameters: a small state, logits of a block, and their pullback.

    `copies_rows` : whether a pass allocates anything as large as the rows of a block. `float32_rows` : a copy of the
    rows in float32, if there is one, for passes with `quick`.
    """

    copies_rows = True
    float32_rows: SinglePrecisionRows | None = None

    def __init__(self, design: Design):
        self.design = design

    @abstractmethod
    def forward(self, parameters, temperature, fits, quick=False) -> Any:
        """Small arrays that a pass over the rows needs, computed once per pass."""

    @abstractmethod
    def logits(self, block: Block, state) -> np.ndarray:
        """Logits (n_rows, n_fits, n_classes) of a block."""

    @abstractmethod
    def pullback(self, block: Block, state, residual) -> tuple:
        """Arrays that are summed over blocks, from which `backward` computes the gradient; may overwrite `residual`."""

    @abstractmethod
    def backward(self, sums: tuple, parameters, temperature, fits, quick=False) -> np.ndarray:
        """Gradient of the loss part (n_fits, n_parameters)."""

    def loss(self, parameters, temperature, fits, quick=False):
        """Loss (n_fits,) and its gradient (n_fits, n_parameters) in one pass, and the variance of each class.

        The variance is that of the final fit, None if the first of the fits is another.
        """
        full_state = self.forward(parameters, temperature, fits, quick)
        has_final = np.arange(self.design.n_fits)[fits][0] == 0

        def kernel(block):
            positions = block.fit_positions
            state = full_state if positions is None else tuple(part[positions] for part in full_state)
            losses, residual = gibbs.loss_and_residual(self.logits(block, state), block.labels)
            variance = (gibbs.class_variance(residual[:, 0], block.weight[:, 0]),) if has_final else ()
            residual *= block.weight[..., None]
            loss = np.einsum("ns,ns->s", block.weight, losses, dtype=np.float64)
            return (loss, *self.pullback(block, state, residual), *variance)

        loss, *sums = self.rows(quick).sum_rows(kernel, fits, self.copies_rows)
        variance = sums.pop() if has_final else None
        return loss, self.backward(tuple(sums), parameters, temperature, fits, quick), variance

    def rows(self, quick) -> Any:
        """The rows of a pass; with `quick` those in float32, if there are any."""
        return self.float32_rows if quick and self.float32_rows is not None else self.design

    @property
    def has_quick_rows(self) -> bool:
        """Whether passes with `quick` are rounded."""
        return self.float32_rows is not None

    def rounding(self, quick) -> Rounding:
        return OF_FLOAT32 if quick and self.has_quick_rows else EXACT

    def make_float32_copy(self):
        """Copy the rows in float32 if the family supports it, for folds and for most steps at a loose tolerance."""
        self.float32_rows = None


class SmoothProblem(Problem):
    """A stack of penalized mean negative log-likelihoods with gradients.

    The objective of fit s is `loss_s + 1/2 sum_k strength_k (parameter_k - anchor_k)^2`. Solvers may treat the two
    terms separately. `scores` says how the logits depend on the parameters; `preconditioners` learns Hessians
    for `precondition`, None if the family has none.
    """

    scores: Any  # `Scores`; each family has its own
    preconditioners: Any = None
    has_certificate = False
    fits_are_alike = True  # all fits have the same coordinates: folds can use the final fit's steps and curvature
    takes_last_step = False  # whether the last step to a minimum may go unevaluated, because a penalty bounds it
    last_step_share = 1.0  # factor on the decrease that such a step may predict

    def __init__(self, design: Design, features: Features):
        super().__init__(design, features)
        # Mean of p (1 - p) of each class under the posterior that was evaluated last, at first the prior.
        self.class_variance = self.place.wide(self.class_shares * (1 - self.class_shares))
        self.visits_all = self.n_fits == 1 and not self.place.is_host

    @abstractmethod
    def penalty(self, temperature, fits) -> tuple[Any, Any]:
        """Strength and anchor of the quadratic penalty, each broadcastable to (n_fits, n_parameters)."""

    @abstractmethod
    def curvature(self, temperature, fits) -> np.ndarray:
        """Approximate diagonal of the loss part's Hessian, (n_fits, n_parameters)."""

    def precondition(self, vectors, temperature, fits, learned=None):
        """Apply an approximate inverse Hessian to vectors (n_fits, n_parameters): by its diagonal, or by `learned`."""
        strength, _ = self.penalty(temperature, fits)
        return vectors / at_least(self.curvature(temperature, fits) + strength, self.place.tiny)

    def certificate(self, gradient, value, temperature, fits):
        """Upper bound on the relative suboptimality of each fit; zero if the family has none."""
        return value * 0.0

    def entropy_at(self, parameters, value, gradient, temperature, fits):
        """Mean entropy of the posterior if it follows from value and gradient of Q / T, else NaN."""
        return value * np.nan

    def gradient_noise(self) -> float:
        """Rounding error of a gradient entry whose exact value is zero."""
        return ROUNDING

    def loss(self, parameters, temperature, fits=slice(None), quick=False):
        """Loss (n_fits,) and its gradient (n_fits, n_parameters) in one pass.

        A pass that includes the final fit also updates `class_variance`.
        """
        loss, gradient, variance = self.scores.loss(parameters, temperature, fits, quick)
        if variance is not None:
            xp, is_finite = self.place.xp, self.place.xp.isfinite(loss[:1])[:, None]
            self.class_variance = xp.where(is_finite, variance[None, :], self.class_variance)
        return loss, gradient

    def objective(self, parameters, temperature, fits=slice(None), quick=False):
        """Q / T (n_fits,), its gradient, and the gradient of the loss part alone."""
        with np.errstate(over="ignore", invalid="ignore"):  # solvers reject trial points whose value is not finite
            loss, loss_gradient = self.loss(parameters, temperature, fits, quick)
        strength, anchor = self.penalty(temperature, fits)
        offset = parameters - anchor
        pull = strength * offset
        return loss + 0.5 * self.place.xp.sum(pull * offset, axis=1), loss_gradient + pull, loss_gradient

    def logits_of(self, rows, parameters, temperature, fits):
        """In memory the axis of rows is contiguous, as in blocks."""
        scores, state = self.scores, self.scores.forward(parameters, temperature, fits, quick=True)
        parts = scores.rows(quick=True).map_rows(lambda block: scores.logits(block, state).transpose(1, 2, 0), rows)
        return np.concatenate(list(parts), axis=2).transpose(2, 0, 1)

    def summarize(self, points, entropy=None, value=None):
        """One pass over the rows for all points."""
        is_known = entropy is not None and bool(np.isfinite(entropy).all())
        design = self.scores.rows(quick=True)
        most = BLOCK_BYTES // (8 * min(design.n_rows, design.block_rows(1)) * self.n_classes)
        size, groups = max(1, most) if self.temperature_free else 1, []
        for first in range(0, len(points), size):
            parameters, temperatures, scales = zip(*points[first : first + size], strict=True)
            fits = np.zeros(len(parameters), dtype=int)
            state = self.scores.forward(np.stack(parameters), temperatures[0], fits, quick=True)
            groups.append((state, np.array(scales)[:, None]))

        def kernel(block):
            weight = block.weight[:, 0]
            logits = ((self.scores.logits(block, state), scales) for state, scales in groups)
            sums = [calibrated_loss_and_entropy(part, block.labels, weight, scale, is_known) for part, scale in logits]
            return (np.concatenate(sums, axis=1),)

        (sums,) = design.sum_rows(kernel, slice(0, 1))
        columns = [*sums, entropy] if is_known else sums
        return [TrainingSummary(*map(float, values)) for values in zip(*columns, strict=True)]

    def hot_temperature(self) -> float:
        """A temperature at which every posterior is close to the prior: one step from the start gives tiny logits.

        If the start is already a minimum, or nearly, the logits stay tiny at any temperature; then 1.0 is returned.
        """
        temperature, before = 1.0, np.inf
        for _ in range(60):
            spread = _response_spread(self, temperature)
            if 0.5 * HOT_LOGIT <= spread <= HOT_LOGIT:
                break
            if temperature < 1 and spread <= LEAST_RISE * before < 0.5 * HOT_LOGIT:
                return 1.0
            temperature *= np.clip(spread / (0.75 * HOT_LOGIT), 1e-2, 1e2)
            before = spread
        return temperature


def _response_spread(problem: SmoothProblem, temperature):
    """Root mean square over rows of the final fit's logits after one preconditioned step from the start."""
    fits, scores = slice(0, 1), problem.scores
    start = problem.start(temperature)[fits]
    _, gradient, _ = problem.objective(start, temperature, fits)
    strength, _ = problem.penalty(temperature, fits)
    state = scores.forward(start - gradient / (problem.curvature(temperature, fits) + strength), temperature, fits)

    def kernel(block):
        logits = scores.logits(block, state)
        logits -= logits.mean(axis=2, keepdims=True)
        return (np.einsum("ns,nsc->sc", block.weight, logits**2),)

    return np.sqrt(problem.design.sum_rows(kernel, fits)[0]).max()
