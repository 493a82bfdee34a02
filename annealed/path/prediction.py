"""Prediction of the minimum at another temperature, from known ones: extrapolation and interpolation."""

from __future__ import annotations

import numpy as np

from annealed.arrays import combined
from annealed.path.base import Step
from annealed.path.interpolation import WIDEST_STEP, between, hermite, lagrange, nearest_parabola
from annealed.problems import Problem

N_SMOOTHED = 10  # latest nodes in a smoothed prediction


def predicted(problem: Problem, nodes: list[Step], temperature):
    """Predicted minimum at the next temperature.

    It is extrapolated along the tangents of the last two nodes if the solver provides them, else along a parabola in
    log temperature through the last three. If every temperature is a node, so that nodes are close together, a parabola
    is fitted to more of them, which does not amplify their errors.

    """
    if not nodes:
        return problem.start(temperature)
    if nodes[-1].tangent is not None and np.log(nodes[-1].temperature / temperature) <= WIDEST_STEP:
        return along_tangents(nodes, temperature)
    if problem.visits_all and problem.temperature_free and len(nodes) > 3:
        latest = nodes[-N_SMOOTHED:]
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
