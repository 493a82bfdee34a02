"""A second fit of the same estimator leaves nothing of the first."""

import numpy as np
from sklearn.datasets import load_wine

from annealed import MELDA, AnnealedClassifier
from annealed.objectives import Distance

X, y = load_wine(return_X_y=True)


def test_information_is_not_there_in_the_papers_coordinates():
    model = MELDA().fit(X, y)
    assert hasattr(model, "explained_information_")
    model.set_params(coordinates="paper").fit(X, y)
    assert not hasattr(model, "explained_information_")


def test_another_family_has_settings_of_its_own():
    model = AnnealedClassifier().fit(X, y)
    assert model.metric_ == "diagonal"
    model.set_params(objective=Distance()).fit(X, y)
    assert not hasattr(model, "metric_")
    fresh = AnnealedClassifier(Distance()).fit(X, y)
    assert vars(model).keys() == vars(fresh).keys()
    np.testing.assert_array_equal(model.predict_proba(X), fresh.predict_proba(X))
