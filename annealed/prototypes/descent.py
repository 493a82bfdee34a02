"""L-BFGS for a pull that falls: the minimum of `loss(x) + penalty / 2 |x - origin|^2` at one penalty after another.

The memory keeps pairs of the loss alone, a step s and the change y of its slope. Under a penalty that change is
`y + penalty s`, so the memory stays true as the penalty falls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

MEMORY = 10  # pairs
MOST_STEPS = 20  # at each penalty: validation looks at the path, not at the minimum
SMALLEST_GAIN = 1e-5  # of a step, below which a penalty is done
MOST_TRIALS = 10  # lengths of a step
ENOUGH = 1e-4  # of the decrease that the slope promises
FLAT = 1e-8  # curvature along a step, up to which its pair is left out


class PulledDescent:
    """A point that begins at the origin, and goes on from the last penalty's minimum to the next."""

    def __init__(self, loss: Callable, origin):
        """`loss(x)` gives its value and its slope."""
        self._loss, self._origin, self._point = loss, origin, origin
        self._value, self._slope = loss(origin)
        self._pairs: deque = deque(maxlen=MEMORY)

    def minimize(self, penalty):
        """The point at a penalty."""
        curves = deque((_curve(step, change, penalty) for step, change in self._pairs), MEMORY)
        for _ in range(MOST_STEPS):
            gain = self._step(penalty, [curve for curve in curves if curve is not None])
            if gain <= SMALLEST_GAIN:
                break
            step, change = self._pairs[-1]
            curves.append(_curve(step, change, penalty))
        return self._point

    def _step(self, penalty, curves) -> float:
        """By how much a step has lowered the value; none is taken that does not."""
        pull = self._point - self._origin
        value, slope = self._value + 0.5 * penalty * (pull @ pull), self._slope + penalty * pull
        direction = _direction(slope, curves)
        promised, length = slope @ direction, 1.0
        for _ in range(MOST_TRIALS):
            step = length * direction
            new_value, new_slope = self._loss(self._point + step)
            pulled = pull + step
            gain = value - new_value - 0.5 * penalty * (pulled @ pulled)
            if gain >= -ENOUGH * length * promised:
                self._pairs.append((step, new_slope - self._slope))
                self._point, self._value, self._slope = self._point + step, new_value, new_slope
                return gain
            lowest = 0.5 * length * promised / (promised + gain / length)  # of the parabola through both
            length = min(0.5 * length, max(0.1 * length, lowest))
        return 0.0


def _curve(step, change, penalty):
    """A pair under a penalty, and the product of both; None where the value is flat along it or bends down."""
    bent = change + penalty * step
    size = step @ bent
    return (step, bent, size) if size > FLAT * (step @ step) else None


def _direction(slope, curves):
    """Minus the inverse Hessian times the slope."""
    if not curves:
        return -slope / max(1.0, np.linalg.norm(slope))
    direction, shares = -slope, []
    for step, bent, size in reversed(curves):
        shares.append(step @ direction / size)
        direction -= shares[-1] * bent
    _, bent, size = curves[-1]
    direction *= size / (bent @ bent)
    for step, bent, size in curves:
        direction += (shares.pop() - bent @ direction / size) * step
    return direction
