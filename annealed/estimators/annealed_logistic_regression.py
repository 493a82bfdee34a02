"""Multinomial logistic regression with its L2 path: inner-product annealed discriminant analysis (pADA)."""

from __future__ import annotations

from typing import Self

from annealed.estimators.base import AnnealedClassifier
from annealed.estimators.parameters import make_published
from annealed.estimators.types import (
    ClassWeight,
    Folds,
    MatmulPrecision,
    PenaltyScaling,
    RandomState,
    Rule,
    Scoring,
    Selection,
    Temperature,
    Temperatures,
)
from annealed.path import ExponentialSchedule
from annealed.problems import InnerProduct


class AnnealedLogisticRegression(AnnealedClassifier):
    """Multinomial logistic regression with its whole L2 regularization path, cross-validated and calibrated.

    The path is solved from strong to weak regularization, that is, for falling temperatures T. The temperature with the
    best held-out scores is chosen, the logits are rescaled so that probabilities are calibrated, and every temperature
    has a certificate of its relative suboptimality. Features need no scaling, and no grid is needed.

    At temperature T the fit minimizes the penalized free energy (eq. 17 of the paper on annealed discriminant analysis,
    where the method is called pADA),

        1/n_samples sum_i [ T log sum_j exp(lambda_j'x_i / T) - lambda_c(i)'x_i ] + l2_strength / 2 sum_j |lambda_j|^2

    with c(i) the class of sample i. Divided by T this is the mean log-loss of logits with coefficients ``lambda / T``
    and the penalty ``l2_strength * T / 2 sum_j |lambda_j / T|^2``. Its minimum depends on ``l2_strength * T`` alone.

    In terms of scikit-learn, ``C = 1 / (l2_strength * T * n_samples)``, doubled for two classes. With
    ``penalty_scaling="none"`` and ``calibrate=False`` the coefficients are those of ``LogisticRegression(C=C)``. A
    fitted model has ``C_`` and ``path_.C``, ``at(C=1.0)`` returns the model at another C, and ``schedule=CGrid(Cs)``
    solves for given values.

    Parameters
    ----------
    l2_strength : float, default=1.0
        Strength of the penalty, epsilon in the paper. It only sets the scale of the temperature.
    temperature : "auto" or float, default="auto"
        "auto" chooses the temperature as `selection` says. A number ends the path at this temperature and uses it;
        nothing is held out then.
    schedule : "auto", array-like of temperatures, or Schedule, default="auto"
        Which temperatures are solved, from hot to cold. "auto" starts at a hot temperature found from the data and
        stops when the validation scores have clearly passed their best. ``CGrid(Cs)`` takes values of
        scikit-learn's C.
    selection : {"cv", "loo", "holdout", "last"}, default="cv"
        How the temperature is chosen. "cv": by cross-validation. "loo": by approximate leave-one-out, which fits no
        folds; where it is unreliable, as near separability, folds are used, with a warning. "holdout": on a fifth of
        the samples, or on the validation set given to ``fit``. "last": the lowest temperature of the schedule. The
        final fit always uses all samples.
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
    fit_intercept : bool, default=True
        Whether each class has an intercept, which is not penalized. The paper has a constant feature instead.
    penalty_scaling : {"auto", "cv", "none", "standardize", "half-whiten", "whiten"}, default="auto"
        Scaling of the features in which the penalty acts. ``penalty_scaling_`` is the one that was used; `coef_` always
        refers to the features as given.

        - "none": the features as they are, as in scikit-learn and in the paper; their units matter.
        - "standardize": each feature divided by its standard deviation; units do not matter.
        - "whiten": whitened features; no linear map of the features matters (about the origin if there is no
          intercept).
        - "half-whiten": between the last two; each principal direction of the standardized features is divided by the
          fourth root of its variance.
        - "auto": "standardize" for dense X and "none" for sparse X, unless validation scores are clearly better with an
          alternative. For dense X the alternative is "whiten" if there are at most a few hundred samples and more
          features than samples, otherwise "half-whiten" (not on a device). With at least fifteen features per sample,
          "whiten" is used without a comparison if leave-one-out residuals of ridge regression show that regularization
          does not help, unless `cv` may keep samples together, as given splits, group-aware and unshuffled splitters
          do. For sparse X the alternative is "standardize"; it is tried with up to a thousand features, with a few
          hundred samples, or if "none" hardly beats the class frequencies. Alternatives are only tried with the default
          schedule, several folds and the log-loss.
        - "cv": one path is computed for each scaling, and the one with the best validation scores is kept. For dense X
          this is "standardize" unless "half-whiten" or "whiten" is better by more than a standard error over the folds
          (neither is tried with more than a thousand samples and more than a thousand features); for sparse X it is
          "none" or "standardize". It takes as long as these paths together. If nothing is held out, "auto" is used.

        Standard deviations and principal directions are those of all samples, in folds too. If features outnumber
        samples, each fold has principal directions of its training samples.
    class_weight : dict or "balanced", default=None
        Weights of the classes, by which ``sample_weight`` is multiplied for the fit and its folds. Scorers receive
        ``sample_weight`` without them; a validation set is weighted by ``sample_weight_val`` alone.
    tol : float, default=1e-4
        Tolerance. At every temperature the largest entry of the gradient (18), in the scaled features (in units of the
        largest one if features far outnumber samples), is at most `tol`, and the relative suboptimality of (17),
        certified by ``|gradient|^2 / (2 l2_strength T)``, at most ``tol / 100``. On a device, temperatures are solved
        until a step promises a relative decrease below ``tol / 10``, and the chosen one until its gradient and its
        certificate are at most `tol`.
    max_iter : int, default=1000
        Largest number of solver iterations at one temperature, each time that it is solved. ``schedule="auto"`` allows
        at most four times as many as all hotter temperatures took together, or 100 if that is more.
    random_state : int, RandomState instance or None, default=None
        Seed of shuffled folds; None gives the same folds every time.
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
        The same as scikit-learn's C: ``1 / (l2_strength * temperature_ * n_samples)``, doubled for two classes.
        `n_samples` is the sum of the weights, and C that of the features as ``penalty_scaling_`` scales them.
    posterior_scale_ : float
        Calibration factor, included in `coef_` and in predictions; 1 if nothing was held out or ``calibrate=False``.
    penalty_scaling_ : str
        Scaling of the features in which the penalty acts, as given or as chosen.
    path_ : AnnealingPath
        Record of all temperatures: coefficients, scores, convergence and certificates.
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Coefficients of the logits of ``decision_function``, in the units of the given features.
    intercept_ : ndarray of shape (n_classes,), or (1,) for two classes
    n_iter_ : int
        Solver iterations of the final fit, summed over all temperatures.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    See Also
    --------
    AnnealedLDA : Linear discriminant analysis with fitted class means.
    AnnealedClassifier : The same for other families of discriminant functions.
    CGrid : A schedule of given values of C.

    References
    ----------
    G. Wang, Z. Zhang, F. H. Lochovsky, "Annealed Discriminant Analysis".

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from annealed import AnnealedLogisticRegression
    >>> X, y = load_wine(return_X_y=True)
    >>> model = AnnealedLogisticRegression().fit(X, y)
    >>> model.score(X, y)
    1.0
    >>> model.C_ == 1 / (model.temperature_ * len(y))
    True
    >>> model.at(C=0.1).predict(X[:3])
    array([0, 0, 0])
    """

    def __init__(
        self,
        *,
        l2_strength: float = 1.0,
        temperature: Temperature = "auto",
        schedule: Temperatures = "auto",
        selection: Selection = "cv",
        cv: Folds | None = None,
        scoring: Scoring = "neg_log_loss",
        rule: Rule = "best",
        calibrate: bool = True,
        fit_intercept: bool = True,
        penalty_scaling: PenaltyScaling = "auto",
        class_weight: ClassWeight | None = None,
        tol: float = 1e-4,
        max_iter: int = 1000,
        random_state: RandomState | None = None,
        device: str | None = None,
        matmul_precision: MatmulPrecision | None = None,
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

        The features are raw and there is no intercept. T is multiplied by 0.9 down to 0.001, and the temperature with
        the best accuracy on a held-out fifth of the samples is chosen. The posterior is not calibrated.

        It differs from the paper in the following:

        - The gradient is that of (17), with ``l2_strength * lambda_j``; (18) prints a sum over the classes.
        - The optimizer is not scaled conjugate gradient. At every temperature (17) has one minimum, so the coefficients
          are the same to within `tol`.
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
