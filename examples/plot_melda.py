"""
===================================
A plane in which to see the classes
===================================

Linear discriminant analysis turns many columns into few, so that classes come apart. It inverts the scatter within
classes, and that matrix says little where rows are few or columns collinear. :class:`~annealed.MELDA` takes the
directions from a log-linear posterior instead, whose temperature is chosen by validation, and inverts nothing.

This example reduces the 64 pixels of the handwritten digits 3, 8 and 9 to a plane.
"""

# %%
# About as many rows as columns
# -----------------------------
#
# Sixty digits are kept for the fit, and all others to look at later. Some pixels, in the corners, are always white.

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
# The plane of each, with new rows
# --------------------------------
#
# Three classes make two dimensions. Above, the rows of the fit; below, the others, in the same planes. LDA draws the
# rows it has seen together to three points, as it can with so many columns, and scatters the rest. MELDA's regions are
# those of its posterior.

figure, axes = plt.subplots(2, 2, figsize=(9, 8), layout="constrained")
for column, (name, reduction) in enumerate([("MELDA", melda), ("LDA", lda)]):
    for row, (rows, labels) in enumerate([(X, y), (X_new, y_new)]):
        ax = axes[row, column]
        ProjectionDisplay.from_estimator(reduction, rows, labels, ax=ax)
        ax.set_title(f"{name}, {'rows of the fit' if row == 0 else 'new rows'}", loc="left", fontsize=10)

if len(sys.argv) > 1:  # python examples/plot_melda.py docs/images/melda.png
    figure.savefig(sys.argv[1], dpi=110)

# %%
# What the plane is worth
# -----------------------
#
# Both are classifiers too, and a nearest neighbour in the plane tells how much of the classes is left there.

for name, reduction in [("MELDA", melda), ("LDA", lda)]:
    neighbour = KNeighborsClassifier(1).fit(reduction.transform(X), y)
    accuracy = neighbour.score(reduction.transform(X_new), y_new)
    print(
        f"{name:5}  own prediction {reduction.score(X_new, y_new):.3f}  nearest neighbour in its plane {accuracy:.3f}"
    )

# %%
# Directions come in the order of the information that they carry about the class, in nats.

print(melda.explained_information_.round(2))

plt.show()
