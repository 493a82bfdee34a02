"""Distance-based annealed discriminant analysis (dADA)."""

from __future__ import annotations

from annealed.estimators.base import AnnealedClassifier
from annealed.estimators.validation import check_count
from annealed.objectives import Distance

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
    init : {"means", "random", "zero"}, default="means"
        Where the soft means start: at the class means (LDA), at rows drawn at random, or at the origin.
    covariance : {"auto", "pooled", "total", "diagonal", "identity"}, default="auto"
        The matrix of (10): pooled within classes, of all rows, its diagonal, or none. "auto" is pooled, and
        diagonal for sparse X with thousands of rows and columns. Each fold estimates its own; where columns outnumber
        rows, in units of the columns' spreads over all rows. A fold with one row of each class has none within them:
        that of all rows is taken.
    shrinkage : {"oas", "ledoit_wolf"} or float in [0, 1], default="oas"
        Shrinkage of the covariance towards a multiple of the columns' own variances, so that singular data work.
    anchor : float, default=1.0
        Strength of the pull of the soft means to the class means.
    inner_iterations : int, default=None
        The most solver iterations at one temperature; None is as many as convergence needs (at most `max_iter`),
        and 15 for the literal form.
    solver : {"auto", "lbfgs", "scg"} or Solver, default="auto"
        Preconditioned L-BFGS (also "auto"), or the paper's scaled conjugate gradient.
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
        init="means",
        covariance="auto",
        shrinkage="oas",
        anchor=1.0,
        inner_iterations=None,
        solver="auto",
        class_weight=None,
        tol=1e-4,
        max_iter=1000,
        random_state=None,
        device=None,
        matmul_precision=None,
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
