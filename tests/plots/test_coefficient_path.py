import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.pipeline import make_pipeline

from annealed import (
    MELDA,
    AnnealedClassifier,
    AnnealedLogisticRegression,
    AnnealingPathDisplay,
    CoefficientPathDisplay,
    PottsDA,
    SecondOrderFeatures,
)
from annealed.problems import Quadratic

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
pyplot = pytest.importorskip("matplotlib.pyplot")
X, y = load_wine(return_X_y=True)


@pytest.fixture(scope="module")
def model():
    return AnnealedLogisticRegression().fit(X, y)


def test_strongest_features_are_named_in_order():
    display = CoefficientPathDisplay(
        temperatures=[1.0, 0.1], coef=[[0, 0, 0], [1, -3, 2]], best_index=1, feature_names=["a", "b", "c"], n_named=2
    ).plot()
    assert list(display.lines_) == ["b", "c"]
    assert len(display.quiet_lines_) == 1
    np.testing.assert_allclose(display.lines_["b"].get_ydata(), [0, -3])
    assert display.ax_.xaxis_inverted()


def test_a_single_temperature_is_drawn_as_points():
    display = CoefficientPathDisplay(temperatures=[0.1], coef=[[1, -3]], best_index=0, n_named=1).plot()
    display.figure_.canvas.draw()
    assert [line.get_marker() for line in [*display.lines_.values(), *display.quiet_lines_]] == ["o", "o"]
    np.testing.assert_allclose(display.ax_.get_xlim(), [1, 0.01])


def test_curves_are_those_of_the_logits(model):
    display = CoefficientPathDisplay.from_estimator(model, label=1, n_named=13)
    chosen = model.path_.best_index
    expected = model.coef_[1] - model.coef_.mean(axis=0)
    drawn = {name: line.get_ydata()[chosen] for name, line in display.lines_.items()}
    np.testing.assert_allclose([drawn[f"feature {feature}"] for feature in range(13)], expected)


def test_two_classes_and_many():
    two = load_breast_cancer(as_frame=True)
    binary = AnnealedLogisticRegression().fit(two.data, two.target)
    display = CoefficientPathDisplay.from_estimator(binary)
    (name, line), *_ = display.lines_.items()
    place = list(two.data.columns).index(name)
    np.testing.assert_allclose(line.get_ydata()[binary.path_.best_index], binary.coef_[0, place])
    assert "class 1" in display.ax_.get_ylabel()


@pytest.mark.parametrize(("label", "sign"), [(None, 1), ("yes", 1), ("no", -1)])
def test_each_of_two_classes_is_drawn_relative_to_the_other(label, sign):
    """As in coef_, whichever class is given."""
    two = X[y < 2], np.array(["no", "yes"])[y[y < 2]]
    binary = AnnealedLogisticRegression().fit(*two)
    display = CoefficientPathDisplay.from_estimator(binary, label=label)
    np.testing.assert_allclose(display.coef[binary.path_.best_index], sign * binary.coef_[0])
    assert f"class {label or 'yes'}" in display.ax_.get_ylabel()


def test_many_classes_are_drawn_as_norms(model):
    display = CoefficientPathDisplay.from_estimator(model)
    assert "norm over classes" in display.ax_.get_ylabel()
    assert min(line.get_ydata().min() for line in display.lines_.values()) >= 0


def test_units_do_not_matter_if_samples_are_given(model):
    rescaled = X * np.logspace(-3, 3, X.shape[1])
    other = AnnealedLogisticRegression().fit(rescaled, y)
    dense = CoefficientPathDisplay.from_estimator(model, X=X, label=0)
    units = CoefficientPathDisplay.from_estimator(other, X=rescaled, label=0)
    sparse_rows = CoefficientPathDisplay.from_estimator(model, X=sparse.csr_array(X), label=0)
    assert list(dense.lines_) == list(units.lines_) == list(sparse_rows.lines_)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.float32])
def test_standard_deviations_of_sparse_samples_of_small_dtypes(dtype):
    counts = np.random.RandomState(0).poisson(30, (60, 4)).astype(dtype)
    model = AnnealedLogisticRegression().fit(counts, np.arange(60) % 3)
    dense, stored = (
        CoefficientPathDisplay.from_estimator(model, X=rows).coef for rows in (counts, sparse.csr_array(counts))
    )
    np.testing.assert_allclose(stored, dense)
    assert np.abs(stored).max() > 0


def test_names_of_products():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X[:, :2], columns=["a", "b"])
    model = AnnealedClassifier(Quadratic()).fit(frame, y)
    display = CoefficientPathDisplay.from_estimator(model)
    expected = SecondOrderFeatures().fit(frame).get_feature_names_out()
    assert display.feature_names == ["a", "b", "a^2", "a b", "b^2"]
    assert set(display.lines_) == {"a", "b", *expected}
    with pytest.raises(ValueError, match=r"X must have 5 features, .* Got shape \(178, 2\)"):
        CoefficientPathDisplay.from_estimator(model, X=frame)


def test_melda_shows_the_path_of_its_classifier():
    melda = MELDA(penalty_scaling="standardize").fit(X, y)
    assert CoefficientPathDisplay.from_estimator(melda, n_named=2).lines_
    assert AnnealingPathDisplay.from_estimator(melda).lines_


def test_mistakes_are_explained(model):
    with pytest.raises(ValueError, match=r"label must be a class of the model. Got 'red', known: \[0, 1, 2\]"):
        CoefficientPathDisplay.from_estimator(model, label="red")
    with pytest.raises(ValueError, match="needs a fitted annealed classifier of a linear family"):
        CoefficientPathDisplay.from_estimator(AnnealedLogisticRegression())
    with pytest.raises(ValueError, match=r"Give its last step, pipeline\[-1\]"):
        CoefficientPathDisplay.from_estimator(make_pipeline(model))
    with pytest.raises(ValueError, match="feature_names must name 13 features. Got 2 names"):
        CoefficientPathDisplay.from_estimator(model, feature_names=["a", "b"])


@pytest.mark.parametrize("rows", [X[:, :1], X[0], sparse.csr_array(X[:, :5])], ids=["one column", "a row", "sparse"])
def test_samples_with_other_features_are_refused(model, rows):
    with pytest.raises(ValueError, match="X must have 13 features, one for each coefficient of a class. Got shape"):
        CoefficientPathDisplay.from_estimator(model, X=rows)


@pytest.mark.parametrize(
    "estimator", [AnnealedLogisticRegression(), MELDA(penalty_scaling="standardize")], ids=["classifier", "melda"]
)
def test_features_in_another_order_are_refused(estimator):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X[:, :4], columns=list("abcd"))
    model = estimator.fit(frame, y)
    assert CoefficientPathDisplay.from_estimator(model, X=frame).lines_
    with pytest.raises(ValueError, match="feature names should match"):
        CoefficientPathDisplay.from_estimator(model, X=frame[list("dcba")])


def test_prototypes_have_no_coefficients():
    with pytest.raises(ValueError, match="needs a fitted annealed classifier of a linear family"):
        CoefficientPathDisplay.from_estimator(PottsDA(3, refine=False).fit(X, y))


def test_names_of_a_series_are_taken_by_position(model):
    pandas = pytest.importorskip("pandas")
    names = pandas.Series([f"f{number}" for number in range(13)], index=range(13, 0, -1))
    by_position = CoefficientPathDisplay.from_estimator(model, feature_names=names.tolist())
    assert list(CoefficientPathDisplay.from_estimator(model, feature_names=names).lines_) == list(by_position.lines_)
