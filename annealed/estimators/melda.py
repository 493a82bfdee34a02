"""Maximum-entropy linear discriminant analysis (MELDA): the subspace in which a log-linear posterior varies.

With the coefficients `coef` of K classes of a log-linear model, the logits depend on x through the scores z = coef @ x
alone, which vary in at most K - 1 dimensions. The scores are whitened within classes and rotated to their discriminant
axes:

    y = M (z - mean of z),   covariance of y within classes = I,   between classes = diag(ratio),   ratio descending

This keeps the subspace and the posterior, logits = bias + loadings @ y, and gives the information of each direction.
Only K x K matrices are decomposed; no D x D matrix of the D features is formed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Self

from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from annealed.arrays import Place, is_dispatched, is_foreign
from annealed.callbacks import CallbackSupportMixin, hand_over, take_back
from annealed.estimators.base import AnnealedClassifier
from annealed.estimators.melda_projection import COORDINATES, GaussianModel, Projection, checked_coordinates, project
from annealed.estimators.parameters import forget_last_fit, make_published, routing_of
from annealed.estimators.predictions import LogitsMixin, check_same_library
from annealed.estimators.samples import DTYPES, check_weight, checked, coded, weighed_samples
from annealed.estimators.sparkline import diagram_with_path
from annealed.estimators.types import (
    ClassWeight,
    FloatArray,
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
from annealed.path import AnnealingPath, check_given_temperature
from annealed.problems import InnerProduct
from annealed.problems.base import check_choice

UNPENALIZED = 1e-8  # temperature at which, in standardized features, the penalty is negligible
OF_CLASSIFIER = ("path_", "temperature_", "posterior_scale_", "C_", "penalty_scaling_", "n_iter_")


class MELDA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, CallbackSupportMixin, LogitsMixin, BaseEstimator):
    """Maximum-entropy linear discriminant analysis: supervised linear dimensionality reduction, and a classifier.

    MELDA fits a log-linear model, that is multinomial logistic regression, and keeps the directions along which its
    posterior changes: those orthogonal to the class boundaries (eq. 7 of the paper), at most ``n_classes - 1``. Unlike
    LDA it does not invert a covariance matrix, so it works with more features than samples and with sparse, constant or
    collinear features. The regularization strength of the log-linear model, its temperature, is chosen as
    by :class:`annealed.AnnealedLogisticRegression`.

    Parameters
    ----------
    n_components : int, default=None
        Number of directions to keep, the most informative ones. None keeps all ``min(n_classes - 1, n_features)``.
    temperature : "auto" or float, default="auto"
        Regularization strength on the scale of the logits. "auto" chooses it as `selection` says. A number fixes it;
        nothing is held out then. The L2 penalty has the strength ``l2_strength * temperature``.
    l2_strength : float, default=1.0
        Scale of the temperature; see :class:`annealed.AnnealedLogisticRegression`.
    penalty_scaling : {"auto", "cv", "none", "standardize", "half-whiten", "whiten"}, default="auto"
        Scaling of the features in which the penalty acts; see :class:`annealed.AnnealedLogisticRegression`.
    schedule, selection, cv, scoring, rule, calibrate
        How the temperature is chosen and the posterior calibrated; see :class:`annealed.AnnealedLogisticRegression`.
        A callable `scoring` gets the log-linear classifier instead of this estimator.
    class_weight, tol, max_iter, random_state, device, matmul_precision
        See :class:`annealed.AnnealedLogisticRegression`.

    Other Parameters
    ----------------
    coordinates : {"whitened", "paper", "orthonormal"}, default="whitened"
        Coordinates of the subspace, which itself does not depend on them. In "whitened" coordinates the projected
        samples have the identity as covariance within classes, and the directions are ordered by information.
        "orthonormal" coordinates have orthonormal directions that span the same leading subspaces. "paper"
        coordinates are the differences ``lambda_k - lambda_reference`` as printed (eq. 7): ``n_classes - 1`` of them,
        neither centred nor ordered.
    reference_class : label, default=None
        The class whose weights are subtracted in the paper's coordinates. None is the first class.

    Attributes
    ----------
    scalings_ : ndarray of shape (n_features, n_components)
        The directions: ``transform(X)`` is ``X @ scalings_ - offset_``.
    offset_ : ndarray of shape (n_components,)
        Projection of the mean of the samples; zero in the paper's coordinates.
    explained_information_ : ndarray of shape (n_components,)
        Information about the class in each direction, in nats and in descending order: ``log(1 + ratio) / 2``, where
        `ratio` is the variance of the class means over the variance within classes, as for a Gaussian channel. Not
        available in the paper's coordinates.
    explained_information_ratio_ : ndarray of shape (n_components,)
        The share of each direction in the information of all directions. Not available in the paper's coordinates.
    classifier_ : AnnealedClassifier
        The log-linear model of all features.
    reduced_classifier_ : AnnealedClassifier
        The log-linear model of the kept directions, which makes the predictions. It is `classifier_` itself if all
        directions are kept.
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Coefficients of the logits: ``decision_function(X)`` is ``X @ coef_.T + intercept_``.
    intercept_ : ndarray of shape (n_classes,) or (1,)
        Intercepts of the logits.
    path_ : AnnealingPath
        The path of `classifier_`: all temperatures and their models.
    temperature_ : float
        The chosen temperature of `classifier_`.
    C_ : float
        The same as scikit-learn's C; see :class:`annealed.AnnealedLogisticRegression`.
    posterior_scale_ : float
        Factor on the logits of `classifier_` that calibrates its posterior; one with ``calibrate=False``.
    penalty_scaling_ : str
        Penalty scaling of `classifier_`, as given or as chosen.
    classes_ : ndarray of shape (n_classes,)
    n_iter_ : int
        Solver iterations of the final fit, over all temperatures.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    References
    ----------
    D. Keysers, H. Ney, "Linear Discriminant Analysis and Discriminative Log-linear Modeling".

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from annealed import MELDA
    >>> X, y = load_wine(return_X_y=True)
    >>> MELDA().fit_transform(X, y).shape
    (178, 2)
    """

    classes_: NDArray[Any]
    scalings_: FloatArray
    offset_: FloatArray
    explained_information_: FloatArray
    explained_information_ratio_: FloatArray
    classifier_: AnnealedClassifier
    reduced_classifier_: AnnealedClassifier
    coef_: FloatArray
    intercept_: FloatArray
    path_: AnnealingPath
    temperature_: float
    posterior_scale_: float
    C_: float
    penalty_scaling_: str
    n_iter_: int
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    _projection: Projection

    def __init__(
        self,
        n_components: int | None = None,
        *,
        temperature: Temperature = "auto",
        l2_strength: float = 1.0,
        penalty_scaling: PenaltyScaling = "auto",
        schedule: Temperatures = "auto",
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
        coordinates: Literal["whitened", "paper", "orthonormal"] = "whitened",
        reference_class: Any = None,
    ) -> None:
        self.n_components = n_components
        self.coordinates = coordinates
        self.reference_class = reference_class
        self.temperature = temperature
        self.l2_strength = l2_strength
        self.penalty_scaling = penalty_scaling
        self.schedule = schedule
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

    @classmethod
    def as_published(cls, **settings) -> Self:
        """The reduction as the paper prints it: the maximum-entropy model (1) to (3), projected by (7).

        The log-linear model is fitted by maximum likelihood to all samples, and the rows of the projection are
        ``lambda_k - lambda_1``, neither centred nor ordered, ``n_classes - 1`` of them.

        It differs from the paper in the following:

        - The likelihood has a penalty of strength 1e-8 on standardized features, which is negligible if the likelihood
          has a maximum. It has none if the classes are linearly separable: then the penalty bounds the weights, and the
          paper does not print at which iteration its training stopped.
        - The optimizer is not generalized iterative scaling. The likelihood has one maximum, so the posterior is the
          same.
        - The products of features behind the paper's "squared" corpora are not made here; put
          :class:`annealed.SecondOrderFeatures` in front.

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
            "temperature": UNPENALIZED,
            "penalty_scaling": "standardize",
            "calibrate": False,
            "coordinates": "paper",
        }
        return make_published(cls, printed, settings)

    # -- fitting ---------------------------------------------------------------------------------------------

    def fit(self, X, y, sample_weight=None, *, X_val=None, y_val=None, sample_weight_val=None, **params) -> Self:
        """Fit the log-linear model and its directions.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
        X_val, y_val, sample_weight_val : array-like, default=None
            A validation set, for ``selection="holdout"``.
        **params : dict
            ``groups`` for a group-aware splitter. With metadata routing enabled, whatever the splitter and the scorer
            request.

        Returns
        -------
        self : object
        """
        check_choice(self.coordinates, "coordinates", COORDINATES)
        check_given_temperature(self.temperature)
        forget_last_fit(self)
        X, y = checked(self, X, y)
        X_val = None if X_val is None else checked(self, X_val, reset=False)
        params |= {"y_val": y_val, "sample_weight_val": sample_weight_val}
        classes, labels = coded(y)
        n_components, reference = checked_coordinates(self, classes, X.shape[1])
        cv = list(self.cv) if isinstance(self.cv, Iterator) else self.cv  # the second fit needs the splits, too
        classifier = hand_over(self, log_linear(self, cv)).fit(X, y, sample_weight, X_val=X_val, **params)
        take_back(classifier)
        weight, _ = weighed_samples(check_weight(sample_weight, len(labels)), labels, classes, self.class_weight)
        projection = Projection.of(classifier, X, labels, weight, self.coordinates, n_components, reference)
        projection.check_range(X, classifier.temperature_)
        reduced_classifier, self.coef_, self.intercept_ = classifier, classifier.coef_, classifier.intercept_
        if projection.whitened is not None:
            params["X_val"] = None if X_val is None else project(X_val, *projection.whitened)
            reduced_classifier = log_linear(self, cv)
            reduced_classifier.fit(project(X, *projection.whitened), y, sample_weight, **params)
            projection = projection.with_posterior_of(reduced_classifier)
            self.coef_, self.intercept_ = projection.weights_of(reduced_classifier)
        self._projection, self.classes_ = projection, classifier.classes_
        reported = {"scalings_": projection.scalings, "offset_": projection.offset}
        if projection.information is not None:
            reported["explained_information_"] = projection.information
            reported["explained_information_ratio_"] = projection.information / (projection.total_information or 1.0)
        for name, array in reported.items():
            setattr(self, name, Place.of(X).wide(array) if is_foreign(X) else array)
        for name in OF_CLASSIFIER:
            setattr(self, name, getattr(classifier, name))
        self.classifier_, self.reduced_classifier_ = classifier, reduced_classifier
        return self

    def __sklearn_is_fitted__(self):
        return hasattr(self, "reduced_classifier_")

    def get_metadata_routing(self):
        """Get the metadata requests of this estimator, its splitter and its scorer."""
        return routing_of(self)

    # -- the projection ----------------------------------------------------------------------------------------

    def transform(self, X) -> FloatArray:
        """Project samples to the kept directions.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        projected : ndarray of shape (n_samples, n_components)
        """
        check_is_fitted(self)
        X = checked(self, X, reset=False)
        check_same_library(X, self.scalings_, self, "transform")
        return project(X, self._projection.scalings, self._projection.offset)

    def inverse_transform(self, X) -> FloatArray:
        """Find the samples of smallest norm with the given projections.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Projected samples.

        Returns
        -------
        samples : ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        X = check_array(X, dtype=Place.of(X).float_dtypes if is_dispatched(X) else DTYPES)
        if X.shape[1] != self._n_features_out:
            raise ValueError(f"X must have {self._n_features_out} columns, one for each component. Got {X.shape[1]}.")
        back, offset = self._projection.inverse(), self._projection.offset
        if is_foreign(X):
            place = Place.of(X)
            return (place.wide(X) + place.wide(offset)) @ place.wide(back)
        return (X + offset) @ back

    @property
    def _n_features_out(self):
        return self.scalings_.shape[1]

    def gaussian_model(self) -> GaussianModel:
        """Express the posterior as that of Gaussian classes with the identity as covariance (eq. 4 and 8).

        The posterior determines the means up to a common shift, which changes the priors. The shift is chosen such
        that the priors are as near as possible to the class frequencies; with ``n_classes - 1`` directions they are
        equal. In whitened coordinates the identity is also the covariance of the samples within classes. If the units
        of the coordinates differ by many orders of magnitude, the means are so far apart that precision is lost.

        Returns
        -------
        model : GaussianModel
        """
        check_is_fitted(self)
        return self._projection.gaussian_model()

    # -- the posterior -----------------------------------------------------------------------------------------

    def at(self, temperature: float | None = None, *, C: float | None = None) -> AnnealedClassifier:
        """Get the log-linear classifier at another temperature of its path, without a refit.

        The directions belong to the chosen temperature. For those of another temperature, fit
        ``MELDA(temperature=...)``.

        Parameters
        ----------
        temperature : float, default=None
            Any temperature between the ends of ``path_``; between solved ones the parameters are interpolated.
        C : float, default=None
            The same as a value of C. Give either `temperature` or `C`.

        Returns
        -------
        classifier : AnnealedClassifier
            A fitted copy of `classifier_`, with all directions; this estimator is left as it is.
        """
        check_is_fitted(self)
        return self.classifier_.at(temperature, C=C)

    def _logits(self, X, method):
        """Logits of the classifier of the kept directions."""
        check_is_fitted(self)
        X = checked(self, X, reset=False)
        check_same_library(X, self.scalings_, self, method)
        whitened = self._projection.whitened
        return self.reduced_classifier_._logits(X if whitened is None else project(X, *whitened), method)

    def _html_repr(self):
        return diagram_with_path(self, getattr(self, "path_", None))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.array_api_support = True
        return tags


def log_linear(model: MELDA, cv):
    shared = set(AnnealedClassifier._get_param_names()).intersection(model._get_param_names())
    settings = {name: getattr(model, name) for name in shared} | {"cv": cv}
    return AnnealedClassifier(
        InnerProduct(l2_strength=model.l2_strength, penalty_scaling=model.penalty_scaling), **settings
    )
