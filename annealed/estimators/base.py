"""`AnnealedClassifier`: a scikit-learn classifier for any family of discriminant functions."""

from __future__ import annotations

import warnings
from copy import copy
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from annealed.arrays import Place, is_dispatched, is_foreign
from annealed.callbacks import CallbackSupportMixin, FitWatch, with_callbacks
from annealed.estimators.parameters import (
    check_parameters,
    check_precision,
    forget_last_fit,
    is_log_loss,
    routed_metadata,
    routing_of,
)
from annealed.estimators.path_fit import PathFit, Point, SolvedPath
from annealed.estimators.predictions import LogitsMixin, check_same_library, classes_like
from annealed.estimators.samples import Samples, checked, weight_of_each
from annealed.estimators.sparkline import diagram_with_path
from annealed.estimators.types import (
    ClassWeight,
    FloatArray,
    Folds,
    MatmulPrecision,
    RandomState,
    Rule,
    Scoring,
    Selection,
    Temperature,
    Temperatures,
)
from annealed.path import AnnealingPath, check_temperature
from annealed.problems import InnerProduct, Objective
from annealed.rows.threads import threads_over_blocks
from annealed.solvers import Solver
from annealed.validation.selection import is_number_of_folds


class AnnealedClassifier(CallbackSupportMixin, LogitsMixin, BaseEstimator):
    """Classifier with any family of discriminant functions, fitted along a path of falling temperatures.

    A family assigns a score g_j(x) to each class. The posterior is the softmax of the scores divided by a temperature T
    (eq. 7), and the fit minimizes the free energy (eq. 9), T times the mean log-loss, plus the penalty of the family.
    It is solved from hot to cold, and the temperature with the best held-out scores is chosen (table 1 of the paper).

    For linear scores and distances to class means use :class:`AnnealedLogisticRegression` and :class:`AnnealedLDA`;
    this class is for quadratic scores and for families that you define.

    Parameters
    ----------
    objective : Objective, default=None
        The family of discriminant functions: ``InnerProduct()`` (the same as None), ``Distance()`` or ``Quadratic()``
        from ``annealed.problems``, or an instance of your own subclass of ``ScoreFamily``.
    temperature : "auto" or float, default="auto"
        "auto" chooses the temperature as `selection` says. A number ends the path at this temperature and uses it;
        nothing is held out then.
    schedule : "auto", array-like of temperatures, or Schedule, default="auto"
        Which temperatures are solved, from hot to cold. "auto" starts at a hot temperature found from the data and
        stops when the validation scores have clearly passed their best. ``CGrid(Cs)`` takes values of
        scikit-learn's C, for ``InnerProduct`` and ``Quadratic``.
    solver : {"auto", "lbfgs", "newton", "scg", "subspace"} or Solver, default="auto"
        Method that minimizes the free energy at one temperature; "auto" chooses it by the shape of the problem.
        "newton" needs a family with a Hessian (inner-product, quadratic). "subspace" is for the inner-product family
        with very many, mostly sparse, features.
    selection : {"cv", "loo", "holdout", "last"}, default="cv"
        How the temperature is chosen. "cv": by cross-validation. "loo": by approximate leave-one-out, which fits no
        folds, for the inner-product and the quadratic family; where it is unreliable, as near separability, folds are
        used, with a warning. "holdout": on a fifth of the samples, or on the validation set given to ``fit``. "last":
        the lowest temperature of the schedule. The final fit always uses all samples.
    cv : int, splitter or iterable of splits, default=None
        Folds for ``selection="cv"``: a number of stratified and shuffled folds, a splitter, or splits. None is 5.
    scoring : str or callable, default="neg_log_loss"
        Score by which temperatures are compared on held-out samples: the name of a scorer, or a callable. A fold that
        it cannot score, such as ROC AUC on a single class, is left out with a warning. A temperature with NaN on
        another fold is not chosen.
    rule : {"best", "one_standard_error"}, default="best"
        Choose the temperature with the best score, or the hottest one whose score is within one standard error of it.
    calibrate : bool, default=True
        Whether to calibrate the posterior: one factor on the logits, ``posterior_scale_``, is chosen together with the
        temperature so that held-out samples are predicted best. The factor is 1 if nothing is held out.
    class_weight : dict or "balanced", default=None
        Weights of the classes, by which ``sample_weight`` is multiplied for the fit and its folds. Scorers receive
        ``sample_weight`` without them; a validation set is weighted by ``sample_weight_val`` alone.
    tol : float, default=1e-4
        Tolerance. At every temperature the largest entry of the gradient of the free energy, in the solver's
        coordinates, is at most `tol`, and the certified relative suboptimality, for families that have a certificate,
        at most ``tol / 100``. On a device, temperatures are solved until a step promises a relative decrease below
        ``tol / 10``, and the chosen one until its gradient and its certificate are at most `tol`.
    max_iter : int, default=1000
        Largest number of solver iterations at one temperature, each time that it is solved. ``schedule="auto"`` allows
        at most four times as many as all hotter temperatures took together, or 100 if that is more.
    random_state : int, RandomState instance or None, default=None
        Seed of shuffled folds and of random starts; None gives the same folds every time.
    device : str, default=None
        Device on which NumPy arrays are fitted, such as "cuda"; needs torch. The fitted attributes are NumPy arrays.
        Arrays that are already on a device (with scikit-learn's ``array_api_dispatch``) are fitted there, and `coef_`
        and predictions stay there.
    matmul_precision : {"tf32"}, default=None
        Reduced precision for products of float32 arrays on a device, several times as fast on recent GPUs. The chosen
        temperature is solved again in full precision, and ``path_`` has its certificate.

    Attributes
    ----------
    temperature_ : float
        The chosen temperature.
    C_ : float
        The same as scikit-learn's C: ``1 / (l2_strength * temperature_ * n_samples)``, doubled for two classes. Only
        for ``InnerProduct`` and ``Quadratic``.
    posterior_scale_ : float
        Calibration factor, included in `coef_` and in predictions; 1 if nothing was held out or ``calibrate=False``.
    path_ : AnnealingPath
        Record of all temperatures: parameters, scores, convergence and certificates.
    classes_ : ndarray of shape (n_classes,)
    penalty_scaling_ : str
        Scaling of the features in which the L2 penalty acts, as given or as chosen; for families that have one.
    coef_, intercept_ : ndarray
        Coefficients and intercepts of the logits of ``decision_function``, for families that are linear in their
        features: (n_classes, n_features) and (n_classes,), or (1, n_features) and (1,) for two classes.
    n_iter_ : int
        Solver iterations of the final fit, summed over all temperatures.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    See Also
    --------
    AnnealedLogisticRegression : Multinomial logistic regression with its L2 path.
    AnnealedLDA : Linear discriminant analysis with fitted class means.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from annealed import AnnealedClassifier
    >>> from annealed.problems import Quadratic
    >>> X, y = load_wine(return_X_y=True)
    >>> model = AnnealedClassifier(Quadratic()).fit(X, y)
    >>> model.score(X, y) > 0.98
    True
    """

    classes_: NDArray[Any]
    temperature_: float
    posterior_scale_: float
    penalty_scaling_: str
    C_: float
    path_: AnnealingPath
    coef_: FloatArray
    intercept_: FloatArray
    n_iter_: int
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    _point: Point

    def __init__(
        self,
        objective: Objective | None = None,
        *,
        temperature: Temperature = "auto",
        schedule: Temperatures = "auto",
        solver: Literal["auto", "lbfgs", "newton", "scg", "subspace"] | Solver = "auto",
        selection: Selection = "cv",
        cv: Folds | None = None,
        scoring: Scoring = "neg_log_loss",
        rule: Rule = "best",
        calibrate: bool = True,
        class_weight: ClassWeight | None = None,
        tol: float = 1e-4,
        max_iter: int = 1000,
        random_state: RandomState | None = None,
        device: str | None = None,
        matmul_precision: MatmulPrecision | None = None,
    ) -> None:
        self.objective = objective
        self.temperature = temperature
        self.schedule = schedule
        self.solver = solver
        self.selection = selection
        self.cv = cv
        self.scoring = scoring
        self.rule = rule
        self.calibrate = calibrate
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.device = device
        self.matmul_precision = matmul_precision

    # -- what subclasses override ----------------------------------------------------------------------------

    def _make_objective(self) -> Objective:
        objective = InnerProduct() if self.objective is None else self.objective
        if not isinstance(objective, Objective):
            raise TypeError(f"objective must be an Objective, such as InnerProduct(). Got {objective!r}.")
        return objective

    def _iteration_bound(self) -> tuple[int, bool]:
        """Largest number of iterations at one temperature, and whether stopping there is intended."""
        return self.max_iter, False

    # -- fitting ---------------------------------------------------------------------------------------------

    @with_callbacks
    def fit(self, X, y, sample_weight=None, *, X_val=None, y_val=None, sample_weight_val=None, **params) -> Self:
        """Fit the whole path and choose the temperature.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels of any type.
        sample_weight : array-like of shape (n_samples,), default=None
            A sample of weight 2 counts as two samples, one of weight 0 as none. Weights that sum to less than the
            number of samples of positive weight are scaled up to this number (C is that of the given weights).
        X_val, y_val, sample_weight_val : array-like, default=None
            A validation set, for ``selection="holdout"``.
        **params : dict
            ``groups`` for a splitter that needs them; with metadata routing enabled, whatever the splitter and the
            scorer request.

        Returns
        -------
        self : object
        """
        check_parameters(self, X_val, y_val, sample_weight_val)
        sample_weight = weight_of_each(sample_weight, X)
        metadata = routed_metadata(self, sample_weight, params)
        forget_last_fit(self)
        family, (max_iter, is_intended) = self._make_objective(), self._iteration_bound()
        accept_sparse = "csr" if family.accepts_sparse else False
        samples = Samples.of(self, X, y, sample_weight, accept_sparse)
        check_precision(self.matmul_precision, samples.place)
        validation_set = samples.validation_set(self, X_val, y_val, sample_weight_val, accept_sparse)
        is_unseen = is_number_of_folds(self.cv) and is_log_loss(self.scoring)  # by a splitter or a scorer of the user
        if is_unseen and not family.keeps_rows:
            samples = samples.without_idle()
        self.classes_ = classes_like(samples.classes, y) if is_dispatched(X) else samples.classes
        watch = FitWatch.of_fit(self, X, y, sample_weight)
        path_fit = PathFit(self, family, samples, validation_set, metadata, max_iter, watch)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # models that are not finite are refused
            path = path_fit.solve()
            with threads_over_blocks():
                self._keep(path_fit, path)
        if not is_intended:
            _warn_unconverged(self)
        watch.finish()
        return self

    def _keep(self, path_fit: PathFit, path: SolvedPath):
        """Record the path, and take the model at its chosen temperature."""
        for name, setting in path.settings.items():
            setattr(self, f"{name}_", setting)
        self.path_, point = path_fit.record(path)
        self.n_iter_ = max(1, int(self.path_.n_iter.sum()))
        self._set_point(point)

    def _set_point(self, point: Point):
        if "coef" in point.arrays:  # first, as it may raise an error
            self.coef_, self.intercept_ = point.weights()
        self._point, self.temperature_, self.posterior_scale_ = point, point.temperature, point.scale
        if point.unit_C is not None:
            self.C_ = point.unit_C / point.temperature

    def get_metadata_routing(self):
        """Get the metadata requests of this estimator, its splitter and its scorer."""
        return routing_of(self)

    # -- prediction --------------------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self):
        return hasattr(self, "temperature_")

    def at(self, temperature: float | None = None, *, C: float | None = None) -> Self:
        """Get the classifier at another temperature of its path, without a refit.

        Exactly one of `temperature` and `C` must be given.

        Parameters
        ----------
        temperature : float, default=None
            A temperature between the ends of ``path_``. Between the temperatures of the path, parameters are
            interpolated.
        C : float, default=None
            The same as a value of scikit-learn's C, for models that have ``C_``.

        Returns
        -------
        classifier : object
            A fitted copy; this classifier is not changed.
        """
        check_is_fitted(self)
        if (temperature is None) == (C is None):
            given = "neither" if C is None else f"temperature={temperature!r} and C={C!r}"
            raise ValueError(f"Exactly one of `temperature` and `C` must be given. Got {given}.")
        temperature = _temperature_of(self, C) if temperature is None else check_temperature(temperature)
        other = copy(self)
        arrays, scale = self.path_.at(temperature)
        other._set_point(self._point.moved(arrays, temperature, scale))
        return other

    def _logits(self, X, method):
        """Calibrated logits (n_samples, n_classes)."""
        check_is_fitted(self)
        X = checked(self, X, accept_sparse="csr" if self._make_objective().accepts_sparse else False, reset=False)
        point, arrays = self._point, self._point.arrays
        check_same_library(X, next(iter(arrays.values())), self, method)
        if is_foreign(X):  # other libraries do not multiply arrays of different precisions
            convert = Place.of(X).wide if point.predictor.needs_digits else Place.of(X).row
            arrays = {name: convert(array) for name, array in arrays.items()}
        return point.scale * point.predictor.logits(X, arrays, point.temperature)

    def _html_repr(self):
        return diagram_with_path(self, getattr(self, "path_", None))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        try:
            family = self._make_objective()
        except TypeError:  # `fit` raises it; an estimator with a wrong parameter can still be printed
            return tags
        tags.input_tags.sparse = family.accepts_sparse
        tags.array_api_support = family.runs_on_devices and str(self.solver) in ("auto", "lbfgs")
        return tags


def _temperature_of(model: AnnealedClassifier, C):
    if model.path_.unit_C is None:
        raise ValueError(
            f"temperature must be given: C is not defined for {type(model).__name__} here, whose penalty is not an L2 "
            f"norm of coefficients. Got C={C!r}."
        )
    least, largest = model.path_.unit_C / model.path_.temperatures[[0, -1]]
    if not least * (1 - 1e-9) <= check_temperature(C, "C") <= largest * (1 + 1e-9):
        raise ValueError(
            f"C must lie on the path, between {least:.6g} and {largest:.6g}. Got {C!r}. "
            "Refit with a schedule that reaches it."
        )
    return model.path_.unit_C / float(C)


def _warn_unconverged(model: AnnealedClassifier):
    path = model.path_
    failed = np.flatnonzero(~path.converged)
    if len(failed):
        first = failed[0]
        is_cut = path.n_iter[failed].max() >= model.max_iter
        remedy = f"Raise max_iter (now {model.max_iter}), raise tol" if is_cut else "Raise tol"
        warnings.warn(
            f"Not converged at {len(failed)} of {len(path)} temperatures, first at "
            f"{path.temperatures[first]:.4g} (the final fit's gradient is {path.gradient_norm[first]:.2g} there, "
            f"tol {model.tol:.2g}). "
            f"{remedy}, or end the schedule at a hotter temperature.",
            ConvergenceWarning,
            stacklevel=4,
        )
