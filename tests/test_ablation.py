"""`bench ablation`: every mechanism can be switched off, and what it is worth is read off alternating runs."""

import csv

import pytest

import annealed.rows.dense
from annealed.solvers import newton
from benchmarks import ablation
from benchmarks.limits import LIMITS, OF_KERNELS, ON_A_DEVICE
from benchmarks.mechanisms import MECHANISMS, Mechanism, attribute, constant
from gates.size import core


@pytest.fixture(scope="module")
def usual_state():
    return state_of_the_library()


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_a_mechanism_is_switched_off_and_on_again(mechanism, usual_state):
    with mechanism.off():
        assert state_of_the_library() != usual_state
    assert state_of_the_library() == usual_state


def state_of_the_library():
    """Identity of everything that modules and their classes hold."""
    from gates.counting import library_modules

    found = {}
    for module in library_modules():
        for name, value in list(vars(module).items()):
            found[module.__name__, name] = id(value)
            if isinstance(value, type) and value.__module__ == module.__name__:
                found |= {(module.__name__, name, own): id(member) for own, member in list(vars(value).items())}
    return found


def test_names_are_distinct_and_entries_say_what_they_trade():
    assert len({mechanism.name for mechanism in MECHANISMS}) == len(MECHANISMS)
    assert all("; " in mechanism.trades and set(mechanism.fits) <= set(ablation.FITS) for mechanism in MECHANISMS)


def test_every_tuned_number_belongs_to_a_mechanism_or_is_a_limit():
    known = [*LIMITS, *OF_KERNELS, *ON_A_DEVICE, *(number for mechanism in MECHANISMS for number in mechanism.numbers)]
    tuned = core().tuned
    assert [own for own in tuned if not any(f".{own}".endswith(f".{number}") for number in known)] == []
    listed = [*LIMITS, *OF_KERNELS, *ON_A_DEVICE]
    assert [number for number in listed if sum(f".{own}".endswith(f".{number}") for own in tuned) != 1] == []


def test_a_constant_is_set_wherever_it_was_imported():
    from annealed.rows import cost

    with constant("CALL", 0.0, "cost"):
        assert newton.CALL == cost.CALL == 0.0
    assert newton.CALL == cost.CALL > 0


def test_names_that_are_gone_are_errors():
    with pytest.raises(LookupError, match="no constant GONE"), constant("GONE", 0):
        pass
    with pytest.raises(LookupError, match="one class DenseDesign with gone"), attribute("DenseDesign.gone", 0):
        pass
    assert hasattr(annealed.rows.dense, "DenseDesign")


def test_mechanisms_are_measured_and_the_idle_ones_are_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(ablation, "QUICK", {"logistic": (1, 1500)})
    words = ["Newton's method [", "hotter minimum", "centred copy"]
    assert ablation.main([*words, "--quick", "--fits", "logistic", "--results", str(tmp_path)]) == 0
    with (tmp_path / "ablation.csv").open() as file:
        states = {row["mechanism"].split(" [")[0]: row["state"] for row in csv.DictReader(file)}
    idle = "no start above the hotter minimum"
    assert states == {"Newton's method": "acts", "kept centred copy of a small X": "acts", idle: "idle"}
    assert f"goes  {idle}" in capsys.readouterr().out
    assert ablation.main(["--report", "--results", str(tmp_path)]) == 0


def test_a_run_that_is_far_too_slow_or_fails_is_given_up(monkeypatch):
    options = ablation.parse(["--quick"])
    monkeypatch.setattr(ablation, "QUICK", {"logistic": (1, 1500)})
    (problem,) = ablation.problems(options, "logistic")

    def never_ends(*_):
        while True:
            pass

    def fails(*_):
        raise ValueError("not so")

    monkeypatch.setattr(ablation, "SLOWEST", 0.0)
    name = "PenalizedLinearProblem.start"
    slow = Mechanism("slow", lambda: attribute(name, never_ends), "nothing; nothing")
    assert ablation.ablated(slow, problem, 1)["note"] == "given up"
    broken = Mechanism("broken", lambda: attribute(name, fails), "nothing; nothing")
    assert ablation.ablated(broken, problem, 1)["state"] == "fails"


def test_nothing_to_report(tmp_path):
    with pytest.raises(SystemExit, match="no results yet"):
        ablation.main(["--report", "--results", str(tmp_path)])
    with pytest.raises(SystemExit, match="no mechanism holds nowhere"):
        ablation.main(["nowhere", "--results", str(tmp_path)])
