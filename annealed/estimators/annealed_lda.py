"""Distance-based annealed discriminant analysis (dADA)."""

from __future__ import annotations

from typing import Self

from annealed.estimators.base import AnnealedClassifier
from annealed.estimators.mixins import make_published
from annealed.estimators.validation import check_count
from annealed.objectives import Distance
from annealed.schedules import ExponentialSchedule
from annealed.solvers import ScaledConjugateGradient

LITERAL_INNER_ITERATIONS = 15


class AnnealedLDA(AnnealedClassifier):
    """Distance-based annealed discriminant analysis (dADA, eq. 10-12 of the paper): annealed LDA.

    A row goes to the class whose soft mean is nearest in the Mahalanobis metric of the covariance; the soft means
    minimize the free energy (9) as the temperature falls.

    Minimized exactly, the paper's objective does not depend on temperature: its optimum is, at any T, unpenalized
    logistic regression, and the paper's gains come from stopping early. So by default the soft means are pulled
    to the class means, by ``anchor / 2 sum_j prior_j |mean_j - class mean_j|^2``, and log priors are added to
    the logits: then temperature governs complexity; strongly anchored, T = 2 is LDA, far colder ones are hard.
    ``anchor=0`` is the paper's literal form, with a bounded number of inner iterations.
    AnnealedLogisticRegression is usually the stronger classifier.

    Parameters
    ----------
    temperature : "auto" or float, default="auto"
        "auto" chooses the temperature as `selection` says. A number fits the path down to this temperature and keeps
        it; nothing is held out then.
    schedule : "auto", array-like of temperatures, or Schedule, default="auto"
        "auto" finds a hot end from the data and cools until validation has clearly passed its best.
    selection : {"cv", "holdout", "last"}, default="cv"
        How the temperature is chosen. "cv": by folds. "holdout": by a fifth of the rows, or by the validation set given
        to ``fit``. "last": the coldest of the schedule. The final fit always uses all
        rows.
    cv : int, splitter or iterable of splits, default=None
        Folds for ``selection="cv"``; a number is that many stratified, shuffled folds, None is five.
    scoring : str or callable, default="neg_log_loss"
        What validation compares: the name of a scorer, or a callable. Folds that it cannot score, as a fold of one
        class has no ROC curve, are left out, with a warning; a temperature at which any other fold has no score is not
        chosen.
    rule : {"best", "one_standard_error"}, default="best"
        Take the best temperature, or the hottest within one standard error of it.
    calibrate : bool, default=True
        Whether the posterior has a temperature of its own: one factor on the logits, ``posterior_scale_``, chosen
        together with the fit temperature so that held-out rows are predicted best. ``False`` is the paper's form.
        Without held-out rows (``selection="last"`` or a given temperature) the factor is one.
    covariance : {"auto", "pooled", "total", "diagonal", "identity"}, default="auto"
        The matrix of (10): pooled within classes, of all rows, its diagonal, or none. "auto" is pooled, and
        diagonal for sparse X with thousands of rows and columns. Each fold estimates its own; where columns outnumber
        rows, in units of the columns' spreads over all rows. A fold with one row of each class has none within them:
        that of all rows is taken.
    shrinkage : {"oas", "ledoit_wolf"} or float in [0, 1], default="oas"
        Shrinkage of the covariance towards a multiple of the columns' own variances, so that singular data work.
    class_weight : dict or "balanced", default=None
        Weight of each class, multiplied into ``sample_weight``, for the fit and its folds. A scorer gets
        ``sample_weight`` without it, and a validation set ``sample_weight_val``.
    tol : float, default=1e-4
        Largest entry of the gradient (12), in whitened coordinates and with the anchor's pull, at a solution.
    max_iter : int, default=1000
        The most iterations at one temperature when `inner_iterations` is None.
    random_state : int, RandomState instance or None, default=None
        Shuffles the folds and draws ``init="random"``; None shuffles the same way every time.
    device : str, default=None
        Where NumPy rows are fitted, such as "cuda"; needs torch. The fitted attributes are NumPy. Rows that are on a
        device already (with scikit-learn's ``array_api_dispatch``) are fitted there; coef_ and predictions stay there.
    matmul_precision : {"tf32"}, default=None
        Round the products of float32 rows on a device: several times as fast on recent GPUs. The chosen temperature is
        solved once more in full precision, and ``path_`` says how near its optimum it is.

    Other Parameters
    ----------------
    init : {"means", "random", "zero"}, default="means"
        Where the soft means start: at the class means (LDA), at samples drawn at random, or at the origin. With an
        anchor, and converged, all three give the same means.
    anchor : float, default=1.0
        Strength of the pull of the soft means to the class means; 0 is the paper's form.
    inner_iterations : int, default=None
        Largest number of solver iterations at one temperature. None is `max_iter`, or 15 with ``anchor=0``.
    solver : {"auto", "lbfgs", "scg"} or Solver, default="auto"
        Preconditioned L-BFGS (also "auto"), or scaled conjugate gradient. "scg" steps in whitened coordinates;
        ``annealed.solvers.ScaledConjugateGradient(coordinates="paper")`` steps in the units of the features, as the
        paper does.

    Attributes
    ----------
    temperature_ : float
        The chosen temperature.
    posterior_scale_ : float
        Factor on the logits by which the posterior is calibrated; one with ``calibrate=False``.
    path_ : AnnealingPath
        Everything seen on the way.
    means_ : ndarray of shape (n_classes, n_features)
        The soft means at the chosen temperature.
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Coefficients of the logits that ``decision_function`` gives.
    intercept_ : ndarray of shape (n_classes,) or (1,)
    n_iter_ : int
        Solver iterations of the final fit, over all temperatures.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    See Also
    --------
    AnnealedLogisticRegression : The stronger classifier; penalized multinomial logistic regression with a temperature.

    References
    ----------
    G. Wang, Z. Zhang, F. H. Lochovsky, "Annealed Discriminant Analysis".

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from annealed import AnnealedLDA
    >>> X, y = load_iris(return_X_y=True)
    >>> AnnealedLDA().fit(X, y).score(X, y) > 0.95
    True
    """

    def __init__(
        self,
        *,
        temperature="auto",
        schedule="auto",
        selection="cv",
        cv=None,
        scoring="neg_log_loss",
        rule="best",
        calibrate=True,
        covariance="auto",
        shrinkage="oas",
        class_weight=None,
        tol=1e-4,
        max_iter=1000,
        random_state=None,
        device=None,
        matmul_precision=None,
        init="means",
        anchor=1.0,
        inner_iterations=None,
        solver="auto",
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

        The soft means start at the class means, without a pull back to them and without priors. The covariance is
        pooled within classes, as in LDA, and not shrunk. Scaled conjugate gradient steps in the means themselves, in
        the units of the features. T is multiplied by 0.9 down to 0.001, and the temperature is the one of the best
        accuracy on a held-out fifth of the samples. The posterior is not calibrated.

        It differs from the paper in the following:

        - The paper does not print how many iterations the optimizer takes at one temperature. Here it takes at most
          15, which gives curves like the paper's. The number matters: unless classes outnumber features, the minimum
          of (9) gives the same posterior at every temperature, so that only unfinished minimization makes a difference.
        - The paper calls the first temperature "comparatively large". Here it is found from the data: so high that the
          posterior of the class means is nearly uniform.
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
        if bound is None and self.anchor == 0:
            bound = LITERAL_INNER_ITERATIONS
        if bound is None:
            return self.max_iter, False
        check_count(bound, "inner_iterations")
        return bound, True

    def _set_point(self, arrays, temperature, scale):
        super()._set_point(arrays, temperature, scale)
        self.means_ = arrays["means"]
