"""The corpora of table 1: their sizes and features, read from the data folder if it exists."""

import numpy as np
import pytest
from scipy import sparse

from annealed import SecondOrderFeatures
from experiments import corpora
from experiments.corpora import TABLE1, Size, load_corpus


def load(name):
    try:
        return load_corpus(name)
    except OSError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", TABLE1)
def test_sizes_are_those_of_table_1(name):
    assert load(name).size == TABLE1[name]


def test_reduction_factors_are_as_printed():
    printed = {"LETTER2": 5.4, "MONK": 17.0, "USPS": 28.4, "DNA": 90.0, "MONK2": 153.0, "USPS2": 547.8, "DNA2": 8145.0}
    assert {name: round(size.reduction_factor, 1) for name, size in TABLE1.items()} == printed


def test_monk_is_one_hot():
    monk = load("MONK")
    assert np.all(monk.X_train.sum(axis=1) == 6) and set(np.unique(monk.X_test)) == {0.0, 1.0}
    # monk-1's rule: the first two attributes are equal, or the fifth has its first value
    first, second, fifth = monk.X_test[:, 0:3], monk.X_test[:, 3:6], monk.X_test[:, 11]
    np.testing.assert_array_equal(monk.y_test, (first * second).sum(axis=1).astype(bool) | fifth.astype(bool))


def test_dna2_is_sparse_and_equal_to_the_products_of_dna():
    dna, squared = load("DNA"), load("DNA2")
    assert sparse.issparse(squared.X_train)
    first, second = SecondOrderFeatures().fit(dna.X_test).pairs_.T
    np.testing.assert_array_equal(squared.X_test[:5].toarray(), dna.X_test[:5, first] * dna.X_test[:5, second])


def test_usps_is_black_on_a_background_of_zero():
    usps = load("USPS")
    assert usps.X_train.min() == 0 and usps.X_train.max() == 1
    assert usps.X_train[:, 0].mean() < 0.1  # a corner
    assert usps.y_train[:8].tolist() == [6, 5, 4, 7, 3, 6, 3, 1]


def test_absent_data_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("ANNEALED_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="there is no .*dna.npz"):
        load_corpus("DNA2")


def test_a_corpus_of_another_size_is_refused(monkeypatch):
    few = np.zeros((3, 17)), np.array([0, 1, 1]), np.zeros((2, 17)), np.array([0, 1])
    monkeypatch.setitem(corpora.READERS, "MONK", lambda: few)
    with pytest.raises(ValueError, match="size of table 1.* Got Size.*n_train=3"):
        load_corpus("MONK")
    assert Size(2, 17, 3, 2) == corpora.Corpus("made", *few).size
