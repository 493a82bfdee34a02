"""Inner-product annealed discriminant analysis (pADA)."""

from __future__ import annotations

from typing import Self

from annealed.estimators.base import AnnealedClassifier
from annealed.estimators.mixins import make_published
from annealed.objectives import InnerProduct
from annealed.schedules import ExponentialSchedule


class AnnealedLogisticRegression(AnnealedClassifier):
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
    temperature : "auto" or float, default="auto"
        "auto" chooses the temperature as `selection` says. A number fits the path down to this temperature and keeps
        it; nothing is held out then.
    schedule : "auto", array-like of temperatures, or Schedule, default="auto"
        "auto" finds a hot end from the data and cools until validation has clearly passed its best.
    selection : {"cv", "loo", "holdout", "last"}, default="cv"
        How the temperature is chosen. "cv": by folds. "loo": by approximate leave-one-out, which fits no fold; where it
        cannot be trusted, as near separability, a warning says so and folds are used. "holdout": by a fifth of the
        rows, or by the validation set given to ``fit``. "last": the coldest of the schedule. The final fit always uses
        all rows.
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
    fit_intercept : bool, default=True
        Whether each class has an unpenalized intercept. The paper has none: append a constant column for that.
    penalty_scaling : {"auto", "cv", "none", "standardize", "half-whiten", "whiten"}, default="auto"
        The units in which |lambda_j| is measured. ``penalty_scaling_`` says which one was used.

        - "none": raw columns, as in the paper.
        - "diagonal": each column is divided by its standard deviation, so that units do not matter.
        - "covariance": the columns are whitened, so that no linear map of them matters (about the origin without an
          intercept).
        - "half-whiten": between these two; each principal direction of the standardized columns is divided by the
          fourth root of its variance.
        - "auto": for sparse X euclidean, or diagonal where folds say that it is clearly better (tried with up to a
          thousand columns, with a few hundred rows, or where nothing was learned). For dense X diagonal, or halfway
          where folds say that it is clearly better (not tried on a device). Where columns outnumber a few hundred
          independent rows, covariance is tried too, and with fifteen times as many columns taken at once if least
          squares, leaving rows out, only lose by a ridge (not with a ``cv`` that may keep rows together: given splits,
          splitters by groups or in the order of the rows). All this with the default schedule, several folds and
          log-loss; else it is euclidean or diagonal.
        - "cv": one path a penalty_scaling, of which the one that validates best is kept. For dense X diagonal, unless
          halfway or covariance is better by more than a standard error over the folds (neither is tried where rows and
          columns are both more than a thousand); for sparse X euclidean or diagonal. It takes as long as these paths
          together. Without held-out rows (``selection="last"`` or a given temperature) it is "auto".

        The standard deviations are those of all rows, also within folds. So are the principal directions, unless
        columns outnumber rows: then each fold has its own.
    class_weight : dict or "balanced", default=None
        Weight of each class, multiplied into ``sample_weight``, for the fit and its folds. A scorer gets
        ``sample_weight`` without it, and a validation set ``sample_weight_val``.
    tol : float, default=1e-4
        At every temperature the largest entry of the gradient (18) is at most `tol`, in the scaled columns (in
        those of the widest, where columns far outnumber rows), and the relative suboptimality of (17), certified by
        |gradient|^2 / (2 l2_strength T), is at most `tol` / 100. On a device every temperature is solved until a step
        promises a relative fall below `tol` / 10, the chosen one until its gradient and certificate are within `tol`.
    max_iter : int, default=1000
        The most iterations at one temperature, each time that it is solved.
    random_state : int, RandomState instance or None, default=None
        Shuffles the folds; None shuffles the same way every time.
    device : str, default=None
        Where NumPy rows are fitted, such as "cuda"; needs torch. The fitted attributes are NumPy. Rows that are on a
        device already (with scikit-learn's ``array_api_dispatch``) are fitted there; coef_ and predictions stay there.
    matmul_precision : {"tf32", "bf16"}, default=None
        Round the products of float32 rows on a device: several times as fast on recent GPUs. The chosen temperature is
        solved once more in full precision, and ``path_`` says how near its optimum it is.

    Attributes
    ----------
    temperature_ : float
        The chosen temperature.
    C_ : float
        The same as scikit-learn's C: ``1 / (l2_strength * temperature_ * n_samples)``, doubled for two classes.
        ``n_samples`` is the sum of the weights; C is that of the features as ``penalty_scaling_`` scales them.
    posterior_scale_ : float
        Factor on the logits by which the posterior is calibrated; one with ``calibrate=False``.
    penalty_scaling_ : str
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
    AnnealedLDA : Annealed linear discriminant analysis.
    AnnealedClassifier : The same with a family of one's own.

    References
    ----------
    G. Wang, Z. Zhang, F. H. Lochovsky, "Annealed Discriminant Analysis".

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from annealed import AnnealedLogisticRegression
    >>> X, y = load_wine(return_X_y=True)
    >>> model = AnnealedLogisticRegression().fit(X, y)
    >>> model.predict_proba(X[:1]).argmax()
    np.int64(0)
    >>> model.at(0.1).predict(X[:3])
    array([0, 0, 0])
    """

    def __init__(
        self,
        *,
        l2_strength=1.0,
        temperature="auto",
        schedule="auto",
        selection="cv",
        cv=None,
        scoring="neg_log_loss",
        rule="best",
        calibrate=True,
        fit_intercept=True,
        penalty_scaling="auto",
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
        self.l2_strength = l2_strength
        self.fit_intercept = fit_intercept
        self.penalty_scaling = penalty_scaling

    @classmethod
    def as_published(cls, **settings) -> Self:
        """The classifier as the paper prints it: pADA, eq. (17) annealed as in table 1.

        Raw features without intercept, the penalty in their units, T multiplied by 0.9 down to 0.001, and the
        temperature of the best accuracy on a held-out fifth of the samples. The posterior is not calibrated.

        It differs from the paper in the following:

        - The gradient is that of (17), with ``l2_strength * lambda_j``; (18) prints a sum over the classes.
        - Another optimizer than scaled conjugate gradient is used. At every temperature (17) has one minimum, so the
          coefficients are the same to within `tol`.
        - The paper calls the first temperature "comparatively large". Here it is found from the data: so high that the
          posterior is nearly uniform.
        - The last temperature, 0.001, was printed for the paper's features. T scales with the square of the features:
          in other units, give a `schedule` with another `stop`.
        - The final model is fitted to all samples; the paper keeps the model of the other four fifths. Both agree if
          the validation set is given to ``fit``.
        - The paper varies ``l2_strength`` and recommends no value. Here it is 1.

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
            "fit_intercept": False,
            "penalty_scaling": "none",
        }
        return make_published(cls, printed, settings)

    def _make_objective(self):
        return InnerProduct(
            l2_strength=self.l2_strength, penalty_scaling=self.penalty_scaling, fit_intercept=self.fit_intercept
        )
