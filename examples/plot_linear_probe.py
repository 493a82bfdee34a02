"""
==========================
Linear probe in five lines
==========================

A linear probe asks how much of the classes a fixed representation knows: one linear classifier on top of features that
are not trained. Its only knob is the penalty, and here that is the temperature, swept once and chosen on held-out rows.
"""

# %%
# On the CPU
# ----------
#
# The features are the pixels of the digits. A fifth of the rows is held out to choose the temperature, and the final
# fit uses all of them. Where rows come in groups, such as frames of one video, held-out rows must be of other groups:
# ``AnnealedLogisticRegression(cv=GroupKFold(5)).fit(X, y, groups=video)``.

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from annealed import AnnealedLogisticRegression, AnnealingPathDisplay

X, X_new, y, y_new = train_test_split(*load_digits(return_X_y=True), stratify=load_digits().target, random_state=0)
probe = AnnealedLogisticRegression(selection="holdout").fit(X, y)
print(probe.path_)
print(f"accuracy {probe.score(X_new, y_new):.3f} at temperature {probe.temperature_:.3g}")

# %%
# On a GPU
# --------
#
# The same lines fit features that a network left on the GPU; coefficients and predictions stay there too. With
# ``SCIPY_ARRAY_API=1`` in the environment::
#
#     sklearn.set_config(array_api_dispatch=True)
#     X, y = network(images), labels                      # tensors on the GPU
#     probe = AnnealedLogisticRegression(selection="holdout").fit(X, y)
#     accuracy = (probe.predict(X_new) == y_new).float().mean()
#
# ``precision="tf32"`` or ``"bf16"`` is about five times as fast on features of ImageNet's size, and
# ``AnnealedLogisticRegression(device="cuda")`` takes NumPy features there and back.

AnnealingPathDisplay.from_estimator(probe)
plt.show()
