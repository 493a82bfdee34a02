"""Docstrings of public things: examples run as they stand, and parameters and fitted attributes are those there are."""

import doctest
import importlib.util
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
from sklearn.datasets import load_iris

import annealed
from annealed.objectives import Quadratic

ROOT = Path(annealed.__file__).parent
PUBLIC = [getattr(annealed, name) for name in annealed.__all__]
PUBLISHED = [annealed.AnnealedLogisticRegression, annealed.AnnealedLDA, annealed.MELDA, annealed.PottsDA]
FITTED = [own for own in PUBLIC if hasattr(own, "fit")]
WITH_EXAMPLES = [
    found.name
    for found in pkgutil.walk_packages([str(ROOT)], "annealed.")
    if ">>>" in (importlib.util.find_spec(found.name).loader.get_source(found.name) or "")
]


def section(thing, title):
    """Lines of a section of a docstring; none where it is not there."""
    parts = re.split(r"^(.+)\n-{3,}\n", inspect.getdoc(thing), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True)).get(title, "").splitlines()


def names_of(lines):
    """Those that a section describes, in order."""
    heads = [line.partition(" : ")[0] for line in lines if line and not line.startswith(" ")]
    return [name.strip() for head in heads for name in head.split(",")]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_give_what_they_say(name):
    if name.startswith("annealed.displays"):
        pytest.importorskip("matplotlib").use("Agg")
    assert doctest.testmod(importlib.import_module(name)).failed == 0
    if name.startswith("annealed.displays"):
        importlib.import_module("matplotlib.pyplot").close("all")


@pytest.mark.parametrize("thing", PUBLIC, ids=lambda own: own.__name__)
def test_public_classes_have_an_example(thing):
    assert any(">>>" in line for line in section(thing, "Examples"))


@pytest.mark.parametrize("thing", PUBLIC, ids=lambda own: own.__name__)
def test_what_a_class_takes_is_described_in_its_order(thing):
    parameters = section(thing, "Parameters") + section(thing, "Other Parameters")
    described = names_of(parameters) or names_of(section(thing, "Attributes"))
    assert described == list(inspect.signature(thing).parameters)


@pytest.mark.parametrize("thing", PUBLISHED, ids=lambda own: own.__name__)
def test_published_algorithms_name_their_deviations(thing):
    assert "as_published" in vars(thing)
    _, _, deviations = inspect.getdoc(thing.as_published).partition("It differs from the ")
    assert deviations.count("\n- ") >= 3


def test_only_published_algorithms_can_be_had_as_published():
    assert [thing for thing in PUBLIC if hasattr(thing, "as_published")] == [t for t in PUBLIC if t in PUBLISHED]


@pytest.mark.parametrize("thing", FITTED, ids=lambda own: own.__name__)
def test_what_a_fit_leaves_is_described(thing):
    pandas = pytest.importorskip("pandas")
    X, y = load_iris(return_X_y=True)
    models = [thing().fit(pandas.DataFrame(X, columns=list("abcd")), y)]
    if thing is annealed.AnnealedClassifier:
        models.append(thing(Quadratic()).fit(X, y))
    described = set(names_of(section(thing, "Attributes")))
    for model in models:
        assert {name for name in dir(model) if re.fullmatch(r"[a-z]\w*[a-z]_", name)} <= described
    assert all(hasattr(models[0], name) for name in described)
