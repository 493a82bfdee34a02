"""Stopping rule of a path: the schedule's criterion, and a score test of what the penalty still suppresses."""

from __future__ import annotations

import numpy as np

from annealed.path.base import Step
from annealed.problems import Problem
from annealed.problems.evidence import evidence_held_back

LEAST_LEARNED = 0.01  # relative decrease of Q / T since the hot end, from which something was learned
MUCH_HELD_BACK = 0.1  # share of Q / T by which the suppressed directions could lower it
CLEAR_EVIDENCE, NO_EVIDENCE = 5.0, 2.0  # standard errors beyond chance: clear from the first, none up to the second
WORSE = 1e-3  # share of the hot end's score by which a score must be lower to count as worse
LONG_WORSE = 50.0  # ratio of temperatures over which scores stay worse before a path ends, if the test is unavailable


def has_ended(problem: Problem, schedule, nodes: list[Step]) -> bool:
    """Whether the path ends at the last node.

    The schedule decides. If it has `learns_late`, a score test may overrule it. The path continues if the test clearly
    finds signal in directions that the penalty suppresses, and if that signal is large relative to Q / T or nothing has
    been learned yet. While the schedule is waiting for validation to improve, the path ends if the test finds nothing.

    """
    has_passed, is_waiting = _should_stop(schedule, nodes), schedule.is_waiting(*_record_of(nodes))
    if not schedule.learns_late or not (has_passed or is_waiting):
        return has_passed
    last = nodes[-1]
    held_back = evidence_held_back(problem, last.parameters[0, ...], last.temperature)
    if not has_passed:
        return held_back.errors < NO_EVIDENCE or (np.isnan(held_back.errors) and _has_long_been_worse(nodes))
    has_learned = last.value < (1 - LEAST_LEARNED) * nodes[0].value
    is_much = held_back.nats > MUCH_HELD_BACK * last.value or not has_learned
    return not (is_much and held_back.errors > CLEAR_EVIDENCE)


def _should_stop(schedule, nodes: list[Step]) -> bool:
    """Whether the validation score, or the penalized one that temperatures are compared by, has passed its best."""
    temperatures, scores, values = _record_of(nodes)
    compared = [node.validation.compared for node in nodes]
    return any(schedule.should_stop(temperatures, fold_scores, values) for fold_scores in (scores, compared))


def _has_long_been_worse(nodes: list[Step]) -> bool:
    """Whether validation has been worse than at the hot end for so long that waiting is useless."""
    temperatures, scores, _ = _record_of(nodes)
    hot, *means = np.mean(scores, axis=1)
    recent = [
        mean
        for mean, temperature in zip(means, temperatures[1:], strict=True)
        if temperature <= LONG_WORSE * temperatures[-1]
    ]
    return max(recent) < hot - WORSE * abs(hot)


def _record_of(nodes: list[Step]):
    """Temperatures, fold scores and Q / T of the nodes, as arguments of a schedule."""
    return zip(*((node.temperature, node.validation.scores, node.value) for node in nodes), strict=True)
