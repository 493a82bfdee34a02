from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from annealed import AnnealedLogisticRegression, PottsDA
from annealed.optional import require
from annealed.plots import AnnealingPathDisplay

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture
def path():
    """An object with the fields of an AnnealingPath that are drawn."""
    return SimpleNamespace(
        temperatures=np.array([10.0, 1.0, 0.1, 0.01]),
        train_score=np.array([-0.7, -0.5, -0.3, -0.1]),
        validation_score=np.array([[-0.7, -0.7], [-0.5, -0.6], [-0.4, -0.5], [-0.5, -0.8]]),
        entropy=np.array([0.7, 0.5, 0.2, 0.1]),
        free_energy=np.array([7.0, 0.5, 0.03, 0.001]),
        best_index=2,
        score_name="neg_log_loss",
        compared_score=np.array([-0.8, -0.6, -0.46, -0.66]),
        C=np.array([0.1, 1.0, 10.0, 100.0]),
    )


def test_draws_the_arrays_it_was_given(path):
    display = AnnealingPathDisplay.from_path(path)
    assert list(display.lines_) == ["validation", "compared", "train", "chosen", "entropy"]
    np.testing.assert_allclose(display.lines_["compared"].get_ydata(), [0.8, 0.6, 0.46, 0.66])
    np.testing.assert_allclose(display.lines_["validation"].get_ydata(), [0.7, 0.55, 0.45, 0.65])
    np.testing.assert_allclose(display.lines_["train"].get_ydata(), -path.train_score)
    np.testing.assert_allclose(display.lines_["entropy"].get_ydata(), path.entropy)
    for name in ["validation", "compared", "train", "entropy"]:
        np.testing.assert_allclose(display.lines_[name].get_xdata(), path.temperatures)


def test_band_is_one_standard_deviation_over_folds(path):
    display = AnnealingPathDisplay.from_path(path)
    vertices = display.band_.get_paths()[0].vertices
    coldest = vertices[np.isclose(vertices[:, 0], 0.01), 1]
    np.testing.assert_allclose([coldest.min(), coldest.max()], [0.5, 0.8])


def test_cools_to_the_right_on_a_log_axis_however_often_drawn(path):
    _, ax = pyplot.subplots()
    for _ in range(2):
        display = AnnealingPathDisplay.from_path(path, ax=ax)
        hot, cold = ax.get_xlim()
        assert hot > cold and ax.get_xscale() == "log"
    assert display.ax_ is ax and display.figure_ is ax.figure


def test_marks_the_chosen_temperature_with_its_value_and_its_C(path):
    display = AnnealingPathDisplay.from_path(path)
    assert display.lines_["chosen"].get_xdata()[0] == 0.1
    assert display.lines_["chosen"].get_label() == "chosen temperature, 0.1 (C = 10)"
    path.C = None
    assert AnnealingPathDisplay.from_path(path).lines_["chosen"].get_label() == "chosen temperature, 0.1"


def test_compared_scores_that_are_the_validation_scores_are_not_drawn_twice(path):
    path.compared_score = path.validation_score.mean(axis=1)
    assert "compared" not in AnnealingPathDisplay.from_path(path).lines_
    path.compared_score = None
    assert "compared" not in AnnealingPathDisplay.from_path(path).lines_


def test_the_chosen_temperature_is_at_the_best_of_the_compared_scores():
    """On wine the best validation score is at a hotter temperature."""
    path = AnnealedLogisticRegression().fit(*load_wine(return_X_y=True)).path_
    display = AnnealingPathDisplay.from_path(path)
    curves = {name: display.lines_[name].get_ydata() for name in ("validation", "compared")}
    chosen = display.lines_["chosen"].get_xdata()[0]
    assert path.temperatures[curves["compared"].argmin()] == chosen
    assert path.temperatures[curves["validation"].argmin()] > chosen


def test_without_validation_there_is_no_band(path):
    path.validation_score = None
    display = AnnealingPathDisplay.from_path(path)
    assert display.band_ is None and "validation" not in display.lines_


def test_scores_that_are_no_losses_keep_their_sign(path):
    path.score_name = "balanced_accuracy"
    display = AnnealingPathDisplay.from_path(path)
    np.testing.assert_allclose(display.lines_["train"].get_ydata(), path.train_score)
    assert display.ax_.get_ylabel() == "balanced accuracy"


@pytest.mark.parametrize(("twin", "label"), [("entropy", "mean entropy"), ("free_energy", "free energy")])
def test_twin_axis_shows_what_was_asked(path, twin, label):
    display = AnnealingPathDisplay.from_path(path, twin=twin)
    assert display.twin_ax_.get_ylabel() == label
    np.testing.assert_allclose(display.lines_[twin].get_ydata(), getattr(path, twin))


def test_twin_axis_can_be_left_out_but_not_made_up(path):
    assert AnnealingPathDisplay.from_path(path, twin=None).twin_ax_ is None
    with pytest.raises(ValueError, match="twin must be .* Got 'energy'"):
        AnnealingPathDisplay.from_path(path, twin="energy")


def test_a_single_temperature_is_drawn_as_points(path):
    arrays = vars(path).keys() - {"best_index", "score_name"}
    only = {name: getattr(path, name)[:1] for name in arrays}
    display = AnnealingPathDisplay(**only, best_index=0).plot()
    display.figure_.canvas.draw()
    assert {display.lines_[name].get_marker() for name in ("validation", "compared", "train", "entropy")} == set("oxsD")
    assert display.band_.get_linewidth()[0] > 0
    assert display.ax_.get_xlim() == (100, 1)


def test_from_estimator_reads_its_path(path):
    display = AnnealingPathDisplay.from_estimator(SimpleNamespace(path_=path))
    assert display.temperatures is path.temperatures


def test_from_estimator_asks_for_a_fit():
    with pytest.raises(ValueError, match="Got 'unfitted'. Call fit on it first"):
        AnnealingPathDisplay.from_estimator("unfitted")


def test_a_path_of_prototypes_is_refused():
    rows = np.arange(20.0)[:, None]
    model = PottsDA(2, shrinkage="oas", refine=False).fit(rows, rows[:, 0] > 9)
    for draw, own in [(AnnealingPathDisplay.from_estimator, model), (AnnealingPathDisplay.from_path, model.path_)]:
        with pytest.raises(ValueError, match="needs an AnnealingPath, .* Got a PrototypePath"):
            draw(own)


def test_missing_library_answers_with_the_pip_line(monkeypatch):
    with pytest.raises(ImportError, match=r'no_such_library .* pip install "annealed\[plot\]"'):
        require("no_such_library", extra="plot")


def test_a_pipeline_is_told_to_give_its_last_step():
    pipeline = make_pipeline(StandardScaler(), AnnealedLogisticRegression(schedule=[1.0])).fit(
        *load_wine(return_X_y=True)
    )
    with pytest.raises(ValueError, match=r"(?s)needs a fitted annealed classifier.*Give its last step, pipeline\[-1\]"):
        AnnealingPathDisplay.from_estimator(pipeline)
    assert AnnealingPathDisplay.from_estimator(pipeline[-1]).lines_
