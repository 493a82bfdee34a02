"""A progress bar for the terminal: current model and fold, temperature, validation score, and remaining time."""

from __future__ import annotations

import numpy as np

from annealed.optional import require
from annealed.potts import PrototypePath

SHORTEST_COOLING = 4.0  # in log temperature, before the adaptive schedule may stop
PAST_BEST = 1.8  # in log temperature, by which it continues past the best


class CoolingBar:
    """A progress bar that receives temperatures as a scikit-learn callback, and fits from a comparison.

    Parameters
    ----------
    console : rich Console
    n_fits : int
        Number of fits of the job.
    """

    def __init__(self, console, n_fits=1):
        progress = require("rich.progress", extra="cli")
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=24),
            progress.TimeRemainingColumn(compact=True),
            progress.TextColumn("[dim]{task.fields[state]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,  # no bar in a log file
        )
        self._task = self._bar.add_task("", total=float(n_fits), state="")
        self._n_done = 0

    def __enter__(self):
        self._bar.start()
        return self

    def __exit__(self, *error):
        self._bar.stop()

    # -- from one fit to the next -----------------------------------------------------------------------------------

    def begin(self, name, fold=None):
        label = name if fold is None else f"{name}, fold {fold + 1}"
        self._bar.update(self._task, description=label, state="")

    def end(self):
        self._n_done += 1
        self._bar.update(self._task, completed=self._n_done)

    def callbacks(self):
        return (self,)

    # -- scikit-learn's callback -----------------------------------------------------------------------------

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        if context.task_name == "round":
            self._bar.update(self._task, state="growing prototypes")
        if context.task_name != "temperature" or fitted_estimator is None:
            return
        path = fitted_estimator.path_
        state = f"temperature {path.temperatures[-1]:.3g}"
        if isinstance(path, PrototypePath):
            self._bar.update(self._task, state=f"{state}, {path.n_prototypes[-1]} prototypes")
            return
        if path.validation_score is not None:
            name = path.score_name.removeprefix("neg_").replace("_", " ")
            sign = -1 if path.score_name.startswith("neg_") else 1
            state += f", validation {name} {sign * path.validation_score[-1].mean():.4f}"
        share = cooled_share(path.temperatures, path.best_index)
        self._bar.update(self._task, completed=self._n_done + share, state=state)


def cooled_share(temperatures, best_index) -> float:
    """Estimated share of the cooling that is done: the adaptive schedule continues past the best temperature so far."""
    cooled = np.log(temperatures[0] / np.asarray(temperatures))
    expected = max(SHORTEST_COOLING, cooled[best_index] + PAST_BEST)
    return float(min(cooled[-1] / expected, 0.99))
