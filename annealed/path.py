"""The annealing path: `anneal` walks the temperatures (table 1, steps 2 to 6), `AnnealingPath` is its record."""

from __future__ import annotations

from dataclasses import dataclass, fields
from time import perf_counter
from typing import Protocol

import numpy as np

from annealed.objectives import Inspection, Picks, Problem
from annealed.optional import require
from annealed.solvers import Solution, Solver

PRINTED_ROWS = 12
WIDEST_CUBIC_STEP = 1.0  # of log temperature: beyond it a cubic may swing, a straight line cannot


@dataclass(frozen=True)
class Judgement:
    """What validation says of one temperature: a score per fold, and the scale at which the posterior speaks."""

    scores: np.ndarray | None = None
    scale: float = 1.0
    train_score: float | None = None


class Judge(Protocol):
    """Validates every temperature (step 5)."""

    picks: Picks

    def judge(self, problem: Problem, parameters, temperature) -> Judgement: ...


@dataclass(frozen=True)
class Step:
    """One temperature of the walk: what is kept of it. Numbers are those of fit 0, the final fit."""

    temperature: float
    value: float
    gradient_norm: float
    n_iter: int
    converged: bool
    inspection: Inspection
    judgement: Judgement
    arrays: dict[str, np.ndarray]
    seconds: float


def anneal(problem: Problem, schedule, solver: Solver, judge: Judge, *, tol, max_iter) -> list[Step]:
    """Cool a stack of fits, warm-started and predicted from temperature to temperature. Fit 0 is reported."""
    problem.watch(judge.picks)
    memory = solver.new_memory(problem)
    steps: list[Step] = []
    recent: list[tuple[float, np.ndarray]] = []
    for temperature in schedule.temperatures(problem.hot_temperature):
        began = perf_counter()
        start = _predict(problem, recent, temperature)
        solution = solver.minimize(problem, start, temperature, tol=tol, max_iter=max_iter, memory=memory)
        recent = [*recent, (temperature, solution.parameters)][-3:]
        steps.append(_record(problem, temperature, solution, judge, began))
        scores = [step.judgement.scores for step in steps]
        if schedule.should_stop(scores, [step.inspection.loss for step in steps]):
            break
    return steps


def _record(problem: Problem, temperature, solution: Solution, judge: Judge, began) -> Step:
    """Validate, inspect and report one solved temperature."""
    judgement = judge.judge(problem, solution.parameters, temperature)
    inspection = problem.inspect(solution.parameters, temperature, judgement.scale)
    reported = problem.report(solution.parameters[:1], temperature, slice(0, 1))
    return Step(
        temperature=temperature,
        value=float(solution.value[0]),
        gradient_norm=float(solution.gradient_norm[0]),
        n_iter=int(solution.n_iter[0]),
        converged=bool(solution.converged.all()),
        inspection=inspection,
        judgement=judgement,
        arrays={name: array[0] for name, array in reported.items()},
        seconds=perf_counter() - began,
    )


def _predict(problem: Problem, recent, temperature):
    """Where the next minimum should lie: the last three carried along a parabola in log temperature."""
    if not recent:
        return problem.start(temperature)
    known = recent if problem.extrapolates else recent[-1:]
    carried = [problem.carry(parameters, own, temperature) for own, parameters in known]
    places = np.log([own for own, _ in known])
    target = np.log(temperature)
    if len(known) < 3 or places[-1] - target > 2 * (places[-2] - places[-1]):
        return carried[-1]
    weights = [np.prod([(target - other) / (place - other) for other in places if other != place]) for place in places]
    return sum(weight * parameters for weight, parameters in zip(weights, carried, strict=True))


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
    best_index: int
    score_name: str

    @classmethod
    def from_steps(cls, steps: list[Step], best_index: int, score_name: str, dtype) -> AnnealingPath:
        scores = [step.judgement.scores for step in steps if step.judgement.scores is not None]
        arrays = {name: np.stack([step.arrays[name] for step in steps]).astype(dtype) for name in steps[0].arrays}
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
        """Parameters and posterior scale at any temperature between the ends: cubic in log temperature."""
        hot, cold = self.temperatures[0], self.temperatures[-1]
        if not cold * (1 - 1e-9) <= temperature <= hot * (1 + 1e-9):
            raise ValueError(
                f"temperature must lie on the path, between {cold:.6g} and {hot:.6g}. Got {temperature!r}. "
                "Refit with a schedule that reaches it."
            )
        weights, window = self._interpolation(np.log(temperature))
        arrays = {
            name: np.tensordot(weights, array[window], axes=1).astype(array.dtype)
            for name, array in self.arrays.items()
        }
        return arrays, float(np.exp(weights @ np.log(self.posterior_scale[window])))

    def _interpolation(self, target):
        """Lagrange weights on the four nearest temperatures, or, where they lie far apart, the two around."""
        places = np.log(self.temperatures)
        window = self._window(target, 4)
        if np.ptp(places[window]) > 3 * WIDEST_CUBIC_STEP:
            window = self._window(target, 2)
        near = places[window]
        weights = np.array([np.prod((target - near[near != own]) / (own - near[near != own])) for own in near])
        return weights, window

    def _window(self, target, size):
        below = np.searchsorted(-np.log(self.temperatures), -target)
        first = int(np.clip(below - size // 2, 0, max(len(self) - size, 0)))
        return slice(first, first + size)

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


def _train_score(step: Step) -> float:
    """The user's scorer on the training rows, or minus their log-loss."""
    score = step.judgement.train_score
    return -step.inspection.spoken_loss if score is None else score


def _same(left, right):
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(np.array_equal(left[key], right[key]) for key in left)
    return np.array_equal(left, right)
