"""Reconstructions of the slides' examples have the documented properties."""

import numpy as np
import pytest
from sklearn.svm import SVC

from annealed.datasets import make_mixed_strips, make_spirals, make_xor_means
from annealed.datasets.potts_examples import MIXING

MAKERS = [make_mixed_strips, make_xor_means, make_spirals]


@pytest.mark.parametrize("make", MAKERS)
def test_two_classes_that_repeat_with_their_seed(make):
    X, y = make(random_state=0)
    assert X.shape == (800, 2) and np.bincount(y).min() > 300
    np.testing.assert_array_equal(X, make(random_state=0)[0])
    assert not np.array_equal(X, make(random_state=1)[0])
    assert len(make(7, random_state=np.random.RandomState(0))[1]) == 7


@pytest.mark.parametrize("make", MAKERS)
def test_zero_samples_are_refused(make):
    with pytest.raises(ValueError, match="n_samples must be at least 1. Got 0."):
        make(0)


@pytest.mark.parametrize("options", [{"turns": 0}, {"turns": np.inf}, {"noise": -1}, {"noise": np.inf}])
def test_spirals_refuse_impossible_settings(options):
    with pytest.raises(ValueError, match="turns must be positive and noise not negative, both finite. Got"):
        make_spirals(**options)


def test_strips_alternate_across():
    X, y = make_mixed_strips(random_state=0)
    across = (X @ np.linalg.inv(MIXING).T)[:, 1] + 1.5
    np.testing.assert_array_equal(np.round(across).astype(int) % 2, y)


def test_opposite_corners_have_the_same_class():
    X, y = make_xor_means(random_state=0)
    along, across = (X @ np.linalg.inv(MIXING).T).T
    np.testing.assert_array_equal(np.abs(across) > 0.5, y == 1)
    assert (along[y == 0] > 1).any() and (along[y == 0] < -1).any()


def test_spirals_are_hard_for_a_default_support_vector_machine():
    """As in the slides, where a support vector machine has an error of 45 %."""
    X, y = make_spirals(random_state=0)
    assert SVC().fit(X, y).score(X, y) < 0.75
