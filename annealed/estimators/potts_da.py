"""Potts discriminant analysis (PottsDA): labelled prototypes in one metric, annealed, grown and refined."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from annealed.arrays import Place, is_dispatched, is_foreign, namespace_of, take_rows, to_host
from annealed.callbacks import CallbackSupportMixin, FitWatch, with_callbacks
from annealed.estimators.parameters import forget_last_fit, make_published
from annealed.estimators.potts_settings import check_parameters, labelled_rows, precise, search_settings
from annealed.estimators.predictions import LogitsMixin, argmax, check_same_library, classes_like, named_classes
from annealed.estimators.samples import checked, coded
from annealed.estimators.types import FloatArray, RandomState, Temperature, Temperatures
from annealed.path import InverseTemperatureSchedule, is_auto
from annealed.potts import Columns, PrototypePath, scores_of
from annealed.potts.refinement import CalibratedPosterior
from annealed.potts.search import FIT_ROWS, Fitted, few_along_axes, fit_prototypes, search
from annealed.problems import gibbs
from annealed.rows.array_api import row_batches
from annealed.rows.threads import one_thread, threads_over_blocks


class PottsDA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, CallbackSupportMixin, LogitsMixin, BaseEstimator):
    """Potts discriminant analysis: a few labelled prototypes, one Mahalanobis metric, and calibrated probabilities.

    A prototype is a point with a label. A sample belongs to the prototypes near it, and its posterior is the mean of
    their labels, so that class boundaries are piecewise linear. Memberships of samples and labels of prototypes are
    Potts spins, and mean-field annealing lowers their temperature together until they are hard; prototypes and metric
    follow in closed form. New prototypes are added where training samples are misclassified, held-out samples decide
    when to stop, and a discriminative refinement then minimizes the log-loss over prototypes, metric and labels.

    The result does not depend on the units of the features. X must be dense.

    Parameters
    ----------
    n_prototypes : "auto", int or dict, default="auto"
        "auto" adds prototypes while the held-out log-loss improves. An int is their total, divided among the classes
        by weight. A dict gives the number of each class. A class gets at most as many as it has distinct samples.
    label_coupling : float, default=8.0
        Weight c of the labels relative to the distances. With c near 0, the annealing is soft k-means in a Mahalanobis
        metric. With large c and ``temperature=1`` it is mixture discriminant analysis with a shared covariance and
        components of equal weight; with one prototype for each class and no shrinkage, prototypes and metric are then
        those of LDA.
    n_init : int, default=8
        Number of starts. The one with the lowest final free energy is kept.
    shrinkage : {"auto", "oas", "ledoit_wolf"} or float in [0, 1], default="auto"
        Shrinkage of the scatter, whose inverse is the metric, towards a sphere in standardized features. "auto"
        chooses between OAS and a few fixed values by held-out log-loss.
    refine : bool, default=True
        Whether to refine prototypes, metric and labels by minimizing the log-loss, with a penalty on their distance
        from the annealed solution. Its strength is chosen by held-out log-loss.
    temperature : "auto" or float, default="auto"
        The temperature of the posterior in the annealed metric. "auto" lowers the temperature until the spins are hard
        (see `saturation`), then chooses that of the posterior by held-out log-loss and calibrates the posterior. A
        number ends the annealing at this temperature and keeps it for the posterior, which is not calibrated. The
        number of prototypes, the shrinkage and the refinement are still chosen on held-out samples, unless given.
    schedule : "auto", array-like of temperatures, or Schedule, default="auto"
        Temperatures of the annealing. "auto" multiplies beta = 1 / temperature by 1.5, from 0.5 on; a
        :class:`annealed.InverseTemperatureSchedule` has other factors. Temperatures below 1e-30 or above 1e30 are
        left out.
    max_sweeps : int, default=5
        Largest number of sweeps at one temperature. A sweep updates memberships, labels, prototypes and metric once.
    random_state : int, RandomState instance or None, default=None
        Seed of the starts and of the folds. None gives the same result at every fit.
    device : str, default=None
        Device, such as "cuda", for the final annealing of NumPy samples, if there are more than 50,000; it needs
        torch. The fitted attributes are NumPy arrays. Samples that are already on a device (with scikit-learn's
        ``array_api_dispatch``) stay there, and so do predictions. The search, the growth and the fit of fewer samples
        run on the host, on at most 50,000 samples. Not available with ``relaxation="quadratic"`` or
        ``shrinkage="ledoit_wolf"``.

    Other Parameters
    ----------------
    init : {"kmeans++", "mean"}, default="kmeans++"
        Where prototypes start. "kmeans++" starts in each class, by k-means++. "mean" is the slides' start: all near
        the mean of the samples, with undecided labels. It needs `n_prototypes` as an int, assigns labels to prototypes
        at random, and often fails.
    relaxation : {"multilinear", "quadratic"}, default="multilinear"
        Mean-field energy of the labels. "multilinear" is the exact expectation and has closed-form updates.
        "quadratic" is that of the slides, with damped updates; it is slower and stores a number for each pair of a
        sample and a prototype.
    decision : {"posterior", "nearest"}, default="posterior"
        What `predict` returns. "posterior" is the class of the largest posterior: it agrees with `predict_proba` and
        has fewer errors. "nearest" is the label of the nearest prototype, as in the slides; `decision_function` and
        `predict_proba` remain those of the posterior.
    saturation : float, default=0.98
        The annealing stops when the mean sums of squares of memberships and of labels, which are one for hard spins,
        both exceed this value. Not used with a given `temperature`.
    perturbation : float, default=0.0
        Standard deviation of the noise that is added to the prototypes at every temperature, in standard deviations of
        the features. Prototypes of one label that are equal at a high temperature have equal updates: without noise
        they never split. Useful with ``init="mean"``.

    Attributes
    ----------
    prototypes_ : ndarray of shape (n_prototypes, n_features)
        Positions of the prototypes.
    prototype_labels_ : ndarray of shape (n_prototypes, n_classes)
        Soft labels: the class distribution of each prototype.
    metric_ : ndarray of shape (n_features, n_features)
        Squared distances are ``(x - prototype) @ metric_ @ (x - prototype)``.
    temperature_ : float
        The temperature of the posterior: memberships are the softmax of minus half the squared distances divided by
        it.
    free_energy_ : float
        Free energy Psi at the end of the annealing, before refinement.
    posterior_scale_ : float
        Factor on the log posterior that calibrates it on held-out samples; one with a given `temperature`.
    shrinkage_ : str or float
        The shrinkage that was used.
    refinement_penalty_ : float or None
        Strength of the penalty of the refinement, in samples; None if there was no refinement.
    path_ : PrototypePath
        Free energy, saturation and number of prototypes at every temperature.
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    References
    ----------
    J.-M. Wu, "Natural Discriminant Analysis Using Interactive Potts Models", Neural Computation 14, 2002.

    Examples
    --------
    >>> from annealed import PottsDA
    >>> from annealed.datasets import make_mixed_strips
    >>> X, y = make_mixed_strips(random_state=0)
    >>> model = PottsDA(n_prototypes=4).fit(X, y)
    >>> model.prototypes_.shape, model.score(X, y)
    ((4, 2), 1.0)
    """

    classes_: NDArray[Any]
    prototypes_: FloatArray
    prototype_labels_: FloatArray
    temperature_: float
    free_energy_: float
    posterior_scale_: float
    shrinkage_: str | float
    refinement_penalty_: float | None
    path_: PrototypePath
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    _columns: Columns
    _posterior: CalibratedPosterior  # float64: with collinear columns, directions are small differences

    def __init__(
        self,
        n_prototypes: Literal["auto"] | int | dict[Any, int] = "auto",
        *,
        label_coupling: float = 8.0,
        n_init: int = 8,
        shrinkage: Literal["auto", "oas", "ledoit_wolf"] | float = "auto",
        refine: bool = True,
        temperature: Temperature = "auto",
        schedule: Temperatures = "auto",
        max_sweeps: int = 5,
        random_state: RandomState | None = None,
        device: str | None = None,
        init: Literal["kmeans++", "mean"] = "kmeans++",
        relaxation: Literal["multilinear", "quadratic"] = "multilinear",
        decision: Literal["posterior", "nearest"] = "posterior",
        saturation: float = 0.98,
        perturbation: float = 0.0,
    ) -> None:
        self.n_prototypes = n_prototypes
        self.label_coupling = label_coupling
        self.n_init = n_init
        self.shrinkage = shrinkage
        self.refine = refine
        self.temperature = temperature
        self.schedule = schedule
        self.max_sweeps = max_sweeps
        self.random_state = random_state
        self.device = device
        self.init = init
        self.relaxation = relaxation
        self.decision = decision
        self.saturation = saturation
        self.perturbation = perturbation

    @classmethod
    def as_published(cls, **settings) -> Self:
        """The classifier as the slides print it: mean-field annealing of a fixed number of prototypes.

        Prototypes start near the mean of all samples with undecided labels, in the metric of an unshrunk scatter.
        The energy of the labels is half the squared distance of a sample's label to its prototypes'. beta grows until
        the mean squares of memberships and labels are near one. There is one start and no refinement, and `predict`
        gives the label of the nearest prototype.

        It differs from the slides in the following:

        - Noise of 0.001 standard deviations is added to the prototypes at every temperature. As printed, prototypes of
          one label never split once they are equal, and example 2 of the slides is not solved.
        - The labels enter the memberships with the sign that lowers the energy; the slides print the other sign.
        - A step towards the mean-field equations is shortened until the free energy does not rise. As printed, the
          updates do not converge.
        - At one temperature memberships, labels, prototypes and metric are updated in turn until the free energy has
          converged. The slides update memberships and labels to a stationary point, then the others once.
        - The slides do not print the schedule of beta, the threshold, the weight of the labels or the incremental
          growth. Here beta is multiplied by 1.1 from 0.01 on, the threshold is 0.98, the weight is 8, and there are
          four prototypes, as in examples 1 and 2; set `n_prototypes` for more.
        - Prototypes without samples and duplicates are removed at the end.
        - `predict_proba`, which the slides do not have, is calibrated on held-out samples.

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
            "n_prototypes": 4,
            "n_init": 1,
            "shrinkage": 0.0,
            "refine": False,
            "schedule": InverseTemperatureSchedule(0.01, growth=1.1),
            "max_sweeps": 100,
            "init": "mean",
            "relaxation": "quadratic",
            "decision": "nearest",
            "perturbation": 1e-3,
        }
        return make_published(cls, printed, settings)

    # -- fitting ---------------------------------------------------------------------------------------------

    @with_callbacks
    def fit(self, X, y, sample_weight=None) -> Self:
        """Fit prototypes, metric and labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
            A sample of weight 2 counts as two samples, one of weight 0 as none. If the weights sum to less than the
            number of distinct samples of positive weight, they are scaled up to it.

        Returns
        -------
        self : object
        """
        check_parameters(self)
        forget_last_fit(self)
        given_X, given_y = X, y
        X, y = checked(self, X, y, accept_sparse=False)
        classes, labels = coded(y)
        self.classes_ = classes_like(classes, given_y) if is_dispatched(given_X) else classes
        with one_thread():  # so that the result, rounding included, does not depend on the number of threads
            rows, self._columns = labelled_rows(self, X, labels, classes, sample_weight)
        watch = FitWatch.of_fit(self, given_X, given_y, sample_weight)

        def attributes_of(fitted):
            other = copy(self)
            other._set_fitted(fitted, X)
            return other.__dict__

        with threads_over_blocks() if len(rows.labels) >= FIT_ROWS else one_thread():
            rows = few_along_axes(rows)
            settings = search_settings(self, classes, rows.class_weight)
            choice = search(rows, settings, watch)
            if watch.is_stopped:
                fitted = fit_prototypes(rows, replace(settings, n_init=1), choice)
            else:
                fitted = fit_prototypes(rows, settings, choice, watch, attributes_of)
        with one_thread():
            self._set_fitted(fitted, X)
        watch.finish()
        return self

    def _set_fitted(self, fitted: Fitted, X):
        """Set the fitted attributes; prototypes and labels are arrays of the type of X, on its device."""
        dtype = to_host(X[:1, ...]).dtype
        cooled, posterior, choice = fitted.rounds[-1], fitted.posterior.dense(), fitted.choice
        self.path_ = PrototypePath.of_rounds(fitted.rounds, choice.validation_loss)
        self._columns = self._columns.turned(fitted.axes)
        self._posterior = posterior
        if is_auto(self.temperature):  # the volume of the annealed metric over that of the posterior's
            log_ratio = np.linalg.slogdet(posterior.metric)[1] - cooled.state.log_det
            self.temperature_ = float(np.exp(-log_ratio / len(posterior.metric)))
        else:
            self.temperature_ = float(self.temperature)
        self.prototypes_ = self._columns.points(posterior.prototypes).astype(dtype)
        self.prototype_labels_ = gibbs.posterior(posterior.label_logits).astype(dtype)
        self.free_energy_ = float(self.path_.free_energy[-1])
        self.posterior_scale_ = float(np.exp(choice.log_scale))
        self.shrinkage_, self.refinement_penalty_ = choice.shrinkage, choice.strength
        if is_foreign(X):
            for name in ("prototypes_", "prototype_labels_"):
                setattr(self, name, Place.of(X).row(getattr(self, name)))

    def __sklearn_is_fitted__(self):
        return hasattr(self, "prototypes_")

    # -- prediction --------------------------------------------------------------------------------------------

    @property
    def metric_(self) -> FloatArray:
        """The metric in the units of the features."""
        return self._columns.metric(self.temperature_ * self._posterior.metric)

    @property
    def _n_features_out(self):
        return self.prototypes_.shape[0]

    def _by_blocks(self, X, function, method):
        """`function(scores)` of blocks of samples.

        Scores (n_samples, K) are minus half the squared distances divided by the temperature, up to a term that is
        equal for all prototypes.
        """
        check_is_fitted(self)
        X = precise(checked(self, X, accept_sparse=False, reset=False), self.temperature_)
        check_same_library(X, self.prototypes_, self, method)
        prototypes, metric, _ = self._posterior
        parts = [
            function(scores_of(self._columns.rows(X[block, :]), prototypes, metric))
            for block in row_batches(X.shape[0], X.shape[1] + len(prototypes), Place.of(X))
        ]
        return namespace_of(parts[0]).concat(parts) if is_foreign(X) else np.concatenate(parts)

    def apply(self, X) -> NDArray[np.integer[Any]]:
        """Find the nearest prototype of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        indices : ndarray of shape (n_samples,)
        """
        return self._by_blocks(X, argmax, "apply")

    def transform(self, X) -> FloatArray:
        """Compute the memberships of samples in prototypes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        memberships : ndarray of shape (n_samples, n_prototypes)
            Non-negative; those of a sample sum to one.
        """
        return self._by_blocks(X, gibbs.posterior, "transform")

    def predict(self, X) -> NDArray[Any]:
        """Predict the class of the largest posterior, or the label of the nearest prototype, depending on `decision`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        if self.decision == "nearest":
            return named_classes(self.classes_, take_rows(argmax(self.prototype_labels_), self.apply(X)))
        return super().predict(X)

    def _logits(self, X, method):
        """Log posterior of each class, calibrated but not normalized, (n_samples, n_classes)."""

        def label_shares(scores):
            """The mean of the prototypes' labels, weighted by the memberships."""
            labels = self.prototype_labels_
            return gibbs.posterior(scores) @ (Place.of(scores).row(labels) if is_foreign(scores) else labels)

        shares = self._by_blocks(X, label_shares, method)
        xp = namespace_of(shares)
        tiny = float(xp.finfo(shares.dtype).smallest_normal)
        return self.posterior_scale_ * xp.log(xp.clip(shares, tiny, None))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.array_api_support = True
        return tags
