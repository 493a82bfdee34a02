"""`AnnealingPath`, the record of a walk down the temperatures: what a fitted estimator shows as `path_`."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from annealed.arrays import combined, to_host
from annealed.interpolation import between
from annealed.objectives import Problem
from annealed.optional import require
from annealed.walk import Step

PRINTED_ROWS = 12
REPORTED_VALUES = 2_000_000  # of a path's parameters, made at a time


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
        attributes: `path.coef`. They do not include `posterior_scale`. Where rows use few of a sparse X's columns,
        `arrays["coef"]` holds those alone, `columns`; `path.coef` is made of all when it is asked for.
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
    certificate : ndarray of shape (n_temperatures,) or None
        Bound on the relative suboptimality of the final fit's free energy, of families that have one (the inner-product
        and the quadratic). With rounded products on a device it and `gradient_norm` are of full precision at the chosen
        temperature, of rounded ones elsewhere.
    columns : ndarray of shape (n_used,) or None
        Columns of X that `arrays["coef"]` holds, where it does not hold all.
    n_columns : int
        How many X has.
    unit_C : float or None
        The C of temperature one; None where C is not defined, as for AnnealedLDA.

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
    unit_C: float | None = None

    @classmethod
    def from_steps(
        cls, steps: list[Step], problem: Problem, best_index: int, score_name: str, dtype, unit_C: float | None = None
    ) -> AnnealingPath:
        scores = [step.validation.scores for step in steps if step.validation.scores is not None]
        arrays = problem.reported([(step.parameters[0, ...], step.temperature) for step in steps])
        if arrays is None:
            arrays = {name: array.astype(dtype, copy=False) for name, array in _reported(steps, problem).items()}
        certificate = np.array([step.certificate for step in steps])
        return cls(
            temperatures=np.array([step.temperature for step in steps]),
            arrays=arrays,
            free_energy=np.array([step.temperature * step.value for step in steps]),
            entropy=np.array([step.training_summary.entropy for step in steps]),
            train_score=np.array([_train_score(step) for step in steps]),
            validation_score=np.stack(scores) if scores else None,
            posterior_scale=np.array([step.validation.scale for step in steps]),
            n_iter=np.array([step.n_iter for step in steps]),
            seconds=np.array([step.seconds for step in steps]),
            gradient_norm=np.array([step.gradient_norm for step in steps]),
            converged=np.array([step.converged for step in steps]),
            is_node=np.array([step.is_node for step in steps]),
            best_index=best_index,
            score_name=score_name,
            certificate=certificate if np.isfinite(certificate).any() else None,
            columns=problem.used,
            n_columns=problem.n_columns,
            unit_C=unit_C,
        )

    def __getattr__(self, name):
        if name in ("coef", "intercept", "means", "parameters") and "arrays" in self.__dict__:
            return self._of_all_columns(name, self.arrays.get(name))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _of_all_columns(self, name, array):
        """Zeros where `columns` leaves some out."""
        if name != "coef" or self.columns is None:
            return array
        whole = np.zeros((*array.shape[:-1], self.n_columns), array.dtype)
        whole[..., self.columns] = array
        return whole

    @property
    def C(self) -> np.ndarray | None:
        """Scikit-learn's C at each temperature, (n_temperatures,); None where it is not defined."""
        return None if self.unit_C is None else self.unit_C / self.temperatures

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
            name: self._of_all_columns(name, _between(weights, array, window)) for name, array in self.arrays.items()
        }
        return arrays, float(np.exp(_between(weights, np.log(self.posterior_scale), window)))

    def to_frame(self):
        """The path as a pandas DataFrame, one row per temperature, parameters left out.

        `validation_score` is the mean over the folds and `validation_spread` their standard deviation; `chosen` is
        True in the row of the chosen temperature.
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
            columns["posterior_scale"] = self.posterior_scale
        columns |= {name: getattr(self, name) for name in ("n_iter", "seconds", "gradient_norm", "converged")}
        if self.certificate is not None:
            columns["certificate"] = self.certificate
        columns["chosen"] = np.arange(len(self)) == self.best_index
        return columns

    def __repr__(self):
        """A table of the path: the ends, the chosen temperature and its neighbours, marked with an arrow."""
        shown = ("temperature", "C", "free_energy", "entropy", "train_score", "validation_score", "n_iter")
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
        if self.certificate is not None:
            best = self.best_index
            lines.append(
                f"-> certified within {self.certificate[best]:.1e} of its least free energy, relative; "
                f"largest entry of the gradient {self.gradient_norm[best]:.1e}"
            )
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
    """The final fit's arrays at every step; many in one reading of the rows where the temperature does not matter.

    Of a long path each array is filled as it is made, so that nothing as large is held beside it.
    """
    step = max(1, REPORTED_VALUES // (problem.n_classes * problem.n_columns)) if problem.temperature_free else 1
    arrays: dict[str, np.ndarray] = {}
    for first in range(0, len(steps), step):
        batch = steps[first : first + step]
        report = problem.report(np.stack([own.parameters[0] for own in batch]), batch[0].temperature, slice(0, 1))
        if problem.used is not None:
            report["coef"] = report["coef"][..., problem.used]
        if len(batch) == len(steps):
            return report
        for name, values in report.items():
            if name not in arrays:
                arrays[name] = np.empty((len(steps), *values.shape[1:]), values.dtype)
            arrays[name][first : first + len(batch)] = values
    return arrays


def _train_score(step: Step) -> float:
    """The user's scorer on the training rows, or minus their log-loss."""
    score = step.validation.train_score
    return -step.training_summary.calibrated_loss if score is None else score


def _between(weights, array, window):
    """Sum of weights times the entries of a window, of the array's type; what has no weight need not be finite."""
    if isinstance(array, np.ndarray):
        taken = np.flatnonzero(weights)
        return np.tensordot(weights[taken], array[window][taken], axes=1).astype(array.dtype)
    return combined(weights, [array[index, ...] for index in range(window.start, window.start + len(weights))])


def _same(left, right):
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    left, right = to_host(left), to_host(right)
    return np.array_equal(left, right, equal_nan=left.dtype.kind == right.dtype.kind == "f")  # scores may be NaN
