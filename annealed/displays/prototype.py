"""Prototypes as a picture: rows, prototypes with their labels, the metric's ellipses and the cells they own."""

from typing import Self

import numpy as np
from sklearn.utils.validation import validate_data

from annealed.arrays import is_foreign, to_host
from annealed.displays.base import as_written, axis_positions, checked_labels, class_colour, draw_legend, draw_regions
from annealed.optional import require

CELL_OPACITY = 0.18
BORDER_COLOUR = "#555555"
ROUNDING = 1e-14  # of a metric's largest eigenvalue: less is none
MARKER_AREAS = (25.0, 70.0)  # of prototypes, when many and when few


class PrototypeDisplay:
    """Labelled prototypes in the plane: who owns which part of it, and how distance is measured.

    Two columns are drawn as they are. Of more, the plane is that of the two leading directions of the metric: those
    along which prototypes lie farthest apart. Use `from_estimator`; the constructor takes the arrays as they are.

    Parameters
    ----------
    rows : array-like of shape (n_samples, 2)
    y : array-like of shape (n_samples,)
        Their classes.
    prototypes : array-like of shape (n_prototypes, 2)
    prototype_labels : array-like of shape (n_prototypes, n_classes)
        Soft labels; a prototype has the colour of its largest.
    classes : array-like of shape (n_classes,)
        All classes, in the order of their colours.
    ellipse : array-like of shape (n_points, 2)
        Points at distance one of the origin in the metric; drawn about every prototype. Along a constant column, where
        there is no distance, it has no width.
    grid : tuple of two ndarray
        Places along each axis at which cells are known.
    cells : ndarray of int of shape (len(grid[1]), len(grid[0]))
        Number of the nearest prototype there.
    axis_names : sequence of str, default=("column 0", "column 1")

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    points_ : list of matplotlib PathCollection
        One a class.
    prototypes_ : list of matplotlib PathCollection
        One a class.
    ellipses_ : list of matplotlib Line2D
        One a prototype.
    cells_ : matplotlib AxesImage
    borders_ : list of matplotlib QuadContourSet
        The outline of every cell; empty where there is a single one.

    Examples
    --------
    >>> from annealed import PottsDA, PrototypeDisplay
    >>> from annealed.datasets import make_xor_means
    >>> X, y = make_xor_means(random_state=0)
    >>> display = PrototypeDisplay.from_estimator(PottsDA(4).fit(X, y), X, y)
    >>> len(display.ellipses_)
    4
    """

    def __init__(
        self,
        *,
        rows,
        y,
        prototypes,
        prototype_labels,
        classes,
        ellipse,
        grid,
        cells,
        axis_names=("column 0", "column 1"),
    ) -> None:
        self.rows = rows
        self.y = y
        self.prototypes = prototypes
        self.prototype_labels = prototype_labels
        self.classes = classes
        self.ellipse = ellipse
        self.grid = grid
        self.cells = cells
        self.axis_names = axis_names

    @classmethod
    def from_estimator(cls, estimator, X, y, *, grid_resolution=300, ax=None) -> Self:
        """Draw a fitted :class:`annealed.PottsDA` and rows.

        Parameters
        ----------
        estimator : PottsDA
            Fitted.
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        grid_resolution : int, default=300
            Number of places along each axis at which the nearest prototype is found.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        display : PrototypeDisplay
        """
        if not hasattr(estimator, "prototype_labels_"):
            raise TypeError(f"PrototypeDisplay needs a fitted PottsDA. Got {estimator!r}.")
        X, y = (to_host(own) if is_foreign(own) else own for own in (X, y))
        X = validate_data(estimator, X, dtype=np.float64, reset=False)
        classes = to_host(estimator.classes_)
        y = checked_labels(y, len(X), classes)
        plane = _Plane.of(estimator, X)
        rows, prototypes = plane.project(X), plane.project(to_host(estimator.prototypes_))
        grid = tuple(axis_positions(column, grid_resolution) for column in rows.T)
        display = cls(
            rows=rows,
            y=y,
            prototypes=prototypes,
            prototype_labels=to_host(estimator.prototype_labels_),
            classes=classes,
            ellipse=_ellipse(plane.metric),
            grid=grid,
            cells=_nearest(np.stack(np.meshgrid(*grid), axis=-1), prototypes, plane.metric),
            axis_names=plane.names,
        )
        return display.plot(ax=ax)

    def plot(self, ax=None):
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        self : PrototypeDisplay
        """
        pyplot = require("matplotlib.pyplot", extra="plot")
        if ax is None:
            _, ax = pyplot.subplots(figsize=(6.4, 4.8), layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        self._draw_cells()
        self._draw_points()
        self._draw_prototypes()
        ax.set(xlabel=self.axis_names[0], ylabel=self.axis_names[1])
        ax.set_xlim(self.grid[0][0], self.grid[0][-1])
        ax.set_ylim(self.grid[1][0], self.grid[1][-1])
        draw_legend(ax, self.classes)
        ax.spines[["top", "right"]].set_visible(False)
        return self

    def _owners(self):
        return np.argmax(np.asarray(self.prototype_labels), axis=1)

    def _draw_cells(self):
        colours = [class_colour(position) for position in range(len(self.classes))]
        cells = np.asarray(self.cells)
        self.cells_ = draw_regions(self.ax_, self.grid, self._owners()[cells], colours, CELL_OPACITY)
        shown = np.unique(cells)
        style = {"levels": [0.5], "colors": BORDER_COLOUR, "linewidths": 0.6, "zorder": 1}
        self.borders_ = [self.ax_.contour(*self.grid, cells == own, **style) for own in shown if len(shown) > 1]

    def _draw_points(self):
        rows, y = np.asarray(self.rows), np.asarray(self.y)
        self.points_ = [
            self.ax_.scatter(*rows[y == label].T, s=9, color=class_colour(position), linewidths=0, alpha=0.6, zorder=2)
            for position, label in enumerate(self.classes)
        ]

    def _draw_prototypes(self):
        prototypes, owners = np.asarray(self.prototypes), self._owners()
        outline = np.asarray(self.ellipse)
        area = np.clip(1500 / len(prototypes), *MARKER_AREAS)
        self.ellipses_ = [
            self.ax_.plot(*(place + outline).T, color="black", linewidth=0.8, zorder=3)[0] for place in prototypes
        ]
        self.prototypes_ = [
            self.ax_.scatter(
                *prototypes[owners == position].T,
                s=area,
                color=class_colour(position),
                marker="D",
                edgecolors="black",
                linewidths=1.0,
                label=as_written(label),
                zorder=4,
            )
            for position, label in enumerate(self.classes)
        ]


class _Plane:
    """The plane of the picture: two columns, or two directions of the metric about the rows' mean."""

    def __init__(self, center, directions, metric, names):
        self.center, self.directions, self.metric, self.names = center, directions, metric, names

    @classmethod
    def of(cls, estimator, X):
        names = getattr(estimator, "feature_names_in_", [f"column {column}" for column in range(X.shape[1])])
        if X.shape[1] == 2:
            return cls(np.zeros(2), np.eye(2), estimator.metric_, [as_written(name) for name in names])
        root, prototypes = _root(estimator.metric_), to_host(estimator.prototypes_)
        spread = (prototypes - prototypes.mean(axis=0)) @ root
        leading = np.linalg.svd(spread)[2][:2]
        directions = np.zeros((len(root), 2))  # a single column leaves the second direction empty
        directions[:, : len(leading)] = root @ leading.T  # distances along them are distances in the metric
        return cls(X.mean(axis=0), directions, np.eye(2), ["metric direction 1", "metric direction 2"])

    def project(self, X):
        return (np.asarray(X) - self.center) @ self.directions


def _eigen(metric):
    """(units, values, vectors): units of the columns in which the metric's diagonal is one, its eigenvalues and
    eigenvectors there. Columns may come in any units.
    """
    units = np.sqrt(np.diag(metric))
    units = np.where(units > 0, units, 1.0)
    values, vectors = np.linalg.eigh(metric / units / units[:, None])
    return units, np.where(values > ROUNDING * values[-1], values, 0.0), vectors


def _root(metric):
    """R with `R R' = metric`."""
    units, values, vectors = _eigen(metric)
    return units[:, None] * vectors * np.sqrt(values)


def _ellipse(metric):
    units, values, vectors = _eigen(metric)
    lengths = np.divide(1, np.sqrt(values), out=np.zeros_like(values), where=values > 0)
    angle = np.linspace(0, 2 * np.pi, 100)
    return np.column_stack([np.cos(angle), np.sin(angle)]) @ (vectors * lengths).T / units


def _nearest(points, prototypes, metric):
    middle = prototypes.mean(axis=0)  # far from the origin squares would leave no digits to differences
    prototypes = prototypes - middle
    directions = prototypes @ metric
    return np.argmax((points - middle) @ directions.T - 0.5 * np.sum(directions * prototypes, axis=1), axis=-1)
