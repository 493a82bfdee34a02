"""scikit-learn's callbacks during a fit, with one task per temperature, and a substitute for older versions.

scikit-learn 1.9 calls every callback of ``estimator.set_callbacks(...)`` at the beginning and the end of each task; a
callback that returns True at the end of a task stops the cooling there. With older versions, the classes below do the
same for a single estimator, without scikit-learn's own callbacks and without propagation from a Pipeline or a search.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, signature
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, Self, TypeVar

__all__ = ["CallbackSupportMixin", "FitWatch", "StopOnInterrupt", "hand_over", "with_callbacks"]

Method = TypeVar("Method", bound=Callable[..., Any])


def hand_over(estimator, inner):
    """Pass the callbacks of an estimator, set or propagated, to the inner estimator that it fits."""
    for name in ("_skl_callbacks", "_parent_callback_ctx"):
        if hasattr(estimator, name):
            setattr(inner, name, getattr(estimator, name))
    return inner


def take_back(inner):
    """Remove what `hand_over` set: a fitted model keeps no callback."""
    for name in ("_skl_callbacks", "_parent_callback_ctx"):
        inner.__dict__.pop(name, None)


class StopOnInterrupt:
    """A callback for ``set_callbacks``: Ctrl-C ends the cooling at the next temperature and keeps the path so far.

    A second Ctrl-C interrupts as usual. Outside the main thread, where signals cannot be caught, the callback does
    nothing.

    Attributes
    ----------
    is_interrupted : bool
        Whether Ctrl-C was pressed in the latest fit.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from annealed import AnnealedLogisticRegression
    >>> from annealed.callbacks import StopOnInterrupt
    >>> model = AnnealedLogisticRegression().set_callbacks(StopOnInterrupt())
    >>> len(model.fit(*load_iris(return_X_y=True)).path_) > 5
    True
    """

    def __init__(self) -> None:
        self.is_interrupted = False
        self._listening: Any = None
        self._usual: Any = None

    def setup(self, estimator, context):
        if self._listening is not None:  # an enclosing fit, or one in the main thread, is already listening
            return
        self.is_interrupted = False
        if current_thread() is main_thread():
            self._listening, self._usual = context, signal.signal(signal.SIGINT, self._interrupt)

    def teardown(self, estimator, context):
        if context is not self._listening:
            return
        if self._usual is not None:  # None means a handler that was not installed from Python
            signal.signal(signal.SIGINT, self._usual)
        self._listening = self._usual = None

    def _interrupt(self, number, frame):
        self.is_interrupted = True
        signal.signal(signal.SIGINT, self._usual)

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        return self.is_interrupted


@dataclass
class FitWatch:
    """Reports every temperature to the callbacks, and whether one of them has stopped the path.

    context : scikit-learn's task of the whole fit
    data : X, y and metadata, for the hooks that request them
    fitted_so_far : returns the attributes of the estimator as if the path ended with the given nodes
    """

    estimator: Any
    context: Any
    data: dict[str, Any]
    fitted_so_far: Any = None
    is_stopped: bool = False
    _task: Any = None

    @classmethod
    def of_fit(cls, estimator, X, y, sample_weight) -> Self:
        """Begin the task of the whole fit, with an unknown number of subtasks."""
        context = estimator._init_callback_context(max_subtasks=None)
        data = {"X": X, "y": y, "metadata": {} if sample_weight is None else {"sample_weight": sample_weight}}
        context.call_on_fit_task_begin(estimator=estimator, **data)
        return cls(estimator, context, data)

    def finish(self):
        """End the task of the whole fit, and forget the samples."""
        self.context.call_on_fit_task_end(estimator=self.estimator, **self.data, reconstruction_attributes=dict)
        self.fitted_so_far = None

    def begin(self, temperature=None):
        """Begin a temperature or, without one, a round of a search."""
        self._task = self.context.subcontext(task_name="round" if temperature is None else "temperature")
        self._task.call_on_fit_task_begin(estimator=self.estimator, **self.data)

    def end(self, nodes=None):
        """End it, with the nodes that `fitted_so_far` needs; None if no estimator can be made from them yet."""
        self.is_stopped = self._task.call_on_fit_task_end(
            estimator=self.estimator,
            **self.data,
            reconstruction_attributes=None if nodes is None else lambda: self.fitted_so_far(nodes),
        )
        return self.is_stopped


# --- before scikit-learn 1.9 --------------------------------------------------------------------------


class _Context:
    """One task of a fit: calls the hooks with the keyword arguments that each of them has."""

    def __init__(self, callbacks, task_name, parent=None):
        self._callbacks, self.task_name, self.parent = callbacks, task_name, parent

    def subcontext(self, task_name=""):
        return _Context(self._callbacks, task_name, self)

    def call_on_fit_task_begin(self, *, estimator, **known):
        self._call("on_fit_task_begin", estimator, known)
        return self

    def call_on_fit_task_end(self, *, estimator, reconstruction_attributes=None, **known):
        def fitted():
            return _with_attributes(estimator, reconstruction_attributes)

        return self._call("on_fit_task_end", estimator, {**known, "fitted_estimator": fitted})

    def _call(self, hook_name, estimator, known):
        hooks = [getattr(callback, hook_name) for callback in self._callbacks]
        return any([bool(hook(estimator, self, **_wanted(hook, known))) for hook in hooks])


def _wanted(hook, known):
    """Values of the keyword-only arguments of a hook, computed only if the hook has them."""
    names = [name for name, parameter in signature(hook).parameters.items() if parameter.kind is Parameter.KEYWORD_ONLY]
    values = {name: known.get(name) for name in names}
    return {name: value() if callable(value) else value for name, value in values.items()}


def _with_attributes(estimator, attributes):
    if attributes is None:
        return None
    fitted = estimator.__new__(type(estimator))
    fitted.__dict__.update(estimator.__dict__)
    fitted.__dict__.update(attributes() if callable(attributes) else attributes)
    return fitted


class _CallbackSupport:
    def set_callbacks(self, *callbacks: Any) -> Self:
        """Set the callbacks that follow `fit`; without arguments, remove them."""
        self.__dict__.pop("_skl_callbacks", None)
        if callbacks:
            self._skl_callbacks = list(callbacks)
        return self

    def _init_callback_context(self, task_name="fit", max_subtasks=0):
        self._callback_fit_ctx = _Context(getattr(self, "_skl_callbacks", []), task_name)
        for callback in self._callback_fit_ctx._callbacks:
            callback.setup(estimator=self, context=self._callback_fit_ctx)
        return self._callback_fit_ctx


def _with_callbacks(method):
    """Call `teardown` of the callbacks after `method`, even if it raises."""

    @wraps(method)
    def managed(estimator, *args, **kwargs):
        try:
            return method(estimator, *args, **kwargs)
        finally:
            context = estimator.__dict__.pop("_callback_fit_ctx", None)
            for callback in context._callbacks if context else ():
                callback.teardown(estimator=estimator, context=context)

    return managed


if TYPE_CHECKING:  # the two libraries' classes have the same methods; `fit` keeps its signature
    CallbackSupportMixin = _CallbackSupport

    def with_callbacks(method: Method) -> Method: ...
else:
    try:
        from sklearn.callback import CallbackSupportMixin, with_callbacks
    except ImportError:  # before 1.9
        CallbackSupportMixin, with_callbacks = _CallbackSupport, _with_callbacks
