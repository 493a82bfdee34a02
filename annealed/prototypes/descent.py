"""L-BFGS for a path of falling penalties: minimizes `loss(x) + penalty / 2 |x - origin|^2` at one after another.

The memory stores pairs of the loss alone: a step s and the change y of its gradient. With the penalty that change is
`y + penalty s`, so all pairs stay valid when the penalty changes.

Shapes: x, origin, gradient (n_parameters,).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

MEMORY = 10  # pairs
MOST_STEPS = 20  # iterations per penalty: points on the path are validated, so they need not be exact minima
SMALLEST_GAIN = 1e-5  # decrease of the penalized loss by a step, below which a penalty has converged
MOST_TRIALS = 10  # step lengths tried in a line search
ENOUGH = 1e-4  # share of the linearly predicted decrease that a step must reach (Armijo condition)
FLAT = 1e-8  # curvature along a step; a pair with no more is skipped


class PulledDescent:
    """The minimizer: starts at the origin, then from the last point, with the memory, at each further penalty."""

    def __init__(self, loss: Callable, origin):
        """`loss(x)` returns value and gradient."""
        self._loss, self._origin, self._point = loss, origin, origin
        self._value, self._slope = loss(origin)
        self._pairs: deque = deque(maxlen=MEMORY)

    def minimize(self, penalty):
        """The minimizer at a penalty, up to `MOST_STEPS` steps."""
        curves = deque((_curve(step, change, penalty) for step, change in self._pairs), MEMORY)
        for _ in range(MOST_STEPS):
            gain = self._step(penalty, [curve for curve in curves if curve is not None])
            if gain <= SMALLEST_GAIN:
                break
            step, change = self._pairs[-1]
            curves.append(_curve(step, change, penalty))
        return self._point

    def _step(self, penalty, curves) -> float:
        """Take one step with backtracking and return the decrease, 0.0 if no tried length decreases enough."""
        offset = self._point - self._origin
        value, gradient = self._value + 0.5 * penalty * (offset @ offset), self._slope + penalty * offset
        direction = _direction(gradient, curves)
        slope, length = gradient @ direction, 1.0
        for _ in range(MOST_TRIALS):
            step = length * direction
            new_value, new_gradient = self._loss(self._point + step)
            new_offset = offset + step
            gain = value - new_value - 0.5 * penalty * (new_offset @ new_offset)
            if gain >= -ENOUGH * length * slope:
                self._pairs.append((step, new_gradient - self._slope))
                self._point, self._value, self._slope = self._point + step, new_value, new_gradient
                return gain
            lowest = 0.5 * length * slope / (slope + gain / length)  # minimum of the interpolating parabola
            length = min(0.5 * length, max(0.1 * length, lowest))
        return 0.0


def _curve(step, change, penalty):
    """(s, y, s'y) of a pair with the penalty; None if the curvature along s is negative or almost zero."""
    penalized_change = change + penalty * step
    product = step @ penalized_change
    return (step, penalized_change, product) if product > FLAT * (step @ step) else None


def _direction(slope, curves):
    """The L-BFGS direction by the two-loop recursion; a step of at most length one without pairs."""
    if not curves:
        return -slope / max(1.0, np.linalg.norm(slope))
    direction, weights = -slope, []
    for step, change, product in reversed(curves):
        weights.append(step @ direction / product)
        direction -= weights[-1] * change
    _, change, product = curves[-1]
    direction *= product / (change @ change)
    for step, change, product in curves:
        direction += (weights.pop() - change @ direction / product) * step
    return direction
