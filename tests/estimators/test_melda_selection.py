"""How MELDA's temperature is chosen: as its log-linear model's, by groups and by a validation set too."""

import numpy as np
import pytest
import sklearn
from sklearn.datasets import load_wine
from sklearn.model_selection import GroupKFold, cross_validate

from annealed import MELDA, AnnealedLogisticRegression

X, y = load_wine(return_X_y=True)
GROUPS = np.random.RandomState(0).randint(0, 20, len(y))
HALF = np.arange(len(y)) % 2 == 0


@pytest.mark.parametrize("n_components", [None, 1])
def test_folds_of_groups(n_components):
    model = MELDA(n_components, cv=GroupKFold(3)).fit(X, y, groups=GROUPS)
    alone = AnnealedLogisticRegression(cv=GroupKFold(3)).fit(X, y, groups=GROUPS)
    assert model.classifier_.temperature_ == alone.temperature_


@pytest.mark.parametrize("n_components", [None, 1])
def test_splits_that_may_be_had_but_once(n_components):
    splits = [(np.flatnonzero(HALF), np.flatnonzero(~HALF)), (np.flatnonzero(~HALF), np.flatnonzero(HALF))]
    once, listed = (MELDA(n_components, cv=own).fit(X, y) for own in (iter(splits), splits))
    np.testing.assert_array_equal(once.predict_proba(X), listed.predict_proba(X))


def test_groups_are_routed():
    with sklearn.config_context(enable_metadata_routing=True):
        found = cross_validate(
            MELDA(cv=GroupKFold(3)), X, y, cv=GroupKFold(3), params={"groups": GROUPS}, error_score="raise"
        )
    assert found["test_score"].min() > 0.9


@pytest.mark.parametrize("n_components", [None, 1])
def test_a_validation_set(n_components):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=[f"column {number}" for number in range(X.shape[1])])
    held_out = {"X_val": frame[~HALF], "y_val": y[~HALF], "sample_weight_val": np.arange(1.0, (~HALF).sum() + 1)}
    model = MELDA(n_components, selection="holdout").fit(frame[HALF], y[HALF], **held_out)
    alone = AnnealedLogisticRegression(selection="holdout").fit(frame[HALF], y[HALF], **held_out)
    assert model.classifier_.temperature_ == alone.temperature_
    assert model.transform(frame).shape == (len(y), n_components or 2)


def test_unknown_arguments():
    with pytest.raises(TypeError, match=r"unexpected arguments \['colour'\]"):
        MELDA().fit(X, y, colour=1)
