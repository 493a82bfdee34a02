"""Memory of L-BFGS: the latest pairs of every fit, the Hessian that was learned, and when to learn another."""

from __future__ import annotations

import numpy as np

from annealed.arrays import as_slice

LEAST_PATIENCE = 1.0  # passes of the whole stack before a better preconditioner is computed
KINDS = WHOLE, CLASSES = "whole", "classes"  # Hessians that a family may provide: all classes, or block-diagonal
CLASSES_PATIENCE = 0.5  # share of LEAST_PATIENCE, and of their cost, before the blocks of single classes are computed


class PairsOfFits:
    """Per fit, a ring buffer of the latest (step, change of the loss gradient) pairs."""

    def __init__(self, size, n_fits):
        self.size, self.n_fits = size, n_fits
        self.steps = np.zeros((0, 0, 0))
        self.clear()

    def clear(self):
        self.count = np.zeros(self.n_fits, dtype=int)
        self.learned, self.level = None, -1  # Hessian approximation of the family, and its level of detail
        self.learned_at = np.inf  # its temperature
        self.n_passes = dict.fromkeys(KINDS, 0.0)  # spent on steps since each kind, or a better one, was computed
        self.n_learned = 0  # whole Hessians computed since the last node
        self.is_over = False  # whether the successor takes over at the next node

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
            self.n_learned += 1
            self.n_passes[WHOLE] = 0.0
        self.n_passes[CLASSES], self.learned_at = 0.0, temperature

    def share(self):
        """Copy the final fit's pairs to every fold: their Hessians are similar."""
        self.count[1:] = self.count[0]
        if self.steps.size:
            self.steps[1:], self.changes[1:] = self.steps[0], self.changes[0]

    def add(self, fits, step, change):
        """Store the pairs of clearly positive curvature; with a convex loss, others are rounding error."""
        if not self.steps.size:
            self.steps = np.zeros((self.n_fits, self.size, step.shape[1]))
            self.changes, self._penalized = np.zeros_like(self.steps), np.empty_like(self.steps)
        curvature = np.einsum("sp,sp->s", step, change)
        bound = 1e-12 * np.linalg.norm(step, axis=1) * np.linalg.norm(change, axis=1)
        keep = curvature > bound
        fits, slot = fits[keep], self.count[fits[keep]] % self.size
        self.steps[fits, slot], self.changes[fits, slot] = step[keep], change[keep]
        self.count[fits] += 1

    def apply(self, fits, gradient, strength, precondition):
        """The two-loop recursion on `changes + strength * steps`, started from the family's preconditioner.

        Each loop is a linear system in the inner products of steps and changes, triangular in order of age; the matrix
        of the second is the transpose of that of the first.
        """
        count = self.count[fits, None]
        if not count.any():
            return precondition(gradient)
        selected = as_slice(fits)
        steps, changes = self.steps[selected], self._changes_with(strength, selected, len(fits))
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

    def _changes_with(self, strength, fits, n_fits):
        """Gradient changes including the penalty, in a reused array: allocating it takes longer than filling it."""
        changes = np.multiply(self.steps[fits], np.atleast_2d(strength)[:, None], out=self._penalized[:n_fits])
        changes += self.changes[fits]
        return changes


def _along(pairs, vectors):
    """Inner products (n_fits, n_pairs) of each fit's pairs with its vector."""
    return (pairs @ vectors[..., None])[..., 0]


def _combined(weights, pairs):
    return (weights[:, None] @ pairs)[:, 0]
