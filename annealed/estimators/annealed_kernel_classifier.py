"""Multinomial kernel logistic regression with its path: inner-product discriminants in the space of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from annealed.estimators.base import AnnealedClassifier
from annealed.estimators.kernel_search import TriedKernel
from annealed.estimators.path_fit import Point
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
from annealed.problems.kernel import KernelInnerProduct, KernelPredictor
from annealed.problems.kernel_features import place_of


class AnnealedKernelClassifier(AnnealedClassifier):
    """Multinomial kernel logistic regression with its whole regularization path, cross-validated and calibrated.

    Where classes are not separated by straight lines, use it in place of a grid search over the C and gamma of an
    ``SVC`` with calibrated probabilities. The logits are combinations of the kernels of a sample and some training
    samples, the landmarks. The path is solved from strong to weak regularization, and one cross-validation chooses the
    temperature, `gamma`, the scales of the columns, and how many landmarks are needed.

    At temperature T the fit minimizes the mean log-loss plus ``l2_strength * T / 2 sum_j |f_j|^2``, with ``|f_j|`` the
    norm of the logits of class j in the space of the kernel. If all samples are landmarks, that is exact; with fewer it
    is Nystroem's approximation, and ``approximation_error_`` says what it leaves out.

    Parameters
    ----------
    kernel : {"rbf", "laplacian", "polynomial", "precomputed"} or callable, default="rbf"
        With x and z samples in units of the column scales: "rbf" is ``exp(-gamma |x - z|^2)``, "laplacian"
        ``exp(-gamma sum_k |x_k - z_k|)``, and "polynomial" ``(1 + gamma x'z) ** degree``. "precomputed": X is the
        matrix of the kernel, (n_samples, n_samples) for ``fit`` and (n_samples, n_samples of the fit) for
        predictions. A callable gets two arrays of scaled rows and returns the matrix of their kernel. These two are for
        NumPy arrays only.
    gamma : "cv" or float, default="cv"
        "cv" chooses it by the folds that choose the temperature, among values a factor of four apart (two for
        "laplacian"), as far as scores improve. If nothing is held out, ridge regression on the classes chooses it, by
        its errors for left-out samples.
    degree : int, default=3
        Of the polynomial kernel.
    scale : {"auto", "standardize", "ard", "none"}, default="auto"
        What the columns are divided by.

        - "standardize": their standard deviations. Indicators of one category (neighbouring columns of 0 and 1 of
          which a sample has at most one 1) have a common scale, so that a category weighs as much as a number.
        - "ard": standard deviations divided by the relevance of each column, the root mean square of the derivatives
          of the logits by it. It is learned from a first fit, and again as long as scores clearly improve.
        - "none": columns as they are.
        - "auto": "none" for sparse X, otherwise "standardize". If there are at least fifty samples per column, "ard" is
          tried, and taken if its scores are clearly better.
    n_landmarks : "auto", "all" or int, default="auto"
        How many training samples the logits combine. "auto" begins with 250 (all of fewer samples), and doubles them
        as long as scores improve by at least one percent, up to 4000. "all" is exact, for at most 10,000 samples on the
        CPU. Landmarks are chosen by k-means++.
    l2_strength : float, default=1.0
        Strength of the penalty. It only sets the scale of the temperature.
    temperature : "auto" or float, default="auto"
        "auto" chooses the temperature as `selection` says. A number ends the path at this temperature and uses it;
        nothing is held out then.
    schedule : "auto", array-like of temperatures, or Schedule, default="auto"
        Which temperatures are solved, from hot to cold. ``CGrid(Cs)`` takes values of scikit-learn's C.
    selection : {"cv", "loo", "holdout", "last"}, default="cv"
        How the temperature and the kernel are chosen. "cv": by cross-validation. "loo": by approximate leave-one-out.
        "holdout": on a fifth of the samples, or on the validation set given to ``fit``. "last": the lowest temperature
        of the schedule.
    cv : int, splitter or iterable of splits, default=None
        Folds for ``selection="cv"``: a number of stratified and shuffled folds, a splitter, or splits. None is 5.
    scoring : str or callable, default="neg_log_loss"
        Score by which temperatures and kernels are compared on held-out samples.
    rule : {"best", "one_standard_error"}, default="best"
        Choose the temperature with the best score, or the hottest one whose score is within one standard error of it.
    calibrate : bool, default=True
        Whether one factor on the logits, ``posterior_scale_``, is chosen together with the temperature.
    fit_intercept : bool, default=True
        Whether each class has an intercept, which is not penalized.
    class_weight : dict or "balanced", default=None
        Weights of the classes, by which ``sample_weight`` is multiplied for the fit and its folds.
    tol : float, default=1e-4
        Tolerance of the gradient and, a hundredth of it, of the certified relative suboptimality at every temperature.
    max_iter : int, default=1000
        Largest number of solver iterations at one temperature, each time that it is solved.
    random_state : int, RandomState instance or None, default=None
        Seed of shuffled folds and of landmarks; None gives the same ones every time.
    device : str, default=None
        Device on which NumPy arrays are fitted, such as "cuda"; needs torch.
    matmul_precision : {"tf32"}, default=None
        Reduced precision for products of float32 arrays on a device.

    Attributes
    ----------
    gamma_ : float
        Of the kernel, for scaled columns.
    scale_ : ndarray of shape (n_features,)
        What the columns are divided by; infinite for columns that do not matter. Not for precomputed kernels.
    landmarks_ : ndarray of shape (n_landmarks,)
        Indices of the training samples that the logits combine.
    n_landmarks_ : int
    approximation_error_ : float
        Share of the kernel of a sample and itself that the landmarks do not represent, on average over a thousand
        training samples; zero if all samples are landmarks.
    dual_coef_ : ndarray of shape (n_classes, n_landmarks), or (1, n_landmarks) for two classes
        Coefficients of the landmarks' kernels in the logits of ``decision_function``.
    intercept_ : ndarray of shape (n_classes,), or (1,) for two classes
    support_ : ndarray
        Indices of the training samples that predictions use: landmarks whose coefficients are so small that together
        they change no logit by more than 1e-5 are left out.
    n_support_ : int
    temperature_, C_, posterior_scale_ : float
        The chosen temperature, the same as scikit-learn's C for the features of the kernel, and the calibration factor.
    path_ : AnnealingPath
        Record of all temperatures: coefficients, scores, convergence and certificates.
    tried_kernels_ : list of TriedKernel
        The kernels whose paths were validated, in the order in which they were tried: `gamma`, `n_landmarks`,
        `has_learned_scales`, `temperatures`, and `validation_score`, by which these were compared, as in
        ``path_.compared_score``.
    classes_ : ndarray of shape (n_classes,)
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    See Also
    --------
    AnnealedLogisticRegression : The same with linear logits.
    PottsDA : Prototypes, for small models that can be looked at.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from annealed import AnnealedKernelClassifier
    >>> X, y = make_moons(noise=0.2, random_state=0)
    >>> model = AnnealedKernelClassifier().fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    """

    gamma_: float
    scale_: FloatArray
    landmarks_: NDArray[np.int64]
    n_landmarks_: int
    approximation_error_: float
    dual_coef_: FloatArray
    support_: NDArray[np.int64]
    n_support_: int
    tried_kernels_: list[TriedKernel]

    def __init__(
        self,
        kernel: Literal["rbf", "laplacian", "polynomial", "precomputed"] | Callable[..., Any] = "rbf",
        *,
        gamma: Literal["cv"] | float = "cv",
        degree: int = 3,
        scale: Literal["auto", "standardize", "ard", "none"] = "auto",
        n_landmarks: Literal["auto", "all"] | int = "auto",
        l2_strength: float = 1.0,
        temperature: Temperature = "auto",
        schedule: Temperatures = "auto",
        selection: Selection = "cv",
        cv: Folds | None = None,
        scoring: Scoring = "neg_log_loss",
        rule: Rule = "best",
        calibrate: bool = True,
        fit_intercept: bool = True,
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
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.scale = scale
        self.n_landmarks = n_landmarks
        self.l2_strength = l2_strength
        self.fit_intercept = fit_intercept

    def _make_objective(self):
        return KernelInnerProduct(
            self.kernel,
            gamma=self.gamma,
            degree=self.degree,
            scale=self.scale,
            n_landmarks=self.n_landmarks,
            l2_strength=self.l2_strength,
            fit_intercept=self.fit_intercept,
        )

    def _set_point(self, point: Point):
        super()._set_point(point)
        assert isinstance(point.predictor, KernelPredictor)
        features, dual_coef = point.predictor.features, point.arrays["dual_coef"]
        self.dual_coef_, self.intercept_ = point.weights("dual_coef")
        support = features.indices[point.predictor.support(dual_coef)]
        self.gamma_ = features.kernel.gamma
        self.n_landmarks_, self.n_support_ = features.n_landmarks, len(support)
        place = place_of(dual_coef)
        self.landmarks_, self.support_ = place.whole(features.indices), place.whole(support)
        if features.kernel.name != "precomputed":
            self.scale_ = place.wide(features.scale)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == "precomputed"
        return tags
