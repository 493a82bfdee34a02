"""The annealing path: `anneal` walks the temperatures (table 1, steps 2 to 6), `AnnealingPath` is its record.

Where a family's minima lie on one smooth curve, the folds are solved at nodes only, no closer than REACH in log
temperature. Temperatures between them start from the polynomial through the nodes; the final fit is solved there too,
most often certified as it starts, and the folds are validated as interpolated.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from time import perf_counter
from typing import Protocol

import numpy as np

from annealed.interpolation import N_POINTS, between, lagrange
from annealed.objectives import Inspection, Picks, Problem
from annealed.optional import require
from annealed.solvers import Solution, Solver

PRINTED_ROWS = 12
REPORTED_VALUES = 10_000_000  # of a path's parameters, made at a time
COLDER_NODES = 2  # beyond a temperature, before it is filled
NODES_AT_HAND = N_POINTS + COLDER_NODES  # newest ones, among which those around a waiting temperature are
REACH = 0.95  # of log temperature, between nodes


@dataclass(frozen=True)
class Judgement:
    """What validation says of one temperature: a score per fold, and the scale at which the posterior speaks."""

    scores: np.ndarray | None = None
    scale: float = 1.0
    train_score: float | None = None


NOT_INSPECTED = Inspection(np.nan, np.nan)


class Judge(Protocol):
    """Validates every temperature (step 5)."""

    picks: Picks

    def judge(self, problem: Problem, parameters, temperature) -> Judgement: ...


class Watch(Protocol):
    """Follows a walk from temperature to temperature, and may end it."""

    def begin(self, temperature: float) -> None: ...

    def end(self, nodes: list[Step]) -> bool:
        """Whether to stop, given every node so far."""


@dataclass(frozen=True)
class Step:
    """One temperature of the walk: what is kept of it. Numbers are those of fit 0, the final fit.

    parameters : of all fits where they may yet predict others, else of the final one alone
    """

    temperature: float
    value: float
    gradient_norm: float
    n_iter: int
    converged: bool
    is_node: bool
    judgement: Judgement
    parameters: np.ndarray
    seconds: float
    inspection: Inspection = NOT_INSPECTED


def anneal(
    problem: Problem, schedule, solver: Solver, judge: Judge, *, tol, max_iter, watch: Watch | None = None
) -> list[Step]:
    """Cool a stack of fits, warm-started and predicted from temperature to temperature."""
    problem.watch(judge.picks)
    walk = _Walk(problem, solver, judge, tol, max_iter)
    fills_gaps = schedule.fills_gaps and problem.interpolates
    ladder = schedule.temperatures(problem.hot_temperature)
    for temperature, is_left_out in _with_nodes(ladder, REACH if problem.interpolates else 0.0):
        if is_left_out:
            walk.waiting.append((temperature, True))
            continue
        if watch is not None:
            watch.begin(temperature)
        walk.visit(temperature, fills_gaps)
        nodes = walk.nodes
        if watch is not None and watch.end(nodes):
            break
        if schedule.should_stop(
            [node.temperature for node in nodes],
            [node.judgement.scores for node in nodes],
            [node.value for node in nodes],
        ):
            break
    walk.fill(walk.nodes[-1].temperature)
    return walk.inspected()


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

    def __init__(self, problem: Problem, solver: Solver, judge: Judge, tol, max_iter):
        self.problem, self.solver, self.judge = problem, solver, judge
        self.options = {"tol": tol, "max_iter": max_iter, "memory": solver.new_memory(problem)}
        self.nodes: list[Step] = []
        self.fillings: list[Step] = []
        self.waiting: list[tuple[float, bool]] = []  # temperatures to fill, and whether to keep them in any case

    def steps(self) -> list[Step]:
        return sorted([*self.nodes, *self.fillings], key=lambda step: -step.temperature)

    def inspected(self) -> list[Step]:
        """The steps with a look at each, all in one reading of the rows."""
        steps = self.steps()
        looks = self.problem.inspect([(step.parameters[0], step.temperature, step.judgement.scale) for step in steps])
        return [replace(step, inspection=look) for step, look in zip(steps, looks, strict=True)]

    def visit(self, temperature, fills_gaps):
        """Solve and validate every fit; fill what now has nodes enough around it."""
        began = perf_counter()
        start = _predict(self.problem, self.nodes[-3:], temperature)
        solution = self.solver.minimize(self.problem, start, temperature, **self.options)
        judgement = self.judge.judge(self.problem, solution.parameters, temperature)
        self.nodes.append(self._record(temperature, solution, judgement, began, is_node=True))
        if fills_gaps and len(self.nodes) > 1:
            self.waiting.append((float(np.sqrt(self.nodes[-2].temperature * temperature)), False))
        if self.solver.filled_together > 1:  # small enough to keep every fold, so all is filled at the end
            return
        if len(self.nodes) >= N_POINTS:
            self.fill(self.nodes[-COLDER_NODES].temperature)
        if len(self.nodes) > NODES_AT_HAND:
            self.nodes[-NODES_AT_HAND - 1] = _without_folds(self.nodes[-NODES_AT_HAND - 1])

    def fill(self, coldest):
        """Solve the final fit at the waiting temperatures hotter than `coldest`, and validate the folds as they lie.

        The middle of a gap is kept only where interpolation was not within the tolerance already.
        """
        ready = [own for own in self.waiting if own[0] > coldest]
        self.waiting = [own for own in self.waiting if own[0] <= coldest]
        size = self.solver.filled_together
        for first in range(0, len(ready), size):
            self._fill_together(ready[first : first + size])

    def _fill_together(self, ready):
        began = perf_counter()
        temperatures = np.array([temperature for temperature, _ in ready])
        points = [self._between(temperature) for temperature in temperatures]
        found = self.solver.fill(self.problem, np.stack([own[0] for own in points]), temperatures, **self.options)
        solving = (perf_counter() - began) / len(ready)
        for number, (temperature, is_wanted) in enumerate(ready):
            if is_wanted or found.n_iter[number]:
                began = perf_counter() - solving
                points[number][0] = found.parameters[number]
                judgement = self.judge.judge(self.problem, points[number], temperature)
                own = self._record(temperature, found.only(number), judgement, began, is_node=False)
                self.fillings.append(own)

    def _between(self, temperature):
        """Parameters of all fits, interpolated."""
        weights, window = between([node.temperature for node in self.nodes], temperature)
        return np.tensordot(weights, [node.parameters for node in self.nodes[window]], axes=1)

    def _record(self, temperature, solution: Solution, judgement: Judgement, began, is_node) -> Step:
        return Step(
            temperature=temperature,
            value=float(solution.value[0]),
            gradient_norm=float(solution.gradient_norm[0]),
            n_iter=int(solution.n_iter[0]),
            converged=bool(solution.converged.all()),
            is_node=is_node,
            judgement=judgement,
            parameters=solution.parameters,
            seconds=perf_counter() - began,
        )


def _without_folds(step: Step) -> Step:
    return replace(step, parameters=step.parameters[:1].copy())


def _predict(problem: Problem, recent: list[Step], temperature):
    """Where the next minimum should lie: the last three carried along a parabola in log temperature."""
    if not recent:
        return problem.start(temperature)
    known = recent if problem.extrapolates else recent[-1:]
    carried = [problem.carry(node.parameters, node.temperature, temperature) for node in known]
    places = np.log([node.temperature for node in known])
    target = np.log(temperature)
    if len(known) < 3 or places[-1] - target > 2 * (places[-2] - places[-1]):
        return carried[-1]
    return np.tensordot(lagrange(places, target), carried, axes=1)


@dataclass(frozen=True, repr=False)
class AnnealingPath:
    """Everything seen while cooling, one entry per temperature, hot to cold.

    Attributes
    ----------
    temperatures : ndarray of shape (n_temperatures,)
    arrays : dict of ndarray
        The fitted parameters with a leading axis of temperatures: `coef` (n_temperatures, n_classes, n_features)
        and `intercept` (n_temperatures, n_classes) of the logits for linear families (the paper's lambda is
        `temperature * coef`), `means` for distances, `parameters` for a family of one's own. Also reached as
        attributes: `path.coef`. They do not include `posterior_scale`.
    free_energy : ndarray of shape (n_temperatures,)
        The paper's Q (9), or Q_new (17) with its penalty, of the final fit.
    entropy : ndarray of shape (n_temperatures,)
        Mean entropy of the posterior over the training rows.
    train_score : ndarray of shape (n_temperatures,)
        Of the final fit on its own rows, at the posterior's own scale where it is calibrated.
    validation_score : ndarray of shape (n_temperatures, n_folds) or None
        Greater is better; at the posterior's own scale where it is calibrated.
    posterior_scale : ndarray of shape (n_temperatures,)
        Factor on the logits that validation found best at each temperature.
    n_iter, seconds, gradient_norm : ndarray of shape (n_temperatures,)
    converged : ndarray of bool of shape (n_temperatures,)
    is_node : ndarray of bool of shape (n_temperatures,)
        Whether the folds were solved there too; where not, they are interpolated between nodes. The final fit is
        solved at every temperature.
    best_index : int
        The chosen temperature.
    score_name : str
    """

    temperatures: np.ndarray
    arrays: dict[str, np.ndarray]
    free_energy: np.ndarray
    entropy: np.ndarray
    train_score: np.ndarray
    validation_score: np.ndarray | None
    posterior_scale: np.ndarray
    n_iter: np.ndarray
    seconds: np.ndarray
    gradient_norm: np.ndarray
    converged: np.ndarray
    is_node: np.ndarray
    best_index: int
    score_name: str

    @classmethod
    def from_steps(cls, steps: list[Step], problem: Problem, best_index: int, score_name: str, dtype) -> AnnealingPath:
        scores = [step.judgement.scores for step in steps if step.judgement.scores is not None]
        arrays = {name: array.astype(dtype, copy=False) for name, array in _reported(steps, problem).items()}
        return cls(
            temperatures=np.array([step.temperature for step in steps]),
            arrays=arrays,
            free_energy=np.array([step.temperature * step.value for step in steps]),
            entropy=np.array([step.inspection.entropy for step in steps]),
            train_score=np.array([_train_score(step) for step in steps]),
            validation_score=np.stack(scores) if scores else None,
            posterior_scale=np.array([step.judgement.scale for step in steps]),
            n_iter=np.array([step.n_iter for step in steps]),
            seconds=np.array([step.seconds for step in steps]),
            gradient_norm=np.array([step.gradient_norm for step in steps]),
            converged=np.array([step.converged for step in steps]),
            is_node=np.array([step.is_node for step in steps]),
            best_index=best_index,
            score_name=score_name,
        )

    def __getattr__(self, name):
        if name in ("coef", "intercept", "means", "parameters") and "arrays" in self.__dict__:
            return self.arrays.get(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __len__(self) -> int:
        return len(self.temperatures)

    def at(self, temperature: float) -> tuple[dict[str, np.ndarray], float]:
        """Parameters and posterior scale at any temperature between the ends: a polynomial in log temperature."""
        hot, cold = self.temperatures[0], self.temperatures[-1]
        if not cold * (1 - 1e-9) <= temperature <= hot * (1 + 1e-9):
            raise ValueError(
                f"temperature must lie on the path, between {cold:.6g} and {hot:.6g}. Got {temperature!r}. "
                "Refit with a schedule that reaches it."
            )
        weights, window = between(self.temperatures, temperature)
        arrays = {
            name: np.tensordot(weights, array[window], axes=1).astype(array.dtype)
            for name, array in self.arrays.items()
        }
        return arrays, float(np.exp(weights @ np.log(self.posterior_scale[window])))

    def to_frame(self):
        """The path as a pandas DataFrame, one row per temperature, parameters left out."""
        return require("pandas", extra="frames").DataFrame(self._columns())

    def _columns(self):
        columns = {"temperature": self.temperatures, "free_energy": self.free_energy, "entropy": self.entropy}
        columns["train_score"] = self.train_score
        if self.validation_score is not None:
            columns["validation_score"] = self.validation_score.mean(axis=1)
            columns["validation_spread"] = self.validation_score.std(axis=1)
            columns["posterior_scale"] = self.posterior_scale
        columns |= {name: getattr(self, name) for name in ("n_iter", "seconds", "gradient_norm", "converged")}
        columns["chosen"] = np.arange(len(self)) == self.best_index
        return columns

    def __repr__(self):
        """A table of the path: the ends, the chosen temperature and its neighbours, marked with an arrow."""
        shown = ("temperature", "free_energy", "entropy", "train_score", "validation_score", "n_iter")
        columns = {name: values for name, values in self._columns().items() if name in shown}
        header = "  " + " ".join(f"{name:>16}" for name in columns)
        lines = [f"AnnealingPath: {len(self)} temperatures, score {self.score_name}", header]
        previous = -1
        for index in self._printed_indices():
            if index != previous + 1:
                lines.append(f"{'...':>18}")
            mark = "->" if index == self.best_index else "  "
            lines.append(mark + " ".join(f"{values[index]:>16.6g}" for values in columns.values()))
            previous = index
        return "\n".join(lines)

    def _printed_indices(self):
        if len(self) <= PRINTED_ROWS:
            return range(len(self))
        near = range(self.best_index - 2, self.best_index + 3)
        wanted = {0, 1, *near, len(self) - 2, len(self) - 1}
        return sorted(index for index in wanted if 0 <= index < len(self))

    def __eq__(self, other):
        if not isinstance(other, AnnealingPath):
            return NotImplemented
        return all(_same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self) if f.name != "seconds")

    __hash__ = None  # type: ignore[assignment]


def _reported(steps: list[Step], problem: Problem) -> dict[str, np.ndarray]:
    """The final fit's arrays at every step; several in one reading of the rows where the temperature does not matter.

    Each array is filled as it is made, so that nothing as large is held beside it.
    """
    arrays: dict[str, np.ndarray] = {}
    step, done = 1, 0
    while done < len(steps):
        batch = steps[done : done + step]
        report = problem.report(np.stack([own.parameters[0] for own in batch]), batch[0].temperature, slice(0, 1))
        for name, values in report.items():
            if name not in arrays:
                arrays[name] = np.empty((len(steps), *values.shape[1:]), values.dtype)
            arrays[name][done : done + len(batch)] = values
        done += len(batch)
        if problem.temperature_free:
            largest = max(values.size for values in report.values()) / len(batch)
            step = max(1, int(REPORTED_VALUES / largest))
    return arrays


def _train_score(step: Step) -> float:
    """The user's scorer on the training rows, or minus their log-loss."""
    score = step.judgement.train_score
    return -step.inspection.spoken_loss if score is None else score


def _same(left, right):
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(np.array_equal(left[key], right[key]) for key in left)
    return np.array_equal(left, right)
