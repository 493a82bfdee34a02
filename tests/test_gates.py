"""The gates: a few fits against the record, and the parts that judge them. `python dev.py gates` runs all fits."""

import json

import numpy as np
import pytest
from oracles import multinomial_optimum
from scipy import sparse

from annealed import AnnealedLogisticRegression
from annealed.rows.dense import scores_of
from benchmarks.quality import PenalizedLikelihood
from gates import __main__ as command
from gates.comparing import MOST_SUBOPTIMAL, verdict
from gates.counting import counting, patched
from gates.estimators import ESTIMATORS
from gates.measure import measured
from gates.random_tables import random_table
from gates.tables import MAKERS, table

QUICK = [
    ("two_classes", "logistic"),
    ("wide", "logistic, holdout"),
    ("constant_columns", "logistic, loo"),
    ("text", "logistic, holdout"),
    ("weights", "lda"),
    ("collinear", "melda"),
    ("tiny", "quadratic"),
    ("tiny", "potts"),
    ("float32", "pooled gaussian"),
]


@pytest.mark.parametrize("name", QUICK, ids=" ".join)
def test_results_and_counts_are_those_recorded(name):
    record = command.read(command.RECORD)
    is_same_stack = record["versions"] == command.versions()
    found = verdict(record["fits"][" | ".join(name)], measured(*name), counts_calls=is_same_stack)
    assert not found.failures


def test_every_fit_is_recorded():
    options = command.parse(["compare"])
    assert {" | ".join(fit) for fit in command.chosen(options)} == set(command.read(command.RECORD)["fits"])
    assert command.RECORD.stat().st_size < 300_000


# --- counting ---------------------------------------------------------------------------------------


def test_products_with_stored_entries_are_counted():
    rows = np.ones((50, 4))
    with counting(rows.size, with_calls=False) as tally:
        from annealed.rows import dense  # as a module would call it

        dense.scores_of(np.ones((3, 4)), rows)
        dense.sums_of(np.ones((2, 50), dtype=np.float32), rows.astype(np.float32))
    found = tally.summary()
    assert (found["passes64"], found["columns64"], found["passes32"], found["columns32"]) == (1, 3, 1, 2)


def test_sparse_products_factorizations_and_exponentials_are_counted_in_numpy_and_scipy():
    rows = sparse.csr_array(np.eye(6))
    with counting(rows.nnz, with_calls=False) as tally:
        rows @ np.ones((6, 5))
        np.ones((2, 6)) @ rows
        np.linalg.eigh(np.stack([np.eye(3)] * 4))
        np.exp(np.zeros(1000))
    found = tally.summary()
    assert (found["passes64"], found["columns64"]) == (2, 7)
    assert found["factors"] == {"eigh": {3: 4}}
    assert found["exponential_millions"] == 1e-3
    assert "__matmul__" not in vars(sparse.csr_array) and not hasattr(np.exp, "__wrapped__")


def test_a_function_that_is_gone_is_an_error():
    with pytest.raises(LookupError, match=r"needs one function NoClass\.gone"), patched("NoClass.gone", None):
        pass
    with pytest.raises(LookupError, match="Got 0"), patched("scores_of", None, ("other",)):
        pass


def test_a_function_is_replaced_wherever_it_was_imported_and_put_back():
    import annealed.rows.dense

    with patched("scores_of", lambda function: len, ("vectors", "rows")):
        assert annealed.rows.dense.scores_of is len
    assert annealed.rows.dense.scores_of is scores_of


def test_a_pass_of_a_known_fit():
    """One Newton step more or less is a pass more or less: the folds share it."""
    counts = measured("two_classes", "logistic")["counts"]
    assert 10 < counts["passes64"] < 200 and counts["hessians"] > 0 and counts["calls"] > 1000


# --- the oracle -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scaling", ["none", "standardize", "half-whiten", "whiten"])
def test_the_oracle_bounds_the_suboptimality_of_weighted_samples(scaling):
    of_table = table("weights")
    X, y, weight = of_table.X, of_table.y, of_table.weight
    likelihood = PenalizedLikelihood(X, y, scaling, 1.0, weight)
    center, spread = np.average(X, axis=0, weights=weight), likelihood.spread
    assert spread == pytest.approx(1.0 if scaling == "none" else np.sqrt(np.average((X - center) ** 2, 0, weight)))
    penalty = np.diag(spread**2)
    if likelihood.directions is not None:
        turned = spread[:, None] * likelihood.directions * likelihood.raised
        penalty = turned @ turned.T
    best = multinomial_optimum(X - center, y, 0.1 * penalty, weight / weight.sum())
    at_best = likelihood.gap(best.coef, best.intercept - best.coef @ center, 0.1)
    assert at_best.value == pytest.approx(best.value, rel=1e-12) and at_best.relative < 1e-12
    off = likelihood.gap(1.01 * best.coef, best.intercept - best.coef @ center, 0.1)
    assert 1e-6 < off.value / best.value - 1 <= off.relative


# --- verdicts ---------------------------------------------------------------------------------------


def record_of(**changes):
    counts = dict.fromkeys(
        ["passes64", "passes32", "columns64", "columns32", "hessians", "row_products", "sweeps", "calls", "work"], 1e4
    )
    parts = ["hessian_millions", "factor_millions", "rotation_millions", "exponential_millions"]
    found = {"probabilities": [0.2, 0.7], "log_loss": 0.5, "warnings": 0, "claimed": 1e-7, "bound": 1e-8}
    return found | {"counts": counts | dict.fromkeys(parts, 1e4) | changes.pop("counts", {})} | changes


@pytest.mark.parametrize(
    ("changes", "failure"),
    [
        ({}, None),
        ({"probabilities": [0.3, 0.6]}, None),
        ({"probabilities": [0.3, 0.6], "log_loss": 0.51}, "log-loss"),
        ({"bound": 2e-7}, "certificate"),
        ({"bound": 2 * MOST_SUBOPTIMAL, "claimed": 1}, "suboptimality"),
        ({"warnings": 1}, "converge"),
        ({"counts": {"work": 1.2e4}}, "work"),
        ({"counts": {"hessians": 1.2e4}}, None),
        ({"counts": {"passes64": 2e4, "passes32": 0.0}}, "passes"),
        ({"counts": {"passes64": 0.0, "passes32": 2e4}}, None),
    ],
)
def test_what_fails(changes, failure):
    failures = verdict(record_of(), record_of(**changes)).failures
    assert [failure in words for words in failures] == ([True] if failure else [])


def test_exact_and_each_judge_more():
    assert verdict(record_of(), record_of(probabilities=[0.21, 0.69]), exact=True).failures
    assert verdict(record_of(), record_of(counts={"hessians": 1.2e4}), each=True).failures


def test_the_command_records_compares_and_fails(tmp_path, capsys):
    file = tmp_path / "recorded.json"
    arguments = ["tiny", "--estimators", "pooled gaussian", "--file", str(file)]
    assert command.main(["record", *arguments]) == 0
    assert command.main(["compare", *arguments]) == 0
    kept = json.loads(file.read_text())
    kept["fits"]["tiny | pooled gaussian"]["log_loss"] = 0.1
    kept["fits"]["tiny | pooled gaussian"]["probabilities"][0] += 0.1
    file.write_text(json.dumps(kept))
    capsys.readouterr()
    assert command.main(["compare", *arguments]) == 1
    assert "FAILS: log-loss 0.1 ->" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="there is no table elsewhere"):
        command.main(["compare", "elsewhere"])


# --- tables -----------------------------------------------------------------------------------------


def test_tables_are_the_same_every_time_and_have_every_class():
    for name, maker in MAKERS.items():
        made = maker()
        assert made.name == name and set(made.y_test) <= set(made.y)
        assert all(estimator.suits(made) in (True, False) for estimator in ESTIMATORS.values())
    assert (table("wide").X == MAKERS["wide"]().X).all()


@pytest.mark.parametrize("seed", range(12))
def test_random_tables_can_be_fitted(seed):
    made, again = random_table(seed, 20_000), random_table(seed, 20_000)
    assert made.name == again.name and (made.y == again.y).all()
    assert made.n_values <= 45_000 and set(made.y_test) <= set(made.y)
    model = AnnealedLogisticRegression(schedule=[1.0], selection="last", tol=1e-2)
    assert model.fit(made.X, made.y, sample_weight=made.weight).score(made.X_test, made.y_test) > 0
