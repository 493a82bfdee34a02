"""Picture of a linear classifier or reduction: samples in the plane of its first two directions, coloured by class."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np
from sklearn.utils.validation import _num_samples, validate_data

from annealed.arrays import is_foreign, to_host
from annealed.estimators.discriminant_axes import class_weights_of, directions_of, score_moments
from annealed.estimators.melda import MELDA
from annealed.optional import require
from annealed.plots.base import (
    CLASS_COLOURS,
    as_written,
    axis_positions,
    checked_labels,
    class_colour,
    draw_legend,
    draw_regions,
)

MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # the marker changes when the class colours repeat
STRIP_WIDTH = 0.3  # largest jitter of a point; a strip extends 0.5 to each side
REGION_OPACITY = 0.15
SAME_LOGITS = 1e-3  # relative difference up to which two ways to compute logits agree: X may be float32


class ProjectionDisplay:
    """Samples in the discriminant plane of a linear classifier, with the regions where each class is predicted.

    A linear classifier separates classes in at most ``n_classes - 1`` dimensions. The display projects the samples to
    the first two of them and colours the plane by the predicted class; with two classes there is a single dimension,
    and each class is drawn as a strip along it.

    Create it with :meth:`from_estimator`. The constructor takes the arrays that are drawn.

    Parameters
    ----------
    projected : array-like of shape (n_samples, n_components)
        The projected samples. The first two components are drawn.
    y : array-like of shape (n_samples,)
        The class of each sample.
    classes : array-like of shape (n_classes,)
        All classes; their order is that of the colours.
    component_names : sequence of str, default=None
        Labels of the axes; None numbers the components.
    grid : tuple of ndarray, default=None
        Positions along each drawn component at which `regions` are known: two vectors, or one for a single component.
    regions : ndarray of int, default=None
        Index in `classes` of the predicted class at each point of the grid, (len(grid[1]), len(grid[0])), or
        (len(grid[0]),) for a single component. None draws no regions.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    points_ : list of matplotlib PathCollection
        The samples, one collection for each class.
    regions_ : matplotlib AxesImage or None
        The regions; None if there are none.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from annealed import AnnealedLogisticRegression, ProjectionDisplay
    >>> X, y = load_wine(return_X_y=True)
    >>> display = ProjectionDisplay.from_estimator(AnnealedLogisticRegression().fit(X, y), X, y)
    >>> len(display.points_)
    3
    """

    def __init__(self, *, projected, y, classes, component_names=None, grid=None, regions=None) -> None:
        self.projected = projected
        self.y = y
        self.classes = classes
        self.component_names = component_names
        self.grid = grid
        self.regions = regions

    @classmethod
    def from_estimator(cls, estimator, X, y, *, grid_resolution=200, ax=None) -> Self:
        """Draw samples and the regions of a fitted linear estimator.

        An estimator with a ``transform``, such as :class:`annealed.MELDA` or scikit-learn's
        ``LinearDiscriminantAnalysis``, projects the samples itself. The logits of any other linear classifier vary
        along at most ``n_classes - 1`` directions: its samples are drawn in these, whitened within the classes of the
        drawn samples and ordered by information as MELDA orders them.

        Regions are drawn if the predicted class depends on the drawn components alone. That is the case if there are
        at most two components, all of which the classifier uses.

        Parameters
        ----------
        estimator : fitted estimator
            A linear classifier, with ``coef_`` and ``intercept_``, or a reduction, with ``transform``.
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The samples to draw.
        y : array-like of shape (n_samples,)
            Their classes.
        grid_resolution : int, default=200
            Number of positions along each component at which the class is predicted.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        display : ProjectionDisplay
        """
        project = _projector(estimator)
        y = to_host(y)
        classes = to_host(getattr(estimator, "classes_", np.unique(y)))
        y = checked_labels(y, _num_samples(X), classes)
        projection = project(estimator, X, y)
        grid, regions = _regions(projection, grid_resolution)
        display = cls(
            projected=projection.projected,
            y=y,
            classes=classes,
            component_names=projection.names,
            grid=grid,
            regions=regions,
        )
        return display.plot(ax=ax)

    def plot(self, ax=None):
        """Draw the arrays.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        display : ProjectionDisplay
            The display itself, with what it drew in its attributes.
        """
        pyplot = require("matplotlib.pyplot", extra="plot")
        if ax is None:
            _, ax = pyplot.subplots(figsize=(6.4, 4.8), layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        self._draw_regions()
        self._draw_points()
        self._style_axes()
        return self

    @property
    def _is_strip(self):
        return np.shape(self.projected)[1] == 1

    def _places(self):
        """Where points are drawn: the second coordinate of a strip is its class, with jitter to tell rows apart."""
        projected = np.asarray(self.projected)
        if not self._is_strip:
            return projected[:, 0], projected[:, 1]
        strip = np.zeros(len(projected))
        for position, label in enumerate(self.classes):
            strip[np.asarray(self.y) == label] = position
        jitter = np.random.RandomState(0).uniform(-STRIP_WIDTH, STRIP_WIDTH, len(projected))
        return projected[:, 0], strip + jitter

    def _draw_regions(self):
        self.regions_ = None
        if self.regions is None:
            return
        regions, grid = np.asarray(self.regions), self.grid
        if self._is_strip:  # the class does not depend on the strip
            regions, grid = np.vstack([regions, regions]), (grid[0], np.array([-0.5, len(self.classes) - 0.5]))
        colours = [class_colour(position) for position in range(len(self.classes))]
        self.regions_ = draw_regions(self.ax_, grid, regions, colours, REGION_OPACITY)

    def _draw_points(self):
        first, second = self._places()
        y = np.asarray(self.y)
        self.points_ = [
            self.ax_.scatter(
                first[y == label],
                second[y == label],
                s=18,
                color=class_colour(position),
                marker=MARKERS[position // len(CLASS_COLOURS) % len(MARKERS)],
                edgecolors="white",
                linewidths=0.4,
                label=as_written(label),
            )
            for position, label in enumerate(self.classes)
        ]

    def _style_axes(self):
        ax, names = self.ax_, self.component_names
        if names is None:
            names = [f"component {position + 1}" for position in range(np.shape(self.projected)[1])]
        ax.set_xlabel(names[0])
        if self._is_strip:
            ax.set_ylabel("class")
            ax.set_yticks(range(len(self.classes)), [as_written(label) for label in self.classes])
            ax.set_ylim(-0.5, len(self.classes) - 0.5)
        else:
            ax.set_ylabel(names[1])
            draw_legend(ax, self.classes)
        if self.grid is not None:
            ax.set_xlim(self.grid[0][0], self.grid[0][-1])
            if not self._is_strip:
                ax.set_ylim(self.grid[1][0], self.grid[1][-1])
        ax.spines[["top", "right"]].set_visible(False)


class _Projection(NamedTuple):
    """Projected samples, the names of the components, and a function from components to logits; None if unknown."""

    projected: np.ndarray
    names: list[str]
    logits_of: Callable | None


def _projector(estimator) -> Callable[..., _Projection]:
    """The function that projects the samples of this kind of estimator."""
    if hasattr(estimator, "prototype_labels_"):
        raise TypeError(
            f"ProjectionDisplay needs a linear estimator. Got {estimator!r}, whose class boundaries are piecewise "
            "linear. Draw it with PrototypeDisplay."
        )
    if hasattr(estimator, "transform"):
        return _by_transform
    if all(hasattr(estimator, name) for name in ("coef_", "intercept_", "classes_", "decision_function")):
        return _by_logits
    advice = "Call fit on it first, if it is one."
    if hasattr(estimator, "steps"):
        advice = "Give its last step and the samples that this step sees: pipeline[-1], pipeline[:-1].transform(X)."
    raise TypeError(
        "ProjectionDisplay needs a fitted linear classifier, which has coef_ and intercept_, or a reduction with "
        f"transform. Got {estimator!r}. {advice}"
    )


def _by_transform(estimator, X, y) -> _Projection:
    """The estimator's own projection; MELDA knows the logits of any point in it."""
    projected = to_host(estimator.transform(X))
    if hasattr(estimator, "get_feature_names_out"):
        names = [as_written(name) for name in estimator.get_feature_names_out()]
    else:
        names = [f"component {position + 1}" for position in range(projected.shape[1])]
    shares = getattr(estimator, "explained_information_ratio_", None)
    if shares is not None:
        names = _with_shares(names, to_host(shares))
    logits_of = None
    if isinstance(estimator, MELDA):
        logits_of = estimator._projection.logits
    elif hasattr(estimator, "decision_function"):
        logits_of = _affine_fit(projected, _decision(estimator, X))
    return _Projection(projected, names, logits_of)


def _by_logits(estimator, X, y) -> _Projection:
    """Whitened discriminant directions of the logits of a linear classifier."""
    rows = to_host(X) if is_foreign(X) else X
    rows = validate_data(estimator, rows, accept_sparse="csr", dtype=np.float64, reset=False)
    coef, intercept = class_weights_of(estimator)
    logits = rows @ coef.T + intercept if coef.shape[1] == rows.shape[1] else None
    if logits is None or not _agree(logits, _decision(estimator, X)):
        raise TypeError(
            "ProjectionDisplay needs a classifier that is linear in the features of X. Got "
            f"{estimator!r}, whose decision_function is not X @ coef_.T + intercept_."
        )
    moments = score_moments(rows, np.searchsorted(to_host(estimator.classes_), y), np.ones(len(y)), coef)
    axes = directions_of(moments, min(len(coef) - 1, coef.shape[1]))
    total = axes.information.sum()
    names = [f"discriminant direction {position + 1}" for position in range(len(axes.information))]
    return _Projection(
        (rows @ coef.T - axes.score_mean) @ axes.of_scores.T,
        _with_shares(names, axes.information / (total if total > 0 else 1.0)),
        lambda points: points @ axes.loadings.T + axes.score_mean + intercept,
    )


def _decision(estimator, X):
    """The estimator's own logits, one column for each class; of two classes half of their difference."""
    decision = np.asarray(to_host(estimator.decision_function(X)), dtype=np.float64)
    return np.column_stack([-decision, decision]) / 2 if decision.ndim == 1 else decision


def _agree(logits, others) -> bool:
    """Whether logits are the same but for one number that is added to all of a sample, and for rounding."""
    if logits.shape != others.shape:
        return False
    is_finite = np.isfinite(logits) & np.isfinite(others)  # a prior of zero has an infinite logarithm
    logits, others = (_centred(part, is_finite) for part in (logits, others))
    return bool(np.abs(logits - others).max() <= SAME_LOGITS * max(np.abs(others).max(), np.finfo(float).tiny))


def _affine_fit(projected, logits) -> Callable | None:
    """Logits as an affine function of the components, by least squares; None if they are not one."""
    design = np.column_stack([projected, np.ones(len(projected))])
    if len(design) <= design.shape[1] or not np.isfinite(logits).all():
        return None
    solution = np.linalg.lstsq(design, logits - logits.mean(axis=1, keepdims=True), rcond=None)[0]
    if not _agree(design @ solution, logits):
        return None
    return lambda points: points @ solution[:-1] + solution[-1]


def _centred(logits, is_finite):
    """Logits less their mean over classes; zero where they are not finite."""
    mean = np.mean(logits, axis=1, keepdims=True, where=is_finite) if is_finite.any(axis=1).all() else 0.0
    return np.where(is_finite, logits - mean, 0.0)


def _with_shares(names, shares):
    """Names with each component's share of the information, unless a single one has all of it."""
    if len(names) == 1 and shares[0] == 1:
        return names
    return [f"{name} ({share:.0%} of the information)" for name, share in zip(names, shares, strict=True)]


def _regions(projection: _Projection, grid_resolution):
    """A grid over the samples and the class predicted at each of its points; (None, None) if that is unknown."""
    projected, _, logits_of = projection
    if logits_of is None or projected.shape[1] > 2:
        return None, None
    grid = tuple(axis_positions(column, grid_resolution) for column in projected.T)
    points = np.stack(np.meshgrid(*grid), axis=-1)
    return grid, np.argmax(logits_of(points), axis=-1)
