"""What must hold for every case: one clear error, or a model whose answers are finite and consistent and repeat.

`judge` returns what happened if that is in GOOD, and raises `Failure` with what is wrong if it is not.
"""

from __future__ import annotations

import linecache
import pickle
import re
import traceback
import warnings
from contextlib import contextmanager
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas
import sklearn
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import annealed
from fuzz.cases import Case

GOOD = ("refused", "fitted")
SECONDS, SECONDS_OF_A_TEMPERATURE = 20.0, 0.05  # of CPU time for one fit
CLEAR = (ValueError, TypeError)  # and subclasses that the library or scikit-learn defines
SHORTEST, LONGEST = 15, 2000  # characters of a message; scikit-learn shows X as a whole in one of its own
OWN, VALIDATION = (str(Path(package.__file__).parent) for package in (annealed, sklearn))
HARMLESS = (UserWarning,)  # ConvergenceWarning, DataConversionWarning and UndefinedMetricWarning are subclasses
INTERNAL = re.compile(
    r"truth value|could not be broadcast|not aligned|mismatch in its core|setting an array element|unhashable|"
    r"object is not (callable|subscriptable|iterable)|unsupported operand|not supported between|has no attribute|"
    r"has no len|unexpected keyword|positional argument|zero-size array|must match|out of bounds|not understood"
)
ROUNDING = {8: 1e-9, 4: 1e-4, 2: 1e-2}  # of probabilities, by the bytes of a number


class Failure(AssertionError):
    """What is wrong with the outcome of a case."""


def judge(case: Case) -> str:
    """One of GOOD."""
    arguments, state = case.arguments(), _global_state()
    before = _content(arguments)
    template = case.model()
    seconds = SECONDS + SECONDS_OF_A_TEMPERATURE * case.n_temperatures()
    outcome, model = _fitted(clone(template), arguments, seconds)
    _require(_content(arguments) == before, "the fit changed its arguments")
    again, other = _fitted(clone(template), case.arguments(), seconds)
    _require(outcome == again, f"a second fit ended otherwise: {outcome} and {again}")
    if outcome:
        _check_refusal(model, arguments["X"])
    else:
        _check_parameters_are_kept(template, model)
        _check_model(case, model, other, arguments)
    _require(_content(arguments) == before, "a prediction changed its arguments")
    _require(_global_state() == state, "NumPy's global generator or its error state was changed")
    return "refused" if outcome else "fitted"


def _global_state():
    return np.random.get_state()[1].tobytes(), np.geterr()  # noqa: NPY002


def _require(condition, message):
    if not condition:
        raise Failure(message)


# --- errors and warnings --------------------------------------------------------------------------------------


def _fitted(model, arguments, seconds):
    """The clear error with which a fit was refused, or "", and the model."""
    began = process_time()
    arguments = dict(arguments)
    with _watched():
        error = clear_error(model.fit, arguments.pop("X"), arguments.pop("y"), **arguments)
    took = process_time() - began
    _require(took <= seconds, f"the fit took {took:.0f} s of CPU time")
    return error, model


@contextmanager
def _watched():
    """Fail if a warning reaches the user that is not meant for users."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        shown = f"{warning.category.__name__} at {Path(warning.filename).name}:{warning.lineno}: {warning.message}"
        _require(issubclass(warning.category, HARMLESS), f"warned of {shown}")


def clear_error(function, *arguments, **named) -> str:
    """The message of the error that a call raises, "" if it raises none; fails unless it is a clear one."""
    try:
        function(*arguments, **named)
    except Exception as error:
        fault = _fault(error)
        if fault:
            raise Failure(f"{fault}:\n{''.join(traceback.format_exception(error, limit=-6))}") from None
        return f"{type(error).__name__}: {re.sub(' at 0x[0-9A-Fa-f]+', '', str(error))}"
    return ""


def _fault(error) -> str:
    """Why an error is not clear, or ""."""
    message = str(error)
    frames = traceback.extract_tb(error.__traceback__)
    own = max((index for index, frame in enumerate(frames) if frame.filename.startswith(OWN)), default=0)
    if "This scorer never works." in message:
        return ""
    if not isinstance(error, CLEAR) or type(error).__module__.split(".")[0] not in ("builtins", "sklearn", "annealed"):
        return "not an error of bad input"
    if len(message) < SHORTEST or (own == len(frames) - 1 and len(message) > LONGEST):
        return "a message of no use"
    if own == len(frames) - 1 and linecache.getline(frames[own].filename, frames[own].lineno).strip().startswith(
        "raise"
    ):
        return ""
    if own == len(frames) - 1 or INTERNAL.search(message):
        return "an error that nobody raised on purpose"
    return "" if frames[own + 1].filename.startswith(VALIDATION) else "an error of a library below"


def _check_refusal(model, X):
    """An estimator that refused a fit is not fitted."""
    for method in ("predict", "predict_proba"):
        try:
            getattr(model, method)(X)
        except NotFittedError:
            continue
        except Exception as error:
            raise Failure(f"{method} after a refused fit raised {type(error).__name__}: {error}") from error
        raise Failure(f"{method} works after a refused fit")


# --- inputs and parameters ------------------------------------------------------------------------------------


def _content(value) -> Any:
    """All numbers of X, y and weights, as something that can be compared."""
    if isinstance(value, dict):
        return {name: _content(part) for name, part in value.items()}
    if isinstance(value, pandas.DataFrame):
        return value.index.tolist(), [_content(value.iloc[:, column]) for column in range(value.shape[1])]
    if isinstance(value, pandas.Series):  # a pickle would have the caches of pandas
        return value.name, repr(value.dtype), value.index.tolist(), repr(value.tolist())
    if sparse.issparse(value):
        names = ("data", "indices", "indptr", "row", "col", "rows")
        return [value.format, *(_content(getattr(value, name)) for name in names if hasattr(value, name))]
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.strides, value.flags.writeable, _bytes(value)
    return repr(value)


def _bytes(array):
    return repr(array.tolist()) if array.dtype == object else array.tobytes()


def _check_parameters_are_kept(template, model):
    before, after = (_shown(one.get_params(deep=False)) for one in (template, model))
    _require(before == after, f"fit changed a parameter: {before} became {after}")


def _shown(parameters):
    return re.sub(" at 0x[0-9A-Fa-f]+", "", repr({name: parameters[name] for name in parameters if name != "steps"}))


# --- models ---------------------------------------------------------------------------------------------------


def _check_model(case, model, other, arguments):
    last = model if case.products is None else model[-1]
    X = arguments["X"]
    with _watched():
        posterior = _predictions(model, X, case, "samples of the fit")
        _predictions(model, case.table.new_rows(), case, "new samples")
        far = case.table.far_rows()
        if not clear_error(model.predict_proba, far):
            _predictions(model, far, case, "far samples")
        _require(np.array_equal(posterior, other.predict_proba(X)), "a second fit predicts otherwise")
        restored = pickle.loads(pickle.dumps(model))
        _require(np.array_equal(posterior, restored.predict_proba(X)), "a model from a pickle predicts otherwise")
        seen = X if case.products is None else model[:-1].transform(X)
        for name in ("transform", "apply"):
            if hasattr(last, name):
                _check_finite(getattr(last, name)(seen), f"{name}(X)")
        path = getattr(last, "path_", None)
        if path is not None:
            _require(path == (other if case.products is None else other[-1]).path_, "a second fit has another path_")
            repr(path), path.to_frame()
            _check_path(path, last, case)
        if hasattr(last, "at"):
            _check_other_temperatures(last, seen)
    for name, value in vars(last).items():
        if name.endswith("_") and isinstance(value, np.ndarray) and value.dtype.kind == "f":
            is_of_zero = name == "intercept_" and not np.all(
                getattr(last, "class_prior_", 1)
            )  # the logarithm of a prior
            may_be_infinite = is_of_zero or name == "scale_"  # of columns that do not matter
            _check_finite(np.where(np.isinf(value), 0, value) if may_be_infinite else value, name)


def _predictions(model, X, case, whose):
    """The posterior, checked for itself and against every other method that predicts."""
    posterior, decision = model.predict_proba(X), model.decision_function(X)
    rounding = ROUNDING[min(posterior.dtype.itemsize, decision.dtype.itemsize, 8)]
    classes = model.classes_
    _require(posterior.shape == (_n_rows(X), len(classes)), f"posterior of {whose} of shape {posterior.shape}")
    _check_finite(posterior, f"posterior of {whose}")
    _require((posterior >= 0).all(), f"posterior of {whose} is negative")
    _require(np.abs(posterior.sum(axis=1) - 1).max(initial=0) <= rounding, f"posterior of {whose} does not sum to one")
    log_posterior = model.predict_log_proba(X)
    _require(not np.isnan(log_posterior).any(), f"log posterior of {whose} is not a number")
    _require(_near(np.exp(log_posterior), posterior, rounding), f"log posterior of {whose} differs from the posterior")
    _require(not np.isnan(decision).any(), f"decision_function of {whose} is not a number")
    shape = posterior.shape if len(classes) > 2 else posterior.shape[:1]
    _require(decision.shape == shape, f"decision_function of {whose} of shape {decision.shape}")
    of_logits = softmax(decision, axis=1) if len(classes) > 2 else np.column_stack([expit(-decision), expit(decision)])
    _require(_near(of_logits, posterior, rounding), f"decision_function of {whose} differs from the posterior")
    labels = model.predict(X)
    codes = np.searchsorted(classes, labels)
    _require((classes[codes] == labels).all(), f"labels of {whose} that are not classes")
    if case.parameters.get("decision") != "nearest":
        chosen = posterior[np.arange(len(codes)), codes]
        _require(
            (chosen >= posterior.max(axis=1, initial=0) - rounding).all(), f"labels of {whose} are not the likeliest"
        )
    return posterior


def _check_path(path, model, case):
    """A record of an `AnnealingPath`, or of a `PrototypePath`, whose numbers can be believed."""
    _require((np.diff(path.temperatures) < 0).all() or hasattr(path, "round"), "temperatures of path_ do not fall")
    not_negative = ("temperatures", "entropy", "gradient_norm", "certificate", "posterior_scale", "n_iter", "seconds")
    for name in (*not_negative, "free_energy", "membership_saturation", "label_saturation", "validation_loss"):
        numbers = getattr(path, name, None)
        if numbers is not None:
            _check_finite(numbers, f"path_.{name}")
            _require(
                (numbers >= 0).all() or name not in not_negative,
                f"path_.{name} is negative: {np.min(numbers, initial=0)}",
            )
    if hasattr(path, "entropy"):
        _require(path.entropy.max() <= np.log(len(model.classes_)) * (1 + 1e-6), "path_.entropy above that of chance")
        _require(path.temperatures[path.best_index] == model.temperature_, "temperature_ is not that of path_")
        if case.parameters.get("scoring", "neg_log_loss") == "neg_log_loss":
            for name in ("train_score", "validation_score", "compared_score"):
                if getattr(path, name) is not None:
                    _check_finite(getattr(path, name), f"path_.{name}")


def _check_other_temperatures(model, X):
    """Models between the temperatures of the path, and at its ends; only the chosen one must fit the dtype of X."""
    temperatures = model.path_.temperatures
    for temperature in {temperatures[0], np.sqrt(temperatures[0]) * np.sqrt(temperatures[-1]), temperatures[-1]}:
        temperature = float(np.clip(temperature, temperatures[-1], temperatures[0]))
        error = clear_error(model.at, temperature)
        _require(not error or "has no finite" in error, f"no model at temperature {temperature:g}: {error}")
        if not error:
            _check_finite(model.at(temperature).predict_proba(X), f"posterior at temperature {temperature:g}")


def _check_finite(numbers, name):
    numbers = numbers.data if sparse.issparse(numbers) else np.asarray(numbers)
    _require(np.isfinite(numbers).all(), f"{name} is not finite: {numbers.ravel()[~np.isfinite(numbers.ravel())][:3]}")


def _near(found, expected, rounding):
    return np.abs(found - expected).max(initial=0) <= rounding


def _n_rows(X):
    return X.shape[0] if hasattr(X, "shape") else len(X)
