"""Discriminant axes from the moments of scores."""

import numpy as np

from annealed.estimators.discriminant_axes import directions_of, score_moments


def test_axes_of_samples_at_their_class_means_do_not_depend_on_rounding():
    """Nothing varies within classes, so the axes are ordered by their total variance."""
    generator = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2, 3], 5)
    scores = generator.normal(size=(4, 4))[labels] * [3.0, 2.0, 1.0, 0.5]
    exact, rounded = (
        directions_of(score_moments(scores + noise, labels, np.ones(20), np.eye(4)))
        for noise in (0.0, 1e-13 * generator.normal(size=scores.shape))
    )
    np.testing.assert_allclose(rounded.of_scores, exact.of_scores, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(exact.information, -0.5 * np.log(1e-6))
