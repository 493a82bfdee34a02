"""
==============================================
Prototypes whose number is found from the data
==============================================

The data are two intertwined spirals. :class:`~annealed.PottsDA` starts with one prototype per class. In each round it
adds prototypes where samples are misclassified, raises the temperature and cools again. It stops when the held-out
score no longer improves.
"""

# %%
# Spirals
# -------

import sys

import matplotlib.pyplot as plt
import numpy as np

from annealed import PottsDA, PrototypeDisplay
from annealed.datasets import make_mixed_strips, make_spirals

X, y = make_spirals(random_state=0)
X_new, y_new = make_spirals(random_state=1)
spirals = PottsDA(random_state=0).fit(X, y)
print(f"{len(spirals.prototypes_)} prototypes, error {np.mean(spirals.predict(X_new) != y_new):.1%}")

# %%
# Strips, and incremental learning
# --------------------------------
#
# Four long strips need four prototypes and one Mahalanobis metric, shown by ellipses that are as long and thin as the
# strips. (Refinement is off: it would stretch them further, because the position along a strip does not separate the
# classes.) The plot on the right shows how hard the memberships are during the fit of the spirals. In every round the
# temperature is raised and falls again.

strips_X, strips_y = make_mixed_strips(random_state=0)
strips = PottsDA(4, refine=False, random_state=0).fit(strips_X, strips_y)

figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
PrototypeDisplay.from_estimator(strips, strips_X, strips_y, ax=axes[0])
PrototypeDisplay.from_estimator(spirals, X, y, ax=axes[1])
axes[0].set_title("PottsDA(4, refine=False), strips", fontsize=10)
axes[1].set_title("PottsDA(), spirals", fontsize=10)
for ax in axes[:2]:
    ax.get_legend().remove()
    ax.set(xticks=[], yticks=[], xlabel="", ylabel="")

path = spirals.path_
axes[2].plot(path.membership_saturation, color="#0072B2", label="memberships")
axes[2].plot(path.label_saturation, color="#E69F00", label="labels")
axes[2].set(xlabel="temperatures in the order of the fit", ylabel="mean sum of squares", ylim=(0, 1.05))
axes[2].set_title("incremental learning, spirals", fontsize=10)
axes[2].legend(edgecolor="none", loc="lower right")
number = axes[2].twinx()
number.step(range(len(path)), path.n_prototypes, color="#8C8C8C", where="post")
number.set_ylabel("prototypes (grey)")
for ax in (axes[2], number):
    ax.spines["top"].set_visible(False)

if len(sys.argv) > 1:  # python examples/plot_prototypes.py docs/images/prototypes.png
    figure.savefig(sys.argv[1], dpi=110)
plt.show()
