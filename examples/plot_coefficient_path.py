"""
================================
Which features come in, and when
================================

At a high temperature every coefficient is near zero. As it falls, features come in one after another, first those that
say much by themselves. Below the chosen temperature the coefficients begin to follow single rows. All of them are kept
in ``path_``, so drawing them needs no further fit.
"""

# %%
# Cells under a microscope
# ------------------------
#
# Thirty measurements of each cell, in quite different units. ``X`` is given to the display too, which multiplies each
# coefficient by the standard deviation of its column, so that they can be compared.

import sys

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer

from annealed import AnnealedLogisticRegression, CoefficientPathDisplay

table = load_breast_cancer(as_frame=True)
X, y = table.data, table.target_names[table.target]
model = AnnealedLogisticRegression().fit(X, y)
display = CoefficientPathDisplay.from_estimator(model, X=X, label="malignant")
display.ax_.set_title("What speaks for a malignant cell")

if len(sys.argv) > 1:  # python examples/plot_coefficient_path.py docs/images/coefficient_path.png
    display.figure_.savefig(sys.argv[1], dpi=110)
plt.show()
