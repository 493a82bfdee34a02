"""Picture of prototypes: samples, prototypes with their labels, ellipses of the metric, and the prototypes' cells."""

from typing import Self

import numpy as np
from sklearn.utils.validation import validate_data

from annealed.arrays import is_foreign, to_host
from annealed.optional import require
from annealed.plots.base import as_written, axis_positions, checked_labels, class_colour, draw_legend, draw_regions

CELL_OPACITY = 0.18
BORDER_COLOUR = "#555555"
ROUNDING = 1e-14  # relative to the largest eigenvalue of the metric; smaller eigenvalues are taken as zero
MARKER_AREAS = (25.0, 70.0)  # of prototypes, if they are many and if they are few


class PrototypeDisplay:
    """Labelled prototypes in the plane: their cells, and the metric in which distances are measured.

    The cell of a prototype is the part of the plane that is nearer to it than to any other prototype; it has the
    colour of the prototype's class. Two features are drawn as they are. With more features, the plane is spanned by
    the two directions along which the prototypes are farthest apart in the metric.

    Create it with :meth:`from_estimator`. The constructor takes the arrays that are drawn.

    Parameters
    ----------
    rows : array-like of shape (n_samples, 2)
        The samples.
    y : array-like of shape (n_samples,)
        The class of each sample.
    prototypes : array-like of shape (n_prototypes, 2)
        Positions of the prototypes.
    prototype_labels : array-like of shape (n_prototypes, n_classes)
        Soft labels; a prototype has the colour of its largest label.
    classes : array-like of shape (n_classes,)
        All classes; their order is that of the colours.
    ellipse : array-like of shape (n_points, 2)
        Points at distance one from the origin in the metric, drawn around every prototype. The ellipse has no width
        along a constant feature, which does not enter the distances.
    grid : tuple of two ndarray
        Positions along each axis at which `cells` are known.
    cells : ndarray of int of shape (len(grid[1]), len(grid[0]))
        Index of the nearest prototype at each point of the grid.
    axis_names : sequence of str, default=("column 0", "column 1")
        Labels of the axes.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    points_ : list of matplotlib PathCollection
        The samples, one collection for each class.
    prototypes_ : list of matplotlib PathCollection
        The prototypes, one collection for each class.
    ellipses_ : list of matplotlib Line2D
        One for each prototype.
    cells_ : matplotlib AxesImage
        The cells.
    borders_ : list of matplotlib QuadContourSet
        The outline of each cell; empty if there is only one.

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
        """Draw samples and a fitted :class:`annealed.PottsDA`.

        Parameters
        ----------
        estimator : PottsDA
            A fitted estimator.
        X : array-like of shape (n_samples, n_features)
            The samples to draw.
        y : array-like of shape (n_samples,)
            Their classes.
        grid_resolution : int, default=300
            Number of positions along each axis at which the nearest prototype is found.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        display : PrototypeDisplay
        """
        if not hasattr(estimator, "prototype_labels_"):
            raise TypeError(f"PrototypeDisplay needs a fitted PottsDA. Got {estimator!r}.")
        X, y = (to_host(array) if is_foreign(array) else array for array in (X, y))
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
        """Draw the arrays.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        display : PrototypeDisplay
            The display itself, with what it drew in its attributes.
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

    def _label_codes(self):
        return np.argmax(np.asarray(self.prototype_labels), axis=1)

    def _draw_cells(self):
        colours = [class_colour(position) for position in range(len(self.classes))]
        cells = np.asarray(self.cells)
        self.cells_ = draw_regions(self.ax_, self.grid, self._label_codes()[cells], colours, CELL_OPACITY)
        shown = np.unique(cells)
        style = {"levels": [0.5], "colors": BORDER_COLOUR, "linewidths": 0.6, "zorder": 1}
        self.borders_ = [self.ax_.contour(*self.grid, cells == cell, **style) for cell in shown if len(shown) > 1]

    def _draw_points(self):
        rows, y = np.asarray(self.rows), np.asarray(self.y)
        self.points_ = [
            self.ax_.scatter(*rows[y == label].T, s=9, color=class_colour(position), linewidths=0, alpha=0.6, zorder=2)
            for position, label in enumerate(self.classes)
        ]

    def _draw_prototypes(self):
        prototypes, label_codes = np.asarray(self.prototypes), self._label_codes()
        outline = np.asarray(self.ellipse)
        area = np.clip(1500 / len(prototypes), *MARKER_AREAS)
        self.ellipses_ = [
            self.ax_.plot(*(point + outline).T, color="black", linewidth=0.8, zorder=3)[0] for point in prototypes
        ]
        self.prototypes_ = [
            self.ax_.scatter(
                *prototypes[label_codes == position].T,
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
    """The plane of the picture: two features, or two directions of the metric about the mean of the samples."""

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
        directions = np.zeros((len(root), 2))  # with a single feature the second direction is zero
        directions[:, : len(leading)] = root @ leading.T  # distances along them are distances in the metric
        return cls(X.mean(axis=0), directions, np.eye(2), ["metric direction 1", "metric direction 2"])

    def project(self, X):
        return (np.asarray(X) - self.center) @ self.directions


def _eigen(metric):
    """(units, values, vectors): units of the features in which the metric has a unit diagonal, and its eigenvalues and
    eigenvectors in these units. They are accurate for features in any units.
    """
    units = np.sqrt(np.diag(metric))
    units = np.where(units > 0, units, 1.0)
    values, vectors = np.linalg.eigh(metric / units / units[:, None])
    return units, np.where(values > ROUNDING * values[-1], values, 0.0), vectors


def _root(metric):
    """A root R of the metric, `R R' = metric`."""
    units, values, vectors = _eigen(metric)
    return units[:, None] * vectors * np.sqrt(values)


def _ellipse(metric):
    """Points at distance one from the origin."""
    units, values, vectors = _eigen(metric)
    lengths = np.divide(1, np.sqrt(values), out=np.zeros_like(values), where=values > 0)
    angle = np.linspace(0, 2 * np.pi, 100)
    return np.column_stack([np.cos(angle), np.sin(angle)]) @ (vectors * lengths).T / units


def _nearest(points, prototypes, metric):
    """Index of the prototype nearest to each point."""
    center = prototypes.mean(axis=0)  # far from the origin, differences of squares would cancel
    prototypes = prototypes - center
    directions = prototypes @ metric
    return np.argmax((points - center) @ directions.T - 0.5 * np.sum(directions * prototypes, axis=1), axis=-1)
