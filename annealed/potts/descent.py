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


class PulledDescent:
    """The minimizer: starts at the origin, then from the last point, with the memory, at each further penalty."""

    def __init__(self, loss: Callable, origin):
        """`loss(x)` returns value and gradient."""
        self._loss, self._origin, self._point = loss, origin, origin
        self._value, self._slope = loss(origin)
        self._pairs: deque = deque(maxlen=MEMORY)

    def minimize(self, penalty):
        """The minimizer at a penalty, up to `MOST_STEPS` steps."""
        for _ in range(MOST_STEPS):
            if self._step(penalty) <= SMALLEST_GAIN:
                break
        return self._point

    def _step(self, penalty) -> float:
        """Take one step with backtracking and return the decrease, 0.0 if no length decreases the loss."""
        offset = self._point - self._origin
        value, gradient = self._value + 0.5 * penalty * (offset @ offset), self._slope + penalty * offset
        step = self._direction(gradient, penalty)
        while step @ step > np.finfo(float).eps ** 2:
            new_value, new_slope = self._loss(self._point + step)
            new_offset = offset + step
            gain = value - new_value - 0.5 * penalty * (new_offset @ new_offset)
            if gain > 0:
                self._pairs.append((step, new_slope - self._slope))
                self._point, self._value, self._slope = self._point + step, new_value, new_slope
                return gain
            step = step / 4
        return 0.0

    def _direction(self, gradient, penalty):
        """The L-BFGS direction by the two-loop recursion; a step of at most length one without pairs."""
        pairs = [(step, change + penalty * step) for step, change in self._pairs]
        curves = [(step, change, product) for step, change in pairs if (product := step @ change) > 0]
        if not curves:
            return -gradient / max(1.0, np.linalg.norm(gradient))
        direction, weights = -gradient, []
        for step, change, product in reversed(curves):
            weights.append(step @ direction / product)
            direction = direction - weights[-1] * change
        _, change, product = curves[-1]
        direction *= product / (change @ change)
        for step, change, product in curves:
            direction += (weights.pop() - change @ direction / product) * step
        return direction
