"""Callbacks see every temperature and may end the cooling; the same on scikit-learn with and without its own."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from annealed import MELDA, DistanceADA, InnerProductADA
from annealed.callbacks import StopOnInterrupt

X, y = load_iris(return_X_y=True)


class Recorder:
    """Keeps what it is told, and wants to stop after `n_temperatures`."""

    def __init__(self, n_temperatures=None):
        self.n_temperatures = n_temperatures
        self.events, self.temperatures, self.scores, self.fitted = [], [], [], None

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.events.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        self.events.append(f"end {context.task_name}")
        if context.task_name != "temperature":
            return False
        self.fitted = fitted_estimator
        path = fitted_estimator.path_
        self.temperatures.append(path.temperatures[-1])
        self.scores.append(fitted_estimator.score(X, y))
        return len(self.temperatures) == self.n_temperatures


@pytest.mark.parametrize("estimator", [InnerProductADA(), DistanceADA(), MELDA(metric="diagonal")], ids=repr)
def test_every_temperature_is_told_of(estimator):
    recorder = Recorder()
    model = estimator.set_callbacks(recorder).fit(X, y)
    path = (model.classifier_ if isinstance(model, MELDA) else model).path_
    assert recorder.temperatures == path.temperatures[path.is_node].tolist()
    assert recorder.scores[-1] > 0.95
    assert recorder.events[:3] == ["setup", "begin fit", "begin temperature"]
    assert recorder.events[-3:] == ["end temperature", "end fit", "teardown"]


@pytest.mark.parametrize("estimator", [InnerProductADA(), MELDA()], ids=repr)
def test_a_callback_stops_the_cooling_and_the_path_so_far_is_kept(estimator):
    recorder = Recorder(n_temperatures=3)
    model = estimator.set_callbacks(recorder).fit(X, y)
    path = (model.classifier_ if isinstance(model, MELDA) else model).path_
    assert len(recorder.temperatures) == 3
    assert path.temperatures[-1] == recorder.temperatures[-1]
    assert np.isfinite(path.entropy).all()
    assert model.predict(X).shape == y.shape


def test_callbacks_change_nothing_else():
    plain, watched = InnerProductADA().fit(X, y), InnerProductADA().set_callbacks(Recorder()).fit(X, y)
    assert plain.path_ == watched.path_
    assert not hasattr(watched, "_callback_fit_ctx")


def test_a_fitted_model_lets_its_inner_one_forget_the_callbacks():
    model = MELDA(metric="diagonal").set_callbacks(Recorder()).fit(X, y)
    assert not hasattr(model.classifier_, "_skl_callbacks")


def test_teardown_after_an_error():
    recorder = Recorder()
    with pytest.raises(ValueError, match="rule"):
        InnerProductADA(selection="holdout", rule="one_standard_error").set_callbacks(recorder).fit(X, y)
    assert recorder.events[-1] == "teardown"


class PressCtrlC(Recorder):
    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        if context.task_name == "temperature":
            os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_keeps_the_path_walked_so_far():
    before = signal.getsignal(signal.SIGINT)
    guard = StopOnInterrupt()
    model = InnerProductADA().set_callbacks(PressCtrlC(), guard).fit(X, y)
    assert guard.is_interrupted
    assert len(model.path_) == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_scikit_learns_own_callbacks():
    callback = pytest.importorskip("sklearn.callback")
    pytest.importorskip("rich")
    monitor = callback.ScoringMonitor(scoring="accuracy")
    model = make_pipeline(StandardScaler(), InnerProductADA().set_callbacks(monitor))
    model.set_callbacks(callback.ProgressBar()).fit(X, y)
    path = model[-1].path_
    assert len(monitor.get_logs().data) == path.is_node.sum() + 1


def test_the_stand_in_does_the_same():
    """Hidden from the import, scikit-learn's callbacks are not missed."""
    code = (
        "import sys, sklearn, sklearn.pipeline, sklearn.linear_model\n"
        "sys.modules['sklearn.callback'] = None; sklearn.__dict__.pop('callback', None)\n"
        f"sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
        "import annealed.callbacks as ours, test_callbacks as tests\n"
        "assert tests.InnerProductADA.set_callbacks is ours._CallbackSupport.set_callbacks\n"
        "tests.test_every_temperature_is_told_of(tests.InnerProductADA())\n"
        "tests.test_a_callback_stops_the_cooling_and_the_path_so_far_is_kept(tests.InnerProductADA())\n"
        "tests.test_teardown_after_an_error()\n"
        "tests.test_ctrl_c_keeps_the_path_walked_so_far()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
