"""Maximum-entropy linear discriminant analysis (MELDA): the subspace that a log-linear posterior looks at.

With class weights `coef` of the annealed log-linear model, every logit is a function of the scores z = coef @ x alone:
at most K - 1 dimensions. Whitening the within-class covariance of z and turning to its principal discriminant axes,

    y = M (z - mean of z),   covariance of y within classes = I,   between classes = diag(ratio),   ratio falling

keeps the subspace and the posterior, logits = bias + loadings @ y, and gives each direction its information. Everything
is found from K x K matrices: nothing of D x D is ever formed.
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import NamedTuple, Self

import numpy as np
from scipy import linalg
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.metadata_routing import MetadataRouter
from sklearn.utils.validation import check_is_fitted

from annealed.arrays import Place, is_dispatched, is_foreign, to_host
from annealed.callbacks import CallbackSupportMixin, hand_over, take_back
from annealed.estimators.base import AnnealedClassifier
from annealed.estimators.discriminant_axes import Directions, class_weights_of, directions_of, inverse_of, score_moments
from annealed.estimators.labels import check_several_classes
from annealed.estimators.mixins import PathDiagramMixin, forget_last_fit, make_published
from annealed.estimators.on_device import check_foreign, check_same_library, coded_labels
from annealed.estimators.validation import DTYPES, checked_rows, with_scorer, with_splitter
from annealed.objectives import InnerProduct
from annealed.objectives.linear import scores_of_rows
from annealed.schedules import check_given_temperature

COORDINATES = ("whitened", "paper", "orthonormal")
UNPENALIZED = 1e-8  # temperature at which, in standardized features, the penalty is negligible
SMALLEST_SHIFT = 1e-8  # relative spread of means along an axis below which a shift along it moves no prior


class GaussianModel(NamedTuple):
    """Gaussian classes of one covariance whose posterior is the log-linear one (eq. 4), in transformed coordinates.

    log_prior : (n_classes,); means : (n_classes, n_components); covariance : (n_components, n_components)
    """

    log_prior: np.ndarray
    means: np.ndarray
    covariance: np.ndarray

    @property
    def prior(self) -> np.ndarray:
        """Prior of each class, zero where it is too small to be a number."""
        return np.exp(self.log_prior)


class MELDA(
    PathDiagramMixin,
    CallbackSupportMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    ClassifierMixin,
    BaseEstimator,
):
    """Maximum-entropy linear discriminant analysis: a supervised linear reduction that works where LDA breaks.

    A log-linear posterior is fitted by annealing, its temperature chosen by validation; the reduction keeps exactly the
    directions orthogonal to its class boundaries (eq. 7 of the paper), at most ``n_classes - 1`` of them. Columns may
    outnumber rows, be sparse, constant or collinear.

    Parameters
    ----------
    n_components : int, default=None
        Number of directions kept, those of most information; None keeps all, ``min(n_classes - 1, n_features)``.
    temperature : "auto" or float, default="auto"
        "auto" lets validation choose; a number fixes it: the literal method, with ``l2_strength * temperature`` as
        penalty.
    l2_strength : float, default=1.0
        Sets the scale of the temperature; see :class:`annealed.AnnealedLogisticRegression`.
    penalty_scaling : {"auto", "cv", "none", "standardize", "half-whiten", "whiten"}, default="auto"
        Units of the penalty; see :class:`annealed.AnnealedLogisticRegression`.
    schedule, selection, cv, scoring, rule, calibrate
        How the temperature is chosen and the posterior calibrated, as in :class:`annealed.AnnealedLogisticRegression`.
        A callable `scoring` gets the log-linear classifier, not the MELDA.
    class_weight, tol, max_iter, random_state, device, matmul_precision
        As in :class:`annealed.AnnealedLogisticRegression`.

    Other Parameters
    ----------------
    coordinates : {"whitened", "paper", "orthonormal"}, default="whitened"
        "whitened" gives the projected rows the identity as covariance within classes, and orders the directions by
        information; "orthonormal" has orthonormal rows that span the same leading directions; "paper" has the rows
        ``lambda_k - lambda_reference`` as printed (eq. 7), not centred, all ``n_classes - 1`` of them. The subspace is
        the same.
    reference_class : label, default=None
        The class whose weights are subtracted in the paper's coordinates; None is the first.

    Attributes
    ----------
    scalings_ : ndarray of shape (n_features, n_components)
        ``transform(X) = X @ scalings_ - offset_``.
    offset_ : ndarray of shape (n_components,)
    explained_information_ : ndarray of shape (n_components,)
        Information of each direction about the class in nats, ``log(1 + ratio) / 2`` with `ratio` the variance of the
        class means along it over the variance within classes: that of a Gaussian channel. It falls. Not there in the
        paper's coordinates, which have no order.
    explained_information_ratio_ : ndarray of shape (n_components,)
        The same as shares of all directions' sum.
    classifier_ : AnnealedClassifier
        The log-linear model, with its ``path_``.
    reduced_classifier_ : AnnealedClassifier
        The log-linear model of the kept directions; `classifier_` itself where all are kept.
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Coefficients of the logits: ``decision_function(X)`` is ``X @ coef_.T + intercept_``.
    intercept_ : ndarray of shape (n_classes,) or (1,)
    path_ : AnnealingPath
        The path of `classifier_`.
    temperature_ : float
        The chosen temperature of `classifier_`.
    C_ : float
        The chosen temperature of `classifier_` as scikit-learn's C; see :class:`annealed.AnnealedLogisticRegression`.
    posterior_scale_ : float
        Factor on the logits of `classifier_` by which its posterior is calibrated; one with ``calibrate=False``.
    penalty_scaling_ : str
        The penalty scaling of `classifier_`: as given, or as chosen.
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

    def __init__(
        self,
        n_components=None,
        *,
        temperature="auto",
        l2_strength=1.0,
        penalty_scaling="auto",
        schedule="auto",
        selection="cv",
        cv=None,
        scoring="neg_log_loss",
        rule="best",
        calibrate=True,
        class_weight=None,
        tol=1e-4,
        max_iter=1000,
        random_state=None,
        device=None,
        matmul_precision=None,
        coordinates="whitened",
        reference_class=None,
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
          has a maximum. If the classes are linearly separable it has none. Then the penalty bounds the weights here;
          the paper does not print at which iteration its training stopped.
        - Another optimizer than generalized iterative scaling is used. The likelihood has one maximum, so the
          posterior is the same.
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
        """Fit the log-linear model and find its directions.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
        X_val, y_val, sample_weight_val : array-like, default=None
            A validation set, for ``selection="holdout"``.
        **params : dict
            ``groups`` for a splitter that wants them; with metadata routing enabled, whatever the splitter requests.

        Returns
        -------
        self : object
        """
        if self.coordinates not in COORDINATES:
            raise ValueError(f"coordinates must be one of {COORDINATES}. Got {self.coordinates!r}.")
        check_given_temperature(self.temperature)
        forget_last_fit(self)
        if is_dispatched(X):
            X = check_foreign(self, X)
        else:
            X, y = checked_rows(self, X, y)
        X_val = None if X_val is None else self._validated(X_val)
        params |= {"y_val": y_val, "sample_weight_val": sample_weight_val}
        classes, _ = coded_labels(y, X.shape[0])
        check_several_classes(classes)
        n_components, reference = self._checked_components(len(classes), X.shape[1]), self._reference(classes)
        cv = list(self.cv) if isinstance(self.cv, Iterator) else self.cv  # its splits are had once and used twice
        classifier = hand_over(self, self._log_linear(cv)).fit(X, y, sample_weight, X_val=X_val, **params)
        take_back(classifier)
        coef, intercept = class_weights_of(classifier)
        moments = score_moments(X, y, sample_weight, coef, to_host(classifier.classes_), self.class_weight)
        directions = directions_of(moments, min(coef.shape[0] - 1, coef.shape[1]))
        counts = moments.counts
        total = counts.sum()
        self._log_share = np.log(np.maximum(counts / total, 0.5 / max(total, X.shape[0])))
        rank = len(directions.information)
        self.classes_ = classifier.classes_
        if self.coordinates == "paper":
            self._set_paper(coef, intercept, directions, reference)
            n_components = rank
        else:
            n_components = min(n_components, rank)
            self._set_ordered(coef, intercept, directions, n_components)
        reduced_classifier, self._whitened = classifier, None
        if n_components < rank:
            whitened = _leading(coef, directions, n_components)
            if is_foreign(X):
                whitened = tuple(Place.of(X).row(part) for part in whitened)
            self._whitened = whitened
            params["X_val"] = None if X_val is None else _project(X_val, *whitened)
            reduced_classifier = self._log_linear(cv).fit(_project(X, *whitened), y, sample_weight, **params)
            self._set_reduced(reduced_classifier)
        self.classifier_, self.reduced_classifier_, self.n_iter_ = classifier, reduced_classifier, classifier.n_iter_
        if is_foreign(X):
            place = Place.of(X)
            arrays = {name: own for name, own in vars(self).items() if isinstance(own, np.ndarray)}
            for name in arrays.keys() - {"classes_", "feature_names_in_"}:
                setattr(self, name, place.wide(arrays[name]))
        self.coef_, self.intercept_ = classifier.coef_, classifier.intercept_
        if self._whitened is not None:
            self.coef_, self.intercept_ = _in_features(reduced_classifier, *self._whitened)
        return self

    def _log_linear(self, cv):
        return AnnealedClassifier(
            InnerProduct(l2_strength=self.l2_strength, penalty_scaling=self.penalty_scaling),
            schedule=self.schedule,
            temperature=self.temperature,
            selection=self.selection,
            cv=cv,
            scoring=self.scoring,
            rule=self.rule,
            calibrate=self.calibrate,
            class_weight=self.class_weight,
            tol=self.tol,
            max_iter=self.max_iter,
            random_state=self.random_state,
            device=self.device,
            matmul_precision=self.matmul_precision,
        )

    def _checked_components(self, n_classes, n_features):
        most = n_classes - 1 if self.coordinates == "paper" else min(n_classes - 1, n_features)
        if self.n_components is None:
            return most
        if not isinstance(self.n_components, Integral) or not 1 <= int(self.n_components) <= most:
            raise ValueError(
                f"n_components must be an integer from 1 to min(n_classes - 1, n_features) = {most}. "
                f"Got {self.n_components!r}."
            )
        if self.coordinates == "paper" and self.n_components < n_classes - 1:
            raise ValueError(
                f"The paper's coordinates have no order to cut: n_components={self.n_components!r} needs "
                'coordinates="whitened" or "orthonormal".'
            )
        return int(self.n_components)

    def _set_paper(self, coef, intercept, directions: Directions, reference):
        """Rows lambda_k - lambda_reference, as printed: the logits' loadings are unit vectors and a null vector."""
        n_classes = len(coef)
        self.scalings_ = np.delete(coef - coef[reference], reference, axis=0).T
        self.offset_ = np.zeros(n_classes - 1)
        self._loadings, self._bias = np.delete(np.eye(n_classes), reference, axis=1), intercept
        self._center = np.delete(directions.score_mean - directions.score_mean[reference], reference)

    def _reference(self, classes):
        if self.reference_class is None:
            return 0
        is_one = np.ndim(self.reference_class) == 0  # a list would be compared class by class
        found = np.flatnonzero(is_one and classes == self.reference_class)
        if not len(found):
            raise ValueError(
                f"reference_class must be a class of y. Got {self.reference_class!r}, known: {classes[:20].tolist()}."
            )
        return int(found[0])

    def _set_ordered(self, coef, intercept, directions: Directions, n_components):
        """Leading whitened directions, or orthonormal ones of the same spans."""
        scalings, offset = _leading(coef, directions, n_components)
        self._from_reported = np.eye(n_components)  # whitened coordinates from the reported ones
        if self.coordinates == "orthonormal" and scalings.any():
            basis, triangle = linalg.qr(scalings, mode="economic")
            turn = np.sign(np.diag(triangle)) + (np.diag(triangle) == 0)
            scalings, self._from_reported = basis * turn, (triangle * turn[:, None]).T
            offset = linalg.solve_triangular(self._from_reported, offset, lower=True)
        self.scalings_, self.offset_ = scalings, offset
        self._loadings = directions.loadings[:, :n_components] @ self._from_reported
        self._bias = intercept + directions.score_mean
        self._center = np.zeros(n_components)
        total = directions.information.sum()
        self.explained_information_ = directions.information[:n_components]
        self.explained_information_ratio_ = self.explained_information_ / (total if total > 0 else 1.0)

    def _set_reduced(self, classifier):
        """The logits of a posterior of the kept directions alone."""
        loadings, bias = class_weights_of(classifier)
        self._loadings, self._bias = loadings @ self._from_reported, bias

    # -- reduction -------------------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self):
        return hasattr(self, "reduced_classifier_")

    def transform(self, X):
        """Project rows to the kept directions, (n_samples, n_components)."""
        check_is_fitted(self)
        return _project(self._checked(X, "transform"), self.scalings_, self.offset_)

    def _checked(self, X, method):
        X = self._validated(X)
        check_same_library(X, self.scalings_, self, method)
        return X

    def _validated(self, X):
        if is_dispatched(X):
            return check_foreign(self, X, reset=False)
        return checked_rows(self, X, reset=False)

    def get_metadata_routing(self):
        """Requests of this estimator, its splitter and its scorer."""
        return with_scorer(with_splitter(MetadataRouter(owner=self).add_self_request(self), self.cv), self)

    def inverse_transform(self, X):
        """The shortest rows, in the features' own units, whose projections these are.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)

        Returns
        -------
        rows : ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        X = check_array(X, dtype=Place.of(X).float_dtypes if is_dispatched(X) else DTYPES)
        if X.shape[1] != self._n_features_out:
            raise ValueError(f"X must have {self._n_features_out} columns, one a component. Got {X.shape[1]}.")
        scalings = to_host(self.scalings_)
        is_independent = hasattr(self, "explained_information_") and scalings.any()  # the paper's may not be
        back = inverse_of(scalings) if is_independent else np.linalg.pinv(scalings)
        if is_foreign(X):
            place = Place.of(X)
            return (place.wide(X) + self.offset_) @ place.wide(back)
        return (X + self.offset_) @ back

    @property
    def _n_features_out(self):
        return self.scalings_.shape[1]

    def gaussian_model(self) -> GaussianModel:
        """Gaussian classes with the identity as covariance whose posterior is this log-linear one (eq. 4 and 8).

        The means are fixed up to a common shift, which cancels in the posterior but moves the priors. It is the one
        that brings them nearest to the classes' shares of the rows; with one direction fewer than classes they are
        the shares. The identity is the rows' true covariance within classes in whitened coordinates. In coordinates
        of very unlike units the means lie so far apart that the Gaussian reading loses its digits.

        Returns
        -------
        model : GaussianModel
        """
        check_is_fitted(self)
        loadings, bias, center = to_host(self._loadings), to_host(self._bias), to_host(self._center)
        about = loadings - loadings.mean(axis=0)
        means = about + center
        missing = to_host(self._log_share) - bias - 0.5 * np.sum(means**2, axis=1)
        means = means + np.linalg.lstsq(about, missing - missing.mean(), rcond=SMALLEST_SHIFT)[0]
        log_prior = bias + 0.5 * np.sum(means**2, axis=1)
        return GaussianModel(log_prior - np.logaddexp.reduce(log_prior), means, np.eye(means.shape[1]))

    def _logits_of(self, projected):
        """Logits of the posterior of places among the projected rows, (..., n_components), as pictures ask for them:
        exact where the Gaussian reading has lost its digits.
        """
        return projected @ to_host(self._loadings).T + to_host(self._bias)

    # -- the path of the log-linear model ----------------------------------------------------------------------

    @property
    def path_(self):
        return self.classifier_.path_

    @property
    def temperature_(self):
        return self.classifier_.temperature_

    @property
    def posterior_scale_(self):
        return self.classifier_.posterior_scale_

    @property
    def C_(self):
        return self.classifier_.C_

    @property
    def penalty_scaling_(self):
        return self.classifier_.penalty_scaling_

    def at(self, temperature=None, *, C=None) -> AnnealedClassifier:
        """The log-linear classifier at another temperature of its path, without a refit.

        The directions belong to the chosen temperature: for those of another one, fit ``MELDA(temperature=...)``.

        Parameters
        ----------
        temperature : float, default=None
            Any temperature between the ends of ``path_``; between visited ones the parameters are interpolated.
        C : float, default=None
            The same as a value of C. Give either `temperature` or `C`.

        Returns
        -------
        classifier : AnnealedClassifier
            A fitted copy of `classifier_`, with all directions; this estimator is left as it is.
        """
        check_is_fitted(self)
        return self.classifier_.at(temperature, C=C)

    # -- prediction ------------------------------------------------------------------------------------------

    def _ask(self, method, X):
        check_is_fitted(self)
        X = self._checked(X, method)
        rows = X if self._whitened is None else _project(X, *self._whitened)
        return getattr(self.reduced_classifier_, method)(rows)

    def decision_function(self, X):
        """Logits of the posterior of the kept directions."""
        return self._ask("decision_function", X)

    def predict_proba(self, X):
        """The posterior of the kept directions, (n_samples, n_classes)."""
        return self._ask("predict_proba", X)

    def predict_log_proba(self, X):
        """Logarithm of the posterior, (n_samples, n_classes)."""
        return self._ask("predict_log_proba", X)

    def predict(self, X):
        """The class of the largest posterior."""
        return self._ask("predict", X)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.array_api_support = True
        return tags


def _leading(coef, directions: Directions, n_components) -> tuple:
    """Scalings and offset of the leading directions, in whitened coordinates."""
    of_scores = directions.of_scores[:n_components]
    return (of_scores @ coef).T, of_scores @ directions.score_mean


def _project(X, scalings, offset):
    if is_foreign(X):
        place = Place.of(X)
        return X @ place.row(scalings) - place.row(offset)
    return scores_of_rows(X, scalings.astype(X.dtype, copy=False), -offset.astype(X.dtype, copy=False))


def _in_features(classifier, scalings, offset):
    """Coefficients and intercepts of the features, from those of the projection `X @ scalings - offset`."""
    coef, intercept, scalings, offset = (
        np.asarray(to_host(own), dtype=np.float64)
        for own in (classifier.coef_, classifier.intercept_, scalings, offset)
    )
    found = coef @ scalings.T, intercept - coef @ offset
    if is_foreign(classifier.coef_):
        place = Place.of(classifier.coef_)
        return tuple(place.row(own) for own in found)
    return tuple(own.astype(classifier.coef_.dtype, copy=False) for own in found)
