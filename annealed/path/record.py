"""`AnnealingPath`, the record of all temperatures of a fit: the attribute `path_` of a fitted estimator."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from annealed.arrays import combined, namespace_of, to_host
from annealed.optional import require
from annealed.path.base import Step
from annealed.path.prediction import between
from annealed.problems import Problem
from annealed.rows.cost import BLOCK_BYTES
from annealed.solvers import Plan

BY_COMPARED_SCORE = """\
-> chosen by compared_score: validation_score less a penalty for a posterior_scale far from one and for a posterior
   more certain than the number of held-out samples supports. The best validation_score is at temperature {:.6g}."""
BY_ONE_STANDARD_ERROR = """\
-> chosen as the hottest temperature whose compared_score is within one standard error of the best,
   {:.6g} at temperature {:.6g}."""


@dataclass(frozen=True, repr=False)
class AnnealingPath:
    """Record of an annealing path: one entry per temperature, from hot to cold.

    Printed, it is a table with an arrow at the chosen temperature; `to_frame` gives it as a pandas DataFrame.

    Attributes
    ----------
    temperatures : ndarray of shape (n_temperatures,)
    arrays : dict of ndarray
        Fitted parameters, with temperatures along the first axis. Families that are linear in their features have
        `coef`, (n_temperatures, n_classes, n_features), and `intercept`, (n_temperatures, n_classes), of the logits
        (the paper's lambda is `temperature * coef`); AnnealedLDA has `means` too; a user-defined family has
        `parameters`. They are also attributes, such as `path.coef`. They do not include `posterior_scale`. For sparse X
        with many empty columns, `arrays["coef"]` has the coefficients of `columns` only; `path.coef` has all of them.
        They are float64 even if X is float32, so that certificates hold for them.
    free_energy : ndarray of shape (n_temperatures,)
        The objective of the final fit: the paper's Q (9), or Q_new (17) with its penalty.
    entropy : ndarray of shape (n_temperatures,)
        Mean entropy of the posterior on the training samples, before calibration.
    train_score : ndarray of shape (n_temperatures,)
        Score of the final fit on its training samples, after calibration.
    validation_score : ndarray of shape (n_temperatures, n_folds) or None
        Held-out score of each fold, after calibration; greater is better. None if nothing was held out.
    posterior_scale : ndarray of shape (n_temperatures,)
        Calibration factor of the logits at each temperature.
    n_iter, seconds, gradient_norm : ndarray of shape (n_temperatures,)
        Solver iterations of the fit that took most, time, and the largest entry of the final fit's gradient.
    converged : ndarray of bool of shape (n_temperatures,)
    is_node : ndarray of bool of shape (n_temperatures,)
        Whether the folds were solved there; if not, they are interpolated between nodes. The final fit is solved at
        every temperature.
    best_index : int
        Index of the chosen temperature.
    score_name : str
    certificate : ndarray of shape (n_temperatures,) or None
        Upper bound on the relative suboptimality of the final fit's free energy, for families that have one
        (inner-product and quadratic). With `matmul_precision` on a device, it and `gradient_norm` are in full precision
        at the chosen temperature and in rounded precision at the others.
    columns : ndarray of shape (n_used,) or None
        Columns of X that `arrays["coef"]` holds; None if it holds all of them.
    n_columns : int
        Number of columns of X.
    compared_score : ndarray of shape (n_temperatures,) or None
        The scores by which the temperature was chosen: the mean of `validation_score` over the folds, less a penalty if
        the score is the log-loss. The penalty grows with the distance of `posterior_scale` from one, and with the
        excess of the posterior's certainty over what the number of held-out samples supports.
    rule : {"best", "one_standard_error"}
        How the temperature was chosen from these scores.
    unit_C : float or None
        Scikit-learn's C at temperature one; ``path.C`` is ``unit_C / temperatures``. None if C is not defined for the
        model, as for AnnealedLDA.
    plan : str
        How the path was solved, and why, in words.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from annealed import AnnealedLogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> model = AnnealedLogisticRegression(schedule=[10.0, 1.0, 0.1]).fit(X, y)
    >>> model.path_.coef.shape, model.path_.validation_score.shape
    ((3, 3, 4), (3, 5))
    >>> bool(model.path_.temperatures[model.path_.best_index] == model.temperature_)
    True
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
    certificate: np.ndarray | None = None
    columns: np.ndarray | None = None
    n_columns: int = 0
    compared_score: np.ndarray | None = None
    rule: str = "best"
    unit_C: float | None = None
    plan: str = ""

    @classmethod
    def from_steps(
        cls, steps: list[Step], plan: Plan, *, best_index: int, score_name: str, rule: str, unit_C: float | None
    ) -> AnnealingPath:
        problem = plan.problem
        scores = [step.validation.scores for step in steps if step.validation.scores is not None]
        compared = [step.validation.compared.mean() for step in steps if step.validation.compared is not None]
        names = ("n_iter", "seconds", "gradient_norm", "converged", "is_node", "certificate")
        of_steps: dict[str, Any] = {name: np.array([getattr(step, name) for step in steps]) for name in names}
        if not np.isfinite(of_steps["certificate"]).any():
            of_steps["certificate"] = None
        return cls(
            temperatures=np.array([step.temperature for step in steps]),
            arrays=_reported(steps, problem),
            free_energy=np.array([step.temperature * step.value for step in steps]),
            entropy=np.array([step.training_summary.entropy for step in steps]),
            train_score=np.array([_train_score(step) for step in steps]),
            validation_score=np.stack(scores) if scores else None,
            posterior_scale=np.array([step.validation.scale for step in steps]),
            best_index=best_index,
            score_name=score_name,
            columns=problem.features.used,
            n_columns=problem.features.number,
            compared_score=np.array(compared) if compared else None,
            rule=rule,
            unit_C=unit_C,
            plan=plan.explain(),
            **of_steps,
        )

    def __getattr__(self, name):
        if name in ("coef", "intercept", "means", "parameters") and "arrays" in self.__dict__:
            return self._of_all_columns(name, self.arrays.get(name))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _of_all_columns(self, name, array):
        """The array with zeros in the columns that `columns` leaves out."""
        if name != "coef" or self.columns is None:
            return array
        whole = np.zeros((*array.shape[:-1], self.n_columns), array.dtype)
        whole[..., self.columns] = array
        return whole

    @property
    def C(self) -> np.ndarray | None:
        """Scikit-learn's C at each temperature, (n_temperatures,); None if it is not defined for the model."""
        with np.errstate(over="ignore"):  # infinite where no float can hold it
            return None if self.unit_C is None else self.unit_C / self.temperatures

    def __len__(self) -> int:
        return len(self.temperatures)

    def at(self, temperature: float) -> tuple[dict[str, np.ndarray], float]:
        """Parameters and posterior scale at any temperature between the ends, by interpolation in log temperature."""
        hot, cold = self.temperatures[0], self.temperatures[-1]
        if not cold * (1 - 1e-9) <= temperature <= hot * (1 + 1e-9):
            raise ValueError(
                f"temperature must lie on the path, between {cold:.6g} and {hot:.6g}. Got {temperature!r}. "
                "Refit with a schedule that reaches it."
            )
        weights, window = between(self.temperatures, temperature)
        arrays = {
            name: self._of_all_columns(name, _between(weights, array, window)) for name, array in self.arrays.items()
        }
        return arrays, float(np.exp(_between(weights, np.log(self.posterior_scale), window)))

    def to_frame(self):
        """The path as a pandas DataFrame, with one row per temperature and without the parameters.

        `validation_score` is the mean over the folds and `validation_spread` their standard deviation. `compared_score`
        is the score by which the temperature was chosen; `chosen` is True in the row of the chosen temperature.
        """
        return require("pandas", extra="frames").DataFrame(self._columns())

    def _columns(self):
        columns = {"temperature": self.temperatures}
        if (C := self.C) is not None:
            columns["C"] = C
        columns |= {"free_energy": self.free_energy, "entropy": self.entropy}
        columns["train_score"] = self.train_score
        if self.validation_score is not None:
            columns["validation_score"] = self.validation_score.mean(axis=1)
            columns["validation_spread"] = self.validation_score.std(axis=1)
            if self.compared_score is not None:
                columns["compared_score"] = self.compared_score
            columns["posterior_scale"] = self.posterior_scale
        columns |= {name: getattr(self, name) for name in ("n_iter", "seconds", "gradient_norm", "converged")}
        if self.certificate is not None:
            columns["certificate"] = self.certificate
        columns["chosen"] = np.arange(len(self)) == self.best_index
        return columns

    def __repr__(self):
        """A table of the path: its ends, the best scores, and the chosen temperature, marked with an arrow."""
        names = "temperature C free_energy entropy train_score validation_score compared_score n_iter".split()
        columns = {name: values for name, values in self._columns().items() if name in names}
        narrowest = len("-1.23456e-78")  # a number as it is printed
        widths = [max(narrowest, len(name)) for name in columns]
        header = "  " + " ".join(f"{name:>{width}}" for name, width in zip(columns, widths, strict=True))
        method = f", {self.plan.partition('. ')[0]}" if self.plan else ""
        lines = [f"AnnealingPath: {len(self)} temperatures, score {self.score_name}{method}", header]
        previous = -1
        for index in self._printed_indices():
            if index != previous + 1:
                lines.append(f"  {'...':>{narrowest}}")
            mark = "->" if index == self.best_index else "  "
            cells = zip(columns.values(), widths, strict=True)
            lines.append(mark + " ".join(f"{values[index]:>{width}.6g}" for values, width in cells))
            previous = index
        lines += [note for note in (self._why_chosen(), self._certified()) if note]
        return "\n".join(lines)

    def _why_chosen(self) -> str:
        """Why the chosen temperature is not the one with the best `validation_score`; empty if it is."""
        if self.validation_score is None or self.compared_score is None:
            return ""
        best, best_compared = _best_of(self.validation_score.mean(axis=1)), _best_of(self.compared_score)
        if self.best_index == best:
            return ""
        if self.rule != "best" and self.best_index != best_compared:
            return BY_ONE_STANDARD_ERROR.format(self.compared_score[best_compared], self.temperatures[best_compared])
        return BY_COMPARED_SCORE.format(self.temperatures[best])

    def _certified(self) -> str:
        if self.certificate is None:
            return ""
        return (
            f"-> free energy certified within {self.certificate[self.best_index]:.1e} of its minimum (relative); "
            f"largest entry of the gradient {self.gradient_norm[self.best_index]:.1e}"
        )

    def _printed_indices(self):
        if len(self) <= 12:
            return range(len(self))
        wanted = {0, 1, *range(self.best_index - 2, self.best_index + 3), len(self) - 2, len(self) - 1}
        if self.validation_score is not None and self.compared_score is not None:
            wanted |= {_best_of(self.validation_score.mean(axis=1)), _best_of(self.compared_score)}
        return sorted(index for index in wanted if 0 <= index < len(self))

    def __eq__(self, other):
        if not isinstance(other, AnnealingPath):
            return NotImplemented
        return all(
            _same(getattr(self, f.name), getattr(other, f.name))
            for f in fields(self)
            if f.name not in ("seconds", "plan")
        )

    __hash__ = None  # type: ignore[assignment]


def _reported(steps: list[Step], problem: Problem) -> dict[str, np.ndarray]:
    """Arrays of the final fit at every step; many steps at once if the problem does not depend on the temperature.

    For a long path, each array is allocated once and filled, so that no copy of its size is needed.
    """
    if not problem.place.is_host:
        return _reported_on_device(steps, problem)
    size = max(1, BLOCK_BYTES // (8 * problem.n_classes * problem.features.number)) if problem.temperature_free else 1
    arrays: dict[str, np.ndarray] = {}
    for first in range(0, len(steps), size):
        batch = steps[first : first + size]
        report = problem.report(np.stack([step.parameters[0] for step in batch]), batch[0].temperature, slice(0, 1))
        if problem.features.used is not None:
            report["coef"] = report["coef"][..., problem.features.used]
        if len(batch) == len(steps):
            return report
        for name, values in report.items():
            if name not in arrays:
                arrays[name] = np.empty((len(steps), *values.shape[1:]), values.dtype)
            arrays[name][first : first + len(batch)] = values
    return arrays


def _reported_on_device(steps: list[Step], problem: Problem) -> dict[str, Any]:
    parts = [problem.report(step.parameters[:1, ...], step.temperature, slice(0, 1)) for step in steps]
    return {name: namespace_of(parts[0][name]).concat([part[name] for part in parts]) for name in parts[0]}


def _best_of(scores) -> int:
    """Index of the largest score; NaN is the worst."""
    return int(np.argmax(np.where(np.isnan(scores), -np.inf, scores)))


def _train_score(step: Step) -> float:
    """The score of the user's scorer on the training samples, or their negative log-loss."""
    score = step.validation.train_score
    return -step.training_summary.calibrated_loss if score is None else score


def _between(weights, array, window):
    """Weighted sum of the entries of a window, in the array's type; entries of zero weight need not be finite."""
    if isinstance(array, np.ndarray):
        taken = np.flatnonzero(weights)
        return np.tensordot(weights[taken], array[window][taken], axes=1).astype(array.dtype)
    return combined(weights, [array[index, ...] for index in range(window.start, window.start + len(weights))])


def _same(left, right):
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    left, right = to_host(left), to_host(right)
    return np.array_equal(left, right, equal_nan=left.dtype.kind == right.dtype.kind == "f")  # a scorer may return NaN
