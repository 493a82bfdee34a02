"""Figure of an annealing path: scores and entropy against temperature."""

from typing import Self

import numpy as np

from annealed.optional import require

# The palette of Okabe and Ito, which colour-blind readers can distinguish.
VALIDATION_COLOUR = "#0072B2"
TRAIN_COLOUR = "#E69F00"
CHOSEN_COLOUR = "#D55E00"
QUIET_COLOUR = "#8C8C8C"

TWIN_LABELS = {"entropy": "mean entropy", "free_energy": "free energy"}


class AnnealingPathDisplay:
    """Training and validation scores along an annealing path, from hot on the left to cold on the right.

    A vertical line marks the chosen temperature. Temperatures are compared by `compared_score`, which has a line if it
    differs from the mean validation score: with ``rule="best"`` the chosen temperature is where this line is best.

    Use `from_estimator` or `from_path`; the constructor takes the arrays.

    Parameters
    ----------
    temperatures : array-like of shape (n_temperatures,)
        Temperatures of the path.
    train_score : array-like of shape (n_temperatures,)
        Score on the training samples. Scores whose name begins with ``neg_`` are drawn as losses.
    validation_score : array-like of shape (n_temperatures, n_folds) or None
        Score on the held-out samples of each fold; None if nothing was held out.
    entropy : array-like of shape (n_temperatures,)
        Mean entropy of the posterior on the training samples.
    free_energy : array-like of shape (n_temperatures,)
        Minimum of the free energy.
    best_index : int
        Index of the chosen temperature.
    score_name : str, default="neg_log_loss"
        Name of the score, in the convention of scikit-learn's scorers.
    compared_score : array-like of shape (n_temperatures,) or None, default=None
        Scores by which the temperature was chosen: the mean validation score, less a penalty for a calibration factor
        far from one and for a posterior more certain than the number of held-out samples supports. Drawn if they
        differ from the mean validation score.
    C : array-like of shape (n_temperatures,) or None, default=None
        Scikit-learn's C at each temperature, shown in the legend; None if it is not defined for the model.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes of the scores.
    twin_ax_ : matplotlib Axes or None
        The axes on the right, of the entropy or the free energy.
    figure_ : matplotlib Figure
        The figure of these axes.
    lines_ : dict of str to matplotlib Line2D
        ``"train"`` and ``"chosen"``, and if drawn ``"validation"``, ``"compared"``, and ``"entropy"`` or
        ``"free_energy"``.
    band_ : matplotlib PolyCollection or None
        One standard deviation over the folds around their mean.

    Examples
    --------
    >>> from annealed.plots import AnnealingPathDisplay
    >>> display = AnnealingPathDisplay(
    ...     temperatures=[1.0, 0.1, 0.01], train_score=[-0.6, -0.3, -0.1], validation_score=None,
    ...     entropy=[0.6, 0.3, 0.1], free_energy=[0.6, 0.03, 0.001], best_index=1,
    ... )
    >>> display.plot().ax_.get_xlabel()
    'temperature (cooling to the right)'
    """

    def __init__(
        self,
        *,
        temperatures,
        train_score,
        validation_score,
        entropy,
        free_energy,
        best_index,
        score_name="neg_log_loss",
        compared_score=None,
        C=None,
    ) -> None:
        self.temperatures = temperatures
        self.train_score = train_score
        self.validation_score = validation_score
        self.entropy = entropy
        self.free_energy = free_energy
        self.best_index = best_index
        self.score_name = score_name
        self.compared_score = compared_score
        self.C = C

    @classmethod
    def from_estimator(cls, estimator, *, ax=None, twin="entropy") -> Self:
        """Draw the path of a fitted estimator.

        Parameters
        ----------
        estimator : estimator with `path_`
            A fitted annealed classifier.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        twin : {"entropy", "free_energy", None}, default="entropy"
            What the axis on the right shows.

        Returns
        -------
        display : AnnealingPathDisplay
        """
        classifier = getattr(estimator, "classifier_", estimator)  # MELDA wraps an annealed classifier
        if not hasattr(classifier, "path_"):
            advice = "Give its last step, pipeline[-1]." if hasattr(estimator, "steps") else "Call fit on it first."
            raise ValueError(
                "AnnealingPathDisplay needs a fitted annealed classifier, which has a path_. "
                f"Got {estimator!r}. {advice}"
            )
        return cls.from_path(classifier.path_, ax=ax, twin=twin)

    @classmethod
    def from_path(cls, path, *, ax=None, twin="entropy"):
        """Draw a path.

        Parameters
        ----------
        path : AnnealingPath
            The attribute ``path_`` of a fitted annealed classifier.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        twin : {"entropy", "free_energy", None}, default="entropy"
            What the axis on the right shows.

        Returns
        -------
        display : AnnealingPathDisplay
        """
        if not hasattr(path, "train_score"):
            raise ValueError(
                "AnnealingPathDisplay needs an AnnealingPath, with scores at every temperature. "
                f"Got a {type(path).__name__}. PrototypeDisplay draws a PottsDA."
            )
        display = cls(
            temperatures=path.temperatures,
            train_score=path.train_score,
            validation_score=path.validation_score,
            entropy=path.entropy,
            free_energy=path.free_energy,
            best_index=path.best_index,
            score_name=path.score_name,
            compared_score=path.compared_score,
            C=path.C,
        )
        return display.plot(ax=ax, twin=twin)

    def plot(self, ax=None, *, twin="entropy"):
        """Draw the figure.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        twin : {"entropy", "free_energy", None}, default="entropy"
            What the axis on the right shows.

        Returns
        -------
        display : AnnealingPathDisplay
            The display itself, with the drawn objects as attributes.
        """
        if twin is not None and twin not in TWIN_LABELS:
            raise ValueError(f"twin must be 'entropy', 'free_energy' or None. Got {twin!r}.")
        pyplot = require("matplotlib.pyplot", extra="plot")
        if ax is None:
            _, ax = pyplot.subplots(figsize=(7.0, 4.2), layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        self.lines_ = {}
        self._style_axes()
        self._draw_scores()
        self._draw_chosen()
        self._draw_twin(twin)
        self._draw_legend()
        return self

    @property
    def _is_loss(self):
        return self.score_name.startswith("neg_")

    def _shown(self, score):
        """A score as it is drawn: without the minus sign that scikit-learn gives to losses."""
        return -np.asarray(score) if self._is_loss else np.asarray(score)

    @property
    def _is_point(self):
        """Whether there is a single temperature, which is drawn as a point instead of a line."""
        return len(self.temperatures) == 1

    def _style_axes(self):
        ax = self.ax_
        ax.set_xscale("log")
        ax.xaxis.set_inverted(True)
        if self._is_point:
            ax.set_xlim(10 * self.temperatures[0], self.temperatures[0] / 10)
        ax.set_xlabel("temperature (cooling to the right)")
        ax.set_ylabel(self.score_name.removeprefix("neg_").replace("_", " "))
        ax.grid(True, color="#E6E6E6", linewidth=0.8)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)

    def _draw_scores(self):
        self.band_ = None
        if self.validation_score is not None:
            self._draw_validation()
        (self.lines_["train"],) = self.ax_.plot(
            self.temperatures,
            self._shown(self.train_score),
            color=TRAIN_COLOUR,
            linestyle="--",
            linewidth=1.8,
            marker="s" if self._is_point else None,
            label="train",
        )

    def _draw_validation(self):
        folds = self._shown(self.validation_score)
        mean, spread = folds.mean(axis=1), folds.std(axis=1)
        self.band_ = self.ax_.fill_between(
            self.temperatures,
            mean - spread,
            mean + spread,
            color=VALIDATION_COLOUR,
            alpha=0.18,
            linewidth=12 if self._is_point else 0,
        )
        (self.lines_["validation"],) = self.ax_.plot(
            self.temperatures,
            mean,
            color=VALIDATION_COLOUR,
            linewidth=2.2,
            marker="o",
            markevery=[self.best_index],
            label="validation, spread of folds",
        )
        if self.compared_score is not None and not np.allclose(self._shown(self.compared_score), mean, equal_nan=True):
            self._draw_compared()

    def _draw_compared(self):
        (self.lines_["compared"],) = self.ax_.plot(
            self.temperatures,
            self._shown(self.compared_score),
            color=VALIDATION_COLOUR,
            linestyle="-.",
            linewidth=1.2,
            marker="x" if self._is_point else None,
            label="compared: validation, penalized for\ncalibration and for certainty",
        )

    def _draw_chosen(self):
        chosen = self.temperatures[self.best_index]
        label = f"chosen temperature, {chosen:.3g}"
        if self.C is not None:
            label += f" (C = {self.C[self.best_index]:.3g})"
        self.lines_["chosen"] = self.ax_.axvline(chosen, color=CHOSEN_COLOUR, linewidth=1.2, label=label, zorder=1.5)

    def _draw_twin(self, twin):
        self.twin_ax_ = None
        if twin is None:
            return
        self.twin_ax_ = self.ax_.twinx()
        label = TWIN_LABELS[twin]
        (self.lines_[twin],) = self.twin_ax_.plot(
            self.temperatures,
            getattr(self, twin),
            color=QUIET_COLOUR,
            linestyle=":",
            linewidth=1.4,
            marker="D" if self._is_point else None,
            label=label,
        )
        self.twin_ax_.set_ylabel(label, color=QUIET_COLOUR)
        self.twin_ax_.tick_params(axis="y", colors=QUIET_COLOUR)
        self.twin_ax_.spines[["top", "left"]].set_visible(False)
        self.twin_ax_.spines["right"].set_color(QUIET_COLOUR)
        # The axes of the scores are drawn above the twin's curve, so their background must be transparent.
        self.ax_.set_zorder(self.twin_ax_.get_zorder() + 1)
        self.ax_.patch.set_visible(False)

    def _draw_legend(self):
        # Losses are high at the hot end, other scores at the cold end: the legend goes to the empty corner.
        self.ax_.legend(
            handles=list(self.lines_.values()),
            loc="upper right" if self._is_loss else "center right",
            edgecolor="none",
            framealpha=0.9,
        )
