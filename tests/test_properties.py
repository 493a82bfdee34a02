"""Fits of random estimators to random tables end with one clear error, or with a model whose answers are consistent.

`fuzz.judge` says what must hold; `python dev.py fuzz estimators` tries a hundred times as many cases.
"""

import json

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, given, seed, settings

from fuzz import estimators
from fuzz.cases import CLASSES, Case, cases
from fuzz.judge import Failure, clear_error, judge
from fuzz.tables import Table

CASES = 50  # of a part, so that processes share those of an estimator
PARTS = {
    "AnnealedLogisticRegression": 4,
    "AnnealedLDA": 3,
    "AnnealedClassifier": 4,
    "AnnealedKernelClassifier": 2,
    "MELDA": 3,
    "PottsDA": 2,
    "PooledGaussian": 2,
}


@pytest.mark.parametrize(("name", "part"), [(name, part) for name, number in PARTS.items() for part in range(number)])
def test_a_fit_is_refused_clearly_or_gives_consistent_answers(name, part):
    n_cases = 0

    @seed(part)
    @settings(max_examples=CASES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(cases(estimators=(name,)))
    def property_holds(case):
        nonlocal n_cases
        judge(case)
        n_cases += 1

    property_holds()
    assert n_cases == CASES


def test_the_parts_are_a_thousand_cases_of_every_estimator():
    assert CASES * sum(PARTS.values()) == 1000
    assert list(PARTS) == list(CLASSES)


def test_a_case_is_determined_by_its_seed_and_number():
    first, again, other = (estimators.drawn(3, number) for number in (5, 5, 6))
    assert repr(first.table) == repr(again.table) != repr(other.table)
    np.testing.assert_array_equal(first.table.values(), again.table.values())


def test_a_few_cases_run_in_processes_of_their_own(capsys):
    assert estimators.main(12, seed=0) == 0
    counts = capsys.readouterr().out.splitlines()[-1]
    assert counts.startswith("12 cases of estimators: ") and " 0 failed" in counts


def test_a_child_that_dies_fails_its_case_alone(monkeypatch):
    printed = [[[0, "MELDA", "fitted", ""]], [[2, "MELDA", "refused", ""]]]  # the child of case 1 dies
    monkeypatch.setattr(estimators, "lines_of", lambda child, patience: iter(printed.pop(0)))
    results = list(estimators.run(0, 0, 3))
    assert [number for number, *_ in results] == [0, 1, 2]
    assert [outcome in estimators.GOOD for _, _, outcome, _ in results] == [True, False, True]
    assert "the child ended" in results[1][2]


# --- the judge sees what is wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda: np.linalg.inv(np.zeros((2, 2))), "not an error of bad input"),
        (lambda: {}[3], "not an error of bad input"),
        (lambda: bool(np.zeros(2)), "nobody raised on purpose"),
        (lambda: json.loads("{"), "not an error of bad input"),
        (lambda: int("a word"), "nobody raised on purpose"),
    ],
)
def test_an_error_of_chance_is_not_a_clear_one(fault, message):
    with pytest.raises(Failure, match=message):
        clear_error(fault)


def spoiled(monkeypatch, method, replacement):
    """A case whose classifier has another method."""
    monkeypatch.setattr(CLASSES["PooledGaussian"], method, replacement)
    return Case("PooledGaussian", {}, Table(weight="random"))


def test_a_case_without_fault_is_good():
    assert judge(Case("PooledGaussian", {}, Table())) == "fitted"
    assert judge(Case("PooledGaussian", {"var_smoothing": -1}, Table())) == "refused"


def _negative(self, X):
    return np.tile([-0.5, 1.5], (len(X), 1))


def _first_class(self, X):
    return np.full(len(X), self.classes_[0])


_fit, _calls = CLASSES["PooledGaussian"].fit, []


def _fit_that_changes_weights(self, X, y, sample_weight):
    sample_weight /= sample_weight.sum()
    return _fit(self, X, y, sample_weight)


def _fit_that_warns(self, X, y, sample_weight):
    np.log(np.zeros(1))
    return _fit(self, X, y, sample_weight)


def _fit_that_differs(self, X, y, sample_weight):
    _calls.append(self)
    return _fit(self, X + len(_calls) * (y == 0)[:, None], y, sample_weight)


def _fit_half(self, X, y, sample_weight):
    _fit(self, X, y, sample_weight)
    raise ValueError("X must be another one. Got this one.")


@pytest.mark.parametrize(
    ("method", "replacement", "message"),
    [
        ("predict_proba", _negative, "posterior of samples of the fit is negative"),
        ("predict", _first_class, "are not the likeliest"),
        ("fit", _fit_that_changes_weights, "changed its arguments"),
        ("fit", _fit_that_warns, "warned of RuntimeWarning"),
        ("fit", _fit_that_differs, "a second fit predicts otherwise"),
    ],
)
def test_the_judge_finds_what_is_wrong(monkeypatch, method, replacement, message):
    with pytest.raises(Failure, match=message):
        judge(spoiled(monkeypatch, method, replacement))


def test_the_judge_finds_models_that_are_fitted_by_half(monkeypatch):
    case = spoiled(monkeypatch, "fit", _fit_half)
    monkeypatch.setattr("fuzz.judge._fault", lambda error: "")
    with pytest.raises(Failure, match="predict works after a refused fit"):
        judge(case)
