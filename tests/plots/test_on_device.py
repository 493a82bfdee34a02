"""Displays of models that were fitted on a device: what they draw is copied to the host."""

import numpy as np
import pytest
from devices import table

from annealed import (
    MELDA,
    AnnealedLogisticRegression,
    AnnealingPathDisplay,
    CoefficientPathDisplay,
    PottsDA,
    ProjectionDisplay,
    PrototypeDisplay,
)

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
pytestmark = pytest.mark.usefixtures("dispatch")


@pytest.mark.parametrize("n_components", [1, 2])
def test_reductions_are_drawn_as_those_of_numpy(move, n_components):
    X, y = table()
    plain = ProjectionDisplay.from_estimator(MELDA(n_components, temperature=0.1).fit(X, y), X, y)
    model = MELDA(n_components, temperature=0.1).fit(move(X), move(y))
    moved = ProjectionDisplay.from_estimator(model, move(X), move(y))
    np.testing.assert_allclose(moved.projected, plain.projected, atol=1e-2)
    assert moved.component_names == plain.component_names


def test_linear_classifiers_are_drawn_as_those_of_numpy(move):
    X, y = table()
    settings = {"schedule": [1.0, 0.1], "selection": "last", "calibrate": False}
    plain = ProjectionDisplay.from_estimator(AnnealedLogisticRegression(**settings).fit(X, y), X, y)
    model = AnnealedLogisticRegression(**settings).fit(move(X), move(y))
    moved = ProjectionDisplay.from_estimator(model, move(X), move(y))
    np.testing.assert_allclose(moved.projected, plain.projected, atol=1e-2)
    assert moved.component_names == plain.component_names


def test_paths_and_their_coefficients(move):
    X, y = (move(array) for array in table())
    model = MELDA(temperature=0.1).fit(X, y)
    AnnealingPathDisplay.from_estimator(model)
    for rows, label in ((None, None), (X, 1)):
        display = CoefficientPathDisplay.from_estimator(model, X=rows, label=label)
        assert all(np.isfinite(line.get_ydata()).all() for line in display.lines_.values())


def test_prototypes(move):
    X, y = (move(array) for array in table())
    model = PottsDA(4).fit(X, y)
    display = PrototypeDisplay.from_estimator(model, X, y)
    assert len(display.ellipses_) == model.prototypes_.shape[0]
