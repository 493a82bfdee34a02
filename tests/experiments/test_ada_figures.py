"""Figures 1 and 2 of Wang, Zhang and Lochovsky on made-up texts, and the published numbers."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

pytest.importorskip("matplotlib")

from experiments import ada_figure, ada_newsgroups, ada_webkb, text_corpora
from experiments.__main__ import parse
from experiments.ada_figure import PUBLISHED, Figure
from experiments.ada_panels import Range, measure
from experiments.corpora import Corpus
from experiments.registry import EXPERIMENTS
from experiments.text_corpora import Collection

SHORT = Range(
    distance_hot=10.0, distance_cold=0.1, product_hot=1.0, product_cold=0.01, per_penalty=3, standing_steps=45
)


def made_up_texts(n_texts=150, n_words=30, n_classes=3):
    """Word counts; half of the words are more frequent in one class."""
    generator = np.random.default_rng(0)
    labels = np.arange(n_texts) % n_classes
    rates = np.where(np.arange(n_words) % n_classes == labels[:, None], 1.0, 0.3)
    rates[:, n_words // 2 :] = 0.4
    return Collection("made up", sparse.csr_array(generator.poisson(rates).astype(float)), labels)


@pytest.fixture(scope="module")
def points():
    """The points of two splits."""
    texts = made_up_texts()
    return pd.concat(
        pd.DataFrame(measure(texts, 20, "counts", SHORT, split)).astype({"line": str}) for split in range(2)
    )


# --- the published numbers --------------------------------------------------------------------------


def test_published_numbers_are_as_printed():
    published = pd.read_csv(PUBLISHED).set_index(["corpus", "method"])["accuracy"].to_dict()
    assert published == {
        ("WebKB", "LDA"): 74.3,
        ("WebKB", "dADA"): 90.3,
        ("Newsgroups", "LDA"): 55.0,
        ("Newsgroups", "dADA"): 71.0,
        ("Newsgroups", "pADA"): 75.5,
        ("Newsgroups", "logistic regression"): 68.8,
    }


def test_both_figures_are_registered():
    assert {"ada-webkb", "ada-newsgroups"} <= set(EXPERIMENTS)
    assert (ada_webkb.FIGURE.n_columns, ada_newsgroups.FIGURE.n_columns) == (500, 1000)


# --- texts ------------------------------------------------------------------------------------------


def test_information_gain_is_the_entropy_that_a_word_takes_away():
    counts = sparse.csr_array(np.array([[2.0, 1.0], [1.0, 0.0], [0.0, 3.0], [0.0, 0.0]]))
    gain = text_corpora.information_gain(counts, np.array([0, 0, 1, 1]))
    assert gain == pytest.approx([np.log(2), 0.0], abs=1e-12)


def test_a_split_drops_texts_without_words_and_rare_words():
    counts = np.zeros((20, 3))
    counts[:, 0] = np.arange(20) % 2  # every other text has none of the features
    counts[0, 1] = 5.0  # a word that occurs five times
    corpus = text_corpora.split_counts(Collection("made up", sparse.csr_array(counts), np.arange(20) % 2), 3, 0)
    assert corpus.X_train.shape[1] == 1
    assert corpus.X_train.sum(axis=1).min() > 0 and corpus.X_test.sum(axis=1).min() > 0


def test_header_and_markup_are_removed():
    assert text_corpora.page_text("Server: x\n\n<b>bold</b> &amp; free").split() == ["bold", "&", "free"]
    assert text_corpora.after_header("no header") == "no header"


def test_tf_idf_rows_have_length_one():
    counts = made_up_texts().counts
    corpus = text_corpora.as_tf_idf(Corpus("", counts, np.zeros(150), counts[:10], np.zeros(10)))
    lengths = np.sqrt(corpus.X_test.multiply(corpus.X_test).sum(axis=1))
    assert lengths == pytest.approx(np.ones(10))


# --- panels -----------------------------------------------------------------------------------------


def test_every_panel_has_its_lines(points):
    assert {"a", "b", "c", "d", "shift", "steps"} <= set(points["panel"])
    assert set(points[points["panel"] == "b"]["line"]) == {"0.9", "0.7", "0.4", "0.1"}
    assert ada_figure.penalties(points) == ["1", "0.1", "0.01", "0.001"]


def test_curves_of_different_penalties_are_shifted_copies(points):
    posterior, accuracy = ada_figure.largest_shift(points)
    assert posterior < 5e-3
    assert accuracy < 5.0  # one or two samples of thirty


def test_training_loss_decreases_at_a_fixed_temperature(points):
    losses = ada_figure.per_split(points, "steps", "training loss").to_numpy()
    assert (np.diff(losses, axis=1) <= 1e-9).all()


def test_measuring_again_gives_the_same_values_except_times(points):
    again = pd.DataFrame(measure(made_up_texts(), 20, "counts", SHORT, 0))
    timeless = again["panel"] != "c"
    assert np.array_equal(again[timeless]["value"], points[points["split"] == 0][timeless]["value"])


def test_the_run_prints_draws_and_resumes(tmp_path, capsys):
    figure = Figure("ada_webkb", "WebKB", made_up_texts, 20, SHORT)
    options = parse(["ada-webkb", "--results", str(tmp_path), "--splits", "2", "--resume"])
    ada_figure.run(figure, options)
    text = capsys.readouterr().out
    assert "| LDA |" in text and "74.3" in text and "penalty x temperature" in text and "Early stopping" in text
    assert (tmp_path / "ada_webkb.png").exists()
    ada_figure.run(figure, options)
    assert "took" not in capsys.readouterr().out


def test_missing_texts_are_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ANNEALED_DATA", str(tmp_path))
    ada_webkb.run(parse(["ada-webkb", "--results", str(tmp_path)]))
    assert "skipped" in capsys.readouterr().out


def test_products_of_penalty_and_temperature_span_all_penalties():
    span = dataclasses.replace(SHORT, penalties=(1.0, 0.1), per_penalty=5)
    temperatures = span.product_temperatures
    assert temperatures[5] == pytest.approx(0.1)
    assert temperatures[[0, -1]] == pytest.approx([1.0, 0.01])
