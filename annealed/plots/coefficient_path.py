"""Picture of the coefficients along the path of a linear classifier: which features enter as the temperature falls."""

from typing import Self

import numpy as np
from scipy import sparse
from sklearn.utils.sparsefuncs import mean_variance_axis
from sklearn.utils.validation import validate_data

from annealed.arrays import is_foreign, to_host
from annealed.optional import require
from annealed.plots.base import as_written

# The palette of Okabe and Ito without yellow, which is hard to see on white, and without the colour of the chosen
# temperature. The dashes change when the colours repeat.
LINE_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#000000")
DASHES = ("-", "--", ":")
CHOSEN_COLOUR = "#D55E00"
QUIET_COLOUR = "#C4C4C4"
LONGEST = 30  # most characters of a name in the legend


class CoefficientPathDisplay:
    """Coefficients of a linear classifier along its path, with high temperatures on the left.

    Each feature has a curve. At a high temperature the penalty is strong and all coefficients are near zero; as the
    temperature falls, one feature after the other enters the model. The features with the largest coefficients at the
    chosen temperature have colours and names; the others are grey.

    Create it with :meth:`from_estimator`. The constructor takes the arrays that are drawn.

    Parameters
    ----------
    temperatures : array-like of shape (n_temperatures,)
        The temperatures of the path.
    coef : array-like of shape (n_temperatures, n_features)
        The coefficients, one curve for each feature.
    best_index : int
        Index of the chosen temperature.
    feature_names : sequence of str, default=None
        Names of the features; None numbers them.
    n_named : int, default=6
        Number of features with a colour and a name.
    coef_name : str, default="coefficient"
        Label of the vertical axis.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    lines_ : dict of str to matplotlib Line2D
        Curves of the named features, in descending order of their coefficients at the chosen temperature.
    quiet_lines_ : list of matplotlib Line2D
        Curves of the other features.

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
        """Draw the coefficients of a fitted linear classifier.

        Parameters
        ----------
        estimator : estimator with `path_`
            A fitted annealed classifier of a linear family, or a :class:`annealed.MELDA`.
        X : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
            Samples. The coefficients are multiplied by the standard deviations of their features, so that features of
            different units can be compared. None draws the coefficients themselves; with a quadratic family it must
            be None.
        label : object, default=None
            The class whose coefficients are drawn. They are relative to the mean over the classes, or with two classes
            to those of the other class, as in ``coef_``. None draws the second of two classes; with more classes it
            draws the Euclidean norm of each feature's coefficients over the classes.
        feature_names : sequence of str, default=None
            Names of the features; None takes those seen in `fit`. A quadratic family adds the names of products.
        n_named : int, default=6
            Number of features with a colour and a name.
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
            coef, coef_name = (
                coef * _standard_deviations(estimator, X, coef.shape[2]),
                "coefficient times standard deviation",
            )
        curves, description = _of_class(coef, to_host(classifier.classes_), label)
        names = getattr(estimator, "feature_names_in_", None) if feature_names is None else feature_names
        display = cls(
            temperatures=path.temperatures,
            coef=curves,
            best_index=path.best_index,
            feature_names=_names(names, coef.shape[2]),
            n_named=n_named,
            coef_name=f"{coef_name}, {description}",
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
        marker = "o" if len(self.temperatures) == 1 else None  # a single temperature makes no line
        grey = {"color": QUIET_COLOUR, "linewidth": 0.8, "marker": marker, "zorder": 1}
        order = np.argsort(-np.abs(coef[self.best_index]), kind="stable")
        named, quiet = order[: self.n_named], order[self.n_named :]
        self.quiet_lines_ = [self.ax_.plot(self.temperatures, coef[:, feature], **grey)[0] for feature in quiet]
        self.lines_ = {}
        for position, feature in enumerate(named):
            (line,) = self.ax_.plot(
                self.temperatures,
                coef[:, feature],
                color=LINE_COLOURS[position % len(LINE_COLOURS)],
                linestyle=DASHES[position // len(LINE_COLOURS) % len(DASHES)],
                marker=marker,
                linewidth=2.0,
                label=as_written(_short(self._name(feature))),
                zorder=2,
            )
            self.lines_[self._name(feature)] = line

    def _name(self, feature):
        return f"feature {feature}" if self.feature_names is None else str(self.feature_names[feature])

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
    """Curves (n_temperatures, n_features), and a description of them."""
    if label is None and len(classes) > 2:
        return np.linalg.norm(coef, axis=1), "norm over classes"
    if len(classes) == 2:  # only the difference of the two is identified
        coef, label = coef - coef[:, ::-1], classes[1] if label is None else label
    found = np.flatnonzero(classes == label)
    if not len(found):
        known = classes[:20].tolist()
        raise ValueError(f"label must be a class of the model. Got {label!r}, known: {known}.")
    return coef[:, found[0]], f"class {as_written(label)}"


def _standard_deviations(estimator, X, n_coefficients):
    """Standard deviation of each feature, of a frame, an array or a sparse matrix."""
    X = to_host(X) if is_foreign(X) else X
    if np.shape(X)[1:] != (n_coefficients,):
        raise ValueError(
            f"X must have {n_coefficients} features, one for each coefficient of a class. "
            f"Got shape {np.shape(X)}. "
            "Give X as it was given to fit, or None if the coefficients are not those of the features of X."
        )
    X = validate_data(estimator, X, accept_sparse="csr", dtype=np.float64, reset=False)
    return np.sqrt(mean_variance_axis(X, axis=0)[1]) if sparse.issparse(X) else X.std(axis=0)


def _names(names, n_coefficients):
    """A name for each coefficient: those of the features, or those of the features and of their products."""
    if names is None:
        return None
    names = list(names)  # a series is indexed by position, too
    if len(names) == n_coefficients:
        return names
    pairs = zip(*np.triu_indices(len(names)), strict=True)
    every = [*names, *(f"{names[i]}^2" if i == j else f"{names[i]} {names[j]}" for i, j in pairs)]
    if len(every) != n_coefficients:
        raise ValueError(f"feature_names must name {n_coefficients} features. Got {len(names)} names.")
    return every


def _short(name):
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
