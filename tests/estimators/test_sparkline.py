"""The curve in a notebook: well-formed, inside its box, and below scikit-learn's diagram."""

import xml.etree.ElementTree as tree

import numpy as np
import pytest
from sklearn import config_context
from sklearn.datasets import load_iris

from annealed import MELDA, AnnealedLDA, AnnealedLogisticRegression
from annealed.estimators.sparkline import HEIGHT, WIDTH, sparkline

X, y = load_iris(return_X_y=True)


def drawn(html):
    root = tree.fromstring(html)
    points = np.array([pair.split(",") for pair in root.find(".//polyline").get("points").split()], dtype=float)
    return points, root.find(".//circle"), root.find("span").text


def test_curve_lies_in_its_box_and_marks_the_chosen_point():
    points, circle, words = drawn(sparkline([10.0, 1.0, 0.1], [3.0, 1.0, 2.0], 1, "loss & <co>"))
    assert (points > 0).all() and (points < [WIDTH, HEIGHT]).all()
    assert np.allclose(points[1], [WIDTH / 2, points[:, 1].max()])
    assert [float(circle.get("cx")), float(circle.get("cy"))] == points[1].tolist()
    assert words == "loss & <co> 1 at the chosen temperature 1; 3 temperatures, hot to cold"


def test_a_path_of_one_temperature():
    points, *_ = drawn(sparkline([1.0], [2.0], 0, "loss"))
    assert points.tolist() == [[WIDTH / 2, HEIGHT / 2]]


@pytest.mark.parametrize("estimator", [AnnealedLogisticRegression(), AnnealedLDA(selection="last"), MELDA()], ids=repr)
def test_fitted_estimators_show_the_curve_in_notebooks(estimator):
    assert "<polyline" not in estimator._repr_html_()
    html = estimator.fit(X, y)._repr_html_()
    assert "sk-top-container" in html
    assert "log loss" in html.split("<polyline")[1]
    assert estimator._repr_mimebundle_()["text/html"].count("<polyline") == 1


def test_no_curve_if_diagrams_are_disabled():
    with config_context(display="text"):
        assert not hasattr(AnnealedLogisticRegression(), "_repr_html_")
