"""Strategies of hypothesis that draw an estimator, its parameters, and the table that it is fitted to.

Most parameters keep their defaults, and most tables are ordinary in all but a few respects: else nearly every fit would
be refused, for the first of many reasons. What is listed first is what hypothesis shrinks to.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from sklearn.metrics import log_loss
from sklearn.metrics.pairwise import linear_kernel
from sklearn.model_selection import GroupKFold, KFold, LeaveOneOut, RepeatedStratifiedKFold, StratifiedKFold
from sklearn.pipeline import make_pipeline

from annealed import (
    MELDA,
    AdaptiveSchedule,
    AnnealedClassifier,
    AnnealedKernelClassifier,
    AnnealedLDA,
    AnnealedLogisticRegression,
    CGrid,
    ExponentialSchedule,
    FixedSchedule,
    InverseTemperatureSchedule,
    PooledGaussian,
    PottsDA,
    SecondOrderFeatures,
)
from annealed.problems import Distance, InnerProduct, Quadratic
from annealed.solvers import ScaledConjugateGradient
from fuzz import tables as of
from fuzz.tables import Table

one_of = st.sampled_from


def usually(common, other, odds=10):
    """Draw from `common`, and once in `odds` times from `other`."""
    return st.integers(0, odds - 1).flatmap(lambda number: other if number == odds - 1 else common)


# --- parameters -----------------------------------------------------------------------------------------------


def half_squared_error(model, X, y):
    """A scorer that a user may write; it needs no particular classes."""
    return -0.5 * float(np.mean((model.predict_proba(X)[:, 0] - (y == model.classes_[0])) ** 2))


def failing_score(model, X, y):
    raise ValueError("This scorer never works.")


def wrong_kernel(X, Z):
    """A kernel of another shape than that of its arguments."""
    return np.ones(3)


def nan_score(model, X, y):
    return np.nan


class Thing:
    """What no parameter expects."""

    def __repr__(self):
        return "Thing()"


JUNK = one_of(
    [
        *(
            None,
            True,
            False,
            0,
            -1,
            1,
            2,
            7,
            2**40,
            2**70,
            -0.5,
            0.5,
            1.5,
            np.nan,
            np.inf,
            -np.inf,
            1e300,
            1e-300,
            5e-324,
        ),
        *("nonsense", "", b"auto", 1j, np.float32(0.5), np.int8(3), np.bool_(True), np.array(0.5), np.str_("auto")),
        *(
            Decimal("0.5"),
            Fraction(1, 2),
            [],
            {},
            (),
            [1.0],
            {"a": 1},
            {0: 1.0},
            np.array([0.1, 1.0]),
            [[1.0, 2.0]],
            ["auto"],
        ),
        Thing(),
    ]
)
MAGNITUDES = one_of([1.0, 0.1, 10.0, 1e-3, 1e3, 1e-8, 1e8, 1e-30, 1e30, 1e-100, 1e100, 1e-300, 1e300, 5e-324, 1.7e308])
TEMPERATURES = usually(st.just("auto"), MAGNITUDES, 3)
LISTS = st.lists(MAGNITUDES, min_size=1, max_size=4)
SCHEDULES = usually(
    one_of([[10.0, 1.0, 0.1], [1.0]]),
    st.one_of(
        LISTS,
        LISTS.map(np.array),
        LISTS.map(FixedSchedule),
        LISTS.map(CGrid),
        st.builds(CGrid, st.integers(1, 4)),
        st.builds(
            ExponentialSchedule, one_of([None, 1.0, 1e300]), cooling_rate=one_of([0.5, 0.1, 1e-200]), stop=MAGNITUDES
        ),
        st.builds(
            InverseTemperatureSchedule, MAGNITUDES, growth=one_of([2.0, 10.0, 1e200]), stop=one_of([10.0, 1e300])
        ),
        st.builds(AdaptiveSchedule),
        st.just("auto"),
        JUNK,
    ),
    2,
)
SEEDS = usually(
    st.one_of(one_of([0, 7, None, 2**32 - 1, np.int64(3)]), st.builds(np.random.RandomState, st.just(0))),
    st.one_of(one_of([2**40, -1, "0"]), st.builds(np.random.default_rng, st.just(0))),
    6,
)
FOLDS = st.one_of(
    one_of([None, 2, 3, 10, 1, 0, -1, 2.0, 1000]),
    st.builds(KFold, one_of([2, 3])),
    st.builds(KFold, st.just(3), shuffle=st.just(True), random_state=st.just(0)),
    st.builds(StratifiedKFold, one_of([2, 3])),
    st.builds(GroupKFold, st.just(2)),
    st.builds(RepeatedStratifiedKFold, n_splits=st.just(2), n_repeats=st.just(2), random_state=one_of([0, 1])),
    st.builds(LeaveOneOut),
    one_of([[([0, 1, 2, 3], [4, 5])], [([0, 1], [0, 1])], [([], [0])], [([0, 1], [])], [([0], [99])], [], [(0, 1)]]),
)
SCORERS = [
    "neg_log_loss",
    "accuracy",
    "balanced_accuracy",
    "roc_auc",
    "roc_auc_ovr",
    "neg_brier_score",
    "f1",
    "f1_macro",
]
SCORINGS = st.one_of(
    one_of([*SCORERS, "r2", "nonsense"]), one_of([half_squared_error, failing_score, nan_score, log_loss])
)
CLASS_WEIGHTS = one_of(
    [
        *(None, "balanced", {0: 2.0}, {0: 0.0}, {0: 1e300}, {0: 1e-300}, {0: 1e300, 1: 1e-300}, {0: -1.0}, {0: np.nan}),
        *({0: 1, 1: 1, 99: 1}, {"class 0": 5.0}, {True: 2.0}, {9: 1.0}, {0: "heavy"}, "heavy", [1.0, 2.0]),
    ]
)
TOLERANCES = one_of([1e-4, 1e-2, 1.0, 1e-8, 1e-12, 1e-300, 1e300])
BOUNDS = one_of([1000, 1, 2, 10, 2**70, np.int64(50)])
PENALTY_SCALINGS = one_of(["auto", "cv", "none", "standardize", "half-whiten", "whiten", None, "cosine"])
SOLVERS = st.one_of(one_of(["auto", "lbfgs", "newton", "scg", "subspace", "adam"]), st.builds(ScaledConjugateGradient))
SHRINKAGES = one_of(["oas", "ledoit_wolf", "auto", 0.0, 1e-300, 0.3, 1.0, 1, 1.0 + 1e-12, np.nan])
OF_FAMILIES = {"l2_strength": MAGNITUDES, "penalty_scaling": PENALTY_SCALINGS, "fit_intercept": st.booleans()}
OBJECTIVES = st.one_of(
    st.builds(Quadratic),
    st.builds(InnerProduct),
    st.builds(Distance),
    st.builds(Quadratic, l2_strength=MAGNITUDES, penalty_scaling=PENALTY_SCALINGS, fit_intercept=st.booleans()),
    st.builds(Distance, covariance=one_of(["pooled", "total", "identity"]), anchor=one_of([1.0, 0, 1e-3, 1e300])),
)
PATH = {
    "selection": usually(one_of(["cv", "loo", "holdout", "last"]), one_of(["best", None])),
    "temperature": TEMPERATURES,
    "schedule": SCHEDULES,
    "cv": FOLDS,
    "scoring": SCORINGS,
    "rule": one_of(["best", "one_standard_error", "worst"]),
    "calibrate": st.booleans(),
    "class_weight": CLASS_WEIGHTS,
    "tol": TOLERANCES,
    "max_iter": BOUNDS,
    "random_state": SEEDS,
    "matmul_precision": one_of([None, "tf32"]),
}
PARAMETERS: dict[str, dict[str, st.SearchStrategy]] = {
    "AnnealedLogisticRegression": {**PATH, **OF_FAMILIES},
    "AnnealedLDA": {
        **PATH,
        "covariance": one_of(["auto", "pooled", "total", "diagonal", "identity", "full"]),
        "shrinkage": SHRINKAGES,
        "init": one_of(["means", "random", "zero", "corners"]),
        "anchor": one_of([1.0, 0, 1e-3, 1e-12, 1e3, 1e-300, 1e300, -1.0]),
        "inner_iterations": one_of([None, 1, 15]),
        "solver": SOLVERS,
    },
    "AnnealedKernelClassifier": {
        **PATH,
        "kernel": one_of(["rbf", "laplacian", "polynomial", "precomputed", "sigmoid", wrong_kernel, linear_kernel]),
        "gamma": st.one_of(st.just("cv"), MAGNITUDES),
        "degree": one_of([3, 1, 2, 0, 99, 2.5]),
        "scale": one_of(["auto", "standardize", "ard", "none", "ranks"]),
        "n_landmarks": one_of(["auto", "all", 1, 3, 10**9, 0, "few"]),
        "l2_strength": MAGNITUDES,
        "fit_intercept": st.booleans(),
    },
    "AnnealedClassifier": {**PATH, "objective": OBJECTIVES, "solver": SOLVERS},
    "MELDA": {
        **PATH,
        "l2_strength": MAGNITUDES,
        "penalty_scaling": PENALTY_SCALINGS,
        "n_components": one_of([None, 1, 2, 0, 99]),
        "coordinates": one_of(["whitened", "orthonormal", "paper", "polar"]),
        "reference_class": one_of([None, 0, 1, "class 0", 99]),
    },
    "PottsDA": {
        "n_prototypes": one_of(["auto", 2, 5, 50, {0: 1, 1: 2}, {0: 3}, 0]),
        "label_coupling": MAGNITUDES,
        "n_init": one_of([1, 2, 8]),
        "shrinkage": SHRINKAGES,
        "refine": st.booleans(),
        "temperature": TEMPERATURES,
        "schedule": SCHEDULES,
        "max_sweeps": one_of([5, 1, 30]),
        "random_state": SEEDS,
        "init": one_of(["kmeans++", "mean", "corners"]),
        "relaxation": one_of(["multilinear", "quadratic", "cubic"]),
        "decision": one_of(["posterior", "nearest", "farthest"]),
        "saturation": one_of([0.98, 0.5, 1.0, 1e-300, 0.0]),
        "perturbation": one_of([0.0, 1e-3, 1.0, 1e300]),
    },
    "PooledGaussian": {
        "priors": one_of(
            ["empirical", "equal", [0.5, 0.5], [1e300, 1e-300], [0.0, 1.0], [0.0, 0.0], [np.nan, 1.0], [1.0], "uniform"]
        ),
        "var_smoothing": one_of([1e-9, 0.0, 1.0, 1e-300, 1e300, -1.0]),
    },
}
CLASSES = {
    model.__name__: model
    for model in (
        *(AnnealedLogisticRegression, AnnealedLDA, AnnealedClassifier, AnnealedKernelClassifier),
        *(MELDA, PottsDA, PooledGaussian),
    )
}
SLOW = {"PottsDA": {"n_prototypes": 3, "n_init": 1, "shrinkage": 0.3}}  # what replaces its defaults, most of the time
DENSE_ONLY = ("PottsDA", "AnnealedClassifier")
MOST_STARTS = 8


# --- the table ------------------------------------------------------------------------------------------------


def words(first, usual, bad, odds, bad_odds=16):
    """Mostly `first`, once in `odds` times any key of `usual`, and once in `bad_odds` of these times one of `bad`."""
    return usually(st.just(first), usually(one_of(list(usual)), one_of(list(bad)), bad_odds), odds)


@st.composite
def tables(draw, is_dense):
    storages = of.DENSE_STORAGES if is_dense else of.STORAGES
    n_samples = draw(usually(st.integers(6, 40), st.integers(0, 6), 12))
    width = usually(st.integers(1, 6), one_of([12, 0, 30]))
    column = words("signal", of.COLUMNS, of.EXTREME_COLUMNS, 2, 24)
    columns = draw(
        st.one_of(width.map(lambda number: ("signal",) * number), width.flatmap(lambda n: _names(column, n)))
    )
    return Table(
        n_samples=n_samples,
        columns=columns,
        n_classes=draw(usually(st.integers(2, 3), one_of([5, 12, 1]), 6)),
        labels=draw(words("ints", of.LABELS, of.BAD_LABELS, 3, 8)),
        sizes=draw(usually(st.just("random"), one_of(list(of.SIZES)), 5)),
        storage=draw(words("dense", storages, of.ANY_STORAGE, 2)),
        dtype=draw(
            usually(one_of(["float64", "float64", "float32"]), words("float64", of.DTYPES, of.BAD_DTYPES, 1, 8), 6)
        ),
        entry=draw(usually(st.just(""), one_of(list(of.ENTRIES)), 16)),
        weight=draw(words("none", of.WEIGHTS, of.BAD_WEIGHTS, 3)),
        seed=draw(st.integers(0, 2**16)),
    )


def _names(column, number):
    return st.tuples(*[column] * number)


def products(n_columns):
    """Parameters of `SecondOrderFeatures`."""
    near = {"neighborhood": one_of([0, 1, 1.5, 1e300]), "image_shape": st.just((1, n_columns))}
    any_other = {"neighborhood": one_of([None, -1, np.nan]), "image_shape": one_of([None, (2, 2), (0, 2), 3])}
    return usually(st.one_of(st.just({}), st.fixed_dictionaries(near)), st.fixed_dictionaries(any_other))


# --- a case ---------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """An estimator, its parameters, and what it is fitted to."""

    estimator: str
    parameters: dict[str, Any]
    table: Table
    products: dict[str, Any] | None = None  # parameters of SecondOrderFeatures in front
    has_groups: bool = False
    has_validation_set: bool = False

    def model(self):
        model = CLASSES[self.estimator](**self.parameters)
        return model if self.products is None else make_pipeline(SecondOrderFeatures(**self.products), model)

    def n_temperatures(self) -> int:
        """How many a geometric schedule has, which may be thousands; 0 for other schedules."""
        schedule = self.parameters.get("schedule")
        if not isinstance(schedule, ExponentialSchedule | InverseTemperatureSchedule):
            return 0
        try:
            return sum(1 for _ in schedule.temperatures(lambda: 1.0))
        except ValueError:
            return 0

    def arguments(self) -> dict[str, Any]:
        """Arguments of `fit`, made anew."""
        table, given = self.table, {}
        if table.weight != "none":
            given["sample_weight"] = table.sample_weight()
        if self.has_groups:
            given["groups"] = table.groups()
        if self.has_validation_set:
            given |= {
                "X_val": table.new_rows(),
                "y_val": np.resize(np.unique(table.codes()), table.new_rows().shape[0]),
            }
        prefix = "" if self.products is None else f"{self.estimator.lower()}__"
        return {"X": table.X(), "y": table.y()} | {prefix + name: value for name, value in given.items()}


@st.composite
def cases(draw, estimators=tuple(CLASSES)):
    """One case; `estimators` are the names to draw from."""
    name = draw(one_of(estimators))
    chosen = draw(
        usually(st.just([]), st.lists(one_of(list(PARAMETERS[name])), min_size=1, max_size=4, unique=True), 2)
    )
    parameters = dict(SLOW.get(name, {})) if draw(usually(st.just(True), st.just(False), 16)) else {}
    parameters |= {parameter: draw(usually(PARAMETERS[name][parameter], JUNK, 24)) for parameter in chosen}
    if type(parameters.get("n_init")) is int:  # each start is made, and 2**40 of them take forever
        parameters["n_init"] = min(parameters["n_init"], MOST_STARTS)
    is_path = name not in ("PottsDA", "PooledGaussian")
    rarely = usually(st.just(False), st.just(True), 8)
    is_grouped = is_path and (isinstance(parameters.get("cv"), GroupKFold) or draw(rarely))
    table = draw(tables(name in DENSE_ONLY))
    has_validation_set = is_path and table.storage not in ("list",) and str(parameters.get("selection")) == "holdout"
    return Case(
        name,
        parameters,
        table,
        products=draw(products(len(table.columns))) if len(table.columns) <= 6 and draw(rarely) else None,
        has_groups=is_grouped and draw(usually(st.just(True), st.just(False))),
        has_validation_set=has_validation_set and draw(st.booleans()),
    )
