"""The default schedule: a hot end found from the data, geometric cooling, and the rule that ends a path."""

from __future__ import annotations

from itertools import pairwise
from math import isnan, log, sqrt
from numbers import Integral
from typing import NamedTuple

import numpy as np

from annealed.arrays import ROUNDING, to_host
from annealed.path.base import Step
from annealed.path.prediction import lagrange
from annealed.path.schedules import CGrid, FixedSchedule, Schedule, check_temperature
from annealed.problems import Problem
from annealed.problems.penalized_linear import PenalizedLinearProblem
from annealed.solvers.plan import BUDGET, FEWEST_BEFORE

PATIENCE = 1.8  # in log temperature: how far past the best score its fall is tested
LONG_PATIENCE = 4.0  # in log temperature: how far past the best score the path ends, even if the fall is small
OVERFITTED = 0.5  # share of the hot end's Q / T below which a path ends whose scores never improved
FLAT = 1e-3  # relative change over PATIENCE up to which a quantity counts as constant
HARD = 1e-5  # share of the hot end's Q / T below which all training samples are nearly certain, and the path ends
MUCH_HELD_BACK = 0.1  # share of Q / T by which the suppressed directions could lower it
CLEAR_EXCESS, NO_EXCESS = 5.0, 2.0  # standard errors beyond chance: clear from the first, none up to the second
TESTED_SHARE = 0.2  # tested parameters per row, up to which the score test is valid


class AdaptiveSchedule(Schedule):
    """Geometric cooling from a hot end found from the data, until validation scores have clearly passed their best.

    This is ``schedule="auto"``. The path ends at the first of these events:

    - The mean validation score is below its best by more than the standard error of their difference over the folds, or
      has fallen at every temperature since. Right after the best it takes three standard errors, or one at the point to
      which a parabola extrapolates.
    - The temperature is a fiftieth of the best one.
    - The validation score no longer changes. Without validation, Q / T or Q no longer changes.
    - All training samples are nearly certain.
    - Two temperatures in a row have not converged in four times as many iterations as all hotter ones took.

    Parameters
    ----------
    n_temperatures : int, default=80
        Largest number of temperatures. A family whose path can be interpolated adds others between them.
    cooling_rate : float in (0, 1), default=0.7
        Ratio of each temperature to the one before. ``schedule="auto"`` uses 0.4 for families that interpolate.
    learns_late : bool, default=False
        Whether scores may improve only at low temperatures. An L2 penalty suppresses directions of small variance, and
        what predicts the classes may be one of them. While the validation score is not clearly better than at the hot
        end, the path continues until Q / T no longer changes or has halved; it ends earlier if a score test finds no
        signal in the suppressed directions. If the test clearly finds a large signal, the path continues whatever the
        scores. ``schedule="auto"`` uses True for the inner-product and quadratic families.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from annealed import AdaptiveSchedule, AnnealedLogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> model = AnnealedLogisticRegression(schedule=AdaptiveSchedule(n_temperatures=5)).fit(X, y)
    >>> len(model.path_)
    5
    """

    fills_gaps = True

    def __init__(self, *, n_temperatures=80, cooling_rate=0.7, learns_late=False) -> None:
        self.n_temperatures = n_temperatures
        self.cooling_rate = cooling_rate
        self.learns_late = learns_late

    def temperatures(self, hot):
        rate = check_temperature(self.cooling_rate, "cooling_rate")
        if rate >= 1:
            raise ValueError(f"cooling_rate must be below 1 so that the temperature falls. Got {rate!r}.")
        if not isinstance(self.n_temperatures, Integral) or self.n_temperatures < 1:
            raise ValueError(f"n_temperatures must be a whole number of at least 1. Got {self.n_temperatures!r}.")
        start = hot()
        for step in range(self.n_temperatures):
            if rate**step < ROUNDING:  # a colder penalty is a rounding error of the hottest
                break
            yield start * rate**step

    def should_stop(self, temperatures, validation, value):
        cooled = [log(temperatures[0] / temperature) for temperature in temperatures]
        if cooled[-1] < LONG_PATIENCE:
            return False
        if value[-1] < HARD * value[0]:
            return True
        if validation[-1] is None:
            energy = [
                per_temperature * temperature for per_temperature, temperature in zip(value, temperatures, strict=True)
            ]
            return any(_is_flat(quantity, cooled, PATIENCE) for quantity in (value, energy))
        scores = np.array(validation)
        if self.learns_late and not has_learned(scores):
            return value[-1] < OVERFITTED * value[0] or _is_flat(value, cooled, LONG_PATIENCE)
        mean = _means(scores)
        return _has_passed(scores, mean, cooled) or _is_flat(mean, cooled, PATIENCE)


def make_schedule(schedule, unit_C: float | None = None, **settings) -> Schedule:
    """A schedule in temperatures, from "auto", an array of temperatures, or a schedule.

    unit_C : the C of temperature one, if it is defined for the model
    settings : parameters of the adaptive schedule that "auto" means
    """
    if isinstance(schedule, CGrid):
        return FixedSchedule(schedule.in_temperatures(unit_C))
    if isinstance(schedule, Schedule):
        return schedule
    if isinstance(schedule, str):
        if schedule != "auto":
            raise ValueError(f'schedule must be "auto", temperatures or a Schedule. Got {schedule!r}.')
        return AdaptiveSchedule(**settings)
    if np.ndim(schedule) != 1:
        raise ValueError(f'schedule must be "auto", a list of temperatures or a Schedule. Got {schedule!r}.')
    return FixedSchedule(schedule)


def has_learned(scores) -> bool:
    """Whether the best mean of fold scores (n_temperatures, n_folds) is clearly better than that at the hot end."""
    scores = np.asarray(scores)
    return _is_below(scores[0], scores[_best(_means(scores))], 1)


def _means(scores) -> list[float]:
    return (scores.sum(axis=1) / scores.shape[1]).tolist()


def _best(means) -> int:
    """Index of the largest mean, the first one of equals; NaN is the smallest."""
    return max(range(len(means)), key=lambda index: -np.inf if isnan(means[index]) else means[index])


def _is_flat(values, cooled, patience) -> bool:
    """Whether the values over the last `patience` in log temperature differ by little."""
    recent = [value for value, place in zip(values, cooled, strict=True) if place >= cooled[-1] - patience]
    is_known = not any(isnan(value) for value in recent)
    return is_known and max(recent) - min(recent) <= FLAT * max(abs(value) for value in recent)


def _has_passed(scores, mean, cooled) -> bool:
    """Whether the last scores are clearly below the best, or have fallen from one temperature to the next for long."""
    best = _best(mean)
    since_best = cooled[-1] - cooled[best]
    if since_best < PATIENCE / 2:
        return False
    if since_best < PATIENCE:
        is_clear = _is_below(scores[-1], scores[best], 3)
        return is_clear or (best > 0 and _is_below(_extrapolated(scores, cooled, best), scores[best], 1))
    falls = all(later < former for former, later in pairwise(mean[best:]))
    return since_best >= LONG_PATIENCE or falls or _is_below(scores[-1], scores[best], 1)


def _extrapolated(scores, cooled, best) -> np.ndarray:
    """Scores at the end of PATIENCE, by a parabola through the last scores, the best, and those as far before it."""
    since_best = cooled[-1] - cooled[best]
    before = min(range(best), key=lambda index: abs(cooled[best] - cooled[index] - since_best))
    known = [before, best, len(scores) - 1]
    return lagrange([cooled[index] for index in known], cooled[best] + PATIENCE) @ scores[known]


def _is_below(score, best, n_errors) -> bool:
    """Whether the mean fall exceeds `n_errors` standard errors over the folds.

    With one fold, 2 % of the score is taken as its standard error.
    """
    fall, n_folds = best - score, len(score)
    if n_folds == 1:
        return bool(fall[0] > n_errors * 0.02 * abs(best[0]))
    mean = float(fall.sum()) / n_folds
    spread = fall - mean
    return mean > n_errors * sqrt(float(spread @ spread) / (n_folds * (n_folds - 1)))


def has_ended(problem: Problem, schedule, nodes: list[Step]) -> bool:
    """Whether the path ends at the last node.

    An adaptive path ends after two nodes in a row that have spent their budget, because colder ones are harder.
    Otherwise the schedule decides. If it has `learns_late`, a score test may overrule it: the path goes on if the test
    clearly finds signal in directions that the penalty suppresses, and if that signal is large relative to Q / T or
    validation has not improved yet. As long as it has not improved, the path ends if the test finds nothing.
    """
    if schedule.fills_gaps and len(nodes) > 1 and all(map(_has_spent_its_budget, nodes[-2:])):
        return True
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
        return held_back.errors < NO_EXCESS or (np.isnan(held_back.errors) and _has_long_been_worse(nodes))
    is_much = held_back.nats > MUCH_HELD_BACK * last.value or is_waiting
    return not (is_much and held_back.errors > CLEAR_EXCESS)


def _has_spent_its_budget(node: Step) -> bool:
    return not node.converged and node.n_iter >= BUDGET * FEWEST_BEFORE


def _has_long_been_worse(nodes: list[Step]) -> bool:
    """Whether validation has been worse than at the hot end for so long that waiting is useless."""
    temperatures, scores, _ = _record_of(nodes)
    hot, coldest = np.mean(scores[0]), temperatures[-1] * np.exp(LONG_PATIENCE)
    recent = [np.mean(score) for score, at in zip(scores[1:], temperatures[1:], strict=True) if at <= coldest]
    return max(recent) < hot - FLAT * abs(hot)


def _record_of(nodes: list[Step]):
    """Temperatures, fold scores and Q / T of the nodes, as arguments of a schedule."""
    return tuple(zip(*((node.temperature, node.validation.scores, node.value) for node in nodes), strict=True))


class Evidence(NamedTuple):
    """Score test of what the penalty still suppresses: excess of the statistic over its expectation under chance.

    The statistic is the sum of squared gradients of the loss over their variance if nothing were left to learn. At the
    minimum the gradient of the loss is minus that of the penalty. Directions of small variance enter the fit last,
    however informative they are; those whose penalty exceeds the curvature of the loss are tested.

    errors : the excess in standard errors
    nats : the excess in nats per row
    """

    errors: float
    nats: float


NO_EVIDENCE = Evidence(np.nan, np.nan)


def evidence_held_back(problem: Problem, parameters, temperature) -> Evidence:
    """Score test of the final fit; NaN for other families, and with as many parameters as rows: it has no power then.

    On a device, coordinates so narrow that rounding errors of the widest one may hide them are left out.
    """
    if not isinstance(problem, PenalizedLinearProblem):
        return NO_EVIDENCE
    final, narrowest = parameters[None, ...], 0.0
    if not problem.place.is_host:  # the rounding error of a long sum, in the dtype of X
        narrowest = ROUNDING / np.finfo(float).eps * problem.place.rounding
    if problem.hessians is not None:  # steps with a Hessian set no variance
        problem.loss(final, temperature, slice(0, 1), quick=True)
    return excess(problem, final, temperature, problem.class_variance, narrowest)


def excess(problem: PenalizedLinearProblem, final, temperature, class_variance, narrowest=0.0) -> Evidence:
    """The evidence at the minimum of the final fit, (1, n_parameters).

    class_variance : mean of p (1 - p) there
    narrowest : spread relative to the largest one, below which a coordinate is rounding error
    """
    fits, strength, scores = slice(0, 1), problem.l2_strength * temperature, problem.scores
    terms = problem.place.host(problem.curvature(temperature, fits, class_variance), final)
    curvature, coef = (scores.table.split(term)[0] for term in terms)
    spectrum = scores.host_coordinates.of_fits(fits).spectrum.reshape(-1)
    is_tested = (curvature < strength) & (spectrum > narrowest**2 * spectrum.max())
    n_rows, n_tested = 1 / np.sum(to_host(problem.design.weight)[:, 0] ** 2), int(is_tested.sum())
    if n_tested > TESTED_SHARE * n_rows:
        return NO_EVIDENCE
    squares = (strength * coef[is_tested]) ** 2 / np.maximum(curvature[is_tested], np.finfo(float).tiny)
    total = float(n_rows * squares.sum() - n_tested)
    return Evidence(total / np.sqrt(2 * max(n_tested, 1)), total / (2 * n_rows))
