"""Memory of L-BFGS: the latest pairs of every fit, the Hessian that was learned, and when to learn another."""

from __future__ import annotations

from typing import Any

import numpy as np

from annealed.arrays import HOST, as_slice, inner, put, take

KINDS = WHOLE, CLASSES = "whole", "classes"  # Hessians that a family may provide: all classes, or block-diagonal
SMALLEST_FACTOR = 0.1  # lower bound of the factor on a diagonal preconditioner


class PathMemory:
    """What a path keeps: the pairs of each fit, and the Hessian that the preconditioner uses."""

    def __init__(self, size, n_fits, place=HOST):
        self.size, self.n_fits, self.place = size, n_fits, place
        self.clear()

    def clear(self):
        self.pairs = Pairs(self.n_fits, self.size, self.place)
        self.learned, self.level = None, -1  # Hessian approximation of the family, and its level of detail
        self.learned_at = np.inf  # its temperature
        self.n_passes = dict.fromkeys(KINDS, 0.0)  # spent on steps since each kind, or a better one, was computed

    def spend(self, n_passes):
        self.n_passes = {kind: max(0.0, spent + n_passes) for kind, spent in self.n_passes.items()}

    def kind_due(self, problem, delays):
        """The kind of Hessian to compute now, or None: due when steps since the last one have cost as much as it does.

        Blocks of classes come first, and often; a whole Hessian is followed by another one.
        """
        hessians = problem.preconditioners
        if hessians is None or not self.n_passes[WHOLE]:
            return None
        if self.n_passes[WHOLE] >= delays[WHOLE] * hessians.cost(self.level + 1):
            return WHOLE
        due = delays[CLASSES] * hessians.class_cost()
        return CLASSES if self.level < 0 and self.n_passes[CLASSES] >= due else None

    def learn(self, kind, problem, parameters, temperature):
        self.learned = None  # frees its memory before the next one is allocated
        if kind == CLASSES:
            self.learned = problem.preconditioners.learn_classes(parameters, temperature)
        else:
            self.level += 1
            self.learned = problem.preconditioners.learn(parameters, temperature, self.level)
            self.n_passes[WHOLE] = 0.0
        self.n_passes[CLASSES], self.learned_at = 0.0, temperature

    def share(self):
        """Copy the final fit's pairs to every fold: their Hessians are similar."""
        self.pairs.put(np.arange(1, self.n_fits), self.pairs.of(np.arange(1)))

    def pairs_of(self, fits) -> Pairs:
        """Pairs of each point, from those of its fit."""
        return self.pairs.of(fits)

    def keep(self, fits, pairs: Pairs):
        """Keep the pairs of the points; of several points of a fit, those of the last."""
        self.pairs.put(fits, pairs)


class Pairs:
    """Per fit or point, a ring buffer of the latest (step, change of the loss gradient) pairs.

    ratio : s'y / y'Dy of each pair, with D the diagonal preconditioner: one if D is accurate along it
    """

    def __init__(self, n, size, place=HOST):
        self.size, self.place, self.count = size, place, np.zeros(n, dtype=int)
        self.ratio = np.full((n, size), np.inf)
        self.steps: Any = None  # allocated when the first pair is added
        self.changes: Any = None

    def of(self, numbers) -> Pairs:
        """The pairs of some fits, as views if they are consecutive."""
        other, chosen = Pairs(0, self.size, self.place), as_slice(numbers)
        other.count, other.ratio = self.count[chosen].copy(), self.ratio[chosen].copy()
        if self.steps is not None:
            other.steps, other.changes = take(self.steps, chosen), take(self.changes, chosen)
        return other

    def put(self, numbers, pairs: Pairs):
        """Replace the pairs of some fits by those of the same number of points, or of one."""
        chosen = as_slice(numbers)
        self.count[chosen], self.ratio[chosen] = pairs.count, pairs.ratio
        if pairs.steps is None:
            return
        if self.steps is None:
            self._allocate(pairs.steps.shape[2])
        if not (self.place.is_host and np.may_share_memory(self.steps[chosen], pairs.steps)):
            put(self.steps, chosen, pairs.steps)
            put(self.changes, chosen, pairs.changes)

    def _allocate(self, width):
        shape = (len(self.count), self.size, width)
        self.steps, self.changes = self.place.zeros(shape), self.place.zeros(shape)

    def add(self, points, step, change, numbers, keep):
        """Store the pairs to `keep` of clearly positive curvature; with a convex loss, others are rounding error.

        numbers : s'y of each pair, the squared lengths of s and y, and the two parts of its ratio, if that is needed
        """
        if self.steps is None:
            self._allocate(step.shape[1])
        curvature, step_square, change_square, *ratio = numbers
        keep = keep & (curvature > 1e-12 * np.sqrt(step_square) * np.sqrt(change_square))
        points, slot = points[keep], self.count[points[keep]] % self.size
        self.count[points] += 1
        if ratio:
            self.ratio[points, slot] = ratio[0][keep] / ratio[1][keep]
        if self.place.is_host:
            self.steps[points, slot], self.changes[points, slot] = step[keep], change[keep]
            return
        for number, point, place in zip(np.flatnonzero(keep).tolist(), points.tolist(), slot.tolist(), strict=True):
            self.steps[point, place, :], self.changes[point, place, :] = step[number, :], change[number, :]

    def factor(self, points):
        """Median ratio of the pairs of each point, at most one: without it steps overshoot where D is too large."""
        ratio = np.sort(self.ratio[points], axis=1)
        middle = (np.minimum(self.count[points], self.size) - 1) // 2  # without a pair the last one, which is infinite
        return np.clip(ratio[np.arange(len(ratio)), middle], SMALLEST_FACTOR, 1.0)

    def apply(self, points, gradient, strength, precondition):
        """The inverse Hessian times the gradient, and its inner product with the gradient.

        The two-loop recursion on `changes + strength * steps`, started from the family's preconditioner. Each loop is
        a linear system in the inner products of steps and changes, triangular in order of age; the matrix of the
        second is the transpose of that of the first. Of a device, only inner products are transferred.
        """
        count, place = self.count[points, None], self.place
        if not count.any():
            vector = precondition(gradient)
            return vector, place.host(inner(gradient, vector))[0]
        xp, selected = place.xp, as_slice(points)
        steps = take(self.steps, selected)
        strength = strength if strength.ndim == 2 else strength[None, :]
        changes = steps * strength[:, None, :]
        changes += take(self.changes, selected)
        products, along = place.host(steps @ xp.matrix_transpose(changes), _along(steps, gradient))
        age = (count - 1 - np.arange(self.size)) % self.size
        is_known = age < count
        is_later = (age[:, :, None] >= age[:, None]) & is_known[:, :, None] & is_known[:, None]
        triangle, each = np.where(is_later, products, 0.0), np.arange(self.size)
        triangle[:, each, each] += ~is_known
        curvature = triangle[:, each, each]
        inverse = np.linalg.inv(triangle)
        weight = _along(inverse, along * is_known)
        vector = precondition(gradient - _combined(place.wide(weight), changes))
        back, product = place.host(_along(changes, vector), inner(gradient, vector))
        on_steps = _combined(curvature * weight - back * is_known, inverse)
        return vector + _combined(place.wide(on_steps), steps), product + (on_steps * along).sum(axis=1)


def _along(pairs, vectors):
    """Inner products (n_fits, n_pairs) of each fit's pairs with its vector."""
    return (pairs @ vectors[..., None])[..., 0]


def _combined(weights, pairs):
    return (weights[:, None, :] @ pairs)[:, 0, :]


def preconditioned(problem, learned, temperature, fits, factor, vectors):
    """The approximate inverse Hessian of each point's fit at its temperature, applied to vectors."""
    if isinstance(temperature, float) or learned is None:
        solved = problem.precondition(vectors, temperature, fits, learned)
        return solved if factor is None else factor * solved
    solved = np.empty_like(vectors)
    for each in np.unique(temperature):
        of_it = temperature == each
        solved[of_it] = problem.precondition(vectors[of_it], float(each), fits[of_it], learned)
    return solved
