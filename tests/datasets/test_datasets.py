"""Bundled, generated and downloaded data sets: sizes, known properties, and errors."""

import numpy as np
import pytest
from scipy.sparse import issparse
from scipy.special import softmax
from scipy.stats import multivariate_normal, norm

from annealed.datasets import data_home, load_default, load_table, make_gaussian_classes, table_names


def test_default_is_raw_and_complete():
    table = load_default()
    assert table.X.shape == (569, 30) == (len(table.y), len(table.feature_names))
    assert set(table.y) == set(range(len(table.target_names)))
    spreads = table.X.std(axis=0)
    assert spreads.max() / spreads.min() > 1e5, "the default is meant to have unscaled features"


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_gaussian_logits_are_the_bayes_posterior(n_classes):
    prior = np.arange(1.0, n_classes + 1) / np.arange(1.0, n_classes + 1).sum()
    problem = make_gaussian_classes(50, 4, n_classes, condition=1e3, class_prior=prior, random_state=0)
    densities = [multivariate_normal(mean, problem.covariance).pdf(problem.X) for mean in problem.means]
    expected = prior * np.transpose(densities)
    expected /= expected.sum(axis=1, keepdims=True)
    posterior = softmax(problem.X @ problem.coef.T + problem.intercept, axis=1)
    np.testing.assert_allclose(posterior, expected, rtol=1e-7, atol=1e-12)


def test_gaussian_covariance_and_means_are_those_of_the_samples():
    problem = make_gaussian_classes(200_000, 3, 3, condition=25.0, random_state=1)
    np.testing.assert_allclose(np.linalg.cond(problem.covariance), 25.0)
    residual = problem.X - problem.means[problem.y]
    np.testing.assert_allclose(np.cov(residual.T), problem.covariance, atol=0.02)
    np.testing.assert_allclose(np.bincount(problem.y) / len(problem.y), problem.class_prior, atol=0.01)


def test_gaussian_separation_gives_the_bayes_error():
    problem = make_gaussian_classes(200_000, 10, 2, separation=2.0, condition=1e4, random_state=2)
    predicted = (problem.X @ problem.coef.T + problem.intercept).argmax(axis=1)
    np.testing.assert_allclose(np.mean(predicted != problem.y), norm.cdf(-1.0), atol=0.005)


def test_gaussian_classes_repeat_with_their_seed():
    first, second = (make_gaussian_classes(20, 3, 2, random_state=3) for _ in range(2))
    np.testing.assert_array_equal(first.X, second.X)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_samples": 0}, "n_samples must be at least 1. Got 0"),
        ({"n_classes": 1}, "n_classes must be at least 2. Got 1"),
        ({"separation": -1.0}, "separation must be finite and not negative. Got -1.0"),
        ({"condition": 0.5}, "must be at least 1. Got 0.5"),
        ({"class_prior": [0.5, 0.6]}, "2 positive probabilities that add up to 1"),
        ({"class_prior": [1.0]}, "2 positive probabilities"),
    ],
)
def test_gaussian_classes_refuse_impossible_sizes(change, message):
    with pytest.raises(ValueError, match=message):
        make_gaussian_classes(**{"n_samples": 5, "n_features": 2, "n_classes": 2, **change})


@pytest.fixture
def suite(tmp_path, monkeypatch):
    folder = tmp_path / "suite"
    folder.mkdir()
    np.savez(
        folder / "dense.npz",
        X=np.eye(3, dtype=np.uint8),
        y=[0, 1, 1],
        classes=["a", "b"],
        train=[0, 1],
        test=[2],
    )
    np.savez(
        folder / "csr.npz",
        data=[1.0, 2.0],
        indices=[0, 2],
        indptr=[0, 1, 2],
        shape=[2, 3],
        y=[0, 1],
        classes=["a", "b"],
    )
    monkeypatch.setenv("ANNEALED_DATA", str(tmp_path))
    return folder


def test_tables_are_listed_in_order(suite):
    assert data_home() == suite.parent
    assert table_names() == ["csr", "dense"]


def test_dense_table(suite):
    table = load_table("dense")
    np.testing.assert_array_equal(table.X, np.eye(3))
    assert table.X.dtype == np.float64
    assert list(table.target_names) == ["a", "b"]
    assert table.train.tolist() == [0, 1] and table.test.tolist() == [2]
    assert load_table("dense", dtype=None).X.dtype == np.uint8


def test_sparse_table(suite):
    table = load_table("csr", dtype=np.float32)
    assert issparse(table.X) and table.X.dtype == np.float32
    np.testing.assert_array_equal(table.X.toarray(), [[1, 0, 0], [0, 0, 2]])
    assert table.train is None and table.test is None


def test_pickled_table_is_refused(suite):
    np.savez(suite / "objects.npz", X=np.array([[None]]), y=[0], classes=["a"])
    with pytest.raises(ValueError, match="objects.npz' is damaged, or does not contain plain arrays"):
        load_table("objects")


@pytest.mark.parametrize("damage", [lambda old: b"", lambda old: b"junk", lambda old: old[: len(old) // 2]])
def test_damaged_table_is_refused(suite, damage):
    path = suite / "dense.npz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match="dense.npz' is damaged.*Write it again"):
        load_table("dense")
    np.savez(suite / "part.npz", X=np.eye(2))
    with pytest.raises(ValueError, match="part.npz' is damaged"):
        load_table("part")


def test_error_for_an_unknown_table_lists_the_known_ones(suite):
    with pytest.raises(FileNotFoundError, match="no table 'denes'.*Choose one of: csr, dense"):
        load_table("denes")


def test_error_for_a_missing_folder_names_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("ANNEALED_DATA", str(tmp_path / "absent"))
    with pytest.raises(FileNotFoundError, match="absent.*ANNEALED_DATA"):
        table_names()


def test_error_without_data_names_the_variable(tmp_path, monkeypatch):
    monkeypatch.delenv("ANNEALED_DATA", raising=False)
    monkeypatch.setattr("annealed.datasets.corpora.REPOSITORY", tmp_path / "checkout")
    assert data_home() is None
    with pytest.raises(FileNotFoundError, match="No data folder was found. Set the environment variable"):
        load_table("iris")
