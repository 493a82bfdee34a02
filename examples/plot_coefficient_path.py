"""
================================
Which features come in, and when
================================

At a high temperature every coefficient is near zero; as it falls, features come in one after another, first those that
say much by themselves. Colder than the chosen temperature they begin to follow single rows. The whole walk is kept in
``path_``, so a picture of it costs nothing.
"""

# %%
# Cells under a microscope
# ------------------------
#
# Thirty measurements of each cell, of quite different units: ``X`` is given to the display too, so that each
# coefficient is multiplied by the standard deviation of its column.

import sys

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer

from annealed import CoefficientPathDisplay, InnerProductADA

table = load_breast_cancer(as_frame=True)
X, y = table.data, table.target_names[table.target]
model = InnerProductADA().fit(X, y)
display = CoefficientPathDisplay.from_estimator(model, X=X, label="malignant")
display.ax_.set_title("What speaks for a malignant cell")

if len(sys.argv) > 1:  # python examples/plot_coefficient_path.py docs/images/coefficient_path.png
    display.figure_.savefig(sys.argv[1], dpi=110)
plt.show()
