"""
=================
Curved boundaries
=================

No straight line separates two half-moons. :class:`~annealed.AnnealedKernelClassifier` finds a curve, as a support
vector machine does. One call of ``fit`` chooses the width of the kernel, the scales of the columns, the number of
landmarks and the temperature, and calibrates the probabilities. This example compares it with a grid search over the C
and gamma of an ``SVC``.
"""

# %%
# Two fits
# --------
#
# The grid has six values of C and four of gamma, compared by their accuracy in five folds. The probabilities of the
# best ``SVC`` are calibrated on five folds, too. Times depend on the machine; log-losses are those of a thousand new
# samples.

import sys
import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_moons
from sklearn.inspection import DecisionBoundaryDisplay
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from annealed import AnnealedKernelClassifier, AnnealingPathDisplay, KernelSearchDisplay

X, y = make_moons(800, noise=0.25, random_state=0)
X_new, y_new = make_moons(1000, noise=0.25, random_state=1)


def grid_search(X, y):
    grid = {"C": np.logspace(-2, 3, 6), "gamma": [0.25, 1.0, 4.0, 16.0]}
    best = GridSearchCV(SVC(), grid, cv=5).fit(X, y).best_params_
    return CalibratedClassifierCV(SVC(**best), cv=5).fit(X, y)


models, titles = [], []
for name, fit in [("AnnealedKernelClassifier", AnnealedKernelClassifier().fit), ("SVC, grid search", grid_search)]:
    start = time.perf_counter()
    model = fit(X, y)
    seconds = time.perf_counter() - start
    loss, accuracy = log_loss(y_new, model.predict_proba(X_new)), model.score(X_new, y_new)
    models.append(model)
    titles.append(f"{name}\nlog-loss {loss:.3f}, accuracy {accuracy:.3f}, {seconds:.1f} s")
    print(titles[-1].replace("\n", ": "))

# %%
# Decision regions, path and map
# ------------------------------
#
# Above, the colour is the probability of the second class. Where there are no samples, a kernel has nothing to say, and
# the two models differ.
#
# Below on the left is the path of the chosen kernel. On the right is the map of all kernels that were tried. Every
# strip is a path, and dark colours are low losses on held-out samples. The width gamma was chosen first, then the
# scales of the columns were learned, then landmarks were added, each as long as that helped. The frame and the star
# mark what was chosen.

figure = plt.figure(figsize=(13, 8.6), layout="constrained")
above, below = figure.subfigures(2, 1, height_ratios=[5, 4])
for ax, model, title in zip(above.subplots(1, 2), models, titles, strict=True):
    style = {"plot_method": "pcolormesh", "cmap": "RdBu_r", "vmin": 0, "vmax": 1, "alpha": 0.7}
    DecisionBoundaryDisplay.from_estimator(model, X, response_method="predict_proba", ax=ax, **style)
    ax.scatter(*X.T, c=y, cmap="RdBu_r", s=12, edgecolor="white", linewidth=0.4)
    ax.set_title(title, fontsize=10)
    ax.set(xticks=[], yticks=[], xlabel="", ylabel="")
    ax.spines[:].set_visible(False)

left, right = below.subplots(1, 2, width_ratios=[1, 1])
AnnealingPathDisplay.from_estimator(models[0], ax=left, twin=None)
left.legend(loc="upper right", fontsize="small", edgecolor="none")
KernelSearchDisplay.from_estimator(models[0], ax=right)

if len(sys.argv) > 1:  # python examples/plot_curved_boundaries.py docs/images/curved_boundaries.png
    figure.savefig(sys.argv[1], dpi=110)

# %%
# What was chosen
# ---------------
#
# ``approximation_error_`` is what the landmarks do not represent: zero, or a rounding error, if all samples are
# landmarks. ``support_`` are the samples that predictions need.

model = models[0]
print(f"gamma {model.gamma_:.3g}, temperature {model.temperature_:.3g}, scales of the columns {model.scale_.round(2)}")
print(f"{model.n_landmarks_} landmarks, {model.n_support_} needed, {model.approximation_error_:.1g} not represented")

plt.show()
