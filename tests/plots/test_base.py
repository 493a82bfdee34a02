import numpy as np
import pytest

from annealed import (
    MELDA,
    AnnealedLogisticRegression,
    CoefficientPathDisplay,
    PottsDA,
    ProjectionDisplay,
    PrototypeDisplay,
)
from annealed.plots.base import as_written

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
pyplot = pytest.importorskip("matplotlib.pyplot")
pandas = pytest.importorskip("pandas")

NAMES = ["_hidden", "$5 to $10", r"$\no formula$"]  # left out of legends, a formula, and no formula at all


@pytest.fixture(scope="module")
def rows():
    X = pandas.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=NAMES)
    return X, np.array(NAMES)[X.to_numpy().argmax(axis=1)]


def projection(X, y):
    return ProjectionDisplay.from_estimator(MELDA(temperature=0.1).fit(X, y), X, y)


def strips(X, y):
    return ProjectionDisplay.from_estimator(MELDA(temperature=0.1, n_components=1).fit(X, y), X, y)


def prototypes(X, y):
    X = X.iloc[:, 1:]  # two features, which name the axes
    model = PottsDA(3, shrinkage="oas", refine=False).fit(X, y)
    return PrototypeDisplay.from_estimator(model, X, y, grid_resolution=40)


def coefficients(X, y):
    return CoefficientPathDisplay.from_estimator(
        AnnealedLogisticRegression(temperature=0.1).fit(X, y), X=X, label=NAMES[1]
    )


@pytest.mark.parametrize("draw", [projection, strips, prototypes, coefficients])
def test_names_are_drawn_literally(rows, draw):
    display = draw(*rows)
    display.figure_.canvas.draw()  # where matplotlib parses formulas
    legend = display.ax_.get_legend()
    shown = legend.get_texts() if legend else display.ax_.get_yticklabels()
    assert {as_written(name) for name in NAMES} <= {text.get_text() for text in shown}


@pytest.mark.parametrize("draw", [projection, strips, prototypes])
def test_regions_are_an_image_whose_cells_are_centred_on_the_grid(rows, draw):
    """A mesh would make a polygon for every point when matplotlib looks for the best position of the legend."""
    display = draw(*rows)
    (image,) = display.ax_.images
    left, right, _, _ = image.get_extent()
    half = (display.grid[0][1] - display.grid[0][0]) / 2
    np.testing.assert_allclose([left, right], [display.grid[0][0] - half, display.grid[0][-1] + half])


def test_legends_of_many_classes_stay_inside_the_picture():
    classes = np.arange(40)
    places = np.random.default_rng(0).normal(size=(40, 2))
    grid = (np.linspace(-3, 3, 5), np.linspace(-3, 3, 5))
    cells = np.zeros((5, 5), dtype=int)
    of_prototypes = PrototypeDisplay(
        rows=places,
        y=classes,
        prototypes=places,
        prototype_labels=np.eye(40),
        classes=classes,
        ellipse=places,
        grid=grid,
        cells=cells,
    )
    for display in (ProjectionDisplay(projected=places, y=classes, classes=classes), of_prototypes):
        figure = display.plot().figure_
        figure.canvas.draw()
        assert display.ax_.get_legend().get_window_extent().height < figure.bbox.height
