"""Whether another penalty scaling is worth a path of its own."""

from __future__ import annotations

import numpy as np

from annealed.problems.penalty_scaling import ScalingChoices
from annealed.solvers import Accuracy, Points
from annealed.validation.selection import best_of, compared, improves_significantly


def prefers_alternative(choices: ScalingChoices, path) -> bool:
    """Whether validation scores clearly improve with a small step towards another scaling.

    The folds are solved again with a slightly perturbed scaling, at the best of the last nodes, the only ones that
    keep their folds. First they are solved on with the scaling as it is, so that the effect of further steps is not
    attributed to the scaling.
    """
    nodes = [step for step in path.steps if step.is_node and step.parameters.shape[0] > 1]
    if not nodes:
        return False
    node = nodes[best_of(compared(nodes))]
    perturbed = choices.perturbed(node.parameters[:1, ...], node.temperature, node.value)
    if perturbed is None:
        return False
    plan, folds = path.plan, np.arange(1, node.parameters.shape[0])
    accuracy = Accuracy(plan.tol, plan.max_iter)

    def scores_of(problem, parameters):
        points = Points(folds, np.full(len(folds), node.temperature), parameters[1:])
        solution = plan.solver.solve(problem, points, accuracy, plan.memory)
        parameters = np.concatenate([parameters[:1], solution.parameters])
        return path.validator.validate(problem, parameters, node.temperature).compared, parameters

    reference, parameters = scores_of(plan.problem, node.parameters)
    return improves_significantly(scores_of(perturbed, parameters)[0], reference)
