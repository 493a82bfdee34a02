"""What an `AnnealedKernelClassifier` keeps for predictions."""

import numpy as np

from annealed import AnnealedKernelClassifier

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 3)), np.arange(40) % 2


def test_where_no_landmark_matters_all_samples_have_the_shares_of_the_classes():
    """At a very high temperature; distances to no landmarks at all ended in an error."""
    model = AnnealedKernelClassifier(schedule=[1e9, 1.0], selection="last").fit(X, Y, 1 + Y).at(1e9)
    assert model.n_support_ == 0
    np.testing.assert_allclose(model.predict_proba(X), np.tile([1 / 3, 2 / 3], (40, 1)), atol=1e-6)


def test_the_matrix_that_makes_features_is_not_kept():
    """It is as large as the kernel of the landmarks, and only a fit needs it."""
    assert AnnealedKernelClassifier(schedule=[1.0]).fit(X, Y)._point.predictor.features.whitening is None
