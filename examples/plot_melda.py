"""
=======================================
Supervised projection to two dimensions
=======================================

Linear discriminant analysis (LDA) projects many features to a few that separate the classes. It inverts the
within-class scatter matrix, which is poorly estimated with few samples or collinear features.
:class:`~annealed.MELDA` takes the directions from a log-linear posterior instead. Validation chooses its temperature,
and no matrix is inverted.

This example projects the 64 pixels of the handwritten digits 3, 8 and 9 to a plane.
"""

# %%
# About as many samples as features
# ---------------------------------
#
# Sixty digits are used for the fit, all others for testing. Some pixels, in the corners, are constant.

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from annealed import MELDA, ProjectionDisplay

X, y = load_digits(return_X_y=True)
chosen = np.isin(y, [3, 8, 9])
X, X_new, y, y_new = train_test_split(X[chosen], y[chosen], train_size=60, stratify=y[chosen], random_state=1)
melda = MELDA().fit(X, y)
lda = LinearDiscriminantAnalysis().fit(X, y)

# %%
# Training and test samples in both planes
# ----------------------------------------
#
# With three classes the projection has two dimensions. The upper plots show the training samples, the lower plots the
# test samples in the same planes. LDA overfits: with so many features it can collapse the training samples of each
# class almost to a point, and it scatters the test samples. The shaded regions are those of MELDA's posterior.

figure, axes = plt.subplots(2, 2, figsize=(9, 8), layout="constrained")
for column, (name, reduction) in enumerate([("MELDA", melda), ("LDA", lda)]):
    for row, (samples, labels) in enumerate([(X, y), (X_new, y_new)]):
        ax = axes[row, column]
        ProjectionDisplay.from_estimator(reduction, samples, labels, ax=ax)
        ax.set_title(f"{name}, {'training samples' if row == 0 else 'test samples'}", loc="left", fontsize=10)

if len(sys.argv) > 1:  # python examples/plot_melda.py docs/images/melda.png
    figure.savefig(sys.argv[1], dpi=110)

# %%
# Accuracy in the plane
# ---------------------
#
# Both estimators are classifiers as well. The accuracy of a nearest-neighbour classifier in the plane measures how much
# class information the projection keeps.

for name, reduction in [("MELDA", melda), ("LDA", lda)]:
    neighbour = KNeighborsClassifier(1).fit(reduction.transform(X), y)
    accuracy = neighbour.score(reduction.transform(X_new), y_new)
    print(
        f"{name:5}  as a classifier {reduction.score(X_new, y_new):.3f}  nearest neighbour in its plane {accuracy:.3f}"
    )

# %%
# Directions are sorted by the information that they carry about the class, in nats.

print(melda.explained_information_.round(2))

plt.show()
