"""Helpers of the displays: class colours, names as matplotlib must get them, checked labels, and class regions."""

from numbers import Integral

import numpy as np

from annealed.optional import require

# The palette of Okabe and Ito, whose colours colour-blind readers can distinguish.
CLASS_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
MARGIN = 0.05  # free space on each side of the samples, as a share of their range
LEGEND_COLUMN = 13  # most entries in one column of the legend


def class_colour(position):
    """Colour of the class at a position; the palette repeats."""
    return CLASS_COLOURS[position % len(CLASS_COLOURS)]


def as_written(name):
    """Escape a name: matplotlib reads text between dollars as a formula and omits legend labels that begin with _."""
    text = str(name).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def checked_labels(y, n_samples, classes):
    """Labels as an array, one known class for each sample: samples of an unknown class would silently not be drawn."""
    y = np.asarray(y)
    if y.shape != (n_samples,):
        raise ValueError(f"y must hold one class for each of {n_samples} samples. Got an array of shape {y.shape}.")
    is_known = np.any([y == label for label in classes], axis=0)
    if not is_known.all():
        known = np.asarray(classes)[:20].tolist()
        raise ValueError(f"y must hold classes of the estimator. Got {y[~is_known].tolist()[0]!r}, known: {known}.")
    return y


def axis_positions(column, grid_resolution):
    """Evenly spaced positions along an axis, over the range of the samples and a margin."""
    if not isinstance(grid_resolution, Integral) or grid_resolution < 2:
        raise ValueError(f"grid_resolution must be a whole number of at least 2. Got {grid_resolution!r}.")
    low, high = float(column.min()), float(column.max())
    margin = MARGIN * (high - low) or 1.0  # samples at a single position are drawn too
    return np.linspace(low - margin, high + margin, grid_resolution)


def draw_regions(ax, grid, codes, colours, opacity):
    """Draw the class at every point of a grid as its colour.

    The regions are an image: of a mesh, matplotlib would make a polygon for every point when it looks for the best
    position of the legend.
    """
    palette = require("matplotlib.colors", extra="plot").ListedColormap(colours)
    limits = {"vmin": -0.5, "vmax": len(colours) - 0.5}
    return ax.pcolorfast(*map(_edges, grid), codes, cmap=palette, alpha=opacity, zorder=0, **limits)


def draw_legend(ax, classes):
    """Draw the legend of the classes, in as many columns as keep it inside the picture."""
    ax.legend(title="class", edgecolor="none", framealpha=0.9, ncols=-(-len(classes) // LEGEND_COLUMN))


def _edges(positions):
    """Edges of the cells around positions, half-way between neighbours."""
    half = np.diff(positions) / 2
    return np.concatenate([positions[:1] - half[:1], positions[:-1] + half, positions[-1:] + half[-1:]])
