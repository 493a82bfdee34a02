"""Docstrings of public classes: examples run, and every parameter and every fitted attribute is described."""

import doctest
import importlib.util
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
from sklearn.datasets import load_iris

import annealed
from annealed.problems import Quadratic

ROOT = Path(annealed.__file__).parent
PUBLIC = [getattr(annealed, name) for name in annealed.__all__]
PUBLISHED = [annealed.AnnealedLogisticRegression, annealed.AnnealedLDA, annealed.MELDA, annealed.PottsDA]
ESTIMATORS = [public for public in PUBLIC if hasattr(public, "fit")]
WITH_EXAMPLES = [
    module.name
    for module in pkgutil.walk_packages([str(ROOT)], "annealed.")
    if ">>>" in (importlib.util.find_spec(module.name).loader.get_source(module.name) or "")
]


def section(public, title):
    """Lines of a section of a docstring, or none if there is no such section."""
    parts = re.split(r"^(.+)\n-{3,}\n", inspect.getdoc(public), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True)).get(title, "").splitlines()


def names_of(lines):
    """Names that a section describes, in order."""
    heads = [line.partition(" : ")[0] for line in lines if line and not line.startswith(" ")]
    return [name.strip() for head in heads for name in head.split(",")]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_print_what_they_show(name):
    if name.startswith("annealed.plots"):
        pytest.importorskip("matplotlib").use("Agg")
    assert doctest.testmod(importlib.import_module(name)).failed == 0
    if name.startswith("annealed.plots"):
        importlib.import_module("matplotlib.pyplot").close("all")


@pytest.mark.parametrize("public", PUBLIC, ids=lambda public: public.__name__)
def test_public_classes_have_an_example(public):
    assert any(">>>" in line for line in section(public, "Examples"))


@pytest.mark.parametrize("public", PUBLIC, ids=lambda public: public.__name__)
def test_parameters_are_described_in_the_order_of_the_signature(public):
    parameters = section(public, "Parameters") + section(public, "Other Parameters")
    described = names_of(parameters) or names_of(section(public, "Attributes"))
    assert described == list(inspect.signature(public).parameters)


@pytest.mark.parametrize("estimator", PUBLISHED, ids=lambda estimator: estimator.__name__)
def test_published_algorithms_name_their_deviations(estimator):
    assert "as_published" in vars(estimator)
    _, _, deviations = inspect.getdoc(estimator.as_published).partition("It differs from the ")
    assert deviations.count("\n- ") >= 3


def test_only_published_algorithms_have_as_published():
    with_it = [public for public in PUBLIC if hasattr(public, "as_published")]
    assert with_it == [public for public in PUBLIC if public in PUBLISHED]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_fitted_attributes_are_described(estimator):
    pandas = pytest.importorskip("pandas")
    X, y = load_iris(return_X_y=True)
    models = [estimator().fit(pandas.DataFrame(X, columns=list("abcd")), y)]
    if estimator is annealed.AnnealedClassifier:
        models.append(estimator(Quadratic()).fit(X, y))
    described = set(names_of(section(estimator, "Attributes")))
    for model in models:
        assert {name for name in dir(model) if re.fullmatch(r"[a-z]\w*[a-z]_", name)} <= described
    assert all(hasattr(models[0], name) for name in described)
