"""
=========================
Reading an annealing path
=========================

A fit is a walk from hot to cold. Hot, the posterior is all but uniform and the model is as simple as it can be; cold,
the posterior is all but certain and the model follows the training rows. Somewhere between the two, rows that were not
trained on are predicted best, and that is the temperature which :class:`~annealed.AnnealedLogisticRegression` keeps.

This example fits the wine data and looks at the walk.
"""

# %%
# One fit, one path
# -----------------
#
# Half of the rows are kept away from the fit, to look at later. The columns are raw: alcohol in percent stands beside
# proline in hundreds of milligrams. ``calibrate=False`` is the form of the paper, in which one temperature does
# everything; the last section comes back to it.

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from annealed import AnnealedLogisticRegression, AnnealingPathDisplay

wine = load_wine()
X, X_new, y, y_new = train_test_split(wine.data, wine.target, test_size=0.5, stratify=wine.target, random_state=0)
model = AnnealedLogisticRegression(calibrate=False).fit(X, y)
print(model.path_)

# %%
# The picture of it
# -----------------
#
# Above, the log-loss. The training loss only falls; the validation loss, over five folds, falls and then rises. The
# chosen temperature is marked.
#
# Below, the rows that the fit has not seen, each a thin line along the temperatures. Its colour mixes the colours of
# the three classes by their posterior, and grey is undecided. Cooling crystallizes the classes; a line of a foreign
# colour is a mistake that grows more and more confident.

COLOURS = np.array([[86, 180, 233], [0, 158, 115], [204, 121, 167]]) / 255
GREY = np.full(3, 0.94)


def mixed_colours(posterior):
    """The classes' colours mixed by the posterior, and greyer the less is decided."""
    decided = 1.5 * posterior.max(axis=-1, keepdims=True) - 0.5
    return decided * (posterior @ COLOURS) + (1 - decided) * GREY


hot, cold = model.path_.temperatures[[0, -1]]
temperatures = np.geomspace(hot, cold, 200)
order = np.argsort(y_new, kind="stable")
posteriors = np.stack([model.at(temperature).predict_proba(X_new[order]) for temperature in temperatures], axis=1)

figure, (above, below) = plt.subplots(2, 1, figsize=(8, 6), height_ratios=[3, 2], sharex=True, layout="constrained")
display = AnnealingPathDisplay.from_estimator(model, ax=above)
above.legend(handles=list(display.lines_.values()), loc="upper right", framealpha=0.9)
above.set_xlabel("")

below.pcolormesh(temperatures, np.arange(len(order)), mixed_colours(posteriors), rasterized=True)
below.axvline(model.temperature_, color="black", linewidth=1.2)
below.set_yticks([np.flatnonzero(y_new[order] == label).mean() for label in range(3)], wine.target_names)
below.tick_params(axis="y", length=0)
below.set_ylabel("unseen rows")
below.set_xlabel("temperature (cooling to the right)")
below.spines[:].set_visible(False)

if len(sys.argv) > 1:  # python examples/plot_annealing_path.py docs/images/annealing_path.png
    figure.savefig(sys.argv[1], dpi=110)

# %%
# Two temperatures
# ----------------
#
# The temperature that fits best and the one at which the posterior is honest need not be the same. By default the
# held-out logits of every temperature are rescaled by one factor, and the best pair is kept: ``temperature_`` and
# ``posterior_scale_``. A hot fit is too timid and wants a factor well above one; the colder the fit, the smaller the
# factor. The marked pair need not lie at the very lowest loss: a weak prior holds the factor to one.

calibrated = AnnealedLogisticRegression().fit(X, y)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for own, label, colour in [(model, "calibrate=False", "#8C8C8C"), (calibrated, "calibrate=True", "#0072B2")]:
    validation_loss = -own.path_.validation_score.mean(axis=1)
    chosen = [own.path_.best_index]
    left.plot(own.path_.temperatures, validation_loss, color=colour, marker="o", markevery=chosen, label=label)
left.set(xlabel="temperature", ylabel="log-loss of the folds", ylim=(0, None))
left.legend(loc="upper center", edgecolor="none")
right.plot(calibrated.path_.temperatures, calibrated.path_.posterior_scale, color="#0072B2")
right.axhline(1, color="#8C8C8C", linewidth=1)
right.set(xlabel="temperature", ylabel="posterior scale", ylim=(0, None))
for ax in (left, right):
    ax.set_xscale("log")
    ax.xaxis.set_inverted(True)
    ax.spines[["top", "right"]].set_visible(False)

# %%
# On the rows kept away:

for own, label in [(model, "calibrate=False"), (calibrated, "calibrate=True")]:
    loss, accuracy = log_loss(y_new, own.predict_proba(X_new)), own.score(X_new, y_new)
    scale = own.posterior_scale_
    print(f"{label:16} T = {own.temperature_:.4f}  scale {scale:.2f}  log-loss {loss:.3f}  accuracy {accuracy:.3f}")

plt.show()
