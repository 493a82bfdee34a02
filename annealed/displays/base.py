"""What pictures share: names as they are written, labels that are known, and regions of classes."""

from numbers import Integral

import numpy as np

from annealed.optional import require

MARGIN = 0.05  # of the rows' range, left free on each side
LEGEND_COLUMN = 13  # entries in one column of the legend


def as_written(name):
    """A name of the data: matplotlib reads formulas between dollars, and leaves out of legends what begins with _."""
    text = str(name).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def checked_labels(y, n_rows, classes):
    """One known class a row, as an array: rows of another would be left out without a word."""
    y = np.asarray(y)
    if y.shape != (n_rows,):
        raise ValueError(f"y must hold one class for each of {n_rows} rows. Got an array of shape {y.shape}.")
    is_known = np.any([y == label for label in classes], axis=0)
    if not is_known.all():
        known = np.asarray(classes)[:20].tolist()
        raise ValueError(f"y must hold classes of the estimator. Got {y[~is_known].tolist()[0]!r}, known: {known}.")
    return y


def axis_places(column, grid_resolution):
    """Places along an axis, a little further than the rows."""
    if not isinstance(grid_resolution, Integral) or grid_resolution < 2:
        raise ValueError(f"grid_resolution must be a whole number of at least 2. Got {grid_resolution!r}.")
    low, high = float(column.min()), float(column.max())
    room = MARGIN * (high - low) or 1.0  # rows in a single place get a picture too
    return np.linspace(low - room, high + room, grid_resolution)


def draw_regions(ax, grid, codes, colours, opacity):
    """The class at every place of a grid, as its colour.

    It is an image: of a mesh matplotlib makes a polygon for every place when it looks for the legend's best one.
    """
    palette = require("matplotlib.colors", extra="plot").ListedColormap(colours)
    limits = {"vmin": -0.5, "vmax": len(colours) - 0.5}
    return ax.pcolorfast(*map(_edges, grid), codes, cmap=palette, alpha=opacity, zorder=0, **limits)


def draw_legend(ax, classes):
    """As many columns as keep it inside the picture."""
    ax.legend(title="class", edgecolor="none", framealpha=0.9, ncols=-(-len(classes) // LEGEND_COLUMN))


def _edges(places):
    """Of cells around places, half-way between them."""
    half = np.diff(places) / 2
    return np.concatenate([places[:1] - half[:1], places[:-1] + half, places[-1:] + half[-1:]])
