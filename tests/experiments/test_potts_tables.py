"""The tables of Wu's slides and of the suite: the published numbers, the peers, and the comparison."""

from argparse import Namespace

import numpy as np
import pytest

from annealed.datasets import make_xor_means
from experiments import potts_suite, potts_tables
from experiments.potts_tables import AUTO, PUBLISHED, RBFNetwork, Split, read_published
from experiments.registry import EXPERIMENTS


@pytest.fixture
def published():
    return read_published(PUBLISHED)


def test_both_experiments_are_registered():
    assert EXPERIMENTS["potts-tables"] is potts_tables and EXPERIMENTS["potts-suite"] is potts_suite


@pytest.mark.parametrize(
    ("table", "method", "errors"),
    [
        ("example-1", "RBF(24)", (3.9, 4.5)),
        ("example-2", "SVM", (3.2, 5.9)),
        ("example-3", "PottsDA(40)", (0.8, 0.4)),
        ("wisconsin", "PottsDA(42)", (1.4, 1.0)),
        ("wisconsin", "SVM", (None, 4.63)),
    ],
)
def test_published_numbers(published, table, method, errors):
    assert published[table, method] == errors


def test_every_method_can_be_made(published):
    for table, method in published:
        assert potts_tables.make_method(method, table, 0) is not None
    assert potts_tables.make_method(AUTO, "example-1", 0).n_prototypes == "auto"


def test_an_rbf_network_learns_classes_in_opposite_corners():
    X, y = make_xor_means(300, random_state=0)
    assert RBFNetwork(60, random_state=0).fit(X, y).score(X, y) > 0.9


def test_a_table_from_measurement_to_text(published, monkeypatch, tmp_path, capsys):
    made = [Split(*make_xor_means(80, random_state=0), *make_xor_means(80, random_state=1))]
    monkeypatch.setitem(potts_tables.SPLITS, "example-2", lambda: iter(made))
    potts_tables.run(Namespace(corpora=["example-2"], results=tmp_path))
    text = capsys.readouterr().out
    assert "PottsDA(4)" in text and "(45.3)" in text and "of 1 seeds" in text
    assert len((tmp_path / "potts_tables.csv").read_text().splitlines()) == 1 + 7


def test_absent_data_are_skipped(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("ANNEALED_DATA", str(tmp_path))
    potts_tables.run(Namespace(corpora=["wisconsin"], results=tmp_path))
    assert "wisconsin: skipped" in capsys.readouterr().out


def test_unknown_tables_are_named():
    with pytest.raises(SystemExit, match="there is no table example-9. Choose among: example-1"):
        potts_tables.chosen_tables(["example-9"])


# --- the suite ------------------------------------------------------------------------------------------------


def test_a_suite_from_measurement_to_text(monkeypatch, tmp_path, capsys):
    X, y = make_xor_means(60, random_state=0)
    (tmp_path / "suite").mkdir()
    np.savez(tmp_path / "suite" / "strips.npz", X=X, y=y, classes=np.array(["a", "b"]))
    np.savez(tmp_path / "suite" / "wide.npz", X=np.zeros((4, 101)), y=np.arange(4) % 2, classes=np.array(["a", "b"]))
    monkeypatch.setenv("ANNEALED_DATA", str(tmp_path))
    monkeypatch.setattr(potts_suite, "N_SPLITS", 2)
    options = Namespace(corpora=None, resume=True, results=tmp_path)
    potts_suite.run(options)
    first = capsys.readouterr().out
    assert "strips" in first and "wide" not in first and "log-loss, nats" in first
    potts_suite.run(options)
    assert "s per split" not in capsys.readouterr().out  # read, not measured again


def test_an_interrupted_write_leaves_no_file(tmp_path):
    """Otherwise `--resume` would read an incomplete file."""

    def interrupted():
        yield 1.0, 0.5
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        potts_suite.write_scores(interrupted(), tmp_path / "scores.csv")
    assert not (tmp_path / "scores.csv").exists()


def test_a_class_without_training_samples_has_the_clipped_probability():
    class Sure:
        classes_ = np.array([0, 1])

        def predict_proba(self, X):
            return np.tile([1.0, 0.0], (len(X), 1))

    loss = potts_suite.held_out_loss(Sure(), np.zeros((2, 1)), np.array([0, 2]))
    np.testing.assert_allclose(loss, -np.log(potts_suite.EPSILON) / 2)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_mixtures_support_a_class_of_one_sample():
    X, y = np.vstack([np.random.default_rng(0).normal(size=(20, 2)), [[9.0, 9.0]]]), np.r_[np.zeros(20, int), 1]
    posterior = potts_suite.ClassMixtures().fit(X, y).predict_proba(X)
    np.testing.assert_allclose(posterior.sum(axis=1), 1)
