"""Fitted models as the data of a .skops file, which holds arrays and settings, never a pickle.

A file names the types of its objects. Only types in TRUSTED, and those that skops itself trusts, are loaded.
"""

from __future__ import annotations

from annealed.errors import InputError
from annealed.optional import require

TRUSTED = [
    "annealed.estimators.base.AnnealedClassifier",
    "annealed.estimators.annealed_lda.AnnealedLDA",
    "annealed.estimators.annealed_logistic_regression.AnnealedLogisticRegression",
    "annealed.estimators.melda.MELDA",
    "annealed.estimators.pooled_gaussian.PooledGaussian",
    "annealed.estimators.melda_projection.Projection",
    "annealed.estimators.path_fit.Point",
    "annealed.estimators.potts_da.PottsDA",
    "annealed.estimators.second_order_features.SecondOrderFeatures",
    "annealed.problems.distance.Distance",
    "annealed.problems.penalized_linear.InnerProduct",
    "annealed.problems.linear.LinearPredictor",
    "annealed.problems.quadratic.Quadratic",
    "annealed.problems.quadratic.QuadraticPredictor",
    "annealed.path.record.AnnealingPath",
    "annealed.potts.rows.Columns",
    "annealed.potts.record.PrototypePath",
    "annealed.potts.refinement.CalibratedPosterior",
    "annealed.path.adaptive.AdaptiveSchedule",
    "annealed.path.schedules.CGrid",
    "annealed.path.schedules.ExponentialSchedule",
    "annealed.path.schedules.FixedSchedule",
    "annealed.path.schedules.InverseTemperatureSchedule",
    "annealed.path.schedules.UntilSchedule",
    "annealed.solvers.lbfgs.LBFGS",
    "annealed.solvers.newton.Newton",
    "annealed.solvers.scaled_conjugate_gradient.ScaledConjugateGradient",
    "annealed.solvers.subspace.Subspace",
    "numpy.dtype",
]


def model_bytes(path) -> bytes:
    """The content of a model file."""
    try:
        if path.is_file():
            return path.read_bytes()
    except OSError as error:
        raise InputError(f"The model file '{path}' cannot be read: {error.strerror}.") from error
    raise InputError(f"There is no model file '{path}'.")


def load_trusted(path, data):
    """The objects in the data of a model file; an untrusted type raises an error."""
    skops = require("skops.io", extra="cli")
    try:
        untrusted = untrusted_types(data)
    except Exception as error:  # skops may raise anything on a file of another format
        raise InputError(f"'{path}' is not a model file, or it is damaged. Fit the model again.") from error
    if untrusted:
        raise InputError(
            f"'{path}' was not written by annealed, or it was tampered with: it contains {untrusted[0]}, "
            "which is not loaded."
        )
    try:
        return skops.loads(data, trusted=TRUSTED)
    except Exception as error:
        raise InputError(f"'{path}' is damaged. Fit the model again.") from error


def untrusted_types(data) -> list[str]:
    """Names of the types in the data of a model file that are not trusted."""
    return [name for name in require("skops.io", extra="cli").get_untrusted_types(data=data) if name not in TRUSTED]
