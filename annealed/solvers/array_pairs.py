"""The memory of `annealed/solvers/array_lbfgs.py`: pairs of steps and changes of the loss gradient, on a device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from annealed.objectives.array_linear import ArrayProblem

SMALLEST_FACTOR = 0.1  # on the preconditioner


@dataclass
class Numbers:
    """What one pass says, on the host: of each fit looked at."""

    value: np.ndarray
    loss: np.ndarray
    slope_of_logits: np.ndarray
    largest: np.ndarray
    certificate: np.ndarray
    new_slope: np.ndarray
    own: np.ndarray  # g D g
    steps_gradient: np.ndarray  # S g
    changes_gradient: np.ndarray  # Y D g
    steps_changes: np.ndarray  # S Y'
    changes: np.ndarray  # Y D Y'


class _Tried:
    """A pair that stands in the memory until its step is accepted."""

    def __init__(self, pairs: Pairs, fits, kept):
        self.pairs, self.fits, self.kept = pairs, np.asarray(fits), kept

    def settle(self, accepted):
        """Advance where accepted; elsewhere the place is empty again."""
        for number, fit in enumerate(self.fits):
            if accepted[number] and self.kept[number]:
                self.pairs.age[fit, self.pairs.slot(fit)] = self.pairs.count[fit]
                self.pairs.count[fit] += 1
            else:
                self.pairs.age[fit, self.pairs.slot(fit)] = -1


class Pairs:
    """Per fit, a ring of the last (step, change of the loss gradient) pairs, on the device.

    age : (n_fits, size), the number of each pair, rising with time; -1 where a place is empty
    """

    def __init__(self, problem: ArrayProblem, size):
        self.problem, self.size = problem, size
        self.xp = problem.xp
        shape = (problem.n_fits, size, problem.n_classes, problem.width)
        self.steps, self.changes = problem.place.zeros(shape), problem.place.zeros(shape)
        self.clear()

    def clear(self):
        self.count = np.zeros(self.problem.n_fits, dtype=int)
        self.age = np.full((self.problem.n_fits, self.size), -1)
        self.here: tuple | None = None  # where the final fit stands, its loss gradient there, and the precision of it

    def slot(self, fit):
        return int(self.count[fit] % self.size)

    def share(self):
        """Give every fold the final fit's pairs: their Hessians are much alike."""
        self.count[1:], self.age[1:] = self.count[0], self.age[0]
        self.steps[1:, ...], self.changes[1:, ...] = self.steps[:1, ...], self.changes[:1, ...]

    def follow_path(self, x, loss_gradient, precision):
        """From one temperature's minimum to where the next was predicted: a pair along the path, without a pass."""
        if self.here is None or self.here[2] != precision:
            return
        self.try_pair([0], x - self.here[0], loss_gradient - self.here[1], [True]).settle([True])

    def try_pair(self, fits, step, change, kept) -> _Tried:
        for number, fit in enumerate(fits):
            slot = self.slot(fit)
            self.steps[fit, slot, ...] = step[number, ...]
            self.changes[fit, slot, ...] = change[number, ...]
            self.age[fit, slot] = self.count[fit] if kept[number] else -1
        return _Tried(self, fits, kept)

    def _filled(self):
        """Places in use so far, the one being tried included."""
        return int(min(self.size, max(1, self.count.max() + 1)))

    def of_fits(self, fits, strength):
        """Steps and changes of the whole gradient, (n_fits, n_places, n_classes, width)."""
        filled = self._filled()
        steps = self.problem.of_fits(self.steps[:, :filled, ...], fits)
        changes = self.problem.of_fits(self.changes[:, :filled, ...], fits)
        if getattr(strength, "ndim", 0) == 3:
            strength = strength[:, None, ...]
        return steps, changes + strength * steps

    def weights(self, fits, numbers: Numbers):
        """Weights of steps and changes in the direction, the factor on D, and the slope; see the formula above.

        The factor is what most pairs say of D: one where D knows the curvature along them. Without it steps overshoot.
        """
        n_places = numbers.steps_gradient.shape[1]
        along, across = np.zeros((len(fits), n_places)), np.zeros((len(fits), n_places))
        slope, factor = -numbers.own.copy(), np.ones(len(fits))
        for number, fit in enumerate(fits):
            age = self.age[fit, :n_places]
            curvature = np.diagonal(numbers.steps_changes[number])
            known = (age >= 0) & (curvature > 0) & np.isfinite(curvature)
            order = np.flatnonzero(known)[np.argsort(age[known])]
            if not len(order):
                continue
            crossed = numbers.steps_changes[number][np.ix_(order, order)]
            upper = np.triu(crossed)
            squares = numbers.changes[number][np.ix_(order, order)]
            ratio = float(np.clip(np.median(np.diag(crossed) / np.diag(squares)), SMALLEST_FACTOR, 1.0))
            inner = ratio * squares + np.diag(np.diag(crossed))
            steps_gradient = numbers.steps_gradient[number][order]
            changes_gradient = ratio * numbers.changes_gradient[number][order]
            u = np.linalg.solve(upper, steps_gradient)
            a = np.linalg.solve(upper.T, inner @ u - changes_gradient)
            own = -(ratio * numbers.own[number] - u @ changes_gradient + a @ steps_gradient)
            if own < 0:
                across[number, order], along[number, order] = u, a
                factor[number], slope[number] = ratio, own
        return along, across, factor, slope
