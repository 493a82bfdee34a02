"""Limited-memory BFGS whose vectors live on a device, preconditioned by the family's curvature.

As `annealed/solvers/lbfgs.py`: the final fit goes first, the folds move with it and use its memory; where columns are
few, and products wait for the rows anyway, all go together. Pairs of the LOSS part are kept, the penalty is added
exactly, so the memory stays true down the path. With S, Y the steps and changes of the gradient, oldest first, D the
preconditioner, R = triu(S Y'), and u = R^-1 S g, the direction is

    -[ D (g - Y'u) + S'R^-T ((diag(S Y') + Y D Y') u - Y D g) ]

which needs products of vectors only. They are made on the device beside the value and the certificate, and all of them
come to the host together: one transfer a pass.

With rounded products the chosen temperature is polished as a linear system is refined: where full and fine products
differ by `loss_0` and `gradient_0` at the start x_0, what is minimized is

    fine loss(x) + loss_0 + <gradient_0, x - x_0> + penalty(x),

whose minimum is that of the full loss but for what the rounding of the rows changes in the Hessian. Full precision then
looks at it, and goes on where that was not enough.
"""

from __future__ import annotations

import numpy as np

from annealed.objectives.array_linear import FEW_COLUMNS, ArrayProblem, Evaluation
from annealed.solvers.array_pairs import Numbers, Pairs
from annealed.solvers.base import FOLD_SUBOPTIMALITY_SHARE, SUBOPTIMALITY_SHARE, Solution, Solver

ARMIJO = 1e-4
SHORTEST_STEP = 1e-6
VALUE_ROUNDING = {None: 2.0, "tf32": 30.0, "bf16": 1000.0}  # of a mean loss, in roundings of a row's number
DECREMENT_ROUNDING = 0.01  # of a row's number: a promised fall, relative, below which there is nothing left to gain
PROMISED_SHARE = 0.1  # of `tol`: the relative fall that is left to the final fit before its temperature is chosen
SMALLEST_PAIR = {None: 0.0, "tf32": 1e-6, "bf16": 4e-5}  # relative fall promised by a step whose pair is kept
REFINED_SHARE = 0.8  # of `tol`, to which fine products certify before full ones look
QUICK_DECREMENT = {"tf32": 1e-5, "bf16": 1e-5}  # relative: what rounded products are trusted for


class ArrayLBFGS(Solver):
    """Preconditioned limited-memory BFGS for rows on a device.

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
        """Few columns leave the products waiting for the rows: then several temperatures are looked at together."""
        if problem.temperature_free:
            self.filled_together = max(1, FEW_COLUMNS // problem.n_classes)
            self.fills_last = self.filled_together > 1
        return problem

    def evaluate(self, problem, starts, temperatures, tol):
        fits, xp = [0] * len(temperatures), problem.xp
        seen = problem.objective(starts, temperatures, fits, quick=problem.has_quick_rows)
        promised = xp.sum(seen.gradient * problem.precondition(seen.gradient, temperatures, fits), axis=(1, 2))
        largest = xp.max(xp.abs(seen.gradient), axis=(1, 2))
        bound = problem.certificate(seen.gradient, temperatures, fits)
        parts = (seen.value, largest, bound, promised, seen.loss, seen.slope)
        value, largest, bound, promised, loss, slope = problem.place.host(*parts)
        precision = problem.matmul_precision if problem.has_quick_rows else None
        solved = _is_solved(problem, tol, precision, False, fits, value, largest, bound, 0.5 * promised)
        found: list = [None] * len(fits)
        for number in np.flatnonzero(solved):
            own = slice(number, number + 1)
            problem.note(float(temperatures[number]), float(loss[number]), float(slope[number]))
            no_steps, yes = np.zeros(1, dtype=int), np.ones(1, dtype=bool)
            point = starts[number : number + 1, ...]
            found[number] = Solution(point, value[own], largest[own], no_steps, yes, bound[own] / np.abs(value[own]))
        return found

    def polish(self, problem, start, temperature, *, tol, max_iter) -> Solution:
        """The final fit in full precision, until its certificate says so, with what the walk has learnt."""
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
    """Line searches of a stack of fits, all stepping together. Numbers are per fit, on the host."""

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
        """Move the folds as the final fit has moved."""
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
    """The final fit under fine products, corrected by what full ones say at the start."""

    def __init__(self, problem: ArrayProblem, start, temperature, tol, memory: Pairs):
        super().__init__(problem, start, temperature, tol, memory, quick=False, certify=True)
        self.origin: tuple | None = None  # the first point, and the loss and gradient by which full products differ

    def evaluate(self, points, fits, learn):
        found = self.problem.objective(points, self.temperature, fits, True, learn, fine=True)
        if self.origin is None:
            full = self.problem.objective(points, self.temperature, fits)
            self.origin = points, full.loss - found.loss, full.loss_gradient - found.loss_gradient
        first, loss, gradient = self.origin
        shift = loss + self.xp.sum(gradient * (points - first), axis=(1, 2))
        return Evaluation(
            found.value + shift,
            found.gradient + gradient,
            found.loss + shift,
            found.loss_gradient + gradient,
            found.slope,
        )


def _is_solved(problem: ArrayProblem, tol, precision, certify, fits, value, largest, certificate, decrement):
    """Whether the relative fall that the direction promises is within a share of `tol`.

    A fold's gradient is within `tol` too, entry by entry; where a certificate is asked for, both are. Rounded products
    can promise only so much.
    """
    scale = np.maximum(np.abs(value), np.finfo(float).tiny)
    if precision is not None:
        solved = decrement <= QUICK_DECREMENT[precision] * scale
    else:
        own_share = SUBOPTIMALITY_SHARE if certify else PROMISED_SHARE
        is_final = np.asarray(fits) == 0
        share = np.where(is_final, own_share, FOLD_SUBOPTIMALITY_SHARE)
        solved = (decrement <= share * tol * scale) & (is_final | (largest <= tol))
        if certify:
            solved &= (largest <= tol) & (certificate <= tol * scale)
    is_rounding = decrement <= DECREMENT_ROUNDING * problem.place.rounding * scale
    return solved | is_rounding | (largest <= problem.host.gradient_noise())


class _Descent:
    """One run of `_Search.run`: points, gradients and directions of the unfinished fits, on the device."""

    def __init__(self, search: _Search, fits):
        self.search, self.active = search, list(fits)
        self.problem, self.xp, self.place = search.problem, search.xp, search.place
        self.x = self.problem.of_fits(search.x, _named(fits))
        self.length = np.ones(len(fits))
        found = self._look(self.x, learn=fits[0] == 0)
        self.gradient, self.loss_gradient = found.gradient, found.loss_gradient
        self.direction = self.gradient * 0.0
        self.slope = np.zeros(len(fits))
        if fits[0] == 0:
            search.pairs.follow_path(fits, self.x, self.loss_gradient, search.matmul_precision)
        self._arrive(np.ones(len(fits), dtype=bool), self._numbers(found))

    def _look(self, points, learn=False):
        return self.search.evaluate(points, _named(self.active), learn)

    def _numbers(self, found) -> Numbers:
        """All that the host needs of a pass, in one transfer; pairs include the step just tried.

        The gradient goes with the changes: D of all of them at once, from which `_aim` combines the direction.
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
        """One pass: try every fit's point, accept or shorten, and aim again where accepted."""
        length = self.place.wide(self.length)[:, None, None]
        trial = self.x + length * self.direction
        found = self._look(trial)
        self.search.n_iter[self.active] += 1
        tried = self.search.pairs.try_pair(
            self.active, trial - self.x, found.loss_gradient - self.loss_gradient, self._is_worth_a_pair()
        )
        numbers = self._numbers(found)
        accepted = self._accept(numbers)
        tried.settle(accepted)
        self._shorten(~accepted, numbers.value)
        self.x = self._taken(accepted, trial, self.x)
        self.gradient = self._taken(accepted, found.gradient, self.gradient)
        self.loss_gradient = self._taken(accepted, found.loss_gradient, self.loss_gradient)
        self._arrive(accepted, numbers)

    def _taken(self, accepted, new, old):
        """The new vectors of the accepted fits, the old ones of the others."""
        if accepted.all() or not accepted.any():
            return new if accepted.all() else old
        return self.xp.where(self.xp.asarray(accepted, device=self.place.device)[:, None, None], new, old)

    def _is_worth_a_pair(self):
        value = np.abs(self.search.value[self.active])
        return -self.slope * self.length > SMALLEST_PAIR[self.search.matmul_precision] * value

    def _accept(self, numbers):
        """Armijo's rule, or, where the value has no digits left to fall, a slope that did, or what is certified enough:
        corrected values and gradients of rounded products agree but so far. A family without a certificate has zero.
        """
        search, old = self.search, self.search.value[self.active]
        with np.errstate(invalid="ignore"):
            falls = numbers.value <= old + ARMIJO * self.length * self.slope
            level = numbers.value <= old + search.rounding * np.abs(old)
            flatter = np.abs(numbers.new_slope) <= 0.9 * np.abs(self.slope)
            is_certified = (numbers.certificate > 0) & (numbers.certificate <= search.tol * np.abs(numbers.value))
            is_enough = search.certify & is_certified & (numbers.largest <= search.tol)
        return np.isfinite(numbers.value) & (falls | (level & flatter) | is_enough)

    def _shorten(self, refused, value):
        """Minimum of the parabola through both values and the slope, kept within [0.1, 0.5] of the step."""
        with np.errstate(all="ignore"):
            rise = value - self.search.value[self.active] - self.length * self.slope
            parabola = -self.slope * self.length / (2 * rise)
        factor = np.where(np.isfinite(parabola), np.clip(parabola, 0.1, 0.5), 0.1)
        self.length = np.where(refused, self.length * factor, self.length)

    def _arrive(self, accepted, numbers: Numbers):
        """Record the accepted points, aim from them, and retire what is solved or stuck."""
        search, fits = self.search, np.asarray(self.active)
        direction, slope = self._aim(numbers)
        self.direction = self._taken(accepted, direction, self.direction)
        self.slope = np.where(accepted, slope, self.slope)
        self.length = np.where(accepted, 1.0, self.length)
        good = fits[accepted]
        fall = search.value[fits] - numbers.value
        search.value[good], search.largest[good] = numbers.value[accepted], numbers.largest[accepted]
        search.certificate[good] = (numbers.certificate / np.abs(numbers.value))[accepted]
        if len(good) and good[0] == 0:
            self.problem.note(search.temperature, float(numbers.loss[0]), float(numbers.slope_of_logits[0]))
        looked = (numbers.value, numbers.largest, numbers.certificate, -0.5 * slope)
        rule = (search.tol, search.matmul_precision, search.certify)
        solved = accepted & _is_solved(self.problem, *rule, self.active, *looked)
        stuck = ~accepted & (self.length < SHORTEST_STEP)
        has_no_digits = -0.5 * self.slope <= search.rounding * np.abs(search.value[fits])  # left to fall by
        if search.quick:  # rounded products have said all they can once the value does not fall
            smallest = QUICK_DECREMENT[str(search.matmul_precision)] * np.abs(search.value[fits])
            solved, has_no_digits = solved | (accepted & (fall <= smallest)), np.ones_like(stuck)
        search.converged[fits[solved | (stuck & has_no_digits)]] = True
        self._keep(~(solved | stuck))

    def _aim(self, numbers: Numbers):
        """Directions, and their slopes: combinations of vectors and numbers that are known already."""
        along, across, factor, slope = self.search.pairs.weights(self.active, numbers)
        steps, eased = self.known
        n_places = steps.shape[1]
        weights = np.concatenate([along, -factor[:, None] * across, factor[:, None]], axis=1)
        weights = self.place.wide(weights)[:, None, :]
        towards = weights[..., :n_places] @ steps + weights[..., n_places:] @ eased
        return -self.xp.reshape(towards, self.gradient.shape), slope

    def _keep(self, kept):
        """Go on with some of the fits."""
        if kept.all():
            return
        self._store(self.active)
        left = np.flatnonzero(kept).tolist()
        self.active = [self.active[own] for own in left]
        self.length, self.slope = self.length[kept], self.slope[kept]
        if left:
            for name in ("x", "gradient", "loss_gradient", "direction"):
                setattr(self, name, self.xp.take(getattr(self, name), self.place.whole(left), axis=0))

    def _store(self, fits):
        for number, fit in enumerate(fits):
            self.search.x[fit, ...] = self.x[number, ...]
            here = self.x[number, ...], self.loss_gradient[number, ...], self.search.matmul_precision
            self.search.pairs.here[fit] = here

    def finish(self):
        self._store(self.active)


def _named(fits):
    """Consecutive fits as a slice, which costs no copy; others as they are."""
    if fits == list(range(fits[0], fits[0] + len(fits))):
        return slice(fits[0], fits[0] + len(fits))
    return fits
