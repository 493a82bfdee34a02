"""The path: `anneal` cools a stack of fits from temperature to temperature (table 1, steps 2 to 6).

If the minima of a family lie on one smooth curve, the folds are solved at nodes only, as far apart in log temperature
as REACH allows. At an intermediate temperature, the start is the polynomial through the nodes. The final fit is solved
from it, although most starts are certified without a step; the folds are validated as interpolated. The middle of every
gap comes first, because the final fit's polynomial includes it from then on. The gaps next to a start that was far from
its minimum are halved again.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from time import perf_counter

import numpy as np

from annealed.arrays import copied, stacked, to_host
from annealed.path.base import Step, Validation, Validator, Watch
from annealed.path.ending import has_ended
from annealed.path.interpolation import N_POINTS
from annealed.path.prediction import along_tangents, interpolated, predicted
from annealed.path.schedules import falling
from annealed.problems import Problem
from annealed.solvers import Solution, Solver

COLDER_NODES = 2  # nodes colder than an intermediate temperature, before it is filled in
NODES_AT_HAND = N_POINTS + COLDER_NODES  # latest nodes that keep their folds: enough to surround a waiting temperature
REACH = 0.95  # largest distance between nodes in log temperature, if the ladder is finer
MOST_HALVINGS = 4  # of the gaps next to poor starts
MISLED = 1.1  # times Q / T at the hot end: an unconverged fit above it had a misleading start


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
    """Cool a stack of fits, with predicted warm starts from temperature to temperature.

    `memory` is the result of `solver.new_memory(problem)`. If the path is kept, pass it to `concluded`.
    """
    fills_gaps = schedule.fills_gaps and problem.interpolates
    annealing = _Annealing(problem, solver, validator, fills_gaps, {"tol": tol, "max_iter": max_iter, "memory": memory})
    ladder = falling(schedule.temperatures(problem.hot_temperature))
    is_sparse = problem.interpolates and not problem.visits_all
    for temperatures in annealing.groups(_with_nodes(ladder, REACH if is_sparse else 0.0)):
        if watch is not None:
            watch.begin(temperatures[0])
        annealing.visit(temperatures)
        if annealing.is_over(schedule, watch, len(temperatures)):
            break
    if annealing.settles_last:
        annealing.settle()
    annealing.fill(annealing.nodes[-1].temperature)
    return annealing.steps()


def concluded(problem: Problem, steps: list[Step], solver: Solver, options: dict) -> list[Step]:
    """The steps of a path that is kept: confirmed in float64, with training summaries, in one pass over the samples."""
    if solver.needs_confirmation(problem):
        of_all = not solver.sees_fillings_exactly
        rough = [number for number, step in enumerate(steps) if of_all or step.is_node or step.n_iter]
        solved = _solved_on(problem, [steps[number] for number in rough], solver.confirm, options)
        confirmed = dict(zip(rough, solved, strict=True))
        steps = [confirmed.get(number, step) for number, step in enumerate(steps)]
    points = [(step.parameters[0, ...], step.temperature, step.validation.scale) for step in steps]
    summaries = problem.summarize(points, [step.entropy for step in steps])
    return [replace(step, training_summary=summary) for step, summary in zip(steps, summaries, strict=True)]


def _solved_on(problem: Problem, steps: list[Step], solve, options: dict) -> list[Step]:
    """The steps with their final fits replaced by those that `solve` returns."""
    began = perf_counter()
    temperatures = np.array([step.temperature for step in steps])
    solution = solve(problem, stacked([step.parameters[0, ...] for step in steps]), temperatures, **options)
    seconds = (perf_counter() - began) / len(steps)
    return [_with_final(step, solution.only(number), seconds) for number, step in enumerate(steps)]


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
    """The entry of fit 0, NaN if the solver returns none."""
    return np.nan if values is None else float(values[0])


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


class _Annealing:
    """The steps of one annealing: nodes, where all fits are solved, and fillings, where only the final fit is."""

    def __init__(self, problem: Problem, solver: Solver, validator: Validator, fills_gaps: bool, options: dict):
        self.problem, self.solver, self.validator, self.options = problem, solver, validator, options
        self.fills_gaps = fills_gaps  # with temperatures that are not on the ladder
        self.settles_last = solver.settles_last and not validator.sees_final
        self.nodes: list[Step] = []
        self.fillings: list[Step] = []
        self.waiting: list[float] = []  # intermediate temperatures, to be filled in

    def steps(self) -> list[Step]:
        return sorted([*self.nodes, *self.fillings], key=lambda step: -step.temperature)

    def groups(self, ladder):
        """Yield the nodes of a ladder in groups that the solver takes together; skipped temperatures wait."""
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
        """Whether the path ends at one of the latest nodes, by its stopping rule or by a callback; drop later nodes."""
        for end in range(len(self.nodes) - n_new + 1, len(self.nodes) + 1):
            nodes = self.nodes[:end]
            if (watch is not None and watch.end(nodes)) or has_ended(self.problem, schedule, nodes):
                self.nodes = nodes
                return True
            if watch is not None and end < len(self.nodes):
                watch.begin(self.nodes[end].temperature)
        return False

    def visit(self, temperatures):
        """Solve and validate every fit at the next nodes, and fill in temperatures that are now surrounded by nodes."""
        began = perf_counter()
        first, *later = temperatures
        starts = [predicted(self.problem, self.nodes, first), *(self._foreseen(temperature) for temperature in later)]
        solutions = self._solved_from(starts, temperatures)
        if any(map(self._was_misled, solutions)):
            again = self._solved_from([self.nodes[-1].parameters] * len(starts), temperatures)
            pairs = zip(solutions, again, strict=True)
            solutions = [min(pair, key=lambda solution: float(solution.value.sum())) for pair in pairs]
        validated = self.validator.validate_all(
            self.problem, [solution.parameters for solution in solutions], temperatures
        )
        seconds = (perf_counter() - began) / len(temperatures)
        for temperature, solution, validation in zip(temperatures, solutions, validated, strict=True):
            self.nodes.append(self._record(temperature, solution, validation, seconds, is_node=True))
            if self.fills_gaps and len(self.nodes) > 1:
                self._fill_middle(self.nodes[-2].temperature, temperature)
        if self.solver.fills_last:  # small enough for every node to keep its folds
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
        """Whether a fit ended above the hot end of the path, which only a misleading start can cause.

        An outlying sample can make tangents point in a wrong direction. From the last node, Q / T can only decrease.
        """
        if not (self.nodes and self.problem.interpolates):
            return False
        is_lost = (to_host(solution.value) > MISLED * self.nodes[0].value) & ~to_host(solution.converged)
        return bool(is_lost.any())

    def _fill_middle(self, hotter, colder):
        """Add the middle of a gap to the waiting temperatures, unless one of the ladder is waiting there."""
        if not any(hotter > temperature > colder for temperature in self.waiting):
            self.waiting.append(float(np.sqrt(hotter) * np.sqrt(colder)))

    def _foreseen(self, temperature):
        """Start for a node that is solved together with earlier ones: linear extrapolation by the last tangent."""
        return along_tangents(self.nodes[-1:], temperature) if self.nodes else self.problem.start(temperature)

    def settle(self):
        """Solve the final fit to the tolerance at every node."""
        self.nodes = _solved_on(self.problem, self.nodes, self.solver.settle, self.options)

    def fill(self, coldest):
        """Solve the final fit at the waiting temperatures above `coldest`, and validate the interpolated folds."""
        waves = self._waves([temperature for temperature in self.waiting if temperature > coldest])
        self.waiting = [temperature for temperature in self.waiting if temperature <= coldest]
        filled = [step for wave in waves for step in self._fill_wave(wave)]
        if self.fills_gaps:
            self._bisect(filled)

    def _bisect(self, filled):
        """Halve the gaps next to poor starts, until the starts between are certified without a step."""
        for _ in range(MOST_HALVINGS):
            far = {step.temperature for step in filled if step.was_far and step.converged}
            if not far:
                return
            filled = self._fill_wave(self._middles_beside(far), only_solved=True)

    def _middles_beside(self, temperatures: set[float]):
        """The middles of the gaps on both sides of these temperatures, descending."""
        gaps = pairwise([step.temperature for step in self.steps()])
        return [float(np.sqrt(hotter) * np.sqrt(colder)) for hotter, colder in gaps if {hotter, colder} & temperatures]

    def _fill_wave(self, temperatures, only_solved=False) -> list[Step]:
        """Fill in temperatures, a few at a time; keep all of them, or those that needed a step."""
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
        starts = stacked([point[0, ...] for point in points])
        solution = self.solver.fill(self.problem, starts, np.array(temperatures), **self.options)
        for number, point in enumerate(points):
            point[0, ...] = solution.parameters[number, ...]
        validated = self.validator.validate_all(self.problem, points, temperatures)
        seconds = (perf_counter() - began) / len(temperatures)
        return [
            self._record(temperature, solution.only(number), validated[number], seconds, is_node=False)
            for number, temperature in enumerate(temperatures)
        ]

    def _waves(self, ready):
        """The temperature nearest to the middle of each gap between nodes, and then the rest."""
        nodes = -np.log([node.temperature for node in self.nodes])
        gaps: dict[int, list] = {}
        for temperature in ready:
            gaps.setdefault(int(np.searchsorted(nodes, -np.log(temperature))), []).append(temperature)
        middles = []
        for gap, inside in gaps.items():
            from_middle = np.abs(-np.log(inside) - 0.5 * (nodes[gap - 1] + nodes[gap]))
            middles.append(inside[int(np.argmin(from_middle))])
        return middles, [temperature for temperature in ready if temperature not in middles]

    def _between(self, temperatures) -> list:
        """Interpolated parameters of all fits: folds from the nodes, the final fit from every temperature solved."""
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
