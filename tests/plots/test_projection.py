from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from annealed import MELDA, AnnealedClassifier, AnnealedLDA, AnnealedLogisticRegression, PooledGaussian, PottsDA
from annealed.datasets import make_gaussian_classes
from annealed.plots import ProjectionDisplay
from annealed.problems import Distance, Quadratic

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(scope="module")
def fitted():
    X, y = load_iris(return_X_y=True)
    return MELDA(temperature=0.1).fit(X, y), X, y


def test_draws_the_arrays_it_was_given():
    projected = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    display = ProjectionDisplay(projected=projected, y=["b", "a", "b"], classes=["a", "b"]).plot()
    of_a, of_b = (points.get_offsets() for points in display.points_)
    np.testing.assert_array_equal(of_a, projected[[1]])
    np.testing.assert_array_equal(of_b, projected[[0, 2]])
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == ["a", "b"]
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("component 1", "component 2")
    assert display.regions_ is None


def test_regions_are_what_the_estimator_predicts_there(fitted):
    """At all points of the grid, for samples that project there."""
    model, X, y = fitted
    display = ProjectionDisplay.from_estimator(model, X, y, grid_resolution=23)
    points = np.stack(np.meshgrid(*display.grid), axis=-1).reshape(-1, 2)
    predicted = model.predict(model.inverse_transform(points))
    np.testing.assert_array_equal(model.classes_[display.regions.ravel()], predicted)
    assert display.regions_.get_array().shape == (23, 23)
    assert len(np.unique(display.regions)) == 3


@pytest.mark.parametrize("units", [np.logspace(-6, 6, 4), np.logspace(6, -6, 4)], ids=["rising", "falling"])
def test_regions_are_right_with_features_in_very_different_units(fitted, units):
    _, X, y = fitted
    model = MELDA(coordinates="orthonormal", temperature=0.1).fit(X * units, y)
    display = ProjectionDisplay.from_estimator(model, X * units, y, grid_resolution=9)
    points = np.stack(np.meshgrid(*display.grid), axis=-1).reshape(-1, 2)
    predicted = model.predict(model.inverse_transform(points))
    np.testing.assert_array_equal(model.classes_[display.regions.ravel()], predicted)


def test_regions_are_those_of_the_kept_components():
    made = make_gaussian_classes(120, 5, 5, separation=3.0, random_state=0)
    model = MELDA(2, temperature=0.01).fit(made.X, made.y)
    display = ProjectionDisplay.from_estimator(model, made.X, made.y, grid_resolution=9)
    points = np.stack(np.meshgrid(*display.grid), axis=-1).reshape(-1, 2)
    predicted = model.predict(model.inverse_transform(points))
    np.testing.assert_array_equal(model.classes_[display.regions.ravel()], predicted)


def test_the_grid_covers_the_samples(fitted):
    model, X, y = fitted
    display = ProjectionDisplay.from_estimator(model, X, y)
    for column, axis in zip(display.projected.T, display.grid, strict=True):
        assert axis[0] < column.min() and axis[-1] > column.max()


def test_axis_labels_show_the_information(fitted):
    display = ProjectionDisplay.from_estimator(*fitted)
    share = fitted[0].explained_information_ratio_[1]
    assert display.ax_.get_ylabel() == f"melda1 ({share:.0%} of the information)"


def test_two_classes_are_strips(fitted):
    _, X, y = fitted
    X, y = X[y > 0], np.array(["versicolor", "virginica"])[y[y > 0] - 1]
    model = MELDA(temperature=0.1).fit(X, y)
    display = ProjectionDisplay.from_estimator(model, X, y, grid_resolution=31)
    for position, points in enumerate(display.points_):
        along, across = np.asarray(points.get_offsets()).T
        np.testing.assert_allclose(along, model.transform(X)[y == model.classes_[position], 0])
        assert np.abs(across - position).max() < 0.5
    predicted = model.predict(model.inverse_transform(display.grid[0][:, None]))
    np.testing.assert_array_equal(model.classes_[display.regions], predicted)
    assert [text.get_text() for text in display.ax_.get_yticklabels()] == ["versicolor", "virginica"]


@pytest.mark.parametrize("n_classes", [4, 30])
def test_the_first_two_of_many_components_are_drawn_without_regions(n_classes):
    y = np.arange(3 * n_classes) % n_classes
    X = np.eye(n_classes)[y] + 0.3 * np.random.RandomState(0).standard_normal((len(y), n_classes))
    model = MELDA(temperature=0.1).fit(X, y)
    display = ProjectionDisplay.from_estimator(model, X, y)
    assert display.regions is None and display.regions_ is None
    drawn = np.vstack([points.get_offsets() for points in display.points_])
    order = np.argsort(y, kind="stable")
    np.testing.assert_allclose(drawn, model.transform(X)[order, :2])
    looks = {(tuple(points.get_facecolor()[0]), points.get_paths()[0].vertices.tobytes()) for points in display.points_}
    assert len(looks) == n_classes
    display.figure_.canvas.draw()


# --- linear classifiers without a transform ----------------------------------------------------------------------

QUICK = {"temperature": 0.1}
LINEAR = [
    AnnealedLogisticRegression(**QUICK),
    AnnealedLDA(**QUICK),
    AnnealedClassifier(**QUICK),
    AnnealedClassifier(Distance(), **QUICK),
    PooledGaussian(),
    LogisticRegression(max_iter=5000),
    RidgeClassifier(),
]


def samples_on_the_grid(display, X):
    """Samples that the projection sends to the points of the grid: the shortest steps from the mean of X."""
    centred = X - X.mean(axis=0)
    projected = display.projected - display.projected.mean(axis=0)
    directions = np.linalg.lstsq(centred, projected, rcond=None)[0]
    np.testing.assert_allclose(centred @ directions, projected, atol=1e-6 * np.abs(projected).max())
    points = np.stack(np.meshgrid(*display.grid), axis=-1).reshape(-1, len(display.grid))
    return X.mean(axis=0) + (points - display.projected.mean(axis=0)) @ np.linalg.pinv(directions)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "estimator", LINEAR, ids=lambda classifier: f"{type(classifier).__name__}-{getattr(classifier, 'objective', '')}"
)
def test_a_linear_classifier_is_drawn_along_the_directions_of_its_logits(estimator, n_classes):
    X, y = load_iris(return_X_y=True)
    X, y = X[y < n_classes], np.array(["setosa", "versicolor", "virginica"])[y[y < n_classes]]
    model = clone(estimator).fit(X, y)
    display = ProjectionDisplay.from_estimator(model, X, y, grid_resolution=23)
    assert len(display.component_names) == n_classes - 1
    assert display.ax_.get_xlabel().startswith("discriminant direction 1")
    predicted = model.predict(samples_on_the_grid(display, X))
    np.testing.assert_array_equal(model.classes_[display.regions.ravel()], predicted)


def test_a_linear_classifier_is_drawn_as_melda_draws_it(fitted):
    melda, X, y = fitted
    mine = ProjectionDisplay.from_estimator(melda, X, y)
    logistic = ProjectionDisplay.from_estimator(AnnealedLogisticRegression(temperature=0.1).fit(X, y), X, y)
    np.testing.assert_allclose(logistic.projected, mine.projected, atol=1e-8 * np.abs(mine.projected).max())
    np.testing.assert_array_equal(logistic.regions, mine.regions)


def test_sparse_samples_of_a_linear_classifier(fitted):
    _, X, y = fitted
    model = AnnealedLogisticRegression(temperature=0.1).fit(sparse.csr_array(X), y)
    stored = ProjectionDisplay.from_estimator(model, sparse.csr_array(X), y)
    dense = ProjectionDisplay.from_estimator(model, X, y)
    np.testing.assert_allclose(stored.projected, dense.projected, atol=1e-9 * np.abs(dense.projected).max())


def test_a_class_of_prior_zero_has_no_region(fitted):
    _, X, y = fitted
    display = ProjectionDisplay.from_estimator(PooledGaussian(priors=[1, 0, 1]).fit(X, y), X, y)
    assert np.unique(display.regions).tolist() == [0, 2]


# --- other reductions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_regions_of_lda_are_what_it_predicts_there(n_classes):
    X, y = load_iris(return_X_y=True)
    X, y = X[y < n_classes], y[y < n_classes]
    model = make_pipeline(StandardScaler(), LinearDiscriminantAnalysis()).fit(X, y)
    display = ProjectionDisplay.from_estimator(model, X, y, grid_resolution=23)
    np.testing.assert_array_equal(display.projected, model.transform(X))
    predicted = model.predict(samples_on_the_grid(display, X))
    np.testing.assert_array_equal(model.classes_[display.regions.ravel()], predicted)


def test_no_regions_if_the_drawn_components_do_not_determine_the_class(fitted):
    _, X, y = fitted
    display = ProjectionDisplay.from_estimator(LinearDiscriminantAnalysis(n_components=1).fit(X, y), X, y)
    assert display.regions is None and len(display.points_) == 3


def test_a_reduction_without_names_or_classes():
    reduction = SimpleNamespace(transform=lambda X: X[:, :2])
    display = ProjectionDisplay.from_estimator(reduction, np.zeros((2, 3)), [0, 1])
    assert display.ax_.get_xlabel() == "component 1"


def test_samples_at_a_single_point(fitted):
    model, X, y = fitted
    display = ProjectionDisplay.from_estimator(model, X[:1], y[:1], grid_resolution=5)
    display.figure_.canvas.draw()


def test_draws_on_given_axes(fitted):
    _, ax = pyplot.subplots()
    display = ProjectionDisplay.from_estimator(*fitted, ax=ax)
    assert display.ax_ is ax and display.figure_ is ax.figure


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        ("no estimator", "needs a fitted linear classifier, .* or a reduction .* Got 'no estimator'. Call fit on it"),
        (LinearRegression(), r"needs a fitted linear classifier.* Got LinearRegression\(\)"),
        (KNeighborsClassifier(), r"needs a fitted linear classifier.* Got KNeighborsClassifier\(\)"),
        (AnnealedClassifier(Quadratic(), **QUICK), "needs a classifier that is linear in the features of X"),
        (SVC(kernel="linear"), "whose decision_function is not X @ coef_.T"),
        (PottsDA(3, shrinkage="oas", refine=False), "Got PottsDA.*Draw it with PrototypeDisplay"),
        (make_pipeline(StandardScaler(), LogisticRegression()), r"its last step .* pipeline\[:-1\].transform\(X\)"),
    ],
    ids=["text", "regression", "neighbours", "quadratic", "pairwise", "prototypes", "pipeline"],
)
def test_what_is_not_linear_is_refused(fitted, estimator, message):
    _, X, y = fitted
    model = estimator.fit(X, y) if hasattr(estimator, "fit") else estimator
    with pytest.raises(TypeError, match=message):
        ProjectionDisplay.from_estimator(model, X, y)
    assert not pyplot.get_fignums()


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (
            np.array(["0", "1", "2"])[load_iris().target],
            r"y must hold classes of the estimator. Got '0', known: \[0, 1, 2",
        ),
        (load_iris().target + 1, "Got 3, known"),
        (load_iris().target[:-1], r"one class for each of 150 samples. Got an array of shape \(149,\)"),
        (load_iris().target[:, None], r"Got an array of shape \(150, 1\)"),
    ],
    ids=["texts", "one unknown", "too short", "a column"],
)
def test_labels_that_would_not_be_drawn_are_refused(fitted, labels, sentence):
    model, X, _ = fitted
    with pytest.raises(ValueError, match=sentence):
        ProjectionDisplay.from_estimator(model, X, labels)
    assert not pyplot.get_fignums()
