"""Problems with gradients: penalized mean negative log-likelihoods, summed in one pass over the rows."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from annealed.problems import gibbs
from annealed.problems.base import Problem, TrainingSummary
from annealed.rows import Block, Design
from annealed.rows.threads import map_in_order

ROUNDING = 256 * np.finfo(np.float64).eps
SUMMARIZED_TOGETHER = 8  # points evaluated in one matrix product by `summarize`
SUMMARIZED_LOGITS = 60_000  # logits of one such product if all rows are one block: more do not fit into the cache
FEW_LOGITS = 20_000  # logits of all held-out rows under all fits: below this, one call for all fits has less overhead
LAST_STEP_SHARE = 0.03  # of `tol`: a fold takes its last step unevaluated if a smaller relative decrease is predicted
HOT_LOGIT = 0.1  # root mean square logit at the hot end of an automatic schedule
LEAST_RISE = 1.01  # smallest ratio of the logits' spread between two trial temperatures that counts as a response


def calibrated_loss_and_entropy(logits, labels, weight, scale, knows_entropy=False):
    """Weighted sums over rows of the calibrated loss and, unless it is known, of the entropy: each (n_points,).

    logits : (n_rows, n_points, n_classes), overwritten
    scale : posterior scale of each point, (n_points, 1)
    """
    entropy = () if knows_entropy else (weight @ gibbs.entropy(logits),)
    logits *= scale
    return weight @ gibbs.negative_log_likelihood(logits, labels), *entropy


class SmoothProblem(Problem):
    """A stack of penalized mean negative log-likelihoods with gradients.

    The objective of fit s is `loss_s + 1/2 sum_k strength_k (parameter_k - anchor_k)^2`. Solvers may treat the two
    terms separately.
    """

    has_hessian = False  # whether there is a method `objective_and_hessian`

    def __init__(self, design: Design):
        super().__init__(design)
        self.prior_variance = self.class_shares * (1 - self.class_shares)  # share (1 - share), (n_fits, n_classes)
        self.class_variance = self.prior_variance  # mean of p (1 - p) under the posterior that was evaluated last

    # -- what a family defines ------------------------------------------------------------------------------

    @abstractmethod
    def forward(self, parameters, temperature, fits) -> Any:
        """Small arrays that a pass over the rows needs, computed once per pass."""

    @abstractmethod
    def block_logits(self, block: Block, state) -> np.ndarray:
        """Logits (n_rows, n_fits, n_classes) of a block."""

    @abstractmethod
    def block_pullback(self, block: Block, state, residual) -> tuple:
        """Arrays that are summed over blocks, from which `backward` computes the gradient; may overwrite `residual`."""

    @abstractmethod
    def backward(self, sums: tuple, parameters, temperature, fits, quick=False) -> np.ndarray:
        """Gradient of the loss part (n_fits, n_parameters)."""

    @abstractmethod
    def penalty(self, temperature, fits) -> tuple[np.ndarray, np.ndarray]:
        """Strength and anchor of the quadratic penalty, each broadcastable to (n_fits, n_parameters)."""

    @abstractmethod
    def curvature(self, temperature, fits) -> np.ndarray:
        """Approximate diagonal of the loss part's Hessian, (n_fits, n_parameters)."""

    def precondition(self, vectors, temperature, fits, learned=None):
        """Apply an approximate inverse Hessian to vectors (n_fits, n_parameters): by its diagonal, or by `learned`."""
        strength, _ = self.penalty(temperature, fits)
        return vectors / np.maximum(self.curvature(temperature, fits) + strength, np.finfo(float).tiny)

    def learning_cost(self, level: int) -> float:
        """Cost of `learn_curvature` in passes over the rows; infinite if the family cannot learn.

        Each level includes more coordinates than the one before, until all are included.
        """
        return np.inf

    def learn_curvature(self, parameters, temperature, level: int):
        """A Hessian for `precondition`, at the final fit's parameters; it is accurate enough for the folds too."""
        raise NotImplementedError

    def class_learning_cost(self) -> float:
        """Cost of `learn_classes` in passes; infinite if the family has none, or if it is not cheaper."""
        return np.inf

    def learn_classes(self, parameters, temperature):
        """As `learn_curvature`, with the diagonal blocks of single classes only, at a fraction of the cost."""
        raise NotImplementedError

    has_certificate = False

    def certificate(self, gradient, value, temperature, fits) -> np.ndarray:
        """Upper bound on the relative suboptimality of each fit; zero if the family has none."""
        return np.zeros(len(value))

    def entropy_at(self, parameters, value, gradient, temperature, fits) -> np.ndarray:
        """Mean entropy of the posterior if it follows from value and gradient of Q / T, else NaN."""
        return np.full(len(value), np.nan)

    @property
    def n_parameters(self) -> int:
        return self.start(1.0).shape[1]

    def gradient_noise(self) -> float:
        """Rounding error of a gradient entry whose exact value is zero."""
        return ROUNDING

    fits_are_alike = True  # all fits have the same coordinates: folds can use the final fit's steps and curvature
    takes_last_step = False  # whether the last step to a minimum may go unevaluated, because a penalty bounds it
    last_step_share = LAST_STEP_SHARE
    copies_rows = True  # whether a pass allocates anything as large as the rows of a block
    has_float32_rows = False  # whether `rows_and_forward(quick=True)` returns float32 rows

    def make_float32_copy(self):
        """Copy the rows in float32 if the family supports it, for folds and for most steps at a loose tolerance."""

    # -- what every family inherits --------------------------------------------------------------------------

    def rows_and_forward(self, quick: bool):
        """The rows of a pass and the matching `forward`; with `quick` the float32 rows, if there are any."""
        return self.design, self.forward

    def loss(self, parameters, temperature, fits=slice(None), quick=False):
        """Loss (n_fits,) and its gradient (n_fits, n_parameters) in one pass.

        A pass that includes the final fit also updates `class_variance`.
        """
        design, forward = self.rows_and_forward(quick)
        full_state = forward(parameters, temperature, fits)
        has_final = np.arange(self.n_fits)[fits][0] == 0

        def kernel(block):
            positions = block.fit_positions
            state = full_state if positions is None else tuple(part[positions] for part in full_state)
            losses, residual = gibbs.loss_and_residual(self.block_logits(block, state), block.labels)
            variance = (gibbs.class_variance(residual[:, 0], block.weight[:, 0]),) if has_final else ()
            residual *= block.weight[..., None]
            loss = np.einsum("ns,ns->s", block.weight, losses, dtype=np.float64)
            return (loss, *self.block_pullback(block, state, residual), *variance)

        loss, *sums = design.sum_rows(kernel, fits, self.copies_rows)
        if has_final:
            variance = sums.pop()
            if np.isfinite(loss[0]):
                self.class_variance = np.broadcast_to(variance, self.class_shares.shape)
        return loss, self.backward(tuple(sums), parameters, temperature, fits, quick)

    def objective(self, parameters, temperature, fits=slice(None), quick=False):
        """Q / T (n_fits,), its gradient, and the gradient of the loss part alone."""
        with np.errstate(over="ignore", invalid="ignore"):  # solvers reject trial points whose value is not finite
            loss, loss_gradient = self.loss(parameters, temperature, fits, quick)
        strength, anchor = self.penalty(temperature, fits)
        offset = parameters - anchor
        pull = strength * offset
        return loss + 0.5 * np.sum(pull * offset, axis=1), loss_gradient + pull, loss_gradient

    def held_out_logits(self, parameters, temperature):
        """Logits of each fit's held-out rows; of few rows, one product for all fits costs less than one per fold."""
        held_out = self.held_out
        if len(held_out.rows) * self.n_fits * self.n_classes <= FEW_LOGITS:
            logits = self._logits_of(held_out.rows, parameters, temperature, slice(None))
            return logits[np.arange(len(held_out.rows)), held_out.fits]
        return self._held_out_by_fold(parameters[None], temperature)[0]

    def held_out_logits_of(self, points, temperatures):
        """One product per fold for all points, if logits do not depend on the temperature."""
        if not self.temperature_free:
            return super().held_out_logits_of(points, temperatures)
        return self._held_out_by_fold(np.stack(points), temperatures[0])

    def _held_out_by_fold(self, points, temperature):
        """Logits (n_points, n_picks, n_classes) of parameters (n_points, n_fits, n_parameters); in memory the axis of
        rows is contiguous.
        """
        rows, all_logits = self.held_out.rows, None

        def logits_of_fold(fit):
            positions = self.held_out_of_fit[fit]
            fold_rows, fits = rows[positions], np.full(len(points), fit)
            return positions, self._logits_of(fold_rows, points[:, fit], temperature, fits)

        most_threads = len(rows) // self.design.rows_of_thread(len(points))
        for positions, logits in map_in_order(logits_of_fold, self.held_out_of_fit, most_threads):
            if all_logits is None:
                all_logits = np.empty((len(points), self.n_classes, len(rows)), logits.dtype).swapaxes(1, 2)
            all_logits[:, positions] = logits.swapaxes(0, 1)
        return all_logits

    def _logits_of(self, rows, parameters, temperature, fits):
        """Logits (n, n_fits, n_classes) of some rows; in memory the axis of rows is contiguous, as in blocks."""
        design, forward = self.rows_and_forward(quick=True)
        state = forward(parameters, temperature, fits)
        parts = design.map_rows(lambda block: self.block_logits(block, state).transpose(1, 2, 0), rows)
        return np.concatenate(list(parts), axis=2).transpose(2, 0, 1)

    def summarize(self, points, entropy=None):
        """One pass over the rows for all points."""
        is_known = entropy is not None and bool(np.isfinite(entropy).all())
        design, forward = self.rows_and_forward(quick=True)
        is_one_block = design.n_rows <= design.block_rows(1)
        most = SUMMARIZED_LOGITS // (design.n_rows * self.n_classes) if is_one_block else SUMMARIZED_TOGETHER
        size, groups = max(1, min(SUMMARIZED_TOGETHER, most)) if self.temperature_free else 1, []
        for first in range(0, len(points), size):
            parameters, temperatures, scales = zip(*points[first : first + size], strict=True)
            state = forward(np.stack(parameters), temperatures[0], np.zeros(len(parameters), dtype=int))
            groups.append((state, np.array(scales)[:, None]))

        def kernel(block):
            weight = block.weight[:, 0]
            logits = ((self.block_logits(block, state), scales) for state, scales in groups)
            sums = [calibrated_loss_and_entropy(part, block.labels, weight, scale, is_known) for part, scale in logits]
            return (np.concatenate(sums, axis=1),)

        (sums,) = design.sum_rows(kernel, slice(0, 1))
        columns = [*sums, entropy] if is_known else sums
        return [TrainingSummary(*map(float, values)) for values in zip(*columns, strict=True)]

    def hot_temperature(self) -> float:
        """A temperature at which every posterior is close to the prior: one step from the start gives tiny logits.

        If the start is already a minimum, or nearly, the logits stay tiny at any temperature; then 1.0 is returned.
        """
        fits = slice(0, 1)
        temperature, before = 1.0, np.inf
        for _ in range(60):
            spread = self._response_spread(temperature, fits)
            if 0.5 * HOT_LOGIT <= spread <= HOT_LOGIT:
                break
            if temperature < 1 and spread <= LEAST_RISE * before < 0.5 * HOT_LOGIT:
                return 1.0
            temperature *= np.clip(spread / (0.75 * HOT_LOGIT), 1e-2, 1e2)
            before = spread
        return temperature

    def _response_spread(self, temperature, fits):
        """Root mean square over rows of the logits after one preconditioned step from the start."""
        start = self.start(temperature)[fits]
        _, gradient, _ = self.objective(start, temperature, fits)
        strength, _ = self.penalty(temperature, fits)
        state = self.forward(start - gradient / (self.curvature(temperature, fits) + strength), temperature, fits)

        def kernel(block):
            logits = self.block_logits(block, state)
            logits -= logits.mean(axis=2, keepdims=True)
            return (np.einsum("ns,nsc->sc", block.weight, logits**2),)

        return np.sqrt(self.design.sum_rows(kernel, fits)[0]).max()
