"""Where the minimum at another temperature should lie, by those that are known."""

from __future__ import annotations

import numpy as np

from annealed.arrays import combined
from annealed.interpolation import WIDEST_STEP, between, hermite, lagrange, nearest_parabola
from annealed.objectives import Problem
from annealed.walk.base import Step

N_SMOOTHED = 10  # newest nodes behind a smoothed prediction


def predicted(problem: Problem, nodes: list[Step], temperature):
    """Where the next minimum should lie: the last three carried along a parabola in log temperature, or the last two by
    their tangents where these are known.

    Where nodes lie close, the parabola nearest to several of them: their own errors are then not magnified.
    """
    if not nodes:
        return problem.start(temperature)
    if nodes[-1].tangent is not None and np.log(nodes[-1].temperature / temperature) <= WIDEST_STEP:
        return along_tangents(nodes, temperature)
    if problem.visits_all and problem.temperature_free and len(nodes) > 3:
        known = nodes[-N_SMOOTHED:]
        places = np.log([node.temperature for node in known])
        return combined(nearest_parabola(places, np.log(temperature)), [node.parameters for node in known])
    known = nodes[-3:] if problem.extrapolates else nodes[-1:]
    carried = [problem.carry(node.parameters, node.temperature, temperature) for node in known]
    places = np.log([node.temperature for node in known])
    target = np.log(temperature)
    if len(known) < 3 or places[-1] - target > 2 * min(places[0] - places[1], places[1] - places[2]):
        return carried[-1]
    return combined(lagrange(places, target), carried)


def along_tangents(nodes: list[Step], temperature):
    """By the last two, or the last alone where these lie so close that what they say of far away is noise."""
    places, target = [float(np.log(node.temperature)) for node in nodes[-2:]], float(np.log(temperature))
    has_two = len(places) > 1 and nodes[-2].tangent is not None
    n_known = 2 if has_two and places[-1] - target <= 2 * (places[0] - places[1]) else 1
    known, places = nodes[-n_known:], places[-n_known:]
    weights = np.concatenate(hermite(places, target))
    return combined(weights, [*(node.parameters for node in known), *(node.tangent for node in known)])


def interpolated(steps: list[Step], parameters: list, temperatures) -> list:
    known = [step.temperature for step in steps]
    found = [between(known, temperature) for temperature in temperatures]
    return [combined(weights, parameters[window]) for weights, window in found]
