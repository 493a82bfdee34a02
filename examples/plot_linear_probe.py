"""
============
Linear probe
============

A linear probe measures how well a fixed representation separates the classes. It is a linear classifier on features
that are not trained. Its only hyperparameter is the penalty, here the temperature. One path is computed, and held-out
samples choose the temperature.
"""

# %%
# On the CPU
# ----------
#
# The features are the pixels of the digits. A fifth of the samples is held out to choose the temperature; the final fit
# uses all samples. If samples come in groups, such as the frames of a video, use a group-aware splitter:
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
# The same code fits features that a network computed on the GPU. Coefficients and predictions stay on the device. Set
# ``SCIPY_ARRAY_API=1`` in the environment::
#
#     sklearn.set_config(array_api_dispatch=True)
#     X, y = network(images), labels                      # tensors on the GPU
#     probe = AnnealedLogisticRegression(selection="holdout").fit(X, y)
#     accuracy = (probe.predict(X_new) == y_new).float().mean()
#
# ``matmul_precision="tf32"`` is about five times as fast on features of ImageNet's size
# (``docs/gpu.md``). ``AnnealedLogisticRegression(device="cuda")`` takes NumPy arrays, fits on the GPU and returns NumPy
# arrays.

AnnealingPathDisplay.from_estimator(probe)
plt.show()
