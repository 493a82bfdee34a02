"""Map of the kernels that a fit has tried: the validated loss at every gamma and temperature."""

from typing import Self

import numpy as np

from annealed.arrays import to_host
from annealed.optional import require

CHOSEN_COLOUR = "#D55E00"
BAND = 0.86  # height of the strips of one gamma, as a share of the distance to the next
LONE_STEP = np.log(4.0)  # height of a gamma in the logarithm, if no other was tried
TIMES = ("scales learned", "scales learned twice")


class KernelSearchDisplay:
    """A map of gamma and temperature with the validated loss of every kernel that a fit has tried.

    Each kernel is a strip, from hot on the left to cold on the right. Kernels with the same gamma but other scales of
    the columns, or more landmarks, lie below each other in the order in which they were tried. Dark is good. A dot
    marks the best temperature of a kernel, its score stands beside its name, and a frame and a star mark what was
    chosen. The scores are those by which temperatures and kernels were compared.

    Create it with :meth:`from_estimator`. The constructor takes what is drawn.

    Parameters
    ----------
    tried_kernels : list of TriedKernel
        Kernels with `gamma`, `n_landmarks`, `has_learned_scales`, `temperatures` and `validation_score`, in the order
        in which they were tried.
    chosen_index : int
        Index of the chosen kernel.
    chosen_temperature : float
        The chosen temperature.
    score_name : str, default="neg_log_loss"
        Name of the score, in the convention of scikit-learn's scorers. Scores whose name begins with ``neg_`` are
        drawn as losses.
    has_gamma : bool, default=True
        Whether the kernel has a gamma; a precomputed kernel has none.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    strips_ : list of matplotlib QuadMesh
        One for each tried kernel.
    labels_ : list of matplotlib Text
        Best score and name of each tried kernel.
    best_ : matplotlib PathCollection
        The best temperature of each tried kernel.
    chosen_ : matplotlib PathCollection
        The chosen temperature and kernel.
    colorbar_ : matplotlib Colorbar

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from annealed import AnnealedKernelClassifier, KernelSearchDisplay
    >>> model = AnnealedKernelClassifier(scale="standardize").fit(*make_moons(noise=0.2, random_state=0))
    >>> display = KernelSearchDisplay.from_estimator(model)
    >>> len(display.strips_) == len(model.tried_kernels_)
    True
    """

    def __init__(
        self, *, tried_kernels, chosen_index, chosen_temperature, score_name="neg_log_loss", has_gamma=True
    ) -> None:
        self.tried_kernels = tried_kernels
        self.chosen_index = chosen_index
        self.chosen_temperature = chosen_temperature
        self.score_name = score_name
        self.has_gamma = has_gamma

    @classmethod
    def from_estimator(cls, estimator, *, ax=None) -> Self:
        """Draw the kernels that a fit has tried.

        Parameters
        ----------
        estimator : AnnealedKernelClassifier
            A fitted estimator that has compared kernels on held-out samples.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        display : KernelSearchDisplay
        """
        if not hasattr(estimator, "tried_kernels_"):
            advice = " Give its last step, pipeline[-1]." if hasattr(estimator, "steps") else ""
            raise ValueError(
                "KernelSearchDisplay needs a fitted AnnealedKernelClassifier, which has tried_kernels_. "
                f"Got {estimator!r}.{advice}"
            )
        if not estimator.tried_kernels_:
            raise ValueError(
                "KernelSearchDisplay needs kernels that were compared on held-out samples, but tried_kernels_ is "
                f"empty, because nothing was held out. Got {estimator!r}. "
                'Fit with temperature="auto" and selection="cv", "loo" or "holdout".'
            )
        display = cls(
            tried_kernels=estimator.tried_kernels_,
            chosen_index=_chosen_index(estimator),
            chosen_temperature=float(estimator.temperature_),
            score_name=estimator.path_.score_name,
            has_gamma=isinstance(estimator.kernel, str) and estimator.kernel != "precomputed",
        )
        return display.plot(ax=ax)

    def plot(self, ax=None):
        """Draw the map.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        display : KernelSearchDisplay
            The display itself, with what it drew in its attributes.
        """
        pyplot = require("matplotlib.pyplot", extra="plot")
        places = self._places()
        if ax is None:
            thinnest = min(high / low for low, high in places)
            n_lines = np.log(places[:, 1].max() / places[:, 0].min()) / np.log(thinnest)
            height = 1.9 + np.clip(0.24 * n_lines, 1.2, 6.0)  # room for a name in each strip
            _, ax = pyplot.subplots(figsize=(8.6, height), layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        self._style_axes(places)
        self._draw_strips(places)
        self._draw_marks(places)
        self._draw_labels(places)
        return self

    @property
    def _is_loss(self):
        return self.score_name.startswith("neg_")

    def _shown(self, score):
        """A score as it is drawn: without the minus sign that scikit-learn gives to losses."""
        return -np.asarray(score) if self._is_loss else np.asarray(score)

    @property
    def _bests(self):
        """Index of the best temperature of each kernel."""
        return [int(np.argmax(np.nan_to_num(kernel.validation_score, nan=-np.inf))) for kernel in self.tried_kernels]

    def _places(self):
        """Lowest and highest gamma of each strip: the kernels of one gamma share its place on the axis."""
        logs = np.round(np.log([kernel.gamma for kernel in self.tried_kernels]), 9)
        rungs = np.unique(logs)
        band = BAND * (np.diff(rungs).min() if len(rungs) > 1 else LONE_STEP)
        places = np.empty((len(logs), 2))
        for rung in rungs:
            same = np.flatnonzero(logs == rung)
            edges = rung + band * np.linspace(0.5, -0.5, len(same) + 1)
            places[same] = np.exp(np.column_stack([edges[1:], edges[:-1]]))
        return places

    def _style_axes(self, places):
        ax, gammas = self.ax_, np.unique([kernel.gamma for kernel in self.tried_kernels])
        ax.set_xscale("log")
        ax.set_yscale("log")
        edges = np.concatenate([_edges(kernel.temperatures) for kernel in self.tried_kernels])
        ax.set_xlim(edges.max(), edges.min())
        margin = min(high / low for low, high in places) ** 0.25
        ax.set_ylim(places.min() / margin, places.max() * margin)
        ax.set_xlabel("temperature (cooling to the right)")
        ax.set_yticks(gammas if self.has_gamma else [], [f"{gamma:.3g}" for gamma in gammas] if self.has_gamma else [])
        ax.set_yticks([], minor=True)
        ax.set_ylabel("gamma" if self.has_gamma else "")
        ax.tick_params(axis="y", length=0)
        ax.grid(False)
        ax.spines[["top", "right", "left"]].set_visible(False)

    def _draw_strips(self, places):
        shown = [self._shown(kernel.validation_score) for kernel in self.tried_kernels]
        colours = require("matplotlib.colors", extra="plot")
        values = np.concatenate(shown)
        values = values[np.isfinite(values)]
        low, high = (values.min(), values.max()) if len(values) else (0.0, 1.0)
        # Most of a path has nearly the best loss: the logarithm gives it more colours.
        norm = (colours.LogNorm if self._is_loss and 0 < low < high else colours.Normalize)(low, high)
        self.strips_ = [
            self.ax_.pcolormesh(
                _edges(kernel.temperatures),
                place,
                np.ma.masked_invalid(values)[None, :],
                norm=norm,
                cmap="viridis" if self._is_loss else "viridis_r",
                edgecolors="face",
                linewidth=0.3,
            )
            for kernel, place, values in zip(self.tried_kernels, places, shown, strict=True)
        ]
        label = f"validated {self.score_name.removeprefix('neg_').replace('_', ' ')}"
        self.colorbar_ = self.figure_.colorbar(self.strips_[0], ax=self.ax_, label=label, pad=0.02, aspect=24)
        self.colorbar_.outline.set_visible(False)
        if isinstance(norm, colours.LogNorm):
            ticks = np.geomspace(low, high, 5)
            self.colorbar_.set_ticks(ticks, labels=[f"{tick:.3g}" for tick in ticks])
            self.colorbar_.set_ticks([], minor=True)

    def _draw_marks(self, places):
        middle = np.sqrt(places.prod(axis=1))
        best = [kernel.temperatures[index] for kernel, index in zip(self.tried_kernels, self._bests, strict=True)]
        self.best_ = self.ax_.scatter(
            best, middle, s=22, color="white", edgecolors="black", linewidths=0.7, label="best of a kernel", zorder=4
        )
        chosen, (low, high) = self.tried_kernels[self.chosen_index], places[self.chosen_index]
        edges = _edges(chosen.temperatures)
        self.ax_.plot(
            edges[[0, -1, -1, 0, 0]],
            [low, low, high, high, low],
            color=CHOSEN_COLOUR,
            linewidth=2.0,
            solid_joinstyle="miter",
            clip_on=False,
            zorder=3,
        )
        label = f"chosen: temperature {self.chosen_temperature:.3g}"
        self.chosen_ = self.ax_.scatter(
            [self.chosen_temperature],
            [middle[self.chosen_index]],
            marker="*",
            s=190,
            color=CHOSEN_COLOUR,
            edgecolors="white",
            linewidths=0.9,
            label=f"{label}, gamma {chosen.gamma:.3g}" if self.has_gamma else label,
            zorder=5,
        )
        self.ax_.legend(
            loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, frameon=False, borderaxespad=0.2, handletextpad=0.3
        )

    def _draw_labels(self, places):
        self.labels_ = []
        names = _names(self.tried_kernels)
        for index, (kernel, best, place) in enumerate(zip(self.tried_kernels, self._bests, places, strict=True)):
            is_chosen = index == self.chosen_index
            self.labels_.append(
                self.ax_.text(
                    1.012,
                    np.sqrt(place.prod()),
                    f"{self._shown(kernel.validation_score[best]):.3g}  {names[index]}",
                    transform=self.ax_.get_yaxis_transform(),
                    fontsize="small",
                    color=CHOSEN_COLOUR if is_chosen else "black",
                    weight="bold" if is_chosen else "normal",
                    verticalalignment="center",
                )
            )


def _chosen_index(estimator):
    """Index of the kernel whose path the estimator has: rounds of learned scales differ only in their scores."""
    path, kernels = estimator.path_, estimator.tried_kernels_

    def distance(kernel):
        is_other = not np.isclose(kernel.gamma, estimator.gamma_) or kernel.n_landmarks != estimator.n_landmarks_
        known = to_host(path.compared_score)[::-1]
        near = np.interp(np.log(kernel.temperatures), np.log(path.temperatures[::-1]), known)
        return is_other, float(np.mean(np.abs(near - kernel.validation_score)))

    return min(range(len(kernels)), key=lambda index: distance(kernels[index]))


def _edges(temperatures):
    """Edges of the cells around temperatures, half-way between neighbours in the logarithm."""
    logs = np.log(np.asarray(temperatures, dtype=float))
    if len(logs) == 1:
        return np.exp(logs + np.array([0.5, -0.5]))
    half = np.diff(logs) / 2
    return np.exp(np.concatenate([logs[:1] - half[:1], logs[:-1] + half, logs[-1:] + half[-1:]]))


def _names(kernels):
    """What distinguishes kernels of the same gamma, in words."""
    learned = [kernel.n_landmarks for kernel in kernels if kernel.has_learned_scales]
    names, times = [], 0
    for kernel in kernels:
        name = f"{kernel.n_landmarks:,} landmarks"
        if kernel.has_learned_scales:
            is_round = kernel.n_landmarks == learned[0]  # scales are learned before landmarks are added
            times += is_round
            name += f", {_times(times if is_round else 1)}"
        names.append(name)
    return names


def _times(number):
    return TIMES[number - 1] if number <= len(TIMES) else f"scales learned {number} times"
