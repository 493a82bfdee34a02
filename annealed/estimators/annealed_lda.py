"""Linear discriminant analysis with fitted class means: distance-based annealed discriminant analysis (dADA)."""

from __future__ import annotations

from typing import Literal, Self

from annealed.estimators.base import AnnealedClassifier
from annealed.estimators.parameters import check_count, make_published
from annealed.estimators.types import (
    ClassWeight,
    FloatArray,
    Folds,
    RandomState,
    Rule,
    Scoring,
    SelectionWithFolds,
    Temperature,
    Temperatures,
)
from annealed.path import ExponentialSchedule
from annealed.problems import Distance
from annealed.problems.base import number_of
from annealed.problems.distance import WEAK_ANCHOR
from annealed.solvers import ScaledConjugateGradient, Solver

LITERAL_INNER_ITERATIONS = 15


class AnnealedLDA(AnnealedClassifier):
    """Linear discriminant analysis whose class means are fitted to discriminate, along a path of temperatures.

    A sample is assigned to the class whose mean is nearest in the Mahalanobis distance of a shared covariance,
    corrected by log priors. LDA takes the averages of the classes as means. Here the means minimize the free energy, T
    times the mean log-loss of the posterior at temperature T, plus a penalty that pulls them to the averages:

        anchor / 2 sum_j prior_j |mean_j - average_j|^2        (in the metric of the covariance)

    The temperature governs complexity. At high temperatures the means are ``1 + 2 / anchor`` times as far from the
    overall mean as the averages, in the same directions; as T falls they move to where they separate the classes best,
    and the posterior becomes certain. With a large anchor they are the averages, and T = 2 gives the posterior of LDA.
    The temperature is chosen by held-out scores, and the posterior is calibrated.

    This is the method dADA of the paper (eq. 10-12) with an anchor and priors, which the paper does not have. Without
    an anchor, ``anchor=0``, the exact minimum has the same posterior at every temperature, that of unpenalized logistic
    regression (unless classes outnumber features), and the gains of the paper come from stopping after a few solver
    iterations at each temperature; see `as_published`. The penalty does not act on coefficients, so scikit-learn's C is
    not defined.

    :class:`AnnealedLogisticRegression` usually predicts better.

    Parameters
    ----------
    temperature : "auto" or float, default="auto"
        "auto" chooses the temperature as `selection` says. A number ends the path at this temperature and uses it;
        nothing is held out then.
    schedule : "auto", array-like of temperatures, or Schedule, default="auto"
        Which temperatures are solved, from hot to cold. "auto" starts at a hot temperature found from the data and
        stops when the validation scores have clearly passed their best.
    selection : {"cv", "holdout", "last"}, default="cv"
        How the temperature is chosen. "cv": by cross-validation. "holdout": on a fifth of the samples, or on
        the validation set given to ``fit``. "last": the lowest temperature of the schedule. The final fit always uses
        all samples.
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
        temperature so that held-out samples are predicted best. The factor is 1 if nothing is held out, as with
        ``selection="last"`` or a given temperature. The paper has no such factor.
    covariance : {"auto", "pooled", "total", "diagonal", "identity"}, default="auto"
        Covariance of the distance (10): pooled within classes, of all samples, the diagonal of the pooled one, or the
        identity. "auto" is "pooled", or "diagonal" for sparse X with thousands of samples and features. Each fold has
        its own estimate. A fold with one sample of each class, which has no covariance within classes, takes that of
        all samples.
    shrinkage : {"oas", "ledoit_wolf"} or float in [0, 1], default="oas"
        Shrinkage of the covariance towards a multiple of the variances of the features over all samples, so that it is
        invertible. Constant features do not count. With ``covariance="diagonal"`` the two names mean the least squared
        error of Gaussian variances.
    class_weight : dict or "balanced", default=None
        Weights of the classes, by which ``sample_weight`` is multiplied for the fit and its folds. Scorers receive
        ``sample_weight`` without them; a validation set is weighted by ``sample_weight_val`` alone.
    tol : float, default=1e-4
        Tolerance: largest entry of the gradient (12), in whitened coordinates and with the penalty, at a solution.
    max_iter : int, default=1000
        Largest number of solver iterations at one temperature, unless `inner_iterations` is given.
    random_state : int, RandomState instance or None, default=None
        Seed of shuffled folds and of ``init="random"``; None gives the same ones every time.
    device : str, default=None
        Device on which NumPy arrays are fitted, such as "cuda"; needs torch. The fitted attributes are NumPy arrays.
        Arrays that are already on a device (with scikit-learn's ``array_api_dispatch``) are fitted there, and `coef_`
        and predictions stay there.
    matmul_precision : {"tf32"}, default=None
        Reduced precision for products of float32 arrays on a device, several times as fast on recent GPUs. The chosen
        temperature is solved again in full precision.

    Other Parameters
    ----------------
    init : {"means", "random", "zero"}, default="means"
        Where the means start: at the averages of the classes (LDA), at samples drawn at random, or at the origin. With
        an anchor, and converged, all three give the same means.
    anchor : float, default=1.0
        Strength of the penalty that pulls the means to the averages of the classes; 0 is the form of the paper.
    inner_iterations : int, default=None
        Largest number of solver iterations at one temperature. None is `max_iter`, or 15 with an anchor below 0.01.
    solver : {"auto", "lbfgs", "scg"} or Solver, default="auto"
        Preconditioned L-BFGS (also "auto"), or scaled conjugate gradient. "scg" steps in whitened coordinates;
        ``annealed.solvers.ScaledConjugateGradient(coordinates="paper")`` steps in the units of the features, as the
        paper does.

    Attributes
    ----------
    temperature_ : float
        The chosen temperature.
    posterior_scale_ : float
        Calibration factor, included in `coef_` and in predictions; 1 if nothing was held out or ``calibrate=False``.
    path_ : AnnealingPath
        Record of all temperatures: means, coefficients, scores and convergence.
    means_ : ndarray of shape (n_classes, n_features)
        Fitted means of the classes at the chosen temperature.
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Coefficients of the logits of ``decision_function``.
    intercept_ : ndarray of shape (n_classes,), or (1,) for two classes
    n_iter_ : int
        Solver iterations of the final fit, summed over all temperatures.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    See Also
    --------
    AnnealedLogisticRegression : Multinomial logistic regression with its L2 path, usually the better classifier.

    References
    ----------
    G. Wang, Z. Zhang, F. H. Lochovsky, "Annealed Discriminant Analysis".

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from annealed import AnnealedLDA
    >>> X, y = load_iris(return_X_y=True)
    >>> model = AnnealedLDA().fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    >>> model.means_.shape
    (3, 4)
    """

    means_: FloatArray

    def __init__(
        self,
        *,
        temperature: Temperature = "auto",
        schedule: Temperatures = "auto",
        selection: SelectionWithFolds = "cv",
        cv: Folds | None = None,
        scoring: Scoring = "neg_log_loss",
        rule: Rule = "best",
        calibrate: bool = True,
        covariance: Literal["auto", "pooled", "total", "diagonal", "identity"] = "auto",
        shrinkage: Literal["oas", "ledoit_wolf"] | float = "oas",
        class_weight: ClassWeight | None = None,
        tol: float = 1e-4,
        max_iter: int = 1000,
        random_state: RandomState | None = None,
        device: str | None = None,
        matmul_precision: Literal["tf32"] | None = None,
        init: Literal["means", "random", "zero"] = "means",
        anchor: float = 1.0,
        inner_iterations: int | None = None,
        solver: Literal["auto", "lbfgs", "scg"] | Solver = "auto",
    ) -> None:
        super().__init__(
            temperature=temperature,
            schedule=schedule,
            solver=solver,
            selection=selection,
            cv=cv,
            scoring=scoring,
            rule=rule,
            calibrate=calibrate,
            class_weight=class_weight,
            tol=tol,
            max_iter=max_iter,
            random_state=random_state,
            device=device,
            matmul_precision=matmul_precision,
        )
        self.init = init
        self.covariance = covariance
        self.shrinkage = shrinkage
        self.anchor = anchor
        self.inner_iterations = inner_iterations

    @classmethod
    def as_published(cls, **settings) -> Self:
        """The classifier as the paper prints it: dADA, eq. (9) with the distances (10), annealed as in table 1.

        The means start at the averages of the classes, without an anchor and without priors. The covariance is pooled
        within classes, as in LDA, and not shrunk. Scaled conjugate gradient steps in the means themselves, in the units
        of the features. T is multiplied by 0.9 down to 0.001, and the temperature is the one of the best accuracy on a
        held-out fifth of the samples. The posterior is not calibrated.

        It differs from the paper in the following:

        - The paper does not print how many iterations the optimizer takes at one temperature. Here it takes at most
          15, which gives curves like the paper's. The number matters: unless classes outnumber features, the minimum
          of (9) gives the same posterior at every temperature, so temperature matters only because the minimization is
          not finished.
        - The paper calls the first temperature "comparatively large". Here it is found from the data: so high that the
          posterior of the averages is nearly uniform.
        - The final model is fitted to all samples; the paper keeps the model of the other four fifths. Both agree if
          the validation set is given to ``fit``.
        - The paper does not say how a singular covariance is inverted. Here its eigenvalues, in standardized features,
          are at least 1e-10 of the largest. If features outnumber samples, distances are measured in the span of the
          samples.

        ``init="random"`` and ``init="zero"`` are the paper's other two starts.

        Parameters
        ----------
        **settings : dict
            Constructor parameters that override these settings, or add to them.

        Returns
        -------
        estimator : object
            An unfitted estimator of this class.
        """
        printed = {
            "schedule": ExponentialSchedule(cooling_rate=0.9, stop=1e-3),
            "selection": "holdout",
            "scoring": "accuracy",
            "calibrate": False,
            "covariance": "pooled",
            "shrinkage": 0.0,
            "init": "means",
            "anchor": 0,
            "inner_iterations": LITERAL_INNER_ITERATIONS,
            "solver": ScaledConjugateGradient(coordinates="paper"),
        }
        return make_published(cls, printed, settings)

    def _make_objective(self):
        return Distance(covariance=self.covariance, shrinkage=self.shrinkage, anchor=self.anchor, init=self.init)

    def _iteration_bound(self):
        bound = self.inner_iterations
        if bound is None and number_of(self.anchor) < WEAK_ANCHOR:
            bound = LITERAL_INNER_ITERATIONS
        if bound is None:
            return self.max_iter, False
        check_count(bound, "inner_iterations")
        return bound, True

    def _set_point(self, point):
        super()._set_point(point)
        self.means_ = point.arrays["means"]
