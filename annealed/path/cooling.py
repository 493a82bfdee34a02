"""The path: `anneal` cools a stack of fits from temperature to temperature (table 1, steps 2 to 6).

At nodes all fits are solved. If the minima of a family lie on one smooth curve, nodes are as far apart in log
temperature as REACH allows, and the path is refined between them: at an intermediate temperature the polynomial through
the nodes is the start of the final fit, which is solved from it, although most starts are certified without a step; the
folds are validated as interpolated. The middle of every gap comes first, because the final fit's polynomial includes it
from then on. The gaps next to a start that was far from its minimum are halved again.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np

from annealed.arrays import copied, stacked, to_host
from annealed.path.adaptive import has_ended
from annealed.path.base import Step, Validator, Watch
from annealed.path.prediction import N_POINTS, REACH, along_tangents, interpolated, predicted
from annealed.path.schedules import falling
from annealed.solvers import Plan, Points, Solution

COLDER_NODES = 2  # nodes colder than an intermediate temperature, before it is refined
NODES_AT_HAND = N_POINTS + COLDER_NODES  # latest nodes that keep their folds: enough to surround a waiting temperature
MOST_HALVINGS = 4  # of the gaps next to poor starts


def anneal(plan: Plan, schedule, validator: Validator, watch: Watch | None = None) -> list[Step]:
    """Cool a stack of fits, with predicted warm starts from temperature to temperature.

    If the path is kept, pass it to `concluded`.
    """
    problem = plan.problem
    path = _Path(plan, validator, schedule.fills_gaps)
    ladder = falling(schedule.temperatures(lambda: _hot_end(problem)))
    is_sparse = problem.interpolates and not problem.visits_all
    for temperatures in path.groups(_with_nodes(ladder, REACH if is_sparse else 0.0)):
        if watch is not None:
            watch.begin(temperatures[0])
        path.add_nodes(temperatures)
        if path.is_over(schedule, watch, len(temperatures)):
            break
    path.finish()
    return path.steps()


def _hot_end(problem) -> float:
    with np.errstate(over="ignore", divide="ignore"):
        temperature = problem.hot_temperature()
    if 0 < temperature < np.inf:
        return temperature
    raise ValueError(
        f"The first temperature must be a positive number. Got {temperature}, found from X and the penalty. Divide the "
        "columns of X by their standard deviations, or give a penalty nearer to 1."
    )


def concluded(plan: Plan, steps: list[Step], certified=slice(None)) -> list[Step]:
    """The steps of a path that is kept, with training summaries; those in `certified` are certified."""
    numbers = [number for number in range(len(steps))[certified] if steps[number].awaits_certificate]
    steps = list(steps)
    for number, step in zip(numbers, _certified(plan, [steps[number] for number in numbers]), strict=True):
        steps[number] = step
    points = [(step.parameters[0, ...], step.temperature, step.validation.scale) for step in steps]
    entropy, value = [step.entropy for step in steps], [step.value for step in steps]
    summaries = plan.problem.summarize(points, entropy, value)
    return [replace(step, training_summary=summary) for step, summary in zip(steps, summaries, strict=True)]


def _certified(plan: Plan, steps: list[Step]) -> list[Step]:
    """The steps with their final fits solved on until they are certified."""
    if not steps:
        return []
    began = perf_counter()
    starts = stacked([step.parameters[0, ...] for step in steps])
    solution = plan.solve(Points.of_final(starts, [step.temperature for step in steps]))
    seconds = (perf_counter() - began) / len(steps)
    return [step.with_final(solution.part(slice(at, at + 1)), seconds) for at, step in enumerate(steps)]


def _with_nodes(ladder, reach):
    """Yield (temperature, whether it is skipped) of a ladder; the others are nodes, spaced by `reach` if possible."""
    node = waiting = None
    for temperature in ladder:
        if waiting is not None:
            is_left_out = node is not None and np.log(node / temperature) <= reach
            if not is_left_out:
                node = waiting
            yield waiting, is_left_out
        waiting = temperature
    if waiting is not None:
        yield waiting, False


class _Path:
    """The steps of one annealing: nodes, where all fits are solved, and others, where only the final fit is."""

    def __init__(self, plan: Plan, validator: Validator, is_adaptive: bool):
        self.plan, self.problem, self.validator = plan, plan.problem, validator
        self.is_adaptive = is_adaptive  # whether temperatures may be added, and given up
        self.adds_middles = is_adaptive and self.problem.interpolates
        self.nodes: list[Step] = []
        self.values: Any = None  # of all fits at the last node
        self.others: list[Step] = []
        self.waiting: list[float] = []  # temperatures between nodes, to be refined

    def steps(self) -> list[Step]:
        return sorted([*self.nodes, *self.others], key=lambda step: -step.temperature)

    def groups(self, ladder):
        """Yield the nodes of a ladder in groups that the solver takes together; skipped temperatures wait."""
        group: list[float] = []
        size = 1 if self.validator.sees_final else self.plan.solver.nodes_together
        for temperature, is_left_out in ladder:
            (self.waiting if is_left_out else group).append(temperature)
            if len(group) == size:
                yield group
                group = []
        if group:
            yield group

    def is_over(self, schedule, watch: Watch | None, n_new) -> bool:
        """Whether the path ends at one of the latest nodes, by its stopping rule or by a callback; drop later nodes."""
        for end in range(len(self.nodes) - n_new + 1, len(self.nodes) + 1):
            nodes = self.nodes[:end]
            if (watch is not None and watch.end(nodes)) or has_ended(self.problem, schedule, nodes):
                self.nodes = nodes
                return True
            if watch is not None and end < len(self.nodes):
                watch.begin(self.nodes[end].temperature)
        return False

    def add_nodes(self, temperatures):
        """Solve and validate every fit at the next nodes, and refine gaps that are now surrounded by nodes."""
        began = perf_counter()
        first, *later = temperatures
        starts = [predicted(self.problem, self.nodes, first), *(self._foreseen(temperature) for temperature in later)]
        solutions = self._solved(starts, temperatures)
        self.values = to_host(solutions[-1].value)
        points = [solution.parameters for solution in solutions]
        validated = self.validator.validate_all(self.problem, points, temperatures)
        seconds = (perf_counter() - began) / len(temperatures)
        for temperature, solution, validation in zip(temperatures, solutions, validated, strict=True):
            self.nodes.append(Step.of(temperature, solution, validation, seconds, is_node=True))
            if self.adds_middles and len(self.nodes) > 1:
                self._await_middle(self.nodes[-2].temperature, temperature)
        if self.plan.solver.gaps_last:  # small enough for every node to keep its folds
            return
        if len(self.nodes) >= N_POINTS:
            self.refine(self.nodes[-COLDER_NODES].temperature)
        if len(self.nodes) > NODES_AT_HAND:
            self.nodes[-NODES_AT_HAND - 1] = _without_folds(self.nodes[-NODES_AT_HAND - 1])

    def _solved(self, starts, temperatures) -> list[Solution]:
        """The solution of all fits at each temperature."""
        certify = self.validator.sees_final and self.plan.solver.certifies_gaps
        n_before = sum(node.n_iter for node in self.nodes) if self.is_adaptive and self.nodes else None
        hotter = (self.nodes[-1].parameters, self.values) if self.nodes and self.problem.interpolates else None
        solution = self.plan.solve(Points.of_fits(starts, temperatures, hotter), certify, n_before)
        size = self.problem.n_fits
        return [solution.part(slice(first, first + size)) for first in range(0, size * len(starts), size)]

    def _await_middle(self, hotter, colder):
        """Add the middle of a gap to the waiting temperatures, unless one of the ladder is waiting there."""
        if not any(hotter > temperature > colder for temperature in self.waiting):
            self.waiting.append(_middle(hotter, colder))

    def _foreseen(self, temperature):
        """Start for a node that is solved together with earlier ones: linear extrapolation by the last tangent."""
        return along_tangents(self.nodes[-1:], temperature) if self.nodes else self.problem.start(temperature)

    def finish(self):
        """Refine what is left. Where that comes last, interpolation can use certified nodes."""
        if self.plan.solver.gaps_last and self.plan.solver.certifies_gaps:
            rough = [number for number, node in enumerate(self.nodes) if node.awaits_certificate]
            for number, node in zip(rough, _certified(self.plan, [self.nodes[at] for at in rough]), strict=True):
                self.nodes[number] = node
        self.refine(self.nodes[-1].temperature)

    def refine(self, coldest):
        """Solve the final fit at the waiting temperatures above `coldest`, and validate the interpolated folds.

        Then halve the gaps next to poor starts, until the starts between are certified without a step.
        """
        ready = [temperature for temperature in self.waiting if temperature > coldest]
        self.waiting = [temperature for temperature in self.waiting if temperature <= coldest]
        middles = self._nearest_middles(ready)
        added = self._add(middles) + self._add([temperature for temperature in ready if temperature not in middles])
        for _ in range(MOST_HALVINGS if self.adds_middles else 0):
            far = {step.temperature for step in added if step.was_far and step.converged}
            if not far:
                return
            gaps = pairwise([step.temperature for step in self.steps()])
            added = self._add([_middle(*gap) for gap in gaps if far.intersection(gap)], only_solved=True)

    def _nearest_middles(self, ready) -> list[float]:
        """Of the temperatures in each gap between nodes, the one nearest to its middle."""
        nodes = -np.log([node.temperature for node in self.nodes])
        gaps: dict[int, list] = {}
        for temperature in ready:
            gaps.setdefault(int(np.searchsorted(nodes, -np.log(temperature))), []).append(temperature)
        middles = []
        for gap, inside in gaps.items():
            from_middle = np.abs(-np.log(inside) - 0.5 * (nodes[gap - 1] + nodes[gap]))
            middles.append(inside[int(np.argmin(from_middle))])
        return middles

    def _add(self, temperatures, only_solved=False) -> list[Step]:
        """Add steps at these temperatures, a few at a time: all, or those that were not solved at their start."""
        added, size = [], self.plan.solver.gaps_together
        for first in range(0, len(temperatures), size):
            new = self._solved_between(temperatures[first : first + size])
            new = [step for step in new if step.n_iter or not only_solved]
            self.others += new
            added += new
        return added

    def _solved_between(self, temperatures) -> list[Step]:
        began = perf_counter()
        points = self._between(temperatures)
        starts = Points.of_final(stacked([point[0, ...] for point in points]), temperatures)
        solution = self.plan.solve(starts, certify=self.plan.solver.certifies_gaps)
        for number, point in enumerate(points):
            point[0, ...] = solution.parameters[number, ...]
        validated = self.validator.validate_all(self.problem, points, temperatures)
        seconds = (perf_counter() - began) / len(temperatures)
        return [
            Step.of(temperature, solution.part(slice(at, at + 1)), validated[at], seconds, is_node=False)
            for at, temperature in enumerate(temperatures)
        ]

    def _between(self, temperatures) -> list:
        """Interpolated parameters of all fits: folds from the nodes, the final fit from every temperature solved."""
        points = interpolated(self.nodes, [node.parameters for node in self.nodes], temperatures)
        solved = [step for step in self.steps() if step.is_node or (step.n_iter and step.converged)]
        if len(solved) > len(self.nodes):
            finals = interpolated(solved, [step.parameters[0, ...] for step in solved], temperatures)
            for point, final in zip(points, finals, strict=True):
                point[0, ...] = final
        return points


def _middle(hotter, colder) -> float:
    return float(np.sqrt(hotter) * np.sqrt(colder))


def _without_folds(step: Step) -> Step:
    return replace(step, parameters=copied(step.parameters[:1, ...]))
