"""Table 2 of Keysers and Ney: the published numbers, the comparison, and the cells that involve no choice."""

from itertools import product

import numpy as np
import pytest
from scipy import sparse
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import euclidean_distances
from sklearn.neighbors import KNeighborsClassifier

pytest.importorskip("matplotlib")

from annealed import MELDA, PooledGaussian
from annealed.datasets import make_gaussian_classes
from experiments import melda_table2, wide_lda
from experiments.__main__ import main, parse
from experiments.corpora import READERS, TABLE1, Corpus, load_corpus
from experiments.melda_table2 import ANNEALED, CLASSIFIERS, PUBLISHED, REDUCTIONS, read_cells
from experiments.registry import EXPERIMENTS

PLACES = list(product((*REDUCTIONS, ANNEALED), CLASSIFIERS, TABLE1))


@pytest.fixture
def published():
    return read_cells(PUBLISHED)


@pytest.fixture
def equal_to_the_paper(published):
    """Made-up results: those of the paper, and a block of ours as good as its MELDA or LDA."""
    block = {
        (ANNEALED, classifier, name): min(published["LDA", classifier, name], published["MELDA", classifier, name])
        for classifier, name in product(CLASSIFIERS, TABLE1)
    }
    return published | block


# --- the published numbers --------------------------------------------------------------------------


def test_every_cell_has_a_published_number(published):
    assert set(published) == set(product(REDUCTIONS, CLASSIFIERS, TABLE1))


@pytest.mark.parametrize(
    ("reduction", "classifier", "name", "error"),
    [
        ("NONE", "SG", "MONK", 28.5),
        ("NONE", "NN", "DNA2", 33.1),
        ("NONE", "ME", "LETTER2", 9.5),
        ("LDA", "SG", "DNA2", 52.4),
        ("LDA", "NN", "USPS2", 22.9),
        ("LDA", "ME", "DNA", 4.4),
        ("MELDA", "SG", "LETTER2", 42.0),
        ("MELDA", "NN", "USPS", 14.7),
        ("MELDA", "ME", "USPS2", 7.2),
    ],
)
def test_cells_are_as_printed(published, reduction, classifier, name, error):
    assert published[reduction, classifier, name] == error


def test_melda_gives_the_posteriors_of_its_log_linear_model(published):
    """As in the paper: the ME rows without reduction and after MELDA are the same."""
    assert all(published["NONE", "ME", name] == published["MELDA", "ME", name] for name in TABLE1)


# --- the comparison ---------------------------------------------------------------------------------


def test_results_equal_to_the_paper_are_not_marked(equal_to_the_paper, published):
    text = "\n".join(melda_table2.table_lines(equal_to_the_paper, published))
    assert text.count("*") == 1  # the legend
    assert "in 21 of 21 cells with LDA as published, in 21 with LDA as measured here" in text
    assert all(name in text for name in TABLE1)


@pytest.mark.parametrize(
    ("reduction", "difference", "is_reproduced"),
    [
        ("NONE", 1.0, True),
        ("NONE", 1.1, False),
        ("LDA", -1.1, False),
        ("MELDA", 1.5, True),
        ("MELDA", 1.6, False),
        ("MELDA", -9.0, True),
    ],
)
def test_a_cell_is_reproduced_within_a_tolerance_or_if_melda_is_better(reduction, difference, is_reproduced):
    assert melda_table2.is_reproduced(20.0 + difference, 20.0, reduction) == is_reproduced


def test_a_missed_cell_is_marked_and_explained(equal_to_the_paper, published, monkeypatch):
    place = ("LDA", "NN", "USPS")
    monkeypatch.setitem(melda_table2.REMARKS, place, "the moon was full")
    text = "\n".join(melda_table2.table_lines(equal_to_the_paper | {place: 15.04}, published))
    assert "15.0 (10.9)*" in text
    assert "LDA NN USPS: the moon was full" in text
    unexplained = ("NONE", "NN", "USPS")
    text = "\n".join(melda_table2.table_lines(equal_to_the_paper | {unexplained: 15.04}, published))
    assert "NONE NN USPS: unexplained" in text


def test_a_missed_cell_of_the_annealed_block_is_marked_and_explained(equal_to_the_paper, published, monkeypatch):
    place = (ANNEALED, "NN", "USPS")
    monkeypatch.setitem(melda_table2.REMARKS, place, "the moon was new")
    text = "\n".join(melda_table2.table_lines(equal_to_the_paper | {place: 15.04}, published))
    assert "15.0 (10.9)*" in text
    assert f"{ANNEALED} NN USPS: the moon was new" in text


def test_wins_compare_cells_as_printed(equal_to_the_paper, published):
    place = (ANNEALED, "NN", "DNA")
    goal = equal_to_the_paper[place]
    assert melda_table2.wins(equal_to_the_paper | {place: goal + 0.04}, published, published) == 21
    assert melda_table2.wins(equal_to_the_paper | {place: goal + 0.06}, published, published) == 20


def test_every_remark_belongs_to_a_cell():
    assert set(melda_table2.REMARKS) <= set(PLACES)


# --- a run ------------------------------------------------------------------------------------------


def made_corpus(name="MONK"):
    made = make_gaussian_classes(90, 4, 3, separation=4.0, random_state=0)
    return Corpus(name, made.X[:60], made.y[:60], made.X[60:], made.y[60:])


def test_every_cell_of_a_corpus_is_measured():
    cells = melda_table2.measure(made_corpus())
    assert set(cells) == {place for place in PLACES if place[2] == "MONK"}
    assert all(0 <= error <= 50 for error in cells.values())
    assert cells["NONE", "ME", "MONK"] == cells["MELDA", "ME", "MONK"]


@pytest.mark.parametrize("n_classes", [2, 4])
def test_literal_projection_is_that_of_a_literal_fit(n_classes):
    made = make_gaussian_classes(60, 5, n_classes, separation=3.0, random_state=0)
    annealed = MELDA(penalty_scaling="standardize").fit(made.X, made.y)
    classifier = annealed.classifier_
    literal = MELDA.as_published(temperature=classifier.temperature_).fit(made.X, made.y)
    np.testing.assert_allclose(
        melda_table2.literal_projection(annealed)(made.X),
        classifier.posterior_scale_
        * literal.transform(made.X),  # nearest neighbour and Gaussian do not depend on a factor
        rtol=1e-3,
        atol=1e-3,
    )


def test_folds_choose_the_priors_of_our_gaussian():
    generator = np.random.default_rng(0)
    y = np.repeat([0, 1], [900, 100])
    X = generator.normal(size=(1000, 1)) + y[:, None]
    assert melda_table2.gaussian_of_chosen_prior().fit(X, y).best_params_ == {"priors": "empirical"}
    apart = X + 100 * y[:, None]  # no errors with either priors
    assert melda_table2.gaussian_of_chosen_prior().fit(apart, y).best_params_ == {"priors": "equal"}


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_the_span_of_rows_keeps_their_distances(make):
    made = make_gaussian_classes(8, 20, 2, random_state=0)
    rank_five = made.X[:, :5] @ made.X[:5]
    corpus = Corpus("made", make(rank_five[:6]), made.y[:6], make(rank_five[6:]), made.y[6:])
    spanned = wide_lda.in_row_span(corpus)
    assert spanned.X_train.shape == (6, 5)
    np.testing.assert_allclose(
        euclidean_distances(spanned.X_train, spanned.X_test),
        euclidean_distances(rank_five[:6], rank_five[6:]),
        rtol=1e-6,
    )


def test_the_span_of_means_holds_all_directions_of_lda():
    corpus = made_corpus()
    short = wide_lda.in_mean_span(corpus)
    assert short.X_train.shape == (60, 2)
    direct, shorter = (
        each.mapped(LinearDiscriminantAnalysis().fit(each.X_train, each.y_train).transform) for each in (corpus, short)
    )
    signs = np.sign(np.sum(direct.X_test * shorter.X_test, axis=0))
    np.testing.assert_allclose(shorter.X_test * signs, direct.X_test, rtol=1e-6, atol=1e-8)


def test_cells_written_to_a_file_are_read_back(tmp_path, equal_to_the_paper):
    melda_table2.write_cells(equal_to_the_paper, tmp_path / "new" / "cells.csv")
    assert read_cells(tmp_path / "new" / "cells.csv") == equal_to_the_paper


def test_an_interrupted_write_leaves_no_file(tmp_path, equal_to_the_paper):
    """Otherwise `--resume` would read an incomplete file."""
    file = tmp_path / "cells.csv"
    with pytest.raises(ValueError, match="Unknown format code"):
        melda_table2.write_cells({place: "no number" for place in equal_to_the_paper}, file)
    assert not file.exists()


def test_a_run_prints_stores_draws_and_resumes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(melda_table2, "load_corpus", made_corpus)
    arguments = ["melda-table2", "--corpora", "MONK", "DNA", "--results", str(tmp_path)]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert ANNEALED in printed and "of 6 cells" in printed
    assert (tmp_path / melda_table2.FIGURE).stat().st_size > 0
    assert len(read_cells(tmp_path / "melda_table2.csv")) == 2 * 12

    monkeypatch.setattr(melda_table2, "measure", None)
    main([*arguments, "--resume"])
    assert "DNA: measured before" in capsys.readouterr().out


def test_absent_data_are_skipped_with_their_reason(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ANNEALED_DATA", str(tmp_path))
    assert main(["melda-table2", "--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("skipped, there is no") == len(TABLE1)


def test_unknown_names_are_errors():
    with pytest.raises(SystemExit, match="there is no corpus IRIS. Choose among: MONK,"):
        melda_table2.chosen_corpora(["IRIS"])
    assert melda_table2.chosen_corpora(None) == list(TABLE1) == list(READERS)
    with pytest.raises(SystemExit):
        parse(["no-such-table"])


def test_every_experiment_has_title_options_and_run():
    assert all(module.TITLE and module.OPTIONS and callable(module.run) for module in EXPERIMENTS.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["melda-table2", "--tables", "DNA"], "melda-table2 takes no --tables. It takes --corpora, --resume."),
        (["potts-suite", "--jobs", "2"], "potts-suite takes no --jobs."),
        (["suite", "--corpora", "iris"], "suite takes no --corpora."),
        (["suite", "--wheel", "keel.whl"], "suite takes no --wheel."),
        (["ada-webkb", "--splits", "0"], "--splits must be at least 1. Got 0."),
        (["suite", "--jobs", "0"], "--jobs must not be 0."),
    ],
)
def test_options_without_effect_are_errors(arguments, message, capsys):
    with pytest.raises(SystemExit):
        parse(arguments)
    assert message in capsys.readouterr().err


def test_options_of_an_experiment_are_accepted():
    assert parse(["keel", "--tables", "iris", "--resume", "--jobs", "2", "--wheel", "keel.whl"]).jobs == 2
    assert parse(["ada-newsgroups", "--splits", "2"]).splits == 2


# --- cells that involve no choice: real data, skipped if missing ------------------------------------


def load(name):
    try:
        return load_corpus(name)
    except OSError as error:
        pytest.skip(str(error))


def printed_error(classifier, corpus):
    return round(100 * np.mean(melda_table2.prediction(classifier, corpus) != corpus.y_test), 1)


@pytest.mark.parametrize("name", ["MONK", "MONK2", "DNA", "USPS"])
def test_unreduced_single_gaussian_and_neighbour_match_to_the_digit(name, published):
    corpus = load(name)
    assert printed_error(PooledGaussian(priors="equal"), corpus) == published["NONE", "SG", name]
    assert printed_error(KNeighborsClassifier(1, algorithm="brute"), corpus) == published["NONE", "NN", name]


@pytest.mark.slow
def test_unreduced_single_gaussian_of_usps2_matches_to_the_digit(published):
    corpus = load("USPS2")
    assert printed_error(PooledGaussian(priors="equal"), corpus) == published["NONE", "SG", "USPS2"]


def test_lda_matches_to_the_digit_where_columns_are_independent(published):
    dna, usps = load("DNA"), load("USPS")
    dna, usps = (
        each.mapped(LinearDiscriminantAnalysis().fit(each.X_train, each.y_train).transform) for each in (dna, usps)
    )
    assert printed_error(PooledGaussian(priors="equal"), dna) == published["LDA", "SG", "DNA"]
    assert printed_error(KNeighborsClassifier(1, algorithm="brute"), dna) == published["LDA", "NN", "DNA"]
    assert printed_error(PooledGaussian(priors="equal"), usps) == published["LDA", "SG", "USPS"]
