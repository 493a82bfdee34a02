"""Limited-memory BFGS with vectors on a device, preconditioned by the curvature that the family provides.

As in `annealed/solvers/lbfgs.py`, the final fit is solved first; the folds are shifted by its displacement and reuse
its memory. If the fits have few columns together, the cost of a pass is reading X, and all fits are solved at once.
Pairs of the LOSS part are stored and the penalty is added exactly, so the memory stays valid along the path. With S, Y
the steps and gradient changes, oldest first, D the preconditioner, R = triu(S Y'), and u = R^-1 S g, the direction is,
in the compact representation of Byrd, Nocedal and Schnabel,

    -[ D (g - Y'u) + S'a ],    a = R^-T ((diag(S Y') + Y D Y') u - Y D g)

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

from annealed.problems.array_linear import FEW_COLUMNS, ArrayProblem, Evaluation
from annealed.solvers.base import FOLD_SUBOPTIMALITY_SHARE, SUBOPTIMALITY_SHARE, Accuracy, Points, Solution, Solver

ARMIJO = 1e-4
SHORTEST_STEP = 1e-6
SMALLEST_FACTOR = 0.1  # lower bound of the factor on the preconditioner
VALUE_ROUNDING = 30.0  # error of a mean loss, in roundings of an entry of X
DECREMENT_ROUNDING = 0.01  # predicted relative decrease, in roundings of an entry of X, below which progress ends
QUICK_DECREMENT = 1e-5  # predicted relative decrease that rounded products resolve
PROMISED_SHARE = 0.1  # of `tol`: predicted relative decrease at which the final fit stops, until it is polished
REFINED_SHARE = 0.8  # of `tol`: tolerance of the refinement, before full precision verifies it
OF_ACTIVE = ("x", "gradient", "loss_gradient", "direction", "steps", "changes")  # arrays of the unfinished fits


class Memory:
    """Per fit, the latest steps and changes of the loss gradient, oldest first; empty places are zero.

    steps, changes : (n_fits, size, n_classes, width), on the device
    """

    def __init__(self, problem: ArrayProblem, size) -> None:
        shape = (problem.n_fits, size, problem.n_classes, problem.width)
        self.steps, self.changes = problem.place.zeros(shape), problem.place.zeros(shape)

    def clear(self):
        self.steps, self.changes = self.steps * 0.0, self.changes * 0.0

    def share(self):
        """Copy the final fit's pairs to every fold: their Hessians are similar."""
        self.steps[1:, ...], self.changes[1:, ...] = self.steps[:1, ...], self.changes[:1, ...]


class ArrayLBFGS(Solver):
    """Preconditioned limited-memory BFGS for samples on a device.

    Parameters
    ----------
    memory_size : int, default=10
        Number of (step, gradient change) pairs kept per fit.
    """

    certifies_gaps = False

    def __init__(self, *, memory_size=10) -> None:
        self.memory_size = memory_size

    def new_memory(self, problem):
        return Memory(problem, self.memory_size)

    def adapt(self, problem, tol):
        """With few columns, the cost of a pass is reading X: several temperatures are then evaluated together."""
        if problem.temperature_free:
            self.gaps_together = max(1, FEW_COLUMNS // problem.n_classes)
            self.gaps_last = self.gaps_together > 1
        return problem

    def solve(self, problem, points: Points, accuracy: Accuracy, memory) -> Solution:
        """All fits of one temperature, or the final fit at several, which is certified only if asked for."""
        each = points.by_temperature()
        if points.fits.any() and len(each) > 1:
            return Solution.joined([self.solve(problem, few, accuracy, memory) for few in each])
        if not problem.temperature_free:
            memory.clear()
        if points.fits.any() or (len(points.fits) == 1 and not accuracy.certify):
            return self._minimized(problem, points, accuracy, memory)
        alone = self._polished if accuracy.certify else self._minimized
        known = [None] * len(points.fits) if accuracy.certify else self._evaluated(problem, points, accuracy.tol)
        pairs = zip(known, each, strict=True)
        return Solution.joined([found or alone(problem, point, accuracy, memory) for found, point in pairs])

    def _minimized(self, problem, points, accuracy, memory) -> Solution:
        """The fits of one temperature."""
        temperature, start, n_fits = float(points.temperatures[0]), points.parameters, len(points.fits)
        search = _Search(problem, start, temperature, accuracy.tol, memory, quick=problem.has_quick_rows)
        if n_fits * problem.n_classes <= FEW_COLUMNS:
            return search.run(range(n_fits), accuracy.max_iter)
        search.run([0], accuracy.max_iter)
        if n_fits > 1:
            if problem.fits_are_alike:  # shift the folds by the displacement of the final fit
                search.parameters[1:, ...] += search.parameters[:1, ...] - start[:1, ...]
                memory.share()
            search.run(range(1, n_fits), accuracy.max_iter)
        return search.solution()

    def _evaluated(self, problem, points, tol) -> list:
        """The solution at each temperature whose start is already solved, else None."""
        fits, temperatures, starts = points.fits.tolist(), points.temperatures, points.parameters
        xp = problem.xp
        evaluation = problem.objective(starts, temperatures, fits, quick=problem.has_quick_rows)
        predicted = xp.sum(
            evaluation.gradient * problem.precondition(evaluation.gradient, temperatures, fits), axis=(1, 2)
        )
        largest = xp.max(xp.abs(evaluation.gradient), axis=(1, 2))
        bound = problem.certificate(evaluation.gradient, temperatures, fits)
        parts = (evaluation.value, largest, bound, predicted, evaluation.loss, evaluation.slope)
        value, largest, bound, predicted, loss, slope = problem.place.host(*parts)
        solved = _is_solved(problem, tol, problem.has_quick_rows, False, fits, value, largest, bound, 0.5 * predicted)
        solutions: list = [None] * len(fits)
        for number in np.flatnonzero(solved):
            at = slice(number, number + 1)
            problem.note(float(temperatures[number]), float(loss[number]), float(slope[number]))
            numbers = value[at], largest[at], np.zeros(1, dtype=int), np.ones(1, dtype=bool)
            solutions[number] = _solution(starts[at, ...], *numbers, bound[at] / np.abs(value[at]), False)
        return solutions

    def _polished(self, problem, points, accuracy, memory) -> Solution:
        """The final fit at one temperature in full precision until it is certified, with the memory of the path."""
        start, temperature = points.parameters, float(points.temperatures[0])
        n_iter = np.zeros(1, dtype=int)
        if problem.has_quick_rows:
            refined = _Refinement(problem, start, temperature, REFINED_SHARE * accuracy.tol, memory)
            start, n_iter = refined.run([0], accuracy.max_iter).parameters, refined.n_iter
        search = _Search(problem, start, temperature, accuracy.tol, memory, quick=False, certify=True)
        search.n_iter += n_iter
        return search.run([0], accuracy.max_iter)


def _solution(x, value, largest, n_iter, converged, certificate, is_certified) -> Solution:
    n, unknown = len(value), np.full(len(value), np.nan)
    flags = np.full(n, is_certified) & converged, np.zeros(n, dtype=bool)
    return Solution(x, value, largest, n_iter, converged, flags[0], certificate, flags[1], unknown)


class _Search:
    """Line searches of a stack of fits that step simultaneously, with one pass and one transfer per step.

    `parameters`, on the device, and the scalars, on the host, are of all fits; the arrays OF_ACTIVE, `length` and
    `slope` are of the unfinished fits, `active`.
    """

    def __init__(self, problem: ArrayProblem, start, temperature, tol, memory: Memory, quick, certify=False):
        self.problem, self.temperature, self.tol, self.memory = problem, temperature, tol, memory
        self.quick, self.certify = quick, certify
        self.xp, self.place = problem.xp, problem.place
        self.parameters = self.xp.asarray(start, copy=True)
        n_fits = start.shape[0]
        self.rounding = VALUE_ROUNDING * problem.place.rounding
        self.value, self.certificate = np.full(n_fits, np.nan), np.full(n_fits, np.nan)
        self.largest, self.n_iter = np.zeros(n_fits), np.zeros(n_fits, dtype=int)
        self.converged = np.ones(n_fits, dtype=bool)

    def evaluate(self, points, fits, learn) -> Evaluation:
        return self.problem.objective(points, self.temperature, fits, self.quick, learn)

    def solution(self) -> Solution:
        numbers = self.value, self.largest, self.n_iter, self.converged, self.certificate
        return _solution(self.parameters, *numbers, is_certified=self.certify)

    def run(self, fits, max_iter) -> Solution:
        self.active, of_fits = list(fits), self.problem.of_fits
        self.converged[self.active] = False
        names = _named(self.active)
        self.x, self.steps, self.changes = (
            of_fits(array, names) for array in (self.parameters, self.memory.steps, self.memory.changes)
        )
        self.length, self.slope = np.ones(len(self.active)), np.zeros(len(self.active))
        found = self.evaluate(self.x, names, self.active[0] == 0)
        self.gradient, self.loss_gradient, self.direction = found.gradient, found.loss_gradient, found.gradient * 0.0
        self._arrive(found, self.x, self.steps, self.changes)
        for _ in range(max_iter):
            if not self.active:
                break
            trial = self.x + self.place.wide(self.length)[:, None, None] * self.direction
            found = self.evaluate(trial, _named(self.active), False)
            self.n_iter[self.active] += 1
            steps, changes = trial - self.x, found.loss_gradient - self.loss_gradient
            self._arrive(found, trial, self._appended(self.steps, steps), self._appended(self.changes, changes))
        self._store()
        return self.solution()

    def _appended(self, pairs, newest):
        return self.xp.concat([pairs[:, 1:, ...], newest[:, None, ...]], axis=1)

    def _arrive(self, found: Evaluation, x, steps, changes):
        """Accept the points or shorten the steps to them, compute directions, and drop the fits that are done."""
        fits, xp, temperature = np.asarray(self.active), self.xp, self.temperature
        names, n_pairs = _named(self.active), steps.shape[1]
        strength, _ = self.problem.penalty(temperature, names)
        strength = strength[:, None, ...] if strength.ndim == 3 else strength
        vectors = xp.concat([changes + strength * steps, found.gradient[:, None, ...]], axis=1)
        eased = self.problem.precondition(vectors, temperature, names)
        flat_steps, vectors, eased = (
            xp.reshape(part, (len(fits), part.shape[1], -1)) for part in (steps, vectors, eased)
        )
        turned = xp.matrix_transpose(vectors)
        value, loss, slope_of_logits, largest, certificate, new_slope, along, across = self.place.host(
            found.value,
            found.loss,
            found.slope,
            xp.max(xp.abs(found.gradient), axis=(1, 2)),
            self.problem.certificate(found.gradient, temperature, names),
            xp.sum(found.gradient * self.direction, axis=(1, 2)),
            flat_steps @ turned,
            eased @ turned,
        )
        accepted = self._accepts(value, largest, certificate, new_slope)
        on_steps, on_eased, slope = direction_weights(along, across)
        weights = self.place.wide(np.concatenate([on_steps, on_eased], axis=1))[:, None, :]
        direction = -(weights[..., :n_pairs] @ flat_steps + weights[..., n_pairs:] @ eased)
        new = (x, found.gradient, found.loss_gradient, xp.reshape(direction, x.shape), steps, changes)
        for name, array in zip(OF_ACTIVE, new, strict=True):
            setattr(self, name, self._taken(accepted, array, getattr(self, name)))

        decrease = self.value[fits] - value
        self._shorten(~accepted, -decrease)
        self.slope = np.where(accepted, slope, self.slope)
        self.length = np.where(accepted, 1.0, self.length)
        good = fits[accepted]
        self.value[good], self.largest[good] = value[accepted], largest[accepted]
        self.certificate[good] = certificate[accepted] / np.abs(value[accepted])
        if len(good) and good[0] == 0:
            self.problem.note(temperature, float(loss[0]), float(slope_of_logits[0]))
        rule = self.problem, self.tol, self.quick, self.certify
        solved = accepted & _is_solved(*rule, fits, value, largest, certificate, -0.5 * slope)
        stuck = ~accepted & (self.length < SHORTEST_STEP)
        has_no_digits = -0.5 * self.slope <= self.rounding * np.abs(self.value[fits])  # to resolve a decrease
        if self.quick:  # rounded products reach no further once the value stops decreasing
            solved |= accepted & (decrease <= QUICK_DECREMENT * np.abs(value))
            has_no_digits[:] = True
        self.converged[fits[solved | (stuck & has_no_digits)]] = True
        self._keep(~(solved | stuck))

    def _accepts(self, value, largest, certificate, new_slope):
        """Armijo's rule, or, if the value cannot resolve a decrease, a slope that decreased, or a small certificate.

        The last is needed because corrected values and gradients of rounded products agree only approximately. A
        certificate of zero means that the family has none. The first point of a search is always accepted.
        """
        old = self.value[self.active]
        if np.isnan(old).all():
            return np.ones(len(old), dtype=bool)
        decreases = value <= old + ARMIJO * self.length * self.slope
        level = value <= old + self.rounding * np.abs(old)
        flatter = np.abs(new_slope) <= 0.9 * np.abs(self.slope)
        is_certified = (certificate > 0) & (certificate <= self.tol * np.abs(value)) & (largest <= self.tol)
        return np.isfinite(value) & (decreases | (level & flatter) | (self.certify & is_certified))

    def _shorten(self, refused, increase):
        """Minimum of the parabola through both values and the slope, clipped to [0.1, 0.5] of the step."""
        with np.errstate(all="ignore"):
            parabola = -self.slope * self.length / (2 * (increase - self.length * self.slope))
        factor = np.where(np.isfinite(parabola), np.clip(parabola, 0.1, 0.5), 0.1)
        self.length = np.where(refused, self.length * factor, self.length)

    def _taken(self, accepted, new, old):
        """The new arrays of the accepted fits and the old ones of the others."""
        if accepted.all() or not accepted.any():
            return new if accepted.all() else old
        mask = self.xp.asarray(accepted, device=self.place.device)
        return self.xp.where(self.xp.reshape(mask, (-1, *(1,) * (new.ndim - 1))), new, old)

    def _keep(self, kept):
        """Continue with some of the fits."""
        if kept.all():
            return
        self._store()
        left = np.flatnonzero(kept).tolist()
        self.active = [self.active[position] for position in left]
        self.length, self.slope = self.length[kept], self.slope[kept]
        for name in OF_ACTIVE if left else ():
            setattr(self, name, self.xp.take(getattr(self, name), self.place.whole(left), axis=0))

    def _store(self):
        for number, fit in enumerate(self.active):
            self.parameters[fit, ...] = self.x[number, ...]
            self.memory.steps[fit, ...] = self.steps[number, ...]
            self.memory.changes[fit, ...] = self.changes[number, ...]


class _Refinement(_Search):
    """The final fit with fine products, corrected by the full-precision loss and gradient at the start."""

    def __init__(self, problem: ArrayProblem, start, temperature, tol, memory: Memory):
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


def _is_solved(problem: ArrayProblem, tol, quick, certify, fits, value, largest, certificate, decrement):
    """Whether the predicted relative decrease is within a share of `tol`.

    The gradient of a fold must be within `tol` too, entry by entry. With `certify`, the gradient and the certificate of
    every fit must be. Rounded products are accurate only down to QUICK_DECREMENT.
    """
    scale = np.maximum(np.abs(value), np.finfo(float).tiny)
    if quick:
        solved = decrement <= QUICK_DECREMENT * scale
    else:
        final_share = SUBOPTIMALITY_SHARE if certify else PROMISED_SHARE
        is_final = np.asarray(fits) == 0
        share = np.where(is_final, final_share, FOLD_SUBOPTIMALITY_SHARE)
        solved = (decrement <= share * tol * scale) & (is_final | (largest <= tol))
        if certify:
            solved &= (largest <= tol) & (certificate <= tol * scale)
    is_rounding = decrement <= DECREMENT_ROUNDING * problem.place.rounding * scale
    return solved | is_rounding | (largest <= problem.host.gradient_noise())


def direction_weights(along, across):
    """Weights of minus the direction on S and on D (Y, g), and its slope; see the top of this file.

    along : S (Y, g)', (n_fits, n_pairs, n_pairs + 1); across : (Y, g) D (Y, g)', (n_fits, n_pairs + 1, n_pairs + 1)

    D has a factor: the median over the pairs of s'y / y'Dy, which is one if D is accurate along them. Without it steps
    overshoot. Pairs that no convex function has are ignored, as rows of the identity in R.
    """
    curvature, squares = np.einsum("fii->fi", along[:, :, :-1]), across[:, :-1, :-1]
    is_known = (curvature > 0) & np.isfinite(curvature)
    both = is_known[:, :, None] & is_known[:, None, :]
    with np.errstate(all="ignore"):
        ratio = np.sort(np.where(is_known, curvature / np.einsum("fii->fi", squares), np.inf), axis=1)
    middle = (is_known.sum(axis=1) - 1) // 2  # without a pair, the last place, which is infinite
    factor = np.clip(ratio[np.arange(len(ratio)), middle], SMALLEST_FACTOR, 1.0)[:, None]
    curvature, steps_gradient = np.where(is_known, (curvature, along[:, :, -1]), 0.0)
    changes_gradient = factor * np.where(is_known, across[:, :-1, -1], 0.0)
    gradient_square = across[:, -1, -1]

    inverse = np.linalg.inv(np.triu(np.where(both, along[:, :, :-1], 0.0)) + np.eye(len(both[0])) * ~is_known[:, None])
    u = (inverse @ steps_gradient[..., None])[..., 0]
    inner = curvature * u + factor * (np.where(both, squares, 0.0) @ u[..., None])[..., 0] - changes_gradient
    a = (inner[:, None, :] @ inverse)[:, 0]
    slope = -(factor[:, 0] * gradient_square - (u * changes_gradient).sum(axis=1) + (a * steps_gradient).sum(axis=1))
    is_down = (slope < 0)[:, None]
    on_eased = np.concatenate([np.where(is_down, -factor * u, 0.0), np.where(is_down, factor, 1.0)], axis=1)
    return np.where(is_down, a, 0.0), on_eased, np.where(is_down[:, 0], slope, -gradient_square)


def _named(fits):
    """Consecutive fits as a slice, which avoids a copy; others unchanged."""
    if fits == list(range(fits[0], fits[0] + len(fits))):
        return slice(fits[0], fits[0] + len(fits))
    return fits
