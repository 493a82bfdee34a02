from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_wine, make_moons
from sklearn.inspection import DecisionBoundaryDisplay
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from annealed import (
    AnnealedKernelClassifier,
    AnnealedLogisticRegression,
    AnnealingPathDisplay,
    KernelSearchDisplay,
    PottsDA,
)

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
pyplot = pytest.importorskip("matplotlib.pyplot")

T = np.array([1.0, 0.1, 0.01])


def kernel(gamma, n_landmarks, scores, is_learned=False, temperatures=T):
    return SimpleNamespace(
        gamma=gamma,
        n_landmarks=n_landmarks,
        has_learned_scales=is_learned,
        temperatures=temperatures,
        validation_score=np.array(scores),
    )


@pytest.fixture
def tried():
    return [
        kernel(1.0, 250, [-0.6, -0.5, -0.55]),
        kernel(0.25, 250, [-0.6, -0.4, -0.5]),
        kernel(0.25, 250, [-0.6, -0.35, -0.3], is_learned=True),
        kernel(0.25, 250, [-0.6, -0.3, -0.25], is_learned=True),
        kernel(0.25, 500, [-0.6, -0.25, -0.2], is_learned=True),
    ]


@pytest.fixture(scope="module")
def model():
    X, y = make_moons(120, noise=0.2, random_state=0)
    return AnnealedKernelClassifier(n_landmarks=30).fit(X, y)


def draw(tried, **settings):
    display = KernelSearchDisplay(
        tried_kernels=tried, **{"chosen_index": len(tried) - 1, "chosen_temperature": 0.01, **settings}
    ).plot()
    display.figure_.canvas.draw()
    return display


def test_each_kernel_is_a_strip_of_its_losses(tried):
    display = draw(tried)
    assert len(display.strips_) == len(tried)
    for strip, drawn in zip(display.strips_, tried, strict=True):
        np.testing.assert_allclose(strip.get_array().ravel(), -drawn.validation_score)
    assert {strip.get_clim() for strip in display.strips_} == {(0.2, 0.6)}
    assert display.colorbar_.ax.get_ylabel() == "validated log loss"


def test_strips_of_a_gamma_lie_below_each_other_around_it_and_apart_from_those_of_others(tried):
    places = np.array([strip.get_coordinates()[[0, -1], 0, 1] for strip in draw(tried).strips_])
    np.testing.assert_allclose(np.sqrt(places[0].prod()), 1.0)
    np.testing.assert_allclose(np.sqrt(places[1:].max() * places[1:].min()), 0.25)
    np.testing.assert_allclose(places[1:-1, 0], places[2:, 1])
    assert places[0, 0] > places[1, 1]


def test_axes_are_logarithmic_and_cool_to_the_right(tried):
    ax = draw(tried).ax_
    hot, cold = ax.get_xlim()
    assert hot > 1 and cold < 0.01 and (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0.25", "1"]


def test_names_say_what_differs(tried):
    display = draw(tried)
    assert [label.get_text() for label in display.labels_] == [
        "0.5  250 landmarks",
        "0.4  250 landmarks",
        "0.3  250 landmarks, scales learned",
        "0.25  250 landmarks, scales learned twice",
        "0.2  500 landmarks, scales learned",
    ]
    assert [label.get_weight() for label in display.labels_] == ["normal"] * 4 + ["bold"]


def test_marks_the_best_of_each_and_the_chosen_one(tried):
    display = draw(tried, chosen_temperature=0.1)
    np.testing.assert_allclose(display.best_.get_offsets()[:, 0], [0.1, 0.1, 0.01, 0.01, 0.01])
    np.testing.assert_allclose(display.chosen_.get_offsets()[0, 0], 0.1)
    assert display.chosen_.get_label() == "chosen: temperature 0.1, gamma 0.25"


def test_scores_that_are_no_losses_keep_their_sign_and_good_ones_are_dark(tried):
    display = draw([kernel(1.0, 50, [0.7, 0.9, 0.8])], score_name="balanced_accuracy")
    np.testing.assert_allclose(display.strips_[0].get_array().ravel(), [0.7, 0.9, 0.8])
    np.testing.assert_allclose(display.best_.get_offsets()[0, 0], 0.1)
    good, bad = (sum(display.strips_[0].to_rgba(score)[:3]) for score in (0.9, 0.7))
    assert good < bad
    loss = draw(tried).strips_[0]
    assert sum(loss.to_rgba(0.2)[:3]) < sum(loss.to_rgba(0.6)[:3])


def test_one_temperature_missing_scores_and_equal_scores_are_drawn():
    draw([kernel(1.0, 50, [-0.5], temperatures=T[:1])], chosen_temperature=1.0)
    draw([kernel(1.0, 50, [np.nan, -0.5, -np.inf]), kernel(1.0, 100, [np.nan] * 3)])
    draw([kernel(1.0, 50, [0.0, 0.0, -0.1])])


def test_a_kernel_without_gamma_has_no_axis_of_gammas():
    X, y = make_moons(60, noise=0.2, random_state=0)
    model = AnnealedKernelClassifier("precomputed", n_landmarks=30).fit(X @ X.T, y)
    display = KernelSearchDisplay.from_estimator(model)
    assert display.ax_.get_ylabel() == "" and "gamma" not in display.chosen_.get_label()


def test_from_estimator_finds_the_chosen_kernel_and_draws_where_it_is_told(model):
    _, ax = pyplot.subplots()
    display = KernelSearchDisplay.from_estimator(model, ax=ax)
    assert display.ax_ is ax and display.figure_ is ax.figure
    assert len(display.strips_) == len(model.tried_kernels_) > 1
    chosen = model.tried_kernels_[display.chosen_index]
    assert chosen.gamma == model.gamma_ and chosen.n_landmarks == model.n_landmarks_
    known = dict(zip(model.path_.temperatures, model.path_.compared_score, strict=True))
    scores = [known[temperature] for temperature in chosen.temperatures]
    np.testing.assert_allclose(scores, chosen.validation_score, rtol=1e-6)


def test_rounds_of_learned_scales_are_told_apart_by_their_scores(tried):
    path = SimpleNamespace(temperatures=T, compared_score=tried[3].validation_score, score_name="neg_log_loss")
    model = SimpleNamespace(
        tried_kernels_=tried, path_=path, gamma_=0.25, n_landmarks_=250, temperature_=0.01, kernel="rbf"
    )
    assert KernelSearchDisplay.from_estimator(model).chosen_index == 3


def test_other_estimators_and_those_without_a_fit_are_refused():
    X, y = load_wine(return_X_y=True)
    for other in (AnnealedKernelClassifier(), PottsDA(), AnnealedLogisticRegression(schedule=[1.0]).fit(X, y)):
        with pytest.raises(ValueError, match="needs a fitted AnnealedKernelClassifier.* Got "):
            KernelSearchDisplay.from_estimator(other)


def test_a_fit_that_held_nothing_out_is_refused_with_what_to_do():
    X, y = make_moons(60, noise=0.2, random_state=0)
    model = AnnealedKernelClassifier(temperature=0.1, n_landmarks=20).fit(X, y)
    with pytest.raises(ValueError, match=r'(?s)nothing was held out.*Fit with temperature="auto"'):
        KernelSearchDisplay.from_estimator(model)


def test_a_pipeline_is_told_to_give_its_last_step(model):
    with pytest.raises(ValueError, match=r"(?s)Give its last step, pipeline\[-1\]"):
        KernelSearchDisplay.from_estimator(make_pipeline(StandardScaler(), model))


def test_other_displays_draw_the_same_model(model):
    X, _ = make_moons(120, noise=0.2, random_state=0)
    assert AnnealingPathDisplay.from_estimator(model).lines_["chosen"].get_xdata()[0] == model.temperature_
    regions = DecisionBoundaryDisplay.from_estimator(model, X, response_method="predict_proba", grid_resolution=20)
    assert np.shape(regions.response) == (20, 20)
