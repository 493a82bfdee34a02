"""
==================================
Coefficients along the temperature
==================================

At a high temperature every coefficient is near zero. As the temperature falls, coefficients grow one after another,
first those of features that are informative by themselves. Below the chosen temperature the coefficients begin to
overfit single samples. All coefficients are stored in ``path_``, so the plot needs no further fit.
"""

# %%
# Breast cancer data
# ------------------
#
# Each sample has thirty measurements in different units. ``X`` is passed to the display, which multiplies each
# coefficient by the standard deviation of its feature to make them comparable.

import sys

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer

from annealed import AnnealedLogisticRegression, CoefficientPathDisplay

table = load_breast_cancer(as_frame=True)
X, y = table.data, table.target_names[table.target]
model = AnnealedLogisticRegression().fit(X, y)
display = CoefficientPathDisplay.from_estimator(model, X=X, label="malignant")
display.ax_.set_title("Coefficients of the class malignant")

if len(sys.argv) > 1:  # python examples/plot_coefficient_path.py docs/images/coefficient_path.png
    display.figure_.savefig(sys.argv[1], dpi=110)
plt.show()
