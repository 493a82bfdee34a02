import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_wine

from annealed import MELDA, AnnealingPathDisplay, CoefficientPathDisplay, InnerProductADA

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
pyplot = pytest.importorskip("matplotlib.pyplot")
X, y = load_wine(return_X_y=True)


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def model():
    return InnerProductADA().fit(X, y)


def test_strongest_features_are_named_in_order():
    display = CoefficientPathDisplay(
        temperatures=[1.0, 0.1], coef=[[0, 0, 0], [1, -3, 2]], best_index=1, feature_names=["a", "b", "c"], n_named=2
    ).plot()
    assert list(display.lines_) == ["b", "c"]
    assert len(display.quiet_lines_) == 1
    np.testing.assert_allclose(display.lines_["b"].get_ydata(), [0, -3])
    assert display.ax_.xaxis_inverted()


def test_curves_are_those_of_the_logits(model):
    display = CoefficientPathDisplay.from_estimator(model, label=1, n_named=13)
    chosen = model.path_.best_index
    expected = model.coef_[1] - model.coef_.mean(axis=0)
    drawn = {name: line.get_ydata()[chosen] for name, line in display.lines_.items()}
    np.testing.assert_allclose([drawn[f"feature {own}"] for own in range(13)], expected)


def test_two_classes_and_many():
    two = load_breast_cancer(as_frame=True)
    binary = InnerProductADA().fit(two.data, two.target)
    display = CoefficientPathDisplay.from_estimator(binary)
    (name, line), *_ = display.lines_.items()
    place = list(two.data.columns).index(name)
    np.testing.assert_allclose(line.get_ydata()[binary.path_.best_index], binary.coef_[0, place])
    assert "for 1" in display.ax_.get_ylabel()


def test_many_classes_have_lengths(model):
    display = CoefficientPathDisplay.from_estimator(model)
    assert "length over classes" in display.ax_.get_ylabel()
    assert min(line.get_ydata().min() for line in display.lines_.values()) >= 0


def test_units_do_not_matter_where_rows_are_given(model):
    rescaled = X * np.logspace(-3, 3, X.shape[1])
    other = InnerProductADA().fit(rescaled, y)
    dense = CoefficientPathDisplay.from_estimator(model, X=X, label=0)
    units = CoefficientPathDisplay.from_estimator(other, X=rescaled, label=0)
    sparse_rows = CoefficientPathDisplay.from_estimator(model, X=sparse.csr_array(X), label=0)
    assert list(dense.lines_) == list(units.lines_) == list(sparse_rows.lines_)


def test_melda_shows_the_path_of_its_classifier():
    melda = MELDA(metric="diagonal").fit(X, y)
    assert CoefficientPathDisplay.from_estimator(melda, n_named=2).lines_
    assert AnnealingPathDisplay.from_estimator(melda).lines_


def test_mistakes_are_named(model):
    with pytest.raises(ValueError, match="label must be a class of the model. Got 'red'"):
        CoefficientPathDisplay.from_estimator(model, label="red")
    with pytest.raises(ValueError, match="needs a fitted annealed classifier of a linear family"):
        CoefficientPathDisplay.from_estimator(InnerProductADA())
