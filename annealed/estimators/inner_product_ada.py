"""Inner-product annealed discriminant analysis (pADA)."""

from __future__ import annotations

from annealed.estimators.base import AnnealedClassifier
from annealed.objectives import InnerProduct


class InnerProductADA(AnnealedClassifier):
    """Inner-product annealed discriminant analysis (pADA, eq. 13-18 of the paper).

    Multinomial logistic regression with the whole L2 path, cross-validated, as a walk in temperature: at each T
    the penalized free energy (17) is minimized,

        Q_new = 1/N sum_i [ T log sum_j exp(lambda_j'x_i / T) - lambda_c(i)'x_i ] + l2_strength / 2 sum_j |lambda_j|^2

    Its optimum depends on ``l2_strength * T`` alone, and T = 1 is penalized logistic regression:
    ``LogisticRegression(C=1 / (l2_strength * T * n_samples))`` (twice that C for two classes, whose two rows of
    lambda are both penalized here). Raw features need no scaling and there is nothing to tune.

    Parameters
    ----------
    l2_strength : float, default=1.0
        The paper's epsilon. It merely sets the scale of the temperature.
    schedule : "auto", array-like of temperatures, or Schedule, default="auto"
        "auto" finds a hot end from the data and cools until validation has clearly passed its best.
    selection : {"cv", "loo", "holdout", "last"} or float, default="cv"
        How the temperature is chosen: by folds; by approximate leave-one-out, which fits no fold (near separability
        it is not to be trusted: a warning says so and folds are used); by a held-out fifth of the rows, or the
        validation set given to ``fit``; the last one of the schedule; or this very temperature. The final fit always
        uses all rows.
    cv : int, splitter or iterable of splits, default=None
        Folds for ``selection="cv"``; a number is that many stratified, shuffled folds, None is five.
    scoring : str or callable, default=None
        What validation compares; None is the log-loss. Held-out parts that it gives no number for, as a fold of one
        class has no ROC curve, are left out, with a warning; temperatures at which others have none are not chosen.
    rule : {"best", "one_standard_error"}, default="best"
        Take the best temperature, or the hottest within one standard error of it.
    calibrate : bool, default=True
        Whether the posterior speaks at its own temperature: one factor on the logits, ``posterior_scale_``,
        chosen together with the fit temperature from the held-out scores. ``False`` is the paper's form. Without
        held-out rows (``selection`` "last" or a number) the factor is one.
    fit_intercept : bool, default=True
        Whether each class has an unpenalized intercept. The paper has none: append a constant column for that.
    metric : {"auto", "validated", "euclidean", "diagonal", "halfway", "covariance"}, default="auto"
        In which units |lambda_j| is measured: "euclidean" is the paper's, raw features; "diagonal" divides each
        column by its standard deviation, so units do not matter; "covariance" whitens the columns, so no linear
        map of the features matters (about the origin without an intercept); "halfway" is between these two, each
        principal direction of the standardized columns divided by the fourth root of its variance; "auto" is euclidean
        for sparse X, unless folds say that diagonal is clearly better (asked up to a thousand columns, of a few hundred
        rows, or where nothing was learned), and diagonal for dense X, unless they say that halfway is (not asked on a
        device), or covariance where columns outnumber a few hundred independent rows. Where they do so fifteen times
        over and least squares, leaving rows out, only lose by a ridge, it is covariance at once (not with a ``cv``
        that may keep rows together: splits that are given, splitters by groups or in the order of the rows). All this
        with the default schedule, several folds and log-loss: ``metric_`` tells. The spreads of columns are those of
        all rows, also within folds. Principal directions are too, but where columns outnumber rows: there each fold
        has its own.
        "validated" walks one path a metric and keeps the one that validates best, ``metric_``: diagonal, and where
        they are better by more than a standard error over the folds, halfway or covariance for dense X (not where
        both rows and columns are more than a thousand); euclidean or diagonal for sparse X. It takes as long as these
        paths together. Without held-out rows (``selection`` "last" or a number) it is "auto".
    class_weight : dict or "balanced", default=None
        Weight of each class, multiplied into ``sample_weight`` of the rows fitted and of their folds; a scorer and a
        validation set know ``sample_weight`` and ``sample_weight_val`` alone.
    tol : float, default=1e-4
        At every temperature the largest entry of the gradient (18), in the metric's units (of the widest column, where
        wide rows are combined), is at most `tol`, and the relative suboptimality of (17), certified by
        |gradient|^2 / (2 l2_strength T), at most `tol` / 100. On a device every temperature is solved until a step
        promises a relative fall below `tol` / 10; the chosen one until its gradient and certificate are within `tol`.
    max_iter : int, default=1000
        The most iterations at one temperature, each time it is solved on.
    random_state : int, RandomState instance or None, default=None
        Shuffles the folds; None shuffles the same way every time.
    device : str, default=None
        Where NumPy rows are fitted, such as "cuda"; needs torch. What is fitted comes back in NumPy. Rows that are on a
        device already (with scikit-learn's ``array_api_dispatch``) are fitted there, and so are coef_ and predictions.
    precision : {"tf32", "bf16"}, default=None
        Round the products of float32 rows on a device: several times as fast on recent GPUs. The chosen temperature is
        solved once more in full precision, and ``path_`` says how near its optimum it is.

    Attributes
    ----------
    temperature_ : float
        The chosen temperature.
    posterior_scale_ : float
        Factor on the logits at which the posterior speaks.
    metric_ : str
        The metric of the penalty: as given, or as chosen.
    path_ : AnnealingPath
        Everything seen on the way; ``temperature * path_.coef`` is the paper's lambda.
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
    DistanceADA : Annealed linear discriminant analysis.
    AnnealedClassifier : The same with a family of one's own.

    References
    ----------
    G. Wang, Z. Zhang, F. H. Lochovsky, "Annealed Discriminant Analysis".

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from annealed import InnerProductADA
    >>> X, y = load_wine(return_X_y=True)
    >>> model = InnerProductADA().fit(X, y)
    >>> model.predict_proba(X[:1]).argmax()
    np.int64(0)
    >>> model.at(0.1).predict(X[:3])
    array([0, 0, 0])
    """

    def __init__(
        self,
        *,
        l2_strength=1.0,
        schedule="auto",
        selection="cv",
        cv=None,
        scoring=None,
        rule="best",
        calibrate=True,
        fit_intercept=True,
        metric="auto",
        class_weight=None,
        tol=1e-4,
        max_iter=1000,
        random_state=None,
        device=None,
        precision=None,
    ) -> None:
        super().__init__(
            schedule=schedule,
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
            precision=precision,
        )
        self.l2_strength = l2_strength
        self.fit_intercept = fit_intercept
        self.metric = metric

    def _make_objective(self):
        return InnerProduct(l2_strength=self.l2_strength, metric=self.metric, fit_intercept=self.fit_intercept)
