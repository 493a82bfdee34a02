"""Memory of L-BFGS: the latest pairs of every fit, the Hessian that was learned, and when to learn another."""

from __future__ import annotations

import numpy as np

from annealed.arrays import as_slice

LEAST_PATIENCE = 1.0  # passes of the whole stack before a better preconditioner is computed
KINDS = WHOLE, CLASSES = "whole", "classes"  # Hessians that a family may provide: all classes, or block-diagonal
CLASSES_PATIENCE = 0.5  # share of LEAST_PATIENCE, and of their cost, before the blocks of single classes are computed


class PathMemory:
    """What a path keeps: the pairs of each fit, and the Hessian that the preconditioner uses."""

    def __init__(self, size, n_fits):
        self.size, self.n_fits = size, n_fits
        self.clear()

    def clear(self):
        self.pairs = Pairs(self.n_fits, self.size)
        self.learned, self.level = None, -1  # Hessian approximation of the family, and its level of detail
        self.learned_at = np.inf  # its temperature
        self.n_passes = dict.fromkeys(KINDS, 0.0)  # spent on steps since each kind, or a better one, was computed

    def spend(self, n_passes):
        self.n_passes = {kind: max(0.0, spent + n_passes) for kind, spent in self.n_passes.items()}

    def kind_due(self, problem, delays):
        """The kind of Hessian to compute now, or None: due when steps since the last one have cost as much as it does,
        and at least some passes. Blocks of classes come first, and often; a whole Hessian is followed by another one.
        """
        hessians = problem.preconditioners
        if hessians is None or self.n_passes[WHOLE] < CLASSES_PATIENCE * LEAST_PATIENCE:  # too early even for classes
            return None
        if self.n_passes[WHOLE] >= delays[WHOLE] * max(LEAST_PATIENCE, hessians.cost(self.level + 1)):
            return WHOLE
        patience = CLASSES_PATIENCE * max(LEAST_PATIENCE, hessians.class_cost())
        return CLASSES if self.level < 0 and self.n_passes[CLASSES] >= delays[CLASSES] * patience else None

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
    """Per fit or point, a ring buffer of the latest (step, change of the loss gradient) pairs."""

    def __init__(self, n, size):
        self.size, self.count = size, np.zeros(n, dtype=int)
        self.steps = self.changes = np.zeros((n, 0, 0))  # allocated when the first pair is added

    def of(self, numbers) -> Pairs:
        """The pairs of some fits, as views if they are consecutive."""
        other = Pairs(0, self.size)
        chosen = as_slice(numbers)
        other.count, other.steps, other.changes = self.count[chosen].copy(), self.steps[chosen], self.changes[chosen]
        return other

    def put(self, numbers, pairs: Pairs):
        """Replace the pairs of some fits by those of the same number of points, or of one."""
        chosen = as_slice(numbers)
        if pairs.steps.size and not self.steps.size:
            self._allocate(pairs.steps.shape[2])
        if pairs.steps.size and not np.may_share_memory(self.steps[chosen], pairs.steps):
            self.steps[chosen], self.changes[chosen] = pairs.steps, pairs.changes
        self.count[chosen] = pairs.count

    def _allocate(self, width):
        self.steps = np.zeros((len(self.count), self.size, width))
        self.changes = np.zeros_like(self.steps)

    def add(self, points, step, change):
        """Store the pairs of clearly positive curvature; with a convex loss, others are rounding error."""
        if not self.steps.size:
            self._allocate(step.shape[1])
        curvature = np.einsum("sp,sp->s", step, change)
        bound = 1e-12 * np.linalg.norm(step, axis=1) * np.linalg.norm(change, axis=1)
        keep = curvature > bound
        points, slot = points[keep], self.count[points[keep]] % self.size
        self.steps[points, slot], self.changes[points, slot] = step[keep], change[keep]
        self.count[points] += 1

    def apply(self, points, gradient, strength, precondition):
        """The two-loop recursion on `changes + strength * steps`, started from the family's preconditioner.

        Each loop is a linear system in the inner products of steps and changes, triangular in order of age; the matrix
        of the second is the transpose of that of the first.
        """
        count = self.count[points, None]
        if not count.any():
            return precondition(gradient)
        selected = as_slice(points)
        steps = self.steps[selected]
        changes = steps * np.atleast_2d(strength)[:, None]
        changes += self.changes[selected]
        age = (count - 1 - np.arange(self.size)) % self.size
        is_known = age < count
        is_later = (age[:, :, None] >= age[:, None]) & is_known[:, :, None] & is_known[:, None]
        triangle = np.where(is_later, steps @ changes.swapaxes(1, 2), 0.0)
        curvature = np.einsum("sii->si", triangle)
        curvature += ~is_known
        inverse = np.linalg.inv(triangle)
        weight = _along(inverse, _along(steps, gradient) * is_known)
        vector = precondition(gradient - _combined(weight, changes))
        back = _along(changes, vector) * is_known
        return vector + _combined(_combined(curvature * weight - back, inverse), steps)


def _along(pairs, vectors):
    """Inner products (n_fits, n_pairs) of each fit's pairs with its vector."""
    return (pairs @ vectors[..., None])[..., 0]


def _combined(weights, pairs):
    return (weights[:, None] @ pairs)[:, 0]
