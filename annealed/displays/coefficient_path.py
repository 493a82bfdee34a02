"""The coefficients of a linear path as a picture: which features come in as the temperature falls."""

from typing import Self

import numpy as np
from scipy import sparse
from sklearn.utils.sparsefuncs import mean_variance_axis
from sklearn.utils.validation import validate_data

from annealed.arrays import is_foreign, to_host
from annealed.displays.base import as_written
from annealed.optional import require

# Okabe and Ito's colours without the yellow, which a line on white does not carry, and the chosen point's; beyond them,
# dashes.
LINE_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#000000")
DASHES = ("-", "--", ":")
CHOSEN_COLOUR = "#D55E00"
QUIET_COLOUR = "#C4C4C4"
LONGEST = 30  # characters of a name in the legend


class CoefficientPathDisplay:
    """Coefficients along an annealing path, hot on the left; the strongest features have colours and names.

    Use `from_estimator`; the constructor takes the arrays as they are.

    Parameters
    ----------
    temperatures : array-like of shape (n_temperatures,)
        The temperatures of the path.
    coef : array-like of shape (n_temperatures, n_features)
        One curve a feature.
    best_index : int
        Position of the chosen temperature.
    feature_names : sequence of str, default=None
        Names of the features; None numbers them.
    n_named : int, default=6
        How many features, the strongest at the chosen temperature, have a colour and a name.
    coef_name : str, default="coefficient"
        Label of the axis.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    lines_ : dict of str to matplotlib Line2D
        Those of the named features, strongest first.
    quiet_lines_ : list of matplotlib Line2D
        The others.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from annealed import CoefficientPathDisplay, AnnealedLogisticRegression
    >>> X, y = load_wine(return_X_y=True)
    >>> display = CoefficientPathDisplay.from_estimator(AnnealedLogisticRegression().fit(X, y), X=X, label=0, n_named=3)
    >>> len(display.lines_)
    3
    """

    def __init__(
        self, *, temperatures, coef, best_index, feature_names=None, n_named=6, coef_name="coefficient"
    ) -> None:
        self.temperatures = temperatures
        self.coef = coef
        self.best_index = best_index
        self.feature_names = feature_names
        self.n_named = n_named
        self.coef_name = coef_name

    @classmethod
    def from_estimator(cls, estimator, *, X=None, label=None, feature_names=None, n_named=6, ax=None) -> Self:
        """Draw the coefficients of a fitted linear model.

        Parameters
        ----------
        estimator : estimator with `path_`
            A fitted annealed classifier of a linear family, or a :class:`annealed.MELDA`.
        X : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
            Rows whose standard deviations the coefficients are multiplied by, so that features of any units compare;
            None draws them as they are, as those of a quadratic family must be.
        label : object, default=None
            The class whose logit is drawn, less the mean of all; of two classes less the other's, as in ``coef_``. None
            is the second of two classes; of more, the length of each feature's coefficients over the classes.
        feature_names : sequence of str, default=None
            Names of the features; None takes those that the estimator saw. A quadratic family has their products too.
        n_named : int, default=6
            How many features have a colour and a name.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        display : CoefficientPathDisplay
        """
        classifier = getattr(estimator, "classifier_", estimator)
        path = getattr(classifier, "path_", None)
        if path is None or getattr(path, "coef", None) is None:
            advice = " Give its last step, pipeline[-1]." if hasattr(estimator, "steps") else ""
            raise ValueError(
                "CoefficientPathDisplay needs a fitted annealed classifier of a linear family, whose path_ has coef. "
                f"Got {estimator!r}.{advice}"
            )
        coef = to_host(path.coef)
        coef = path.posterior_scale[:, None, None] * (coef - coef.mean(axis=1, keepdims=True))
        coef_name = "coefficient"
        if X is not None:
            coef, coef_name = coef * _spreads(estimator, X, coef.shape[2]), "coefficient times standard deviation"
        curves, whose = _of_class(coef, to_host(classifier.classes_), label)
        names = getattr(estimator, "feature_names_in_", None) if feature_names is None else feature_names
        display = cls(
            temperatures=path.temperatures,
            coef=curves,
            best_index=path.best_index,
            feature_names=_names(names, coef.shape[2]),
            n_named=n_named,
            coef_name=f"{coef_name}, {whose}",
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
        display : CoefficientPathDisplay
            The display itself, with what it drew in its attributes.
        """
        pyplot = require("matplotlib.pyplot", extra="plot")
        if ax is None:
            _, ax = pyplot.subplots(figsize=(7.6, 4.2), layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        self._draw_lines()
        self._style_axes()
        return self

    def _draw_lines(self):
        coef = np.asarray(self.coef)
        marker = "o" if len(self.temperatures) == 1 else None  # a single temperature has no line to draw
        grey = {"color": QUIET_COLOUR, "linewidth": 0.8, "marker": marker, "zorder": 1}
        order = np.argsort(-np.abs(coef[self.best_index]), kind="stable")
        named, quiet = order[: self.n_named], order[self.n_named :]
        self.quiet_lines_ = [self.ax_.plot(self.temperatures, coef[:, own], **grey)[0] for own in quiet]
        self.lines_ = {}
        for place, own in enumerate(named):
            (line,) = self.ax_.plot(
                self.temperatures,
                coef[:, own],
                color=LINE_COLOURS[place % len(LINE_COLOURS)],
                linestyle=DASHES[place // len(LINE_COLOURS) % len(DASHES)],
                marker=marker,
                linewidth=2.0,
                label=as_written(_short(self._name(own))),
                zorder=2,
            )
            self.lines_[self._name(own)] = line

    def _name(self, place):
        return f"feature {place}" if self.feature_names is None else str(self.feature_names[place])

    def _style_axes(self):
        ax, chosen = self.ax_, self.temperatures[self.best_index]
        ax.axvline(chosen, color=CHOSEN_COLOUR, linewidth=1.2, label=f"chosen, {chosen:.3g}", zorder=1.5)
        ax.axhline(0, color="#8C8C8C", linewidth=0.8, zorder=0.5)
        ax.set_xscale("log")
        ax.xaxis.set_inverted(True)
        if len(self.temperatures) == 1:
            ax.set_xlim(10 * chosen, chosen / 10)
        ax.set_xlabel("temperature (cooling to the right)")
        ax.set_ylabel(self.coef_name)
        ax.grid(True, color="#E6E6E6", linewidth=0.8)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")


def _of_class(coef, classes, label):
    """Curves (n_temperatures, n_features), and whose they are."""
    if label is None and len(classes) > 2:
        return np.linalg.norm(coef, axis=1), "length over classes"
    if len(classes) == 2:  # only their difference says anything
        coef, label = coef - coef[:, ::-1], classes[1] if label is None else label
    found = np.flatnonzero(classes == label)
    if not len(found):
        known = classes[:20].tolist()
        raise ValueError(f"label must be a class of the model. Got {label!r}, known: {known}.")
    return coef[:, found[0]], f"for {as_written(label)}"


def _spreads(estimator, X, n_coefficients):
    """Standard deviation of each column, of a frame, an array or a sparse matrix."""
    X = to_host(X) if is_foreign(X) else X
    if np.shape(X)[1:] != (n_coefficients,):
        raise ValueError(
            f"X must have {n_coefficients} columns, one for each coefficient of a class. "
            f"Got rows of shape {np.shape(X)}. "
            "Give rows as the model was fitted on, or None where its coefficients are not those of columns."
        )
    X = validate_data(estimator, X, accept_sparse="csr", dtype=np.float64, reset=False)
    return np.sqrt(mean_variance_axis(X, axis=0)[1]) if sparse.issparse(X) else X.std(axis=0)


def _names(names, n_coefficients):
    """One a coefficient: of the features, or of the features and their products."""
    if names is None:
        return None
    names = list(names)  # by position, also those of a series
    if len(names) == n_coefficients:
        return names
    pairs = zip(*np.triu_indices(len(names)), strict=True)
    every = [*names, *(f"{names[i]}^2" if i == j else f"{names[i]} {names[j]}" for i, j in pairs)]
    if len(every) != n_coefficients:
        raise ValueError(f"feature_names must name {n_coefficients} features. Got {len(names)} names.")
    return every


def _short(name):
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
