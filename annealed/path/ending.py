"""Stopping rule of a path: the schedule's criterion, and a score test of what the penalty still suppresses."""

from __future__ import annotations

import numpy as np

from annealed.path.adaptive import FLAT, LONG_PATIENCE, has_learned
from annealed.path.base import Step
from annealed.problems import Problem
from annealed.problems.evidence import evidence_held_back

MUCH_HELD_BACK = 0.1  # share of Q / T by which the suppressed directions could lower it
CLEAR_EVIDENCE, NO_EVIDENCE = 5.0, 2.0  # standard errors beyond chance: clear from the first, none up to the second


def has_ended(problem: Problem, schedule, nodes: list[Step]) -> bool:
    """Whether the path ends at the last node.

    The schedule decides. If it has `learns_late`, a score test may overrule it: the path goes on if the test clearly
    finds signal in directions that the penalty suppresses, and if that signal is large relative to Q / T or validation
    has not improved yet. As long as it has not improved, the path ends if the test finds nothing.
    """
    record = _record_of(nodes)
    compared = [node.validation.compared for node in nodes]
    has_passed = any(schedule.should_stop(record[0], scores, record[2]) for scores in (record[1], compared))
    if not schedule.learns_late:
        return has_passed
    is_validated = compared[-1] is not None
    is_waiting = is_validated and np.log(record[0][0] / record[0][-1]) >= LONG_PATIENCE and not has_learned(record[1])
    if not (has_passed or is_waiting):
        return False
    last = nodes[-1]
    held_back = evidence_held_back(problem, last.parameters[0, ...], last.temperature)
    if not has_passed:
        return held_back.errors < NO_EVIDENCE or (np.isnan(held_back.errors) and _has_long_been_worse(nodes))
    is_much = held_back.nats > MUCH_HELD_BACK * last.value or is_waiting
    return not (is_much and held_back.errors > CLEAR_EVIDENCE)


def _has_long_been_worse(nodes: list[Step]) -> bool:
    """Whether validation has been worse than at the hot end for so long that waiting is useless."""
    temperatures, scores, _ = _record_of(nodes)
    hot, coldest = np.mean(scores[0]), temperatures[-1] * np.exp(LONG_PATIENCE)
    recent = [np.mean(score) for score, at in zip(scores[1:], temperatures[1:], strict=True) if at <= coldest]
    return max(recent) < hot - FLAT * abs(hot)


def _record_of(nodes: list[Step]):
    """Temperatures, fold scores and Q / T of the nodes, as arguments of a schedule."""
    return tuple(zip(*((node.temperature, node.validation.scores, node.value) for node in nodes), strict=True))
