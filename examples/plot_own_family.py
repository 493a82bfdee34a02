"""
====================
A family of your own
====================

Annealing does not mind what the discriminant functions are. A subclass of :class:`~annealed.objectives.ScoreFamily`
says what the scores are and how they change with their parameters; :class:`~annealed.AnnealedClassifier` brings the
temperatures, the folds, the choice, the path and scikit-learn's manners.

Here the classes are three interlocking rings. A line cannot tell them apart, and neither can a conic, because a ring
has neighbours on its inner and on its outer side. A score that knows what a ring is can.
"""

# %%
# Three rings
# -----------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import log_loss

from annealed import AnnealedClassifier, AnnealedLogisticRegression
from annealed.objectives import Quadratic, ScoreFamily

CENTRES = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.4]])
RADIUS, NOISE = 1.3, 0.12


def draw_rings(n_rows, seed):
    """Rows scattered about three circles, and the circle each belongs to."""
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
# A class has a centre and a radius, and its score is minus the squared distance from the row to that circle. Three
# methods are asked for: where the parameters start, the scores, and the pullback, which is the sum over rows of a
# residual times the derivative of the score. Rows arrive standardized, so units need no thought.


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
        """The direction from each centre to each row, and how far beyond the circle the row lies."""
        offset = X[:, None] - parameters[:, :2]
        distance = np.linalg.norm(offset, axis=2)
        return offset / np.maximum(distance, 1e-12)[..., None], distance - parameters[:, 2]


# %%
# Beside lines and conics
# -----------------------
#
# The colour of a point is the class it would go to, paler where the posterior is less sure.

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
# The rings cross, so some rows belong to two of them and no classifier can get them all right. What the family learnt
# can be read: centre and radius of each circle, in standardized units, at the chosen temperature.

rings = models["Rings"]
print(rings.path_.at(rings.temperature_)[0]["parameters"].round(2))

plt.show()
