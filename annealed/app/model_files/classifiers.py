"""What the classifiers of the command line have learned.

A classifier is made anew with the library's own parameters. A file holds only arrays, numbers and names of what was
chosen, so nothing in it can act when the classifier is used or fitted again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from annealed.app.comparison import make_candidate
from annealed.app.model_files.content import Content
from annealed.estimators.kernel_search import TriedKernel
from annealed.estimators.melda import OF_CLASSIFIER, log_linear
from annealed.estimators.melda_projection import Projection
from annealed.estimators.path_fit import Point
from annealed.path import AnnealingPath
from annealed.potts import SHRINKAGES, Columns, PrototypePath
from annealed.potts.refinement import CalibratedPosterior
from annealed.problems import Predictor, gibbs
from annealed.problems.kernel import KernelPredictor
from annealed.problems.kernel_features import FARTHEST, Kernel, KernelFeatures
from annealed.problems.linear import LinearPredictor
from annealed.problems.penalty_scaling import PENALTY_SCALINGS
from annealed.validation.selection import RULES


class Kind(NamedTuple):
    """What a fitted classifier has learned, and its inverse, which sets it in a new classifier.

    The classifier that `restore` gets has its classes and its number of features.
    """

    learned: Callable[[Any], dict[str, Any]]
    restore: Callable[[Any, Content], None]


def restored_classifier(name: str, content: Content, classes, n_features: int):
    model = make_candidate(name)
    model.classes_, model.n_features_in_ = classes, n_features
    KINDS[name].restore(model, content)
    content.close()
    return model


# --- classifiers with an annealing path -------------------------------------------------------------------

OF_TEMPERATURES = ("free_energy", "entropy", "train_score", "seconds", "gradient_norm")  # floats, maybe not finite
MAYBE_OF_TEMPERATURES = ("certificate", "compared_score")


def _learned_path(model) -> dict[str, Any]:
    return {"path": dict(vars(model.path_)), "scaling": getattr(model, "penalty_scaling_", None)}


def _restore_path(model, content: Content) -> None:
    if "scaling" in content:
        model.penalty_scaling_ = _one_of(PENALTY_SCALINGS, content.text("scaling"))
    given, n_classes, n_features = content.part("path"), len(model.classes_), model.n_features_in_
    columns = given.array("columns", (None,), "i") if "columns" in given else None
    if columns is not None and not np.isin(columns, np.arange(n_features)).all():
        raise ValueError("The columns of the path are not features of the model.")
    n_columns, n_used = given.whole("n_columns"), n_features if columns is None else len(columns)
    if n_columns != n_features:
        raise ValueError(f"A path for {n_features} features was expected. Got one for {n_columns}.")
    shapes = {"coef": (n_classes, n_used), "intercept": (n_classes,), "means": (n_classes, n_features)}
    _take_path(model, _path(given, shapes, n_columns, columns), LinearPredictor())


def _take_path(model, path: AnnealingPath, predictor: Predictor) -> None:
    """Give a classifier its path, and the model at the chosen temperature."""
    model.path_, model.n_iter_ = path, max(1, int(path.n_iter.sum()))
    arrays, scale = path.at(path.temperatures[path.best_index])
    point = Point(predictor, {}, 1.0, 1.0, path.unit_C, np.dtype(float))
    model._set_point(point.moved(arrays, path.temperatures[path.best_index], scale))


def _path(content: Content, shapes, n_columns, columns=None) -> AnnealingPath:
    """A path whose arrays have these shapes at each temperature; only some models have means."""
    temperatures = content.array("temperatures", (None,), above=0.0)
    n, best_index, given = len(temperatures), content.whole("best_index"), content.part("arrays")
    if best_index >= n or not (np.diff(temperatures) < 0).all():
        raise ValueError("The temperatures of the path must fall, and one of them is chosen.")
    has = {name: shape for name, shape in shapes.items() if name != "means" or name in given}
    arrays = {name: given.array(name, (n, *shape)) for name, shape in has.items()}
    given.close()
    names = [*OF_TEMPERATURES, *(name for name in MAYBE_OF_TEMPERATURES if name in content)]
    recorded = {name: content.array(name, (n,), is_finite=False) for name in names}
    scores = content.array("validation_score", (n, None), is_finite=False) if "validation_score" in content else None
    if scores is not None and not scores.size:
        raise ValueError("The path has validation scores of no fold.")
    path = AnnealingPath(
        temperatures=temperatures,
        arrays=arrays,
        validation_score=scores,
        posterior_scale=content.array("posterior_scale", (n,), above=0.0),
        n_iter=content.array("n_iter", (n,), "i"),
        converged=content.array("converged", (n,), "b"),
        is_node=content.array("is_node", (n,), "b"),
        best_index=best_index,
        score_name=content.text("score_name"),
        columns=columns,
        n_columns=n_columns,
        rule=_one_of(RULES, content.text("rule")),
        unit_C=content.number("unit_C", above=0.0) if "unit_C" in content else None,
        plan=content.text("plan"),
        **recorded,
    )
    content.close()
    return path


def _one_of(known, value):
    if value not in known:
        raise ValueError(f"One of {known} was expected. Got {value!r}.")
    return value


# --- MELDA ------------------------------------------------------------------------------------------------


def _learned_melda(model) -> dict[str, Any]:
    projection = model._projection
    names = ("scalings", "offset", "loadings", "bias", "center", "log_share", "information", "total_information")
    return {
        "classifier": _learned_path(model.classifier_),
        "projection": {name: getattr(projection, name) for name in (*names, "to_whitened")},
    }


def _restore_melda(model, content: Content) -> None:
    n_classes, n_features = len(model.classes_), model.n_features_in_
    classifier = log_linear(model, model.cv)
    classifier.classes_, classifier.n_features_in_ = model.classes_, n_features
    of_classifier, given = content.part("classifier"), content.part("projection")
    _restore_path(classifier, of_classifier)
    of_classifier.close()
    n = min(n_classes - 1, n_features)
    shapes = {"scalings": (n_features, n), "offset": (n,), "loadings": (n_classes, n), "bias": (n_classes,)}
    shapes |= {"center": (n,), "log_share": (n_classes,), "information": (n,), "to_whitened": (n, n)}
    arrays = {name: given.array(name, shape) for name, shape in shapes.items()}
    projection = Projection(**arrays, total_information=given.number("total_information"))
    given.close()
    model._projection, model.classifier_, model.reduced_classifier_ = projection, classifier, classifier
    model.scalings_, model.offset_ = projection.scalings, projection.offset
    model.coef_, model.intercept_ = classifier.coef_, classifier.intercept_
    model.explained_information_ = arrays["information"]
    model.explained_information_ratio_ = arrays["information"] / (projection.total_information or 1.0)
    for name in OF_CLASSIFIER:
        setattr(model, name, getattr(classifier, name))


# --- kernels ----------------------------------------------------------------------------------------------


def _learned_kernel(model) -> dict[str, Any]:
    features = model._point.predictor.features
    if not isinstance(features.landmarks, np.ndarray):
        raise ValueError(f"its landmarks must be rows of an array. Got a {type(features.landmarks).__name__}")
    return {
        **_learned_path(model),
        "gamma": float(model.gamma_),
        "approximation_error": float(model.approximation_error_),
        "landmarks": {name: getattr(features, name) for name in ("center", "scale", "landmarks", "indices")},
        "tried": {str(number): tried._asdict() for number, tried in enumerate(model.tried_kernels_)},
    }


def _restore_kernel(model, content: Content) -> None:
    model.gamma_, model.approximation_error_ = content.number("gamma", above=0.0), content.number("approximation_error")
    model.tried_kernels_ = _tried_kernels(content.part("tried"))
    features = _kernel_features(
        content.part("landmarks"), Kernel(model.kernel, model.gamma_, model.degree), model.n_features_in_
    )
    given, n_classes, n_landmarks = content.part("path"), len(model.classes_), features.n_landmarks
    n_columns = given.whole("n_columns")
    if n_columns > n_landmarks:
        raise ValueError(f"A path for at most {n_landmarks} features of a kernel was expected. Got {n_columns}.")
    shapes = {"dual_coef": (n_classes, n_landmarks), "intercept": (n_classes,)}
    _take_path(model, _path(given, shapes, n_columns), KernelPredictor(features))


def _kernel_features(content: Content, kernel: Kernel, n_features) -> KernelFeatures:
    """The map to the kernels of the landmarks; a column that does not matter has an infinite scale."""
    indices = content.array("indices", (None,), "i")
    if not len(indices) or not (np.diff(indices, prepend=-1) > 0).all():
        raise ValueError("Rising indices of landmarks among the rows of the fit were expected.")
    scale = content.array("scale", (n_features,), is_finite=False)
    if not (scale > 0).all():
        raise ValueError("Positive scales of the columns were expected.")
    landmarks = content.array("landmarks", (len(indices), n_features))
    if not (np.abs(landmarks) <= FARTHEST).all():
        raise ValueError(f"Scaled landmarks of at most {FARTHEST} were expected.")
    features = KernelFeatures(kernel, content.array("center", (n_features,)), scale, landmarks, indices, None)
    content.close()
    return features


def _tried_kernels(content: Content) -> list[TriedKernel]:
    tried: list[TriedKernel] = []
    while (name := str(len(tried))) in content:
        part = content.part(name)
        gamma, n_landmarks = part.number("gamma", above=0.0), part.whole("n_landmarks")
        temperatures = part.array("temperatures", (None,), above=0.0)
        scores = part.array("validation_score", temperatures.shape, is_finite=False)
        tried.append(TriedKernel(gamma, n_landmarks, part.truth("has_learned_scales"), temperatures, scores))
        part.close()
    content.close()
    return tried


# --- prototypes -------------------------------------------------------------------------------------------

PER_TEMPERATURE = {  # arrays of a path, each with its kind
    "round": "i",
    "free_energy": "f",
    "membership_saturation": "f",
    "label_saturation": "f",
    "n_prototypes": "i",
    "n_sweeps": "i",
}
CHOSEN = {"temperature_": 0.0, "posterior_scale_": 0.0, "free_energy_": -np.inf}  # numbers, each with a lower bound


def _learned_prototypes(model) -> dict[str, Any]:
    strength = model.refinement_penalty_
    return {
        "path": dict(vars(model.path_)),
        "columns": dict(vars(model._columns)),
        "posterior": model._posterior._asdict(),
        "shrinkage": model.shrinkage_ if isinstance(model.shrinkage_, str) else float(model.shrinkage_),
        "penalty": None if strength is None else float(strength),
        **{name: float(getattr(model, name)) for name in CHOSEN},
    }


def _restore_prototypes(model, content: Content) -> None:
    n_classes, n_features = len(model.classes_), model.n_features_in_
    model.path_, model._columns = _prototype_path(content.part("path")), _columns(content.part("columns"), n_features)
    given, turn = content.part("posterior"), model._columns.turn
    n_axes = len(model._columns.kept) if turn is None else turn.shape[1]
    prototypes = given.array("prototypes", (None, n_axes))
    logits = given.array("label_logits", (len(prototypes), n_classes))
    model._posterior = CalibratedPosterior(prototypes, given.array("metric", (n_axes, n_axes)), logits)
    given.close()
    for name, least in CHOSEN.items():
        setattr(model, name, content.number(name, above=least))
    model.prototypes_, model.prototype_labels_ = model._columns.points(prototypes), gibbs.posterior(logits)
    model.shrinkage_ = content.text_or_number("shrinkage")
    if isinstance(model.shrinkage_, str):
        _one_of(SHRINKAGES, model.shrinkage_)
    model.refinement_penalty_ = content.number("penalty") if "penalty" in content else None


def _prototype_path(content: Content) -> PrototypePath:
    temperatures = content.array("temperatures", (None,), above=0.0)
    recorded = {name: content.array(name, (len(temperatures),), kind) for name, kind in PER_TEMPERATURE.items()}
    n_dead = content.array("n_dead", (None,), "i")
    path = PrototypePath(
        temperatures=temperatures,
        n_dead=n_dead,
        n_duplicate=content.array("n_duplicate", n_dead.shape, "i"),
        validation_loss=content.array("validation_loss", (None,), is_finite=False),
        **recorded,
    )
    content.close()
    return path


def _columns(content: Content, n_features) -> Columns:
    center, kept = content.array("center", (n_features,)), content.array("kept", (None,), "i")
    if not len(kept) or not (np.diff(kept, prepend=-1, append=n_features) > 0).all():
        raise ValueError(f"Rising indices of {n_features} features were expected. Got {kept}.")
    scale = content.array("scale", kept.shape, above=0.0)
    turn = content.array("turn", (len(kept), None)) if "turn" in content else None
    content.close()
    return Columns(center, kept, scale, turn)


# --- scikit-learn's ---------------------------------------------------------------------------------------


def _attributes(*names) -> Callable[[Any], dict[str, Any]]:
    return lambda model: {name: getattr(model, name) for name in names}


def _restore_linear(model, content: Content) -> None:
    n_logits = len(model.classes_) if len(model.classes_) > 2 else 1
    model.coef_ = content.array("coef_", (n_logits, model.n_features_in_))
    model.intercept_ = content.array("intercept_", (n_logits,))
    if "n_iter_" in content:
        model.n_iter_ = content.array("n_iter_", (1,), "i")


def _restore_lda(model, content: Content) -> None:
    _restore_linear(model, content)
    n_classes, n_features = len(model.classes_), model.n_features_in_
    model.priors_, model.means_ = (
        content.array("priors_", (n_classes,)),
        content.array("means_", (n_classes, n_features)),
    )
    model.covariance_ = content.array("covariance_", (n_features, n_features))
    model._max_components = model._n_features_out = min(n_classes - 1, n_features)


def _restore_shares(model, content: Content) -> None:
    model.n_classes_ = len(model.classes_)
    model.class_prior_ = content.array("class_prior_", (model.n_classes_,), above=0.0)
    model._strategy, model.sparse_output_, model.n_outputs_ = model.strategy, False, 1


LINEAR = ("coef_", "intercept_")
KINDS = {
    "logistic": Kind(_learned_path, _restore_path),
    "lda": Kind(_learned_path, _restore_path),
    "melda": Kind(_learned_melda, _restore_melda),
    "kernel": Kind(_learned_kernel, _restore_kernel),
    "potts": Kind(_learned_prototypes, _restore_prototypes),
    "sklearn-logistic": Kind(_attributes(*LINEAR, "n_iter_"), _restore_linear),
    "sklearn-lda": Kind(_attributes(*LINEAR, "priors_", "means_", "covariance_"), _restore_lda),
    "class-shares": Kind(_attributes("class_prior_"), _restore_shares),
}
