"""L-BFGS memory on a device, for `annealed/solvers/array_lbfgs.py`: pairs of steps and changes of the loss gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from annealed.objectives.array_linear import ArrayProblem

SMALLEST_FACTOR = 0.1  # lower bound of the factor on the preconditioner


@dataclass
class Numbers:
    """Results of one pass on the host, for each evaluated fit."""

    value: np.ndarray
    loss: np.ndarray
    slope_of_logits: np.ndarray
    largest: np.ndarray
    certificate: np.ndarray
    new_slope: np.ndarray
    gradient_square: np.ndarray  # g D g
    steps_gradient: np.ndarray  # S g
    changes_gradient: np.ndarray  # Y D g
    steps_changes: np.ndarray  # S Y'
    changes: np.ndarray  # Y D Y'

    @classmethod
    def of(cls, value, loss, slope_of_logits, largest, certificate, new_slope, steps, eased) -> Numbers:
        """From the terms of one pass; `steps` and `eased` are products of S, and of D Y and D g, with (Y, g)."""
        of_gradient = eased[:, -1, -1], steps[:, :, -1], eased[:, :-1, -1]
        of_changes = steps[:, :, :-1], eased[:, :-1, :-1]
        return cls(value, loss, slope_of_logits, largest, certificate, new_slope, *of_gradient, *of_changes)


class _Tried:
    """A pair in the memory whose step has not been accepted yet."""

    def __init__(self, pairs: Pairs, fits, kept):
        self.pairs, self.fits, self.kept = pairs, np.asarray(fits), kept

    def settle(self, accepted):
        """Keep the pair where the step was accepted; clear its slot elsewhere."""
        for number, fit in enumerate(self.fits):
            if accepted[number] and self.kept[number]:
                self.pairs.age[fit, self.pairs.slot(fit)] = self.pairs.count[fit]
                self.pairs.count[fit] += 1
            else:
                self.pairs.age[fit, self.pairs.slot(fit)] = -1


class Pairs:
    """Per fit, a ring buffer of the latest (step, change of the loss gradient) pairs, on the device.

    age : (n_fits, size), the number of each pair, increasing with time; -1 in an empty slot
    """

    def __init__(self, problem: ArrayProblem, size) -> None:
        self.problem, self.size = problem, size
        self.xp = problem.xp
        shape = (problem.n_fits, size, problem.n_classes, problem.width)
        self.steps, self.changes = problem.place.zeros(shape), problem.place.zeros(shape)
        self.clear()

    def clear(self):
        self.count = np.zeros(self.problem.n_fits, dtype=int)
        self.age = np.full((self.problem.n_fits, self.size), -1)
        self.latest: dict[int, tuple] = {}  # per fit: its point, the loss gradient there, and its precision

    def slot(self, fit):
        return int(self.count[fit] % self.size)

    def share(self):
        """Copy the final fit's pairs to every fold: their Hessians are similar."""
        self.count[1:], self.age[1:] = self.count[0], self.age[0]
        self.steps[1:, ...], self.changes[1:, ...] = self.steps[:1, ...], self.changes[:1, ...]

    def follow_path(self, fits, x, loss_gradient, precision):
        """Add the pair from the last temperature's minimum to the next one's predicted start, without a pass."""
        states = [self.latest.get(fit, (None, None, None)) for fit in fits]
        if any(state[0] is None or state[2] != precision for state in states):
            return
        points, gradients = (self.xp.stack([state[part] for state in states]) for part in range(2))
        self.try_pair(fits, x - points, loss_gradient - gradients, [True] * len(fits)).settle([True] * len(fits))

    def try_pair(self, fits, step, change, kept) -> _Tried:
        slots = [self.slot(fit) for fit in fits]
        if slots == [slots[0]] * len(fits) and fits == list(range(fits[0], fits[0] + len(fits))):
            consecutive = slice(fits[0], fits[0] + len(fits))
            self.steps[consecutive, slots[0], ...], self.changes[consecutive, slots[0], ...] = step, change
        else:
            for number, (fit, slot) in enumerate(zip(fits, slots, strict=True)):
                self.steps[fit, slot, ...] = step[number, ...]
                self.changes[fit, slot, ...] = change[number, ...]
        self.age[fits, slots] = np.where(kept, self.count[fits], -1)
        return _Tried(self, fits, kept)

    def _filled(self):
        """Number of slots in use, including that of the pair being tried."""
        return int(min(self.size, max(1, self.count.max() + 1)))

    def of_fits(self, fits, strength, gradient):
        """Steps (n_fits, n_slots, n_classes, width) and changes of the whole gradient, with the gradient appended."""
        filled = self._filled()
        steps = self.problem.of_fits(self.steps[:, :filled, ...], fits)
        changes = self.problem.of_fits(self.changes[:, :filled, ...], fits)
        if getattr(strength, "ndim", 0) == 3:
            strength = strength[:, None, ...]
        return steps, self.xp.concat([changes + strength * steps, gradient[:, None, ...]], axis=1)

    def weights(self, fits, numbers: Numbers):
        """Weights of steps and changes in the direction, the factor on D, and the slope, as in `array_lbfgs.py`.

        The factor is the median over the pairs of s'y / y'Dy, which is one if D is accurate along them. Without it
        steps overshoot. Pairs are in order of age; empty slots come last, as rows of the identity.
        """
        fits, n_places = np.asarray(fits), numbers.steps_gradient.shape[1]
        age, curvature = self.age[fits, :n_places], np.diagonal(numbers.steps_changes, axis1=1, axis2=2)
        is_known = (age >= 0) & (curvature > 0) & np.isfinite(curvature)
        order = np.argsort(np.where(is_known, age, np.iinfo(age.dtype).max), axis=1, kind="stable")
        is_known = np.take_along_axis(is_known, order, axis=1)
        both = is_known[:, :, None] & is_known[:, None, :]
        fit, slot = np.arange(len(fits))[:, None], order
        crossed = np.where(both, numbers.steps_changes[fit[:, :, None], slot[:, :, None], slot[:, None, :]], 0.0)
        squares = np.where(both, numbers.changes[fit[:, :, None], slot[:, :, None], slot[:, None, :]], 0.0)
        steps_gradient = np.where(is_known, numbers.steps_gradient[fit, slot], 0.0)
        curvature = np.where(is_known, curvature[fit, slot], 0.0)
        ratio = _median_ratio(curvature, np.diagonal(squares, axis1=1, axis2=2), is_known)
        upper = np.triu(crossed) + np.eye(n_places) * ~is_known[:, :, None]
        changes_gradient = ratio[:, None] * np.where(is_known, numbers.changes_gradient[fit, slot], 0.0)
        u = np.linalg.solve(upper, steps_gradient[..., None])
        inner = ratio[:, None, None] * squares @ u + curvature[..., None] * u
        a = np.linalg.solve(np.swapaxes(upper, 1, 2), inner - changes_gradient[..., None])[..., 0]
        u = u[..., 0]
        slope = -(
            ratio * numbers.gradient_square - np.sum(u * changes_gradient, axis=1) + np.sum(a * steps_gradient, axis=1)
        )
        is_down = (slope < 0) & is_known.any(axis=1)
        along, across = np.zeros((len(fits), n_places)), np.zeros((len(fits), n_places))
        along[fit, slot] = np.where(is_down[:, None], a, 0.0)
        across[fit, slot] = np.where(is_down[:, None], u, 0.0)
        return along, across, np.where(is_down, ratio, 1.0), np.where(is_down, slope, -numbers.gradient_square)


def _median_ratio(curvature, squares, is_known):
    """Median over the known pairs, clipped to [SMALLEST_FACTOR, 1]; one if there is none."""
    ratio = np.sort(np.where(is_known, curvature / np.where(is_known, squares, 1.0), np.inf), axis=1)
    n_known = is_known.sum(axis=1)
    fit, last = np.arange(len(ratio)), np.maximum(n_known, 1)
    middle = 0.5 * (ratio[fit, (last - 1) // 2] + ratio[fit, last // 2])
    return np.where(n_known > 0, np.clip(middle, SMALLEST_FACTOR, 1.0), 1.0)
