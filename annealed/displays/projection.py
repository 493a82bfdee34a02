"""A supervised reduction as a picture: rows in the plane of its first two components, coloured by class."""

from typing import Self

import numpy as np

from annealed.arrays import to_host
from annealed.displays.base import as_written, axis_places, checked_labels, draw_legend, draw_regions
from annealed.optional import require

# Okabe and Ito's colours, which colour-blind readers can tell apart; beyond them the markers change.
CLASS_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STRIP_WIDTH = 0.3  # how far jitter moves a point of a strip, half a strip being 0.5
REGION_OPACITY = 0.15


class ProjectionDisplay:
    """Rows after a supervised linear reduction, such as `MELDA`, with the regions where each class is predicted.

    Two components make a scatter plot, of more the first two are drawn; a single one makes a strip for each class.
    Use `from_estimator`; the constructor takes the arrays as they are.

    Parameters
    ----------
    projected : array-like of shape (n_samples, n_components)
        The reduced rows.
    y : array-like of shape (n_samples,)
        Their classes.
    classes : array-like of shape (n_classes,)
        All classes, in the order of their colours.
    component_names : sequence of str, default=None
        Labels of the axes; None numbers them.
    grid : tuple of ndarray, default=None
        Places along each drawn component at which `regions` are known: two vectors, or one for a single component.
    regions : ndarray of int, default=None
        Position in `classes` of the class predicted there, (len(grid[1]), len(grid[0])), or (len(grid[0]),) for a
        single component; None draws no regions.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    points_ : list of matplotlib PathCollection
        One a class.
    regions_ : matplotlib AxesImage or None

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from annealed import MELDA, ProjectionDisplay
    >>> X, y = load_wine(return_X_y=True)
    >>> display = ProjectionDisplay.from_estimator(MELDA().fit(X, y), X, y)
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
        """Draw rows as a fitted reduction sees them.

        Regions are drawn where the estimator can answer for points of the plane: those of a
        :class:`annealed.MELDA` that has no more components than are drawn.

        Parameters
        ----------
        estimator : estimator with `transform`
            A fitted reduction, such as :class:`annealed.MELDA`.
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        grid_resolution : int, default=200
            Number of places along each component at which a class is predicted.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        display : ProjectionDisplay
        """
        if not hasattr(estimator, "transform"):
            raise TypeError(f"ProjectionDisplay needs an estimator with a transform. Got {estimator!r}.")
        projected, y = to_host(estimator.transform(X)), to_host(y)
        classes = to_host(getattr(estimator, "classes_", np.unique(y)))
        y = checked_labels(y, len(projected), classes)
        grid, regions = _regions(estimator, projected, grid_resolution)
        names = _component_names(estimator, projected.shape[1])
        display = cls(projected=projected, y=y, classes=classes, component_names=names, grid=grid, regions=regions)
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
        colours = [_colour(position) for position in range(len(self.classes))]
        self.regions_ = draw_regions(self.ax_, grid, regions, colours, REGION_OPACITY)

    def _draw_points(self):
        first, second = self._places()
        y = np.asarray(self.y)
        self.points_ = [
            self.ax_.scatter(
                first[y == label],
                second[y == label],
                s=18,
                color=_colour(position),
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


def _colour(position):
    return CLASS_COLOURS[position % len(CLASS_COLOURS)]


def _component_names(estimator, n_components):
    """Names of the components, with their share of the information where the estimator knows it."""
    if hasattr(estimator, "get_feature_names_out"):
        names = [as_written(name) for name in estimator.get_feature_names_out()]
    else:
        names = [f"component {position + 1}" for position in range(n_components)]
    shares = getattr(estimator, "explained_information_ratio_", None)
    if shares is None:
        return names
    return [f"{name} ({share:.0%} of the information)" for name, share in zip(names, to_host(shares), strict=True)]


def _regions(estimator, projected, grid_resolution):
    """A grid over the rows and the class predicted at each of its points; (None, None) where nobody can tell."""
    if not hasattr(estimator, "_logits_of") or projected.shape[1] > 2:
        return None, None
    grid = tuple(axis_places(column, grid_resolution) for column in projected.T)
    points = np.stack(np.meshgrid(*grid), axis=-1)
    return grid, np.argmax(estimator._logits_of(points), axis=-1)
