"""The walk: `anneal` cools a stack of fits from temperature to temperature (table 1, steps 2 to 6).

Where a family's minima lie on one smooth curve, the folds are solved at nodes only, no closer than REACH in log
temperature. Temperatures between them start from the polynomial through the nodes; the final fit is solved there too,
most often certified as it starts, and the folds are validated as interpolated. The middles of gaps go first: the final
fit's polynomial has them among its points from then on. Beside one that started far off, the gaps are halved again.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from time import perf_counter

import numpy as np

from annealed.arrays import copied, stacked, to_host
from annealed.interpolation import N_POINTS
from annealed.objectives import Problem
from annealed.schedules import falling
from annealed.solvers import Solution, Solver
from annealed.walk.base import Step, Validation, Validator, Watch
from annealed.walk.ending import has_ended
from annealed.walk.prediction import along_tangents, interpolated, predicted

COLDER_NODES = 2  # beyond a temperature, before it is filled
NODES_AT_HAND = N_POINTS + COLDER_NODES  # newest ones, among which those around a waiting temperature are
REACH = 0.95  # of log temperature, between nodes
MOST_HALVINGS = 4  # of a gap in which the path bends
MISLED = 1.1  # times the hot Q / T, which no fit ends above but by a start out of reach


def anneal(
    problem: Problem,
    schedule,
    solver: Solver,
    validator: Validator,
    *,
    tol,
    max_iter,
    memory,
    watch: Watch | None = None,
) -> list[Step]:
    """Cool a stack of fits, warm-started and predicted from temperature to temperature.

    `memory` is what `solver.new_memory(problem)` made. A path that is kept is then `concluded`.
    """
    problem.watch(validator.held_out)
    fills_gaps = schedule.fills_gaps and problem.interpolates
    walk = _Walk(problem, solver, validator, fills_gaps, {"tol": tol, "max_iter": max_iter, "memory": memory})
    ladder = falling(schedule.temperatures(problem.hot_temperature))
    is_sparse = problem.interpolates and not problem.visits_all
    for temperatures in walk.groups(_with_nodes(ladder, REACH if is_sparse else 0.0)):
        if watch is not None:
            watch.begin(temperatures[0])
        walk.visit(temperatures)
        if walk.is_over(schedule, watch, len(temperatures)):
            break
    if walk.settles_last:
        walk.settle()
    walk.fill(walk.nodes[-1].temperature)
    return walk.steps()


def concluded(problem: Problem, steps: list[Step], solver: Solver, options: dict) -> list[Step]:
    """The steps of a path that is kept: seen in full precision, and inspected, all in one reading of the rows."""
    if solver.needs_confirmation(problem):
        of_all = not solver.sees_fillings_exactly
        rough = [number for number, step in enumerate(steps) if of_all or step.is_node or step.n_iter]
        solved = _solved_on(problem, [steps[number] for number in rough], solver.confirm, options)
        confirmed = dict(zip(rough, solved, strict=True))
        steps = [confirmed.get(number, step) for number, step in enumerate(steps)]
    points = [(step.parameters[0, ...], step.temperature, step.validation.scale) for step in steps]
    summaries = problem.summarize(points, [step.entropy for step in steps])
    return [replace(step, training_summary=own) for step, own in zip(steps, summaries, strict=True)]


def _solved_on(problem: Problem, steps: list[Step], solve, options: dict) -> list[Step]:
    """The steps with their final fits as `solve` leaves them."""
    began = perf_counter()
    temperatures = np.array([step.temperature for step in steps])
    found = solve(problem, stacked([step.parameters[0, ...] for step in steps]), temperatures, **options)
    seconds = (perf_counter() - began) / len(steps)
    return [_with_final(step, found.only(number), seconds) for number, step in enumerate(steps)]


def _with_final(step: Step, found: Solution, seconds) -> Step:
    step.parameters[0, ...] = found.parameters[0, ...]
    return replace(
        step,
        value=float(found.value[0]),
        gradient_norm=float(found.gradient_norm[0]),
        n_iter=step.n_iter + int(found.n_iter[0]),
        converged=step.converged and bool(found.converged[0]),
        seconds=step.seconds + seconds,
        certificate=_of_final(found.certificate),
        entropy=_of_final(found.entropy),
    )


def _of_final(values) -> float:
    """Of fit 0, where a solver says so."""
    return np.nan if values is None else float(values[0])


def _with_nodes(ladder, reach):
    """(temperature, whether it is left out) of a ladder: nodes are as far apart as `reach` and the ladder allow."""
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


class _Walk:
    """The steps of one annealing: nodes, where all fits are solved, and fillings, where the final one is."""

    def __init__(self, problem: Problem, solver: Solver, validator: Validator, fills_gaps: bool, options: dict):
        self.problem, self.solver, self.validator, self.options = problem, solver, validator, options
        self.fills_gaps = fills_gaps  # by temperatures of its own
        self.settles_last = solver.settles_last and not validator.sees_final
        self.nodes: list[Step] = []
        self.fillings: list[Step] = []
        self.waiting: list[float] = []  # temperatures to fill

    def steps(self) -> list[Step]:
        return sorted([*self.nodes, *self.fillings], key=lambda step: -step.temperature)

    def groups(self, ladder):
        """Nodes of a ladder, as many at a time as the solver takes together; what it leaves out waits."""
        group: list[float] = []
        size = self.solver.n_together(self.problem) if self.settles_last else 1
        for temperature, is_left_out in ladder:
            (self.waiting if is_left_out else group).append(temperature)
            if len(group) == size:
                yield group
                group = []
        if group:
            yield group

    def is_over(self, schedule, watch: Watch | None, n_new) -> bool:
        """Whether one of the last nodes ends the walk, by what is seen or by a watch; those after it are forgotten."""
        for end in range(len(self.nodes) - n_new + 1, len(self.nodes) + 1):
            seen = self.nodes[:end]
            if (watch is not None and watch.end(seen)) or has_ended(self.problem, schedule, seen):
                self.nodes = seen
                return True
            if watch is not None and end < len(self.nodes):
                watch.begin(self.nodes[end].temperature)
        return False

    def visit(self, temperatures):
        """Solve and validate every fit at the next nodes; fill what now has nodes enough around it."""
        began = perf_counter()
        first, *later = temperatures
        starts = [predicted(self.problem, self.nodes, first), *(self._foreseen(own) for own in later)]
        solutions = self._solved_from(starts, temperatures)
        if any(map(self._was_misled, solutions)):
            again = self._solved_from([self.nodes[-1].parameters] * len(starts), temperatures)
            pairs = zip(solutions, again, strict=True)
            solutions = [min(pair, key=lambda own: float(own.value.sum())) for pair in pairs]
        validated = self.validator.validate_all(self.problem, [own.parameters for own in solutions], temperatures)
        seconds = (perf_counter() - began) / len(temperatures)
        for temperature, solution, validation in zip(temperatures, solutions, validated, strict=True):
            self.nodes.append(self._record(temperature, solution, validation, seconds, is_node=True))
            if self.fills_gaps and len(self.nodes) > 1:
                self._fill_middle(self.nodes[-2].temperature, temperature)
        if self.solver.fills_last:  # small enough to keep every fold
            return
        if len(self.nodes) >= N_POINTS:
            self.fill(self.nodes[-COLDER_NODES].temperature)
        if len(self.nodes) > NODES_AT_HAND:
            self.nodes[-NODES_AT_HAND - 1] = _without_folds(self.nodes[-NODES_AT_HAND - 1])

    def _solved_from(self, starts, temperatures) -> list[Solution]:
        if self.settles_last:
            return self.solver.approach(self.problem, starts, temperatures, **self.options)
        return [self.solver.minimize(self.problem, starts[0], temperatures[0], **self.options)]

    def _was_misled(self, solution: Solution) -> bool:
        """Whether a fit ended above where the path began, as only one can that was predicted out of reach: a row that
        lies far out makes tangents point anywhere. From the last node Q / T can but fall.
        """
        if not (self.nodes and self.problem.interpolates):
            return False
        is_lost = (to_host(solution.value) > MISLED * self.nodes[0].value) & ~to_host(solution.converged)
        return bool(is_lost.any())

    def _fill_middle(self, hotter, colder):
        """The middle of a gap waits to be filled, unless the ladder has left out something in it that does."""
        if not any(hotter > own > colder for own in self.waiting):
            self.waiting.append(float(np.sqrt(hotter) * np.sqrt(colder)))

    def _foreseen(self, temperature):
        """Where a minimum may lie that is solved together with those before it: on the line of the last tangent."""
        return along_tangents(self.nodes[-1:], temperature) if self.nodes else self.problem.start(temperature)

    def settle(self):
        """Solve the final fit to the tolerance at every node."""
        self.nodes = _solved_on(self.problem, self.nodes, self.solver.settle, self.options)

    def fill(self, coldest):
        """Solve the final fit at the waiting temperatures hotter than `coldest`, and validate the folds as they lie."""
        waves = self._waves([own for own in self.waiting if own > coldest])
        self.waiting = [own for own in self.waiting if own <= coldest]
        filled = [step for wave in waves for step in self._fill_wave(wave)]
        if self.fills_gaps:
            self._bisect(filled)

    def _bisect(self, filled):
        """Halve the gaps beside badly interpolated fillings, until what is between is certified as it lies."""
        for _ in range(MOST_HALVINGS):
            far = {step.temperature for step in filled if step.was_far and step.converged}
            if not far:
                return
            filled = self._fill_wave(self._middles_beside(far), only_solved=True)

    def _middles_beside(self, temperatures: set[float]):
        """The middles of the gaps on both sides of some temperatures, falling."""
        gaps = pairwise([step.temperature for step in self.steps()])
        return [float(np.sqrt(hotter) * np.sqrt(colder)) for hotter, colder in gaps if {hotter, colder} & temperatures]

    def _fill_wave(self, temperatures, only_solved=False) -> list[Step]:
        """Fill some temperatures, a few at a time; all are kept, or those that had to be solved."""
        filled, size = [], self.solver.filled_together
        for first in range(0, len(temperatures), size):
            new = self._fill_together(temperatures[first : first + size])
            new = [step for step in new if step.n_iter or not only_solved]
            self.fillings += new
            filled += new
        return filled

    def _fill_together(self, temperatures) -> list[Step]:
        began = perf_counter()
        points = self._between(temperatures)
        starts = stacked([own[0, ...] for own in points])
        found = self.solver.fill(self.problem, starts, np.array(temperatures), **self.options)
        for number, point in enumerate(points):
            point[0, ...] = found.parameters[number, ...]
        validated = self.validator.validate_all(self.problem, points, temperatures)
        seconds = (perf_counter() - began) / len(temperatures)
        return [
            self._record(temperature, found.only(number), validated[number], seconds, is_node=False)
            for number, temperature in enumerate(temperatures)
        ]

    def _waves(self, ready):
        """What lies nearest to the middle of each gap between nodes, and then the rest."""
        nodes = -np.log([node.temperature for node in self.nodes])
        gaps: dict[int, list] = {}
        for own in ready:
            gaps.setdefault(int(np.searchsorted(nodes, -np.log(own))), []).append(own)
        middles = []
        for gap, inside in gaps.items():
            from_middle = np.abs(-np.log(inside) - 0.5 * (nodes[gap - 1] + nodes[gap]))
            middles.append(inside[int(np.argmin(from_middle))])
        return middles, [own for own in ready if own not in middles]

    def _between(self, temperatures) -> list:
        """Parameters of all fits, interpolated: the folds from nodes, the final fit from all where it was solved."""
        points = interpolated(self.nodes, [node.parameters for node in self.nodes], temperatures)
        solved = [step for step in self.steps() if step.is_node or (step.n_iter and step.converged)]
        if len(solved) > len(self.nodes):
            finals = interpolated(solved, [step.parameters[0, ...] for step in solved], temperatures)
            for point, final in zip(points, finals, strict=True):
                point[0, ...] = final
        return points

    def _record(self, temperature, solution: Solution, validation: Validation, seconds, is_node) -> Step:
        return Step(
            temperature=temperature,
            value=float(solution.value[0]),
            gradient_norm=float(solution.gradient_norm[0]),
            n_iter=int(solution.n_iter[0]),
            converged=bool(solution.converged.all()),
            is_node=is_node,
            validation=validation,
            parameters=solution.parameters,
            seconds=seconds,
            tangent=solution.tangent,
            was_far=solution.was_far is not None and bool(solution.was_far[0]),
            certificate=_of_final(solution.certificate),
            entropy=_of_final(solution.entropy),
        )


def _without_folds(step: Step) -> Step:
    return replace(step, parameters=copied(step.parameters[:1, ...]))
