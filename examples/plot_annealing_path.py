"""
=========================
Reading an annealing path
=========================

A fit follows a path of falling temperatures. The temperature is the regularization strength on the scale of the logits.
At a high temperature the posterior is nearly uniform and the model is simple. At a low temperature the posterior is
nearly certain and the model follows the training samples. :class:`~annealed.AnnealedLogisticRegression` keeps the
temperature in between at which held-out samples are predicted best.

This example plots the path of a fit to the wine data.
"""

# %%
# One fit, one path
# -----------------
#
# Half of the samples are kept as a test set. The features are raw: alcohol is in percent, proline in hundreds of
# milligrams. ``calibrate=False`` is the form of the paper, without a calibration factor. The last section compares it
# with the default.

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
# Plot the path
# -------------
#
# The upper plot shows the log-loss. The training loss falls monotonically. The validation loss, over five folds, falls
# and then rises. The chosen temperature is marked.
#
# In the lower plot each thin line is one test sample. Its colour mixes the colours of the three classes in proportion
# to the posterior; grey means undecided. As the temperature falls the classes separate. A line in the colour of another
# class is an error, which becomes more confident as the temperature falls.

COLOURS = np.array([[86, 180, 233], [0, 158, 115], [204, 121, 167]]) / 255
GREY = np.full(3, 0.94)


def mixed_colours(posterior):
    """Mix the colours of the classes by the posterior; grey means undecided."""
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
below.set_ylabel("test samples")
below.set_xlabel("temperature (cooling to the right)")
below.spines[:].set_visible(False)

if len(sys.argv) > 1:  # python examples/plot_annealing_path.py docs/images/annealing_path.png
    figure.savefig(sys.argv[1], dpi=110)

# %%
# Calibration
# -----------
#
# The temperature with the best decision boundary and the one with calibrated probabilities may differ. By default the
# held-out logits of every temperature are multiplied by one calibration factor, and the best pair is kept:
# ``temperature_`` and ``posterior_scale_``. At high temperatures the fit is underconfident and the factor is well above
# one; it decreases as the temperature falls. The marked pair need not have the lowest loss, because a weak prior pulls
# the factor towards one.

calibrated = AnnealedLogisticRegression().fit(X, y)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for fitted, label, colour in [(model, "calibrate=False", "#8C8C8C"), (calibrated, "calibrate=True", "#0072B2")]:
    validation_loss = -fitted.path_.validation_score.mean(axis=1)
    chosen = [fitted.path_.best_index]
    left.plot(fitted.path_.temperatures, validation_loss, color=colour, marker="o", markevery=chosen, label=label)
left.set(xlabel="temperature", ylabel="validation log-loss", ylim=(0, None))
left.legend(loc="upper center", edgecolor="none")
right.plot(calibrated.path_.temperatures, calibrated.path_.posterior_scale, color="#0072B2")
right.axhline(1, color="#8C8C8C", linewidth=1)
right.set(xlabel="temperature", ylabel="calibration factor", ylim=(0, None))
for ax in (left, right):
    ax.set_xscale("log")
    ax.xaxis.set_inverted(True)
    ax.spines[["top", "right"]].set_visible(False)

# %%
# On the test samples:

for fitted, label in [(model, "calibrate=False"), (calibrated, "calibrate=True")]:
    loss, accuracy = log_loss(y_new, fitted.predict_proba(X_new)), fitted.score(X_new, y_new)
    scale = fitted.posterior_scale_
    print(f"{label:16} T = {fitted.temperature_:.4f}  factor {scale:.2f}  log-loss {loss:.3f}  accuracy {accuracy:.3f}")

plt.show()
