"""A small part of the random trials; `python dev.py fuzz` runs all of them."""

import os

import pytest

pytest.importorskip("pandas")
pytest.importorskip("hypothesis")
from fuzz import models, watch
from fuzz.cases import Case
from fuzz.judge import judge
from fuzz.tables import Table

DATES = Table(38, ("signal",) * 3, 3, storage="frame of nullable", dtype="dates")


def test_mutated_model_files(capsys):
    assert models.main(240, seed=1) == 0
    counts = capsys.readouterr().out.splitlines()[-1]
    numbers = {word: int(number) for number, word in (part.split(" ", 1) for part in counts.split(": ")[1].split(", "))}
    assert numbers["refused"] > 80
    assert min(numbers["equal"], numbers["valid"]) > 5


@pytest.mark.parametrize(
    ("case", "outcome"),
    [
        (Case("AnnealedLDA", {"scoring": "accuracy"}, DATES), "fitted"),
        (Case("AnnealedLDA", {"schedule": [1e-100, 1e8]}, Table(31, ("signal",), 3, dtype="float32")), "fitted"),
        (Case("PooledGaussian", {}, Table(12, n_classes=1)), "refused"),
    ],
    ids=["pandas caches the unit of dates", "a model that float32 cannot hold is not chosen", "a single class"],
)
def test_cases_are_judged_good(case, outcome):
    assert judge(case) == outcome


@pytest.mark.parametrize(
    "act",
    [
        lambda folder: exec("1 + 1"),
        lambda folder: os.system("true"),
        lambda folder: (folder / "elsewhere").write_text("x"),
        lambda folder: __import__("this_module_does_not_exist"),
    ],
)
def test_the_watch_sees_what_hidden_code_would_do(tmp_path, act):
    (tmp_path / "inside").mkdir()
    with watch.watching(tmp_path / "inside") as events:
        (tmp_path / "inside" / "file").write_text("x")
        assert not events
        try:
            act(tmp_path)
        except ImportError:
            pass
    assert events
