"""Checks of parameters, metadata routing, repeated fits, and published settings."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np
from sklearn import get_config
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, get_routing_for_object, process_routing

from annealed.arrays import Place
from annealed.path import check_given_temperature, check_temperature, is_auto
from annealed.problems.base import check_choice
from annealed.validation.selection import RULES

SELECTIONS = ("cv", "loo", "holdout", "last")
SET_BY_VALIDATION = ("n_features_in_", "feature_names_in_", "classes_")  # every fit sets these anew


def check_parameters(estimator, X_val, y_val, sample_weight_val):
    """Check the parameters of an `AnnealedClassifier` that no other object checks."""
    selection, temperature, scoring = estimator.selection, estimator.temperature, estimator.scoring
    check_choice(estimator.rule, "rule", RULES)
    check_temperature(estimator.tol, "tol")
    check_count(estimator.max_iter, "max_iter")
    check_flag(estimator.calibrate, "calibrate")
    generator_of(estimator.random_state)
    if not isinstance(scoring, str) and not callable(scoring):
        raise ValueError(
            f'scoring must be the name of one scorer, such as "neg_log_loss", or a callable. Got {scoring!r}.'
        )
    if not isinstance(selection, str) or selection not in SELECTIONS:
        hint = " Give a temperature as temperature=." if isinstance(selection, Real) else ""
        raise ValueError(f"selection must be one of {SELECTIONS}. Got {selection!r}.{hint}")
    check_given_temperature(temperature)
    if (X_val is None) != (y_val is None):
        raise ValueError("X_val and y_val must be given together.")
    if X_val is None and sample_weight_val is not None:
        raise ValueError("sample_weight_val weighs the samples of a validation set. Give X_val and y_val, too.")
    if selection == "loo" and not is_log_loss(scoring):
        raise ValueError(
            f'selection="loo" compares log-losses and has no folds to score. Got scoring={scoring!r}. '
            'Set scoring="neg_log_loss" or selection="cv".'
        )
    if X_val is not None and (selection != "holdout" or not is_auto(temperature)):
        given = f"selection={selection!r}" if is_auto(temperature) else f"temperature={temperature!r}"
        raise ValueError(
            f'A validation set was given, which {given} does not use. Set selection="holdout" and temperature="auto".'
        )


def check_precision(precision, place: Place):
    if precision is None:
        return
    if not isinstance(precision, str) or precision != "tf32":
        raise ValueError(f'matmul_precision must be "tf32" or None. Got {precision!r}.')
    if place.is_host:
        raise ValueError(
            f"matmul_precision must be None for samples on the host. Got {precision!r}. Give X as a torch array with "
            "array_api_dispatch=True, or set device."
        )
    if not place.is_torch or place.row_dtype != place.xp.float32:
        raise ValueError(
            f"matmul_precision must be None unless X is a float32 torch array. Got {precision!r} and {place.row_dtype}."
        )


def check_count(value, name):
    if not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a positive whole number. Got {value!r}.")


def check_flag(value, name):
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False. Got {value!r}.")


def generator_of(random_state) -> np.random.RandomState:
    """The generator of a seed; None is a fixed seed, so that fits repeat."""
    try:
        return check_random_state(0 if random_state is None else random_state)
    except ValueError as error:
        raise ValueError(
            f"random_state must be None, a whole number from 0 to {2**32 - 1} or a RandomState. Got {random_state!r}."
        ) from error


def is_log_loss(scoring) -> bool:
    """Whether `scoring` is the log-loss, which is computed here, with the weights of the fit."""
    return isinstance(scoring, str) and scoring == "neg_log_loss"


def forget_last_fit(estimator):
    """Remove the fitted attributes of an earlier fit.

    `fit` calls it after the parameters are validated, so that invalid parameters leave the earlier fit intact.
    """
    for name in list(vars(estimator)):
        is_fitted_attribute = name.endswith("_") and not name.startswith("_")
        if is_fitted_attribute and name not in SET_BY_VALIDATION:
            delattr(estimator, name)


def make_published(estimator_class, printed, settings):
    """An estimator with the settings of the published algorithm, some of them overridden by `settings`."""
    known = estimator_class._get_param_names()
    unknown = sorted(settings.keys() - set(known))
    if unknown:
        name = estimator_class.__name__
        raise TypeError(
            f"settings of {name}.as_published must be parameters of {name}. Got {', '.join(map(repr, unknown))}. "
            f"Choose among: {', '.join(known)}."
        )
    return estimator_class(**{**printed, **settings})


# --- metadata ------------------------------------------------------------------------------------------------


def routing_of(estimator) -> MetadataRouter:
    """The requests of an estimator, its splitter and its scorer.

    Given splits have none, and an iterator of splits must not be consumed here.
    """
    cv = estimator.cv if hasattr(estimator.cv, "split") else None
    router = MetadataRouter(owner=estimator).add_self_request(estimator)
    router.add(splitter=check_cv(cv, classifier=True), method_mapping=MethodMapping().add(caller="fit", callee="split"))
    if is_log_loss(estimator.scoring):
        return router
    scorer = check_scoring(estimator, scoring=estimator.scoring)
    return router.add(scorer=scorer, method_mapping=MethodMapping().add(caller="fit", callee="score"))


def routed_metadata(estimator, sample_weight, params) -> dict:
    """Metadata for the splitter's `split` and the scorer's `score`."""
    if get_config()["enable_metadata_routing"]:
        routed = process_routing(estimator, "fit", sample_weight=sample_weight, **params)
        return {"split": routed.splitter.split, "score": routed.scorer.score if "scorer" in routed else {}}
    unknown = sorted(set(params) - {"groups"})
    if unknown:
        raise TypeError(
            f"fit got unexpected arguments {unknown}. Only `groups` is known without metadata routing: "
            "enable it with sklearn.set_config(enable_metadata_routing=True)."
        )
    score = {} if sample_weight is None else {"sample_weight": sample_weight}
    return {"split": {key: value for key, value in params.items() if value is not None}, "score": score}


def takes_weight(scorer) -> bool:
    """Whether a scorer receives weights: always, unless metadata routing is enabled and it does not request them."""
    if not get_config()["enable_metadata_routing"]:
        return True
    return bool(get_routing_for_object(scorer).consumes("score", ["sample_weight"]))


def score_name(scoring) -> str:
    """Name of a scorer by scikit-learn's convention: the names of losses begin with neg_."""
    if isinstance(scoring, str):
        return scoring
    function = getattr(scoring, "_score_func", scoring)
    name = getattr(function, "__name__", type(scoring).__name__)
    return f"neg_{name}" if getattr(scoring, "_sign", 1) < 0 else name
