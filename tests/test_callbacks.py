"""Callbacks are called for every temperature and may end the cooling, with scikit-learn's support and without."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from annealed import MELDA, AnnealedKernelClassifier, AnnealedLDA, AnnealedLogisticRegression, PottsDA
from annealed.callbacks import StopOnInterrupt
from annealed.datasets import make_spirals
from annealed.estimators import path_fit

X, y = load_iris(return_X_y=True)


class Recorder:
    """Records its calls, and stops after `n_temperatures`."""

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


@pytest.mark.parametrize(
    "estimator",
    [
        AnnealedLogisticRegression(),
        AnnealedLDA(),
        MELDA(penalty_scaling="standardize"),
        AnnealedKernelClassifier(gamma=0.1, scale="none", n_landmarks="all"),
    ],
    ids=repr,
)
def test_callbacks_are_called_for_every_temperature(estimator):
    recorder = Recorder()
    model = estimator.set_callbacks(recorder).fit(X, y)
    path = (model.classifier_ if isinstance(model, MELDA) else model).path_
    assert recorder.temperatures == path.temperatures[path.is_node].tolist()
    assert recorder.scores[-1] > 0.95
    assert recorder.events[:3] == ["setup", "begin fit", "begin temperature"]
    assert recorder.events[-3:] == ["end temperature", "end fit", "teardown"]


@pytest.mark.parametrize("estimator", [AnnealedLogisticRegression(), MELDA()], ids=repr)
def test_a_callback_stops_the_cooling_and_the_path_so_far_is_kept(estimator):
    recorder = Recorder(n_temperatures=3)
    model = estimator.set_callbacks(recorder).fit(X, y)
    path = (model.classifier_ if isinstance(model, MELDA) else model).path_
    assert len(recorder.temperatures) == 3
    assert path.temperatures[-1] == recorder.temperatures[-1]
    assert np.isfinite(path.entropy).all()
    assert model.predict(X).shape == y.shape


def test_a_stopped_fit_tries_no_other_scaling(monkeypatch):
    monkeypatch.setattr(path_fit, "_prefers_alternative", lambda *_: pytest.fail("it was stopped"))
    for penalty_scaling in ("auto", "cv"):
        model = (
            AnnealedLogisticRegression(penalty_scaling=penalty_scaling)
            .set_callbacks(Recorder(n_temperatures=3))
            .fit(X, y)
        )
        assert model.penalty_scaling_ == "standardize"


def test_callbacks_do_not_change_the_path():
    plain, watched = (
        AnnealedLogisticRegression().fit(X, y),
        AnnealedLogisticRegression().set_callbacks(Recorder()).fit(X, y),
    )
    assert plain.path_ == watched.path_
    assert not hasattr(watched, "_callback_fit_ctx")


def test_the_inner_model_of_a_fitted_one_keeps_no_callbacks():
    model = MELDA(penalty_scaling="standardize").set_callbacks(Recorder()).fit(X, y)
    assert not hasattr(model.classifier_, "_skl_callbacks")


def test_teardown_after_an_error():
    recorder = Recorder()
    with pytest.raises(ValueError, match="rule"):
        AnnealedLogisticRegression(selection="holdout", rule="one_standard_error").set_callbacks(recorder).fit(X, y)
    assert recorder.events[-1] == "teardown"


class PressCtrlC(Recorder):
    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        if context.task_name == "temperature":
            os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_keeps_the_path_computed_so_far():
    before = signal.getsignal(signal.SIGINT)
    guard = StopOnInterrupt()
    model = AnnealedLogisticRegression().set_callbacks(PressCtrlC(), guard).fit(X, y)
    assert guard.is_interrupted
    assert len(model.path_) == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_stops_only_the_fit_in_which_it_was_pressed():
    guard = StopOnInterrupt()
    AnnealedLogisticRegression().set_callbacks(PressCtrlC(), guard).fit(X, y)
    model = AnnealedLogisticRegression().set_callbacks(guard).fit(X, y)
    assert not guard.is_interrupted
    assert model.path_ == AnnealedLogisticRegression().fit(X, y).path_


class FitsMeanwhile(Recorder):
    """After the first temperature, runs a whole fit with the same guard: here, or in a thread."""

    def __init__(self, guard, in_thread):
        super().__init__()
        self.guard, self.in_thread = guard, in_thread

    def on_fit_task_end(self, estimator, context):
        self.events.append("end")
        if self.events.count("end") > 1:
            return
        os.kill(os.getpid(), signal.SIGINT)
        model = AnnealedLogisticRegression(schedule=[1.0, 0.1], selection="last").set_callbacks(self.guard)
        if self.in_thread:
            with ThreadPoolExecutor(1) as threads:
                threads.submit(model.fit, X, y).result()
        else:
            model.fit(X, y)


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_simultaneous_fit_does_not_remove_the_guard(in_thread):
    before, guard = signal.getsignal(signal.SIGINT), StopOnInterrupt()
    model = AnnealedLogisticRegression().set_callbacks(FitsMeanwhile(guard, in_thread), guard).fit(X, y)
    assert guard.is_interrupted and len(model.path_) == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_scikit_learns_own_callbacks():
    callback = pytest.importorskip("sklearn.callback")
    pytest.importorskip("rich")
    monitor = callback.ScoringMonitor(scoring="accuracy")
    model = make_pipeline(StandardScaler(), AnnealedLogisticRegression().set_callbacks(monitor))
    model.set_callbacks(callback.ProgressBar()).fit(X, y)
    path = model[-1].path_
    assert len(monitor.get_logs().data) == path.is_node.sum() + 1


# --- prototypes: rounds of the search, then the temperatures of the last fit ------------------------------


def test_callbacks_are_called_for_every_round_and_temperature_of_prototypes():
    recorder = Recorder()
    model = PottsDA(n_init=1).set_callbacks(recorder).fit(X, y)
    assert recorder.temperatures == model.path_.temperatures.tolist()
    assert recorder.scores[-1] > 0.95
    assert recorder.events[:3] == ["setup", "begin fit", "begin round"]
    assert recorder.events[-3:] == ["end temperature", "end fit", "teardown"]
    assert recorder.events.count("end round") >= len(model.path_.validation_loss) > 0
    np.testing.assert_array_equal(recorder.fitted.path_.free_energy, model.path_.free_energy)


def test_callbacks_do_not_change_the_prototypes():
    plain, watched = PottsDA(n_init=2).fit(X, y), PottsDA(n_init=2).set_callbacks(Recorder()).fit(X, y)
    np.testing.assert_array_equal(plain.prototypes_, watched.prototypes_)
    np.testing.assert_array_equal(plain.predict_proba(X), watched.predict_proba(X))
    assert not hasattr(watched, "_callback_fit_ctx")


def test_a_callback_stops_the_cooling_of_prototypes():
    rows, arms = make_spirals(200, random_state=0)
    recorder = Recorder(n_temperatures=3)
    model = PottsDA(20, n_init=2, shrinkage=0.1).set_callbacks(recorder).fit(rows, arms)
    assert len(recorder.temperatures) == 3 == len(model.path_)
    assert model.refinement_penalty_ is None
    np.testing.assert_array_equal(recorder.fitted.predict_proba(rows), model.predict_proba(rows))


class StopTheSearch(Recorder):
    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        self.events.append(f"end {context.task_name}")
        return context.task_name == "round"


def test_a_stopped_search_fits_the_best_setting_so_far():
    recorder = StopTheSearch()
    model = PottsDA().set_callbacks(recorder).fit(X, y)
    assert recorder.events.count("end round") == 1 == len(model.path_.validation_loss)
    assert len(model.prototypes_) == 3 and model.shrinkage_ == "oas"
    assert model.score(X, y) > 0.95


def test_ctrl_c_keeps_the_prototypes_grown_so_far():
    class PressInTheSearch(PressCtrlC):
        def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
            if context.task_name == "round":
                os.kill(os.getpid(), signal.SIGINT)

    before, guard = signal.getsignal(signal.SIGINT), StopOnInterrupt()
    model = PottsDA().set_callbacks(PressInTheSearch(), guard).fit(X, y)
    assert guard.is_interrupted and signal.getsignal(signal.SIGINT) is before
    assert len(model.path_.validation_loss) == 1 and model.score(X, y) > 0.95


def test_scikit_learns_own_callbacks_follow_prototypes():
    callback = pytest.importorskip("sklearn.callback")
    pytest.importorskip("rich")
    monitor = callback.ScoringMonitor(scoring="accuracy")
    model = make_pipeline(StandardScaler(), PottsDA(n_init=1).set_callbacks(monitor))
    model.set_callbacks(callback.ProgressBar()).fit(X, y)
    assert len(monitor.get_logs().data) == len(model[-1].path_) + 1


def test_the_substitute_for_scikit_learns_support_behaves_the_same():
    """Some tests of this file, in a process in which scikit-learn's callbacks cannot be imported."""
    code = (
        "import sys, sklearn, sklearn.pipeline, sklearn.linear_model\n"
        "sys.modules['sklearn.callback'] = None; sklearn.__dict__.pop('callback', None)\n"
        f"sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
        "import annealed.callbacks as ours, test_callbacks as tests\n"
        "assert tests.AnnealedLogisticRegression.set_callbacks is ours._CallbackSupport.set_callbacks\n"
        "tests.test_callbacks_are_called_for_every_temperature(tests.AnnealedLogisticRegression())\n"
        "tests.test_a_callback_stops_the_cooling_and_the_path_so_far_is_kept(tests.AnnealedLogisticRegression())\n"
        "tests.test_teardown_after_an_error()\n"
        "tests.test_ctrl_c_keeps_the_path_computed_so_far()\n"
        "tests.test_callbacks_are_called_for_every_round_and_temperature_of_prototypes()\n"
        "tests.test_a_stopped_search_fits_the_best_setting_so_far()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
