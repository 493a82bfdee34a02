"""Prediction of the minimum at another temperature, from known ones: extrapolation and interpolation."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from math import log, prod

import numpy as np

from annealed.arrays import combined
from annealed.path.base import Step
from annealed.problems import Problem

N_POINTS = 6  # nodes of a polynomial; more gain nothing at the spacing of a path
REACH = 0.95  # in log temperature: across a larger gap a polynomial may oscillate, a straight line cannot
CLOSEST = 0.01  # in log temperature: of points closer together only one is used, as their difference is mostly error


def lagrange(places, target) -> np.ndarray:
    """Weights of the values at `places` in their interpolating polynomial, evaluated at `target`."""
    positions = [float(place) for place in places]  # for a handful of numbers, lists are faster than arrays

    def weight(number):
        position, others = positions[number], positions[:number] + positions[number + 1 :]
        return prod([(target - each) / (position - each) for each in others])

    return np.array([weight(number) for number in range(len(positions))])


def hermite(places, target) -> tuple[np.ndarray, np.ndarray]:
    """Weights of values and of slopes at one or two `places` in the Hermite polynomial, evaluated at `target`."""
    if len(places) == 1:
        return np.ones(1), np.array([target - places[0]])
    length = places[1] - places[0]
    share = (target - places[0]) / length
    left = 1 - share
    values = np.array([left**2 * (1 + 2 * share), share**2 * (1 + 2 * left)])
    return values, length * share * left * np.array([left, -share])


def nearest_parabola(places, target) -> np.ndarray:
    """Weights of the values at `places` in a weighted least-squares parabola, evaluated at the nearby `target`.

    Places nearer to the target weigh more.
    """
    offset = np.asarray(places) - target
    trust = 1 / np.maximum(np.abs(offset), np.finfo(float).tiny)
    powers = offset[:, None] ** np.arange(3)
    return np.linalg.pinv(powers * trust[:, None])[0] * trust


def between(temperatures, temperature) -> tuple[np.ndarray, slice]:
    """Weights and window of the N_POINTS temperatures nearest to `temperature`, or of its two neighbours if these are
    far apart. `temperatures` must be descending.
    """
    positions, target = [-log(known) for known in temperatures], -log(temperature)
    window = _window(positions, target, N_POINTS)
    if any(colder - hotter > REACH for hotter, colder in pairwise(positions[window])):
        window = _window(positions, target, 2)
    near, weights = positions[window], np.zeros(len(positions[window]))
    taken = _apart(near, target)
    weights[taken] = lagrange([near[number] for number in taken], target)
    return weights, window


def _apart(places, target) -> list[int]:
    """Indices of places, ascending, that are not too close to one another; those nearest to the target come first."""
    taken: list[int] = []
    for number in sorted(range(len(places)), key=lambda index: abs(places[index] - target)):
        if all(abs(places[number] - places[index]) >= CLOSEST for index in taken):
            taken.append(number)
    return sorted(taken)


def _window(places, target, size) -> slice:
    first = max(0, min(bisect_left(places, target) - size // 2, len(places) - size))
    return slice(first, first + size)


def predicted(problem: Problem, nodes: list[Step], temperature):
    """Predicted minimum at the next temperature.

    It is extrapolated along the tangents of the last two nodes if the solver provides them, else along a parabola in
    log temperature through the last three. If every temperature is a node, so that nodes are close together, a parabola
    is fitted to more of them, which does not amplify their errors.

    """
    if not nodes:
        return problem.start(temperature)
    if nodes[-1].tangent is not None and np.log(nodes[-1].temperature / temperature) <= REACH:
        return along_tangents(nodes, temperature)
    if problem.visits_all and problem.temperature_free and len(nodes) > 3:
        latest = nodes[-N_POINTS:]
        positions = np.log([node.temperature for node in latest])
        return combined(nearest_parabola(positions, np.log(temperature)), [node.parameters for node in latest])
    latest = nodes[-3:] if problem.extrapolates else nodes[-1:]
    carried = [carried_over(problem, node.parameters, node.temperature, temperature) for node in latest]
    positions = np.log([node.temperature for node in latest])
    target = np.log(temperature)
    if len(latest) < 3 or positions[-1] - target > 2 * min(positions[0] - positions[1], positions[1] - positions[2]):
        return carried[-1]
    return combined(lagrange(positions, target), carried)


def carried_over(problem: Problem, parameters, temperature, new_temperature):
    """Parameters with the same scores at another temperature; if `temperature_free`, with the same logits."""
    return parameters if problem.temperature_free else parameters * (temperature / new_temperature)


def along_tangents(nodes: list[Step], temperature):
    """Hermite extrapolation from the last two nodes, or from the last one if they are too close for the distance."""
    positions, target = [float(np.log(node.temperature)) for node in nodes[-2:]], float(np.log(temperature))
    has_two = len(positions) > 1 and nodes[-2].tangent is not None
    n_known = 2 if has_two and positions[-1] - target <= 2 * (positions[0] - positions[1]) else 1
    latest, positions = nodes[-n_known:], positions[-n_known:]
    weights = np.concatenate(hermite(positions, target))
    return combined(weights, [*(node.parameters for node in latest), *(node.tangent for node in latest)])


def interpolated(steps: list[Step], parameters: list, temperatures) -> list:
    temperatures_of_steps = [step.temperature for step in steps]
    windows = [between(temperatures_of_steps, temperature) for temperature in temperatures]
    return [combined(weights, parameters[window]) for weights, window in windows]
