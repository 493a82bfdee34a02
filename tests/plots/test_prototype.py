import numpy as np
import pytest
from sklearn import config_context
from sklearn.datasets import load_iris

from annealed import PottsDA, PrototypeDisplay
from annealed.datasets import make_xor_means

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
pyplot = pytest.importorskip("matplotlib.pyplot")

QUICK = {"shrinkage": "oas", "refine": False}


@pytest.fixture(scope="module")
def fitted():
    X, y = make_xor_means(200, random_state=0)
    return PottsDA(4, **QUICK).fit(X, y), X, y


def test_cells_are_those_of_the_estimator(fitted):
    model, X, y = fitted
    display = PrototypeDisplay.from_estimator(model, X, y, grid_resolution=21)
    points = np.stack(np.meshgrid(*display.grid), axis=-1).reshape(-1, 2)
    np.testing.assert_array_equal(display.cells.ravel(), model.apply(points))
    assert len(display.borders_) == len(np.unique(display.cells))
    drawn = display.cells_.get_array().reshape(21, 21)
    np.testing.assert_array_equal(drawn, model.prototype_labels_.argmax(axis=1)[display.cells])


@pytest.mark.parametrize("wrong", [1, 2.5, "fine"])
def test_a_grid_needs_two_positions(fitted, wrong):
    with pytest.raises(ValueError, match=f"grid_resolution must be a whole number of at least 2. Got {wrong!r}"):
        PrototypeDisplay.from_estimator(*fitted, grid_resolution=wrong)


def test_cells_far_from_the_origin():
    X, y = make_xor_means(200, random_state=0)
    X = X + 1e8
    model = PottsDA(4, **QUICK).fit(X, y)
    display = PrototypeDisplay.from_estimator(model, X, y, grid_resolution=21)
    points = np.stack(np.meshgrid(*display.grid), axis=-1).reshape(-1, 2)
    np.testing.assert_array_equal(display.cells.ravel(), model.apply(points))


def test_the_ellipse_has_no_width_along_a_constant_feature():
    X, y = make_xor_means(200, random_state=0)
    X[:, 1] = 3.0
    model = PottsDA(4, **QUICK).fit(X, y)
    display = PrototypeDisplay.from_estimator(model, X, y, grid_resolution=11)
    np.testing.assert_array_equal(display.ellipse[:, 1], 0)
    assert display.ellipse[:, 0].max() == pytest.approx(model.metric_[0, 0] ** -0.5, rel=1e-3)
    display.figure_.canvas.draw()


def test_features_may_be_in_any_units():
    X, y = make_xor_means(200, random_state=0)
    X = np.column_stack([X, np.random.default_rng(0).normal(size=200)])
    plain, scaled = (
        PrototypeDisplay.from_estimator(PottsDA(4, **QUICK).fit(rows, y), rows, y, grid_resolution=11).rows
        for rows in (X, X * [1e-8, 1e8, 1.0])
    )
    apart = [np.linalg.norm(rows[:, None] - rows, axis=2) for rows in (plain, scaled)]
    np.testing.assert_allclose(*apart, rtol=1e-6, atol=1e-6)


def test_draws_samples_prototypes_and_ellipses(fitted):
    model, X, y = fitted
    display = PrototypeDisplay.from_estimator(model, X, y, grid_resolution=11)
    np.testing.assert_allclose(display.points_[1].get_offsets(), X[y == 1])
    owners = model.prototype_labels_.argmax(axis=1)
    np.testing.assert_allclose(display.prototypes_[0].get_offsets(), model.prototypes_[owners == 0])
    for prototype, line in zip(model.prototypes_, display.ellipses_, strict=True):
        offset = np.column_stack(line.get_data()) - prototype
        squares = np.einsum("nd,de,ne->n", offset, model.metric_, offset)
        np.testing.assert_allclose(squares, 1)
    assert display.ax_.get_xlabel() == "column 0"
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == ["0", "1"]


def test_more_features_are_drawn_in_the_leading_metric_directions():
    X, y = load_iris(return_X_y=True)
    model = PottsDA(5, **QUICK).fit(X, y)
    display = PrototypeDisplay.from_estimator(model, X, y, grid_resolution=11)
    assert display.ax_.get_xlabel() == "metric direction 1"
    flat = np.linalg.norm(display.prototypes[:, None] - display.prototypes, axis=2)
    offset = model.prototypes_[:, None] - model.prototypes_
    true = np.sqrt(np.einsum("jkd,de,jke->jk", offset, model.metric_, offset))
    assert (flat <= true + 1e-9).all() and flat.sum() > 0.8 * true.sum()
    display.figure_.canvas.draw()


def test_a_single_feature_and_a_single_prototype():
    X, y = np.arange(10.0)[:, None], np.arange(10) % 2
    model = PottsDA(1, init="mean", **QUICK).fit(X, y)
    display = PrototypeDisplay.from_estimator(model, X, y, grid_resolution=5)
    assert display.borders_ == []
    display.figure_.canvas.draw()


def test_draws_on_given_axes(fitted):
    _, ax = pyplot.subplots()
    display = PrototypeDisplay.from_estimator(*fitted, grid_resolution=5, ax=ax)
    assert display.ax_ is ax and display.figure_ is ax.figure


def test_needs_prototypes():
    with pytest.raises(TypeError, match="needs a fitted PottsDA. Got 'no estimator'"):
        PrototypeDisplay.from_estimator("no estimator", [[0.0]], [0])


def test_labels_that_would_not_be_drawn_are_refused(fitted):
    model, X, y = fitted
    with pytest.raises(ValueError, match=r"y must hold classes of the estimator. Got '[01]', known: \[0, 1\]"):
        PrototypeDisplay.from_estimator(model, X, y.astype(str))
    with pytest.raises(ValueError, match=r"one class for each of 200 samples. Got an array of shape \(199,\)"):
        PrototypeDisplay.from_estimator(model, X, y[1:])


def test_samples_must_have_the_features_of_the_estimator():
    pandas = pytest.importorskip("pandas")
    X, y = load_iris(return_X_y=True)
    frame = pandas.DataFrame(X, columns=list("abcd"))
    model = PottsDA(3, **QUICK).fit(frame, y)
    assert PrototypeDisplay.from_estimator(model, frame, y, grid_resolution=5).rows.shape == (150, 2)
    with pytest.raises(ValueError, match="feature names should match"):
        PrototypeDisplay.from_estimator(model, frame[list("dcba")], y)
    with pytest.raises(ValueError, match="X has 3 features, but PottsDA is expecting 4"):
        PrototypeDisplay.from_estimator(PottsDA(3, **QUICK).fit(X, y), X[:, :3], y)


@pytest.mark.parametrize("n_columns", [2, 4])
def test_samples_of_another_library_are_drawn(n_columns, move):
    X, y = load_iris(return_X_y=True)
    X = X[:, :n_columns]
    plain = PrototypeDisplay.from_estimator(PottsDA(3, **QUICK).fit(X, y), X, y, grid_resolution=5)
    with config_context(array_api_dispatch=True):
        model = PottsDA(3, **QUICK).fit(move(X), move(y))
        moved = PrototypeDisplay.from_estimator(model, move(X), move(y), grid_resolution=5)
    np.testing.assert_array_equal(moved.cells, plain.cells)
    np.testing.assert_allclose(moved.points_[1].get_offsets(), plain.points_[1].get_offsets())
