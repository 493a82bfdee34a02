"""Limited-memory BFGS with vectors on a device, preconditioned by the curvature that the family provides.

As in `annealed/solvers/lbfgs.py`, the final fit is solved first; the folds are shifted by its displacement and reuse
its memory. If the fits have few columns together, the cost of a pass is reading X, and all fits are solved at once.
Pairs of the LOSS part are stored and the penalty is added exactly, so the memory stays valid along the path. With S, Y
the steps and gradient changes, oldest first, D the preconditioner, R = triu(S Y'), and u = R^-1 S g, the direction is,
in the compact representation of Byrd, Nocedal and Schnabel,

    -[ D (g - Y'u) + S'R^-T ((diag(S Y') + Y D Y') u - Y D g) ]

which needs inner products of vectors only. They are computed on the device together with the value and the certificate,
and all numbers are transferred to the host at once: one transfer per pass.

With rounded matrix products, the chosen temperature is polished by iterative refinement. Fine products split the
coefficients into two rounded parts, so that only the rows are rounded. If full-precision and fine products differ by
`loss_0` and `gradient_0` at the start x_0, the function

    fine loss(x) + loss_0 + <gradient_0, x - x_0> + penalty(x)

is minimized. Its minimum is that of the full-precision loss, up to the effect of the rounded rows on the Hessian. A
full-precision search then verifies the point, and continues if that was not enough.
"""

from __future__ import annotations

import numpy as np

from annealed.objectives.array_linear import FEW_COLUMNS, ArrayProblem, Evaluation
from annealed.solvers.array_pairs import Numbers, Pairs
from annealed.solvers.base import FOLD_SUBOPTIMALITY_SHARE, SUBOPTIMALITY_SHARE, Solution, Solver

ARMIJO = 1e-4
SHORTEST_STEP = 1e-6
VALUE_ROUNDING = {None: 2.0, "tf32": 30.0}  # error of a mean loss, in roundings of an entry of X
DECREMENT_ROUNDING = 0.01  # predicted relative decrease, in roundings of an entry of X, below which progress ends
PROMISED_SHARE = 0.1  # of `tol`: predicted relative decrease at which the final fit stops, until it is polished
SMALLEST_PAIR = {None: 0.0, "tf32": 1e-6}  # predicted relative decrease below which no pair is stored
REFINED_SHARE = 0.8  # of `tol`: tolerance of the refinement, before full precision verifies it
QUICK_DECREMENT = {"tf32": 1e-5}  # predicted relative decrease that rounded products resolve


class ArrayLBFGS(Solver):
    """Preconditioned limited-memory BFGS for samples on a device.

    Parameters
    ----------
    memory_size : int, default=10
        Number of (step, gradient change) pairs kept per fit.
    """

    def __init__(self, *, memory_size=10) -> None:
        self.memory_size = memory_size

    def new_memory(self, problem):
        self._memory = Pairs(problem, self.memory_size)
        return self._memory

    def minimize(self, problem, start, temperature, *, tol, max_iter, memory, final_only=False) -> Solution:
        if not problem.temperature_free:
            memory.clear()
        search = _Search(problem, start, temperature, tol, memory, quick=problem.has_quick_rows)
        if not final_only and problem.n_fits * problem.n_classes <= FEW_COLUMNS:
            search.run(0, problem.n_fits, max_iter)
            return search.solution()
        search.run(0, 1, max_iter)
        if problem.n_fits > 1 and not final_only:
            if problem.fits_are_alike:
                search.follow(start)
                memory.share()
            search.run(1, problem.n_fits, max_iter)
        return search.solution()

    def adapt(self, problem, tol):
        """With few columns, the cost of a pass is reading X: several temperatures are then evaluated together."""
        if problem.temperature_free:
            self.filled_together = max(1, FEW_COLUMNS // problem.n_classes)
            self.fills_last = self.filled_together > 1
        return problem

    def evaluate(self, problem, starts, temperatures, tol):
        fits, xp = [0] * len(temperatures), problem.xp
        evaluation = problem.objective(starts, temperatures, fits, quick=problem.has_quick_rows)
        predicted = xp.sum(
            evaluation.gradient * problem.precondition(evaluation.gradient, temperatures, fits), axis=(1, 2)
        )
        largest = xp.max(xp.abs(evaluation.gradient), axis=(1, 2))
        bound = problem.certificate(evaluation.gradient, temperatures, fits)
        parts = (evaluation.value, largest, bound, predicted, evaluation.loss, evaluation.slope)
        value, largest, bound, predicted, loss, slope = problem.place.host(*parts)
        precision = problem.matmul_precision if problem.has_quick_rows else None
        solved = _is_solved(problem, tol, precision, False, fits, value, largest, bound, 0.5 * predicted)
        solutions: list = [None] * len(fits)
        for number in np.flatnonzero(solved):
            at = slice(number, number + 1)
            problem.note(float(temperatures[number]), float(loss[number]), float(slope[number]))
            no_steps, converged = np.zeros(1, dtype=int), np.ones(1, dtype=bool)
            point = starts[number : number + 1, ...]
            solutions[number] = Solution(
                point, value[at], largest[at], no_steps, converged, bound[at] / np.abs(value[at])
            )
        return solutions

    def polish(self, problem, start, temperature, *, tol, max_iter) -> Solution:
        """The final fit in full precision until it is certified, starting with the memory of the path."""
        if not problem.temperature_free:
            self._memory.clear()
        n_iter = np.zeros(problem.n_fits, dtype=int)
        if problem.has_quick_rows:
            refined = _Refinement(problem, start, temperature, REFINED_SHARE * tol, self._memory)
            refined.run(0, 1, max_iter)
            start, n_iter = refined.x, refined.n_iter
        search = _Search(problem, start, temperature, tol, self._memory, quick=False, certify=True)
        search.run(0, 1, max_iter)
        search.n_iter += n_iter
        return search.solution()


class _Search:
    """Line searches of a stack of fits that step simultaneously. Scalars are per fit, on the host."""

    def __init__(self, problem: ArrayProblem, start, temperature, tol, memory: Pairs, quick, certify=False):
        self.problem, self.temperature, self.tol, self.pairs, self.quick = problem, temperature, tol, memory, quick
        self.xp, self.place = problem.xp, problem.place
        self.x = self.xp.asarray(start, copy=True)
        n_fits = problem.n_fits
        self.matmul_precision, self.certify = problem.matmul_precision if quick else None, certify
        self.rounding = VALUE_ROUNDING[self.matmul_precision] * problem.place.rounding
        self.value, self.certificate = np.full(n_fits, np.nan), np.full(n_fits, np.nan)
        self.largest, self.n_iter = np.zeros(n_fits), np.zeros(n_fits, dtype=int)
        self.converged = np.ones(n_fits, dtype=bool)

    def evaluate(self, points, fits, learn) -> Evaluation:
        return self.problem.objective(points, self.temperature, fits, self.quick, learn)

    def solution(self) -> Solution:
        return Solution(self.x, self.value, self.largest, self.n_iter, self.converged, self.certificate)

    def follow(self, start):
        """Shift the folds by the displacement of the final fit."""
        self.x[1:, ...] += self.x[:1, ...] - start[:1, ...]

    def run(self, first, last, max_iter):
        """Minimize the fits from `first` to `last`."""
        active = list(range(first, last))
        self.converged[active] = False
        state = _Descent(self, active)
        for _ in range(max_iter):
            if not state.active:
                break
            state.step()
        state.finish()


class _Refinement(_Search):
    """The final fit with fine products, corrected by the full-precision loss and gradient at the start."""

    def __init__(self, problem: ArrayProblem, start, temperature, tol, memory: Pairs):
        super().__init__(problem, start, temperature, tol, memory, quick=False, certify=True)
        self.origin: tuple | None = None  # start, and full minus fine loss and gradient there

    def evaluate(self, points, fits, learn):
        fine = self.problem.objective(points, self.temperature, fits, True, learn, fine=True)
        if self.origin is None:
            full = self.problem.objective(points, self.temperature, fits)
            self.origin = points, full.loss - fine.loss, full.loss_gradient - fine.loss_gradient
        first, loss, gradient = self.origin
        shift = loss + self.xp.sum(gradient * (points - first), axis=(1, 2))
        return Evaluation(
            fine.value + shift,
            fine.gradient + gradient,
            fine.loss + shift,
            fine.loss_gradient + gradient,
            fine.slope,
        )


def _is_solved(problem: ArrayProblem, tol, precision, certify, fits, value, largest, certificate, decrement):
    """Whether the predicted relative decrease is within a share of `tol`.

    The gradient of a fold must be within `tol` too, entry by entry. With `certify`, the gradient and the certificate of
    every fit must be. Rounded products are accurate only down to QUICK_DECREMENT.
    """
    scale = np.maximum(np.abs(value), np.finfo(float).tiny)
    if precision is not None:
        solved = decrement <= QUICK_DECREMENT[precision] * scale
    else:
        final_share = SUBOPTIMALITY_SHARE if certify else PROMISED_SHARE
        is_final = np.asarray(fits) == 0
        share = np.where(is_final, final_share, FOLD_SUBOPTIMALITY_SHARE)
        solved = (decrement <= share * tol * scale) & (is_final | (largest <= tol))
        if certify:
            solved &= (largest <= tol) & (certificate <= tol * scale)
    is_rounding = decrement <= DECREMENT_ROUNDING * problem.place.rounding * scale
    return solved | is_rounding | (largest <= problem.host.gradient_noise())


class _Descent:
    """The state of one `_Search.run`: points, gradients and directions of the unfinished fits, on the device."""

    def __init__(self, search: _Search, fits):
        self.search, self.active = search, list(fits)
        self.problem, self.xp, self.place = search.problem, search.xp, search.place
        self.x = self.problem.of_fits(search.x, _named(fits))
        self.length = np.ones(len(fits))
        evaluation = self._evaluate(self.x, learn=fits[0] == 0)
        self.gradient, self.loss_gradient = evaluation.gradient, evaluation.loss_gradient
        self.direction = self.gradient * 0.0
        self.slope = np.zeros(len(fits))
        if fits[0] == 0:
            search.pairs.follow_path(fits, self.x, self.loss_gradient, search.matmul_precision)
        self._arrive(np.ones(len(fits), dtype=bool), self._numbers(evaluation))

    def _evaluate(self, points, learn=False):
        return self.search.evaluate(points, _named(self.active), learn)

    def _numbers(self, found) -> Numbers:
        """Everything that the host needs from a pass, in one transfer; pairs include the step being tried.

        The gradient is appended to the changes, so that D is applied to all of them at once; `_aim` combines them.
        """
        xp, temperature, fits = self.xp, self.search.temperature, _named(self.active)
        n, gradient = len(self.active), found.gradient
        strength, _ = self.problem.penalty(temperature, fits)
        steps, changes = self.search.pairs.of_fits(fits, strength, gradient)
        eased = self.problem.precondition(changes, temperature, fits)
        size = gradient.shape[1] * gradient.shape[2]
        steps, changes, eased = (xp.reshape(part, (n, -1, size)) for part in (steps, changes, eased))
        self.known = steps, eased
        turned = xp.matrix_transpose(changes)
        direction = getattr(self, "direction", None)
        parts = (
            found.value,
            found.loss,
            found.slope,
            xp.max(xp.abs(gradient), axis=(1, 2)),
            self.problem.certificate(gradient, temperature, fits),
            found.value * 0.0 if direction is None else xp.sum(gradient * direction, axis=(1, 2)),
            steps @ turned,
            eased @ turned,
        )
        return Numbers.of(*self.place.host(*parts))

    def step(self):
        """One pass: evaluate the trial point of every fit, accept it or shorten the step, compute new directions."""
        length = self.place.wide(self.length)[:, None, None]
        trial = self.x + length * self.direction
        evaluation = self._evaluate(trial)
        self.search.n_iter[self.active] += 1
        tried = self.search.pairs.try_pair(
            self.active, trial - self.x, evaluation.loss_gradient - self.loss_gradient, self._is_worth_a_pair()
        )
        numbers = self._numbers(evaluation)
        accepted = self._accept(numbers)
        tried.settle(accepted)
        self._shorten(~accepted, numbers.value)
        self.x = self._taken(accepted, trial, self.x)
        self.gradient = self._taken(accepted, evaluation.gradient, self.gradient)
        self.loss_gradient = self._taken(accepted, evaluation.loss_gradient, self.loss_gradient)
        self._arrive(accepted, numbers)

    def _taken(self, accepted, new, old):
        """The new vectors of the accepted fits and the old ones of the others."""
        if accepted.all() or not accepted.any():
            return new if accepted.all() else old
        return self.xp.where(self.xp.asarray(accepted, device=self.place.device)[:, None, None], new, old)

    def _is_worth_a_pair(self):
        value = np.abs(self.search.value[self.active])
        return -self.slope * self.length > SMALLEST_PAIR[self.search.matmul_precision] * value

    def _accept(self, numbers):
        """Armijo's rule, or, if the value cannot resolve a decrease, a slope that decreased, or a small certificate.

        The last is needed because corrected values and gradients of rounded products agree only approximately. A
        certificate of zero means that the family has none.
        """
        search, old = self.search, self.search.value[self.active]
        with np.errstate(invalid="ignore"):
            decreases = numbers.value <= old + ARMIJO * self.length * self.slope
            level = numbers.value <= old + search.rounding * np.abs(old)
            flatter = np.abs(numbers.new_slope) <= 0.9 * np.abs(self.slope)
            is_certified = (numbers.certificate > 0) & (numbers.certificate <= search.tol * np.abs(numbers.value))
            is_enough = search.certify & is_certified & (numbers.largest <= search.tol)
        return np.isfinite(numbers.value) & (decreases | (level & flatter) | is_enough)

    def _shorten(self, refused, value):
        """Minimum of the parabola through both values and the slope, clipped to [0.1, 0.5] of the step."""
        with np.errstate(all="ignore"):
            rise = value - self.search.value[self.active] - self.length * self.slope
            parabola = -self.slope * self.length / (2 * rise)
        factor = np.where(np.isfinite(parabola), np.clip(parabola, 0.1, 0.5), 0.1)
        self.length = np.where(refused, self.length * factor, self.length)

    def _arrive(self, accepted, numbers: Numbers):
        """Record the accepted points, compute directions from them, and drop the fits that are solved or stuck."""
        search, fits = self.search, np.asarray(self.active)
        direction, slope = self._aim(numbers)
        self.direction = self._taken(accepted, direction, self.direction)
        self.slope = np.where(accepted, slope, self.slope)
        self.length = np.where(accepted, 1.0, self.length)
        good = fits[accepted]
        decrease = search.value[fits] - numbers.value
        search.value[good], search.largest[good] = numbers.value[accepted], numbers.largest[accepted]
        search.certificate[good] = (numbers.certificate / np.abs(numbers.value))[accepted]
        if len(good) and good[0] == 0:
            self.problem.note(search.temperature, float(numbers.loss[0]), float(numbers.slope_of_logits[0]))
        evaluated = (numbers.value, numbers.largest, numbers.certificate, -0.5 * slope)
        rule = (search.tol, search.matmul_precision, search.certify)
        solved = accepted & _is_solved(self.problem, *rule, self.active, *evaluated)
        stuck = ~accepted & (self.length < SHORTEST_STEP)
        has_no_digits = -0.5 * self.slope <= search.rounding * np.abs(search.value[fits])  # to resolve a decrease
        if search.quick:  # rounded products reach no further once the value stops decreasing
            smallest = QUICK_DECREMENT[str(search.matmul_precision)] * np.abs(search.value[fits])
            solved, has_no_digits = solved | (accepted & (decrease <= smallest)), np.ones_like(stuck)
        search.converged[fits[solved | (stuck & has_no_digits)]] = True
        self._keep(~(solved | stuck))

    def _aim(self, numbers: Numbers):
        """Directions and their slopes, as combinations of known vectors and scalars."""
        along, across, factor, slope = self.search.pairs.weights(self.active, numbers)
        steps, eased = self.known
        n_places = steps.shape[1]
        weights = np.concatenate([along, -factor[:, None] * across, factor[:, None]], axis=1)
        weights = self.place.wide(weights)[:, None, :]
        towards = weights[..., :n_places] @ steps + weights[..., n_places:] @ eased
        return -self.xp.reshape(towards, self.gradient.shape), slope

    def _keep(self, kept):
        """Continue with some of the fits."""
        if kept.all():
            return
        self._store(self.active)
        left = np.flatnonzero(kept).tolist()
        self.active = [self.active[position] for position in left]
        self.length, self.slope = self.length[kept], self.slope[kept]
        if left:
            for name in ("x", "gradient", "loss_gradient", "direction"):
                setattr(self, name, self.xp.take(getattr(self, name), self.place.whole(left), axis=0))

    def _store(self, fits):
        for number, fit in enumerate(fits):
            self.search.x[fit, ...] = self.x[number, ...]
            state = self.x[number, ...], self.loss_gradient[number, ...], self.search.matmul_precision
            self.search.pairs.latest[fit] = state

    def finish(self):
        self._store(self.active)


def _named(fits):
    """Consecutive fits as a slice, which avoids a copy; others unchanged."""
    if fits == list(range(fits[0], fits[0] + len(fits))):
        return slice(fits[0], fits[0] + len(fits))
    return fits
