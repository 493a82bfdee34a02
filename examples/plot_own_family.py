"""
=============================
Custom discriminant functions
=============================

Annealing works with any differentiable discriminant functions. A subclass of
:class:`~annealed.problems.ScoreFamily` defines the scores and their derivatives.
:class:`~annealed.AnnealedClassifier` adds the temperatures, the folds, the choice of the temperature, the path and the
scikit-learn interface.

Here the classes are three interlocking rings. Neither lines nor conics separate them, because each ring has neighbours
inside and outside. Scores that measure the distance to a circle do.
"""

# %%
# Three rings
# -----------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import log_loss

from annealed import AnnealedClassifier, AnnealedLogisticRegression
from annealed.problems import Quadratic, ScoreFamily

CENTRES = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.4]])
RADIUS, NOISE = 1.3, 0.12


def draw_rings(n_rows, seed):
    """Samples scattered around three circles, and the index of the circle of each."""
    generator = np.random.default_rng(seed)
    y = generator.integers(3, size=n_rows)
    angle = generator.uniform(0, 2 * np.pi, n_rows)
    radius = generator.normal(RADIUS, NOISE, n_rows)
    return CENTRES[y] + radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)]), y


X, y = draw_rings(300, seed=0)
X_new, y_new = draw_rings(3000, seed=1)

# %%
# The family
# ----------
#
# Each class has a centre and a radius. Its score is minus the squared distance of the sample to that circle. Three
# methods are required: the initial parameters, the scores, and the pullback, which is the sum over samples of a
# residual times the derivative of the score. Features are standardized beforehand, so their units do not matter.


class Rings(ScoreFamily):
    """Minus the squared distance to a circle per class. Parameters (n_classes, 3): centre, then radius."""

    def start(self, X, labels, weight, n_classes, random_state):
        share = weight * (labels == np.arange(n_classes)[:, None])  # (n_classes, n_rows)
        share /= share.sum(axis=1, keepdims=True)
        centres = share @ X
        return np.column_stack([centres, share @ np.linalg.norm(X - centres[labels], axis=1)])

    def scores(self, X, parameters):
        return -(self._beyond(X, parameters)[1] ** 2)

    def pullback(self, X, parameters, residual):
        outward, beyond = self._beyond(X, parameters)
        weight = 2 * residual * beyond
        return np.column_stack([np.einsum("nc,ncd->cd", weight, outward), weight.sum(axis=0)])

    def _beyond(self, X, parameters):
        """The direction from each centre to each sample, and the signed distance of the sample to the circle."""
        offset = X[:, None] - parameters[:, :2]
        distance = np.linalg.norm(offset, axis=2)
        return offset / np.maximum(distance, 1e-12)[..., None], distance - parameters[:, 2]


# %%
# Comparison with lines and conics
# --------------------------------
#
# The background colour is the predicted class; it is paler if the posterior is less certain.

models = {
    "AnnealedLogisticRegression": AnnealedLogisticRegression(),
    "Quadratic": AnnealedClassifier(Quadratic()),
    "Rings": AnnealedClassifier(Rings()),
}
COLOURS = np.array([[86, 180, 233], [0, 158, 115], [204, 121, 167]]) / 255

edges = np.linspace(-2.9, 2.9, 240)
across, up = np.meshgrid(edges, edges + 0.5)
grid = np.column_stack([across.ravel(), up.ravel()])

figure, axes = plt.subplots(1, 3, figsize=(10, 3.9), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    model.fit(X, y)
    posterior = model.predict_proba(grid)
    strength = 0.75 * (1.5 * posterior.max(axis=1, keepdims=True) - 0.5)
    shade = strength * COLOURS[posterior.argmax(axis=1)] + (1 - strength)
    ax.pcolormesh(across, up, shade.reshape(*across.shape, 3), rasterized=True)
    ax.scatter(*X.T, c=0.7 * COLOURS[y], s=12, edgecolor="white", linewidth=0.4)
    loss, accuracy = log_loss(y_new, model.predict_proba(X_new)), model.score(X_new, y_new)
    ax.set_title(f"{name}\naccuracy {accuracy:.2f}, log-loss {loss:.2f}", fontsize=10)
    ax.set(aspect="equal", xticks=[], yticks=[])
    ax.spines[:].set_visible(False)

# %%
# The rings cross, so no classifier can be right on all samples. The fitted parameters can be interpreted: the centre
# and radius of each circle, in standardized units, at the chosen temperature.

rings = models["Rings"]
print(rings.path_.at(rings.temperature_)[0]["parameters"].round(2))

plt.show()
