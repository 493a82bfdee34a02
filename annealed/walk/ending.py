"""When a walk ends: by what the schedule sees of it, and by what rows say that the penalty holds back."""

from __future__ import annotations

import numpy as np

from annealed.objectives import Problem
from annealed.walk.base import Step

LEAST_LEARNED = 0.01  # share of the hot Q / T by which it falls where something was learned
MUCH_HELD_BACK = 0.1  # share of Q / T that what is held back could make it fall by
CLEAR_EVIDENCE, NO_EVIDENCE = 5.0, 2.0  # standard errors beyond chance, from which and up to which rows tell so
WORSE = 1e-3  # share of the hot end's score by which it is below that
LONG_WORSE = 50.0  # times as hot as the last: worse since then, where rows cannot say whether there is more to learn


def has_ended(problem: Problem, schedule, seen: list[Step]) -> bool:
    """Whether the schedule says so. One that lets learn late goes on after all where rows clearly tell something
    that is held back, and much beside what was learned; and does not wait for it where they tell nothing.
    """
    has_passed, is_waiting = _should_stop(schedule, seen), schedule.is_waiting(*_record_of(seen))
    if not schedule.learns_late or not (has_passed or is_waiting):
        return has_passed
    last = seen[-1]
    held_back = problem.evidence_held_back(last.parameters[0, ...], last.temperature)
    if not has_passed:
        return held_back.errors < NO_EVIDENCE or (np.isnan(held_back.errors) and _has_long_been_worse(seen))
    has_learned = last.value < (1 - LEAST_LEARNED) * seen[0].value
    is_much = held_back.nats > MUCH_HELD_BACK * last.value or not has_learned
    return not (is_much and held_back.errors > CLEAR_EVIDENCE)


def _should_stop(schedule, nodes: list[Step]) -> bool:
    """Whether what validation says, or what temperatures are compared by, has passed its best."""
    temperatures, scores, values = _record_of(nodes)
    compared = [node.validation.compared for node in nodes]
    return any(schedule.should_stop(temperatures, own, values) for own in (scores, compared))


def _has_long_been_worse(nodes: list[Step]) -> bool:
    """Whether validation has been below the hot end for so long that nothing need be waited for."""
    temperatures, scores, _ = _record_of(nodes)
    hot, *means = np.mean(scores, axis=1)
    recent = [mean for mean, own in zip(means, temperatures[1:], strict=True) if own <= LONG_WORSE * temperatures[-1]]
    return max(recent) < hot - WORSE * abs(hot)


def _record_of(nodes: list[Step]):
    """Temperatures, fold scores and Q / T, as schedules are shown them."""
    return zip(*((node.temperature, node.validation.scores, node.value) for node in nodes), strict=True)
