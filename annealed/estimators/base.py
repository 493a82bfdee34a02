"""`AnnealedClassifier`: a scikit-learn classifier for any family of discriminant functions."""

from __future__ import annotations

import warnings
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from annealed.arrays import Place, is_dispatched, is_foreign
from annealed.callbacks import CallbackSupportMixin, FitWatch, with_callbacks
from annealed.estimators.annealing import AnnealingMixin
from annealed.estimators.labels import check_several_classes, coded
from annealed.estimators.mixins import LogitsMixin, PathDiagramMixin, PathPointsMixin, forget_last_fit
from annealed.estimators.on_device import (
    check_foreign,
    check_precision,
    check_same_library,
    classes_like,
    coded_labels,
    device_rows,
)
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
from annealed.estimators.validation import Rows, Shown, checked_rows
from annealed.estimators.weights import (
    check_weight,
    counted_in_rows,
    weighed_by_class,
    weight_of_each,
    weighted_classes,
)
from annealed.path import AnnealingPath
from annealed.problems import InnerProduct, Objective
from annealed.problems.leave_one_out import NotTrusted
from annealed.rows.threads import threads_over_blocks
from annealed.solvers import Solver
from annealed.validation.selection import NoValidation


class AnnealedClassifier(
    AnnealingMixin, PathPointsMixin, PathDiagramMixin, CallbackSupportMixin, LogitsMixin, BaseEstimator
):
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
        Largest number of solver iterations at one temperature, each time that it is solved.
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

    def _accept_sparse(self):
        return "csr" if self._make_objective().accepts_sparse else False

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
        self._check_parameters(X_val, y_val, sample_weight_val)
        sample_weight = weight_of_each(sample_weight, X)
        routed = self._route(sample_weight, params)
        forget_last_fit(self)
        given_X, given_y = X, y
        if is_dispatched(X):
            X = check_foreign(self, X)
            classes, labels = coded_labels(y, X.shape[0])
            y = classes[labels]
        else:
            X, y = checked_rows(self, X, y, accept_sparse=self._accept_sparse())
            classes, labels = coded(y)
        check_several_classes(classes)
        rows = self._rows(X, Shown.of(given_X, given_y, X, y), labels, classes, sample_weight)
        check_precision(self.matmul_precision, rows.device.place if rows.device else None)
        validation_set = self._validation_set(X_val, y_val, sample_weight_val, rows)
        self.classes_ = classes_like(classes, given_y) if is_foreign(X) else classes
        self._dtype = X.dtype
        self._unit_C = self._make_objective().unit_C(rows.total_weight, len(classes))
        max_iter, is_intended = self._iteration_bound()
        watch = self._watch(given_X, given_y, sample_weight)
        try:
            path = self._anneal(rows, self._selection(), validation_set, routed, max_iter, watch)
        except NotTrusted as reason:
            warnings.warn(f"{reason} Folds are used instead.", UserWarning, stacklevel=3)
            path = self._anneal(rows, "cv", validation_set, routed, max_iter, watch)

        self._predictor = path.problem.predictor
        for name, setting in path.settings.items():
            setattr(self, f"{name}_", setting)
        with threads_over_blocks():
            self._keep(path.steps, path.plan, path.validator)
        if not is_intended:
            self._warn_unconverged()
        watch.context.call_on_fit_task_end(estimator=self, **watch.data, reconstruction_attributes=dict)
        return self

    def _rows(self, X, shown, labels, classes, sample_weight) -> Rows:
        if is_foreign(X) or self.device is not None:
            if not isinstance(X, np.ndarray) and not is_foreign(X):
                raise ValueError(f"device={self.device!r} is for dense rows. Got sparse X.")
            place = device_rows(X, labels, sample_weight, classes, self.class_weight, self.device)
            return Rows(X, shown, labels, None, classes, place.total_weight, place)
        weight = check_weight(sample_weight, len(labels))
        weight, counts = weighed_by_class(weight, labels, classes, self.class_weight)
        weight = weight * weighted_classes(counts, classes)[labels]
        total_weight = float(counts.sum())
        weight = counted_in_rows(weight, total_weight, np.count_nonzero(weight))
        return self._without_idle(Rows(X, shown, labels, weight, classes, total_weight))

    def _keep(self, steps, plan, validator):
        """Record the path, and take the model at its chosen temperature."""
        chosen = self._choose(steps, validator)
        is_scored = not self._is_log_loss() and not isinstance(validator, NoValidation)
        score_name = _score_name(self.scoring) if is_scored else "neg_log_loss"
        self.path_ = AnnealingPath.from_steps(
            steps,
            plan,
            best_index=chosen,
            score_name=score_name,
            rule=self.rule,
            unit_C=self._unit_C,
        )
        self.n_iter_ = max(1, int(self.path_.n_iter.sum()))
        self._set_temperature(self.path_.temperatures[chosen])

    def _watch(self, X, y, sample_weight) -> FitWatch:
        """The fit for scikit-learn's callbacks: a task with an unknown number of subtasks, one per temperature."""
        context = self._init_callback_context(max_subtasks=None)
        metadata = {} if sample_weight is None else {"sample_weight": sample_weight}
        data = {"X": X, "y": y, "metadata": metadata}
        context.call_on_fit_task_begin(estimator=self, **data)
        return FitWatch(self, context, data)

    def _warn_unconverged(self):
        path = self.path_
        failed = np.flatnonzero(~path.converged)
        if len(failed):
            first = failed[0]
            warnings.warn(
                f"Not converged at {len(failed)} of {len(path)} temperatures, first at "
                f"{path.temperatures[first]:.4g} (the final fit's gradient is {path.gradient_norm[first]:.2g} there, "
                f"tol {self.tol:.2g}). "
                f"Raise max_iter (now {self.max_iter}), raise tol, or end the schedule at a hotter temperature.",
                ConvergenceWarning,
                stacklevel=4,
            )

    # -- prediction --------------------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self):
        return hasattr(self, "temperature_")

    def _logits(self, X, method):
        """Calibrated logits (n_samples, n_classes)."""
        check_is_fitted(self)
        if is_dispatched(X):
            X = check_foreign(self, X, reset=False)
        else:
            X = checked_rows(self, X, accept_sparse=self._accept_sparse(), reset=False)
        arrays = self._arrays
        check_same_library(X, next(iter(arrays.values())), self, method)
        if is_foreign(X):  # other libraries do not multiply arrays of different precisions
            convert = Place.of(X).row
            arrays = {name: convert(array) for name, array in arrays.items()}
        return self.posterior_scale_ * self._predictor.logits(X, arrays, self.temperature_)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        try:
            family = self._make_objective()
        except TypeError:  # `fit` raises it; an estimator with a wrong parameter can still be printed
            return tags
        tags.input_tags.sparse = family.accepts_sparse
        tags.array_api_support = family.runs_on_devices and self.solver in ("auto", "lbfgs")
        return tags


def _score_name(scoring) -> str:
    """Name of a scorer by scikit-learn's convention: the names of losses begin with neg_."""
    if isinstance(scoring, str):
        return scoring
    function = getattr(scoring, "_score_func", scoring)
    name = getattr(function, "__name__", type(scoring).__name__)
    return f"neg_{name}" if getattr(scoring, "_sign", 1) < 0 else name
