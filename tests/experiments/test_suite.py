"""The suite on made-up tables: measured once, resumed, scores compared with slow oracles, summarized from the file."""

import csv

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.metrics import brier_score_loss, log_loss

pytest.importorskip("matplotlib")

from annealed.datasets import make_gaussian_classes
from experiments import suite, suite_methods, suite_summary
from experiments.__main__ import main
from experiments.rank_figure import critical_difference, groups
from experiments.suite import FILE, Task
from experiments.suite_methods import METHODS, Method, NotTried

QUICK = ["AnnealedLogisticRegression", "LDA", "NB"]


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """Two tables: Gaussian classes without a split, and a sparse one with a canonical split."""
    folder = tmp_path / "data" / "suite"
    folder.mkdir(parents=True)
    dense = make_gaussian_classes(120, 4, 3, random_state=0)
    np.savez(folder / "dense.npz", X=dense.X, y=dense.y, classes=np.array(["a", "b", "c"]))
    X = sparse.csr_array(np.where(np.abs(dense.X) > 0.5, dense.X, 0))
    parts = {"data": X.data, "indices": X.indices.astype(np.int64), "indptr": X.indptr, "shape": X.shape}
    split = {"train": np.arange(80), "test": np.arange(80, 120)}
    np.savez(folder / "sparse.npz", **parts, y=dense.y, classes=np.array(["a", "b", "c"]), **split)
    monkeypatch.setenv("ANNEALED_DATA", str(tmp_path / "data"))
    suite.split_rows.cache_clear()
    yield tmp_path
    suite.split_rows.cache_clear()


def rows_of(folder):
    with (folder / FILE).open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_fit_is_one_row_and_is_measured_once(data_folder, capsys):
    results = data_folder / "results"
    arguments = ["suite", "--results", str(results), "--splits", "2", "--methods", *QUICK]
    assert main(arguments) == 0
    first = rows_of(results)
    assert len(first) == 3 * (2 + 1)  # two random splits, one canonical
    assert {row["failure"] for row in first} == {""}
    assert main([*arguments, "--jobs", "1"]) == 0
    assert rows_of(results) == first
    assert main([*arguments, "--again", "--tables", "dense"]) == 0
    again = rows_of(results)
    assert len(again) == len(first) + 6
    assert len(suite_summary.read_rows(results / FILE)) == len(first)
    assert (results / suite_summary.TEXT).exists() and (results / suite_summary.FIGURE).exists()
    assert "minutes left" in capsys.readouterr().out


@pytest.mark.parametrize("n_lost", [1, 30, 10_000])
def test_a_row_that_was_cut_off_is_measured_again(data_folder, n_lost):
    results = data_folder / "results"
    arguments = ["suite", "--results", str(results), "--tables", "sparse", "--methods", "LDA", "NB"]
    assert main(arguments) == 0
    first = rows_of(results)
    written = (results / FILE).read_bytes()
    (results / FILE).write_bytes(written[:-n_lost])
    assert main(arguments) == 0
    seconds = ("fit_seconds", "cpu_seconds")
    assert [{**row, **dict.fromkeys(seconds)} for row in rows_of(results)] == [
        {**row, **dict.fromkeys(seconds)} for row in first
    ]


def test_files_with_other_columns_and_missing_files_are_errors(data_folder):
    with pytest.raises(SystemExit, match="run the suite without --summary"):
        main(["suite", "--results", str(data_folder), "--summary"])
    (data_folder / FILE).write_text("table,method\niris,LDA\n")
    with pytest.raises(SystemExit, match="other columns"):
        main(["suite", "--results", str(data_folder)])
    assert (data_folder / FILE).read_text() == "table,method\niris,LDA\n"


def test_measuring_again_gives_the_same_scores(data_folder):
    numbers = ("error", "log_loss", "brier", "calibration")
    first, second = (suite.measure(Task("dense", 1, "AnnealedLogisticRegression")) for _ in range(2))
    assert [first[name] for name in numbers] == [second[name] for name in numbers]


def test_the_canonical_split_is_kept(data_folder):
    row = suite.measure(Task("sparse", 0, "LR"))
    assert (row["n_train"], row["n_available"], row["n_test"]) == (80, 80, 40)


def test_a_limit_of_training_samples_is_recorded_and_the_same_for_all_methods(data_folder, monkeypatch):
    monkeypatch.setattr(suite, "MOST_ROWS", 50)
    rows = [suite.measure(Task("sparse", 0, method)) for method in QUICK]
    assert {(row["n_train"], row["n_available"]) for row in rows} == {(50, 80)}


def test_every_method_fits_a_small_table_and_a_sparse_one(data_folder):
    pytest.importorskip(
        "sklearn", minversion="1.8", reason="QDA and LogisticRegressionCV have parameters that 1.7 has not"
    )
    for method in METHODS:
        for table in ("dense", "sparse"):
            assert "failure" not in suite.measure(Task(table, 0, method)), (method, table)


def test_a_failure_is_recorded_as_a_row(data_folder, monkeypatch):
    monkeypatch.setitem(METHODS, "narrow", Method("narrow", METHODS["LDA"].make, most_columns=3))
    assert suite.measure(Task("dense", 0, "narrow"))["failure"].startswith(NotTried.__name__)


def test_expensive_tables_come_first_and_each_starts_with_its_slowest_method(data_folder):
    tasks = [task for task, _ in suite.planned(["sparse", "dense"], ["LR", "SVC"], 2, {Task("dense", 0, "SVC")})]
    assert tasks == [
        Task("dense", 1, "SVC"),
        Task("dense", 0, "LR"),
        Task("dense", 1, "LR"),
        Task("sparse", 0, "SVC"),
        Task("sparse", 0, "LR"),
    ]


def test_a_missing_folder_is_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ANNEALED_DATA", str(tmp_path))
    main(["suite", "--results", str(tmp_path)])
    assert "skipped" in capsys.readouterr().out


def test_unknown_methods_are_refused():
    with pytest.raises(SystemExit, match="no method oracle"):
        suite.chosen(["oracle"], list(METHODS), "method")


# --- scores -----------------------------------------------------------------------------------------


def test_scores_equal_those_of_scikit_learn():
    generator = np.random.default_rng(0)
    posterior = generator.dirichlet(np.ones(3), size=50)
    y = generator.integers(3, size=50)
    scores = suite.scores_of(posterior, np.arange(3), y)
    assert float(scores["log_loss"]) == pytest.approx(log_loss(y, posterior), rel=1e-4)
    assert float(scores["brier"]) == pytest.approx(brier_score_loss(y, posterior, scale_by_half=False), rel=1e-4)
    assert float(scores["error"]) == np.mean(posterior.argmax(axis=1) != y)


def test_a_class_missing_from_training_has_the_smallest_probability():
    scores = suite.scores_of(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0, 2]), np.array([0, 1]))
    assert float(scores["error"]) == 0.5
    assert float(scores["log_loss"]) == pytest.approx(-np.log(suite.SMALLEST_PROBABILITY) / 2, rel=1e-4)


def test_calibration_error_by_hand():
    confidence, is_right = np.array([0.99, 0.99, 0.5, 0.5]), np.array([True, False, True, True])
    assert suite.calibration_error(confidence, is_right) == pytest.approx((2 * 0.49 + 2 * 0.5) / 4)


def test_nan_in_a_posterior_is_a_failure():
    with pytest.raises(FloatingPointError):
        suite.scores_of(np.array([[np.nan, 1.0]]), np.arange(2), np.array([0]))


# --- the summary ------------------------------------------------------------------------------------


def made_up(log_losses, failures=()):
    """Results from {table: {method: log-loss}}; errors are a tenth of the log-loss, every fit takes a second."""
    lines = []
    for table, losses in log_losses.items():
        for method, loss in losses.items():
            is_failed = (table, method) in failures
            numbers = dict.fromkeys(suite_summary.MEASURES, np.nan if is_failed else loss)
            numbers |= {"error": np.nan if is_failed else loss / 10, "cpu_seconds": 1.0, "fit_seconds": 1.0}
            traits = {"n_train": 70, "n_features": 5, "failure": "broke" if is_failed else "", "warnings": ""}
            lines.append({"table": table, "split": 0, "method": method, **numbers, **traits})
    return pd.DataFrame(lines)


ALL_BETTER = {"AnnealedLogisticRegression": 0.1, "AnnealedLDA": 0.2, "LRCV": 0.3, "LDA": 0.4, "LDA shrunk": 0.5}


def test_the_best_method_meets_all_targets_except_that_of_time():
    targets = suite_summary.targets(suite_summary.Tables(made_up({"one": ALL_BETTER, "two": ALL_BETTER})))
    assert [is_met for is_met, _ in targets] == [True, True, True, True, False, True, True]


def test_the_worst_method_meets_no_target():
    worst = dict(zip(ALL_BETTER, [0.5, 0.45, 0.1, 0.2, 0.3], strict=True))
    rows = made_up({"one": worst, "two": worst}, failures=[("one", "AnnealedLDA")])
    targets = suite_summary.targets(suite_summary.Tables(rows))
    assert not any(is_met for is_met, _ in targets)


def test_a_failure_ranks_last_and_loses():
    tables = suite_summary.Tables(made_up({"one": ALL_BETTER}, failures=[("one", "AnnealedLogisticRegression")]))
    assert tables.ranks("log_loss").loc["one", "AnnealedLogisticRegression"] == 5
    assert suite_summary.duel(tables.ratio("AnnealedLogisticRegression", "LRCV")) == (0, 0, 1)
    assert suite_summary.duel(tables.ratio("LRCV", "AnnealedLogisticRegression")) == (1, 0, 0)
    assert "it failed" in "\n".join(suite_summary.loss_lines(tables))


def test_means_of_the_same_numbers_share_a_rank_whatever_their_order():
    rows = made_up({"one": ALL_BETTER})
    splits = pd.concat([rows.assign(split=number) for number in range(3)], ignore_index=True)
    for method, losses in (("LRCV", [0.3, 0.2, 0.1]), ("LDA", [0.1, 0.2, 0.3])):
        splits.loc[splits["method"] == method, "log_loss"] = losses
    ranks = suite_summary.Tables(splits).ranks("log_loss", ["LRCV", "LDA"])
    assert ranks.loc["one"].tolist() == [1.5, 1.5]


def test_incomplete_tables_do_not_count():
    rows = made_up({"one": ALL_BETTER, "two": {"LDA": 0.1}})
    assert suite_summary.Tables(rows).names == ["one"]


def test_small_differences_are_ties():
    assert suite_summary.duel(pd.Series([0.97, 0.99, 1.0, 1.019, 1.03])) == (1, 3, 1)


def test_every_method_is_ours_or_a_peer():
    assert {method.name for method in suite_methods.OURS if not method.is_ours} == set()
    assert {method.name for method in suite_methods.PEERS if method.is_ours} == set()


# --- the figure -------------------------------------------------------------------------------------


def test_critical_difference_is_the_published_one():
    """Demsar (2006), table 5: q = 2.569 for four methods; his example with 14 sets has 1.25."""
    assert critical_difference(4, 14) == pytest.approx(2.569 * np.sqrt(4 * 5 / (6 * 14)), rel=1e-3)


def test_groups_are_the_longest_runs():
    assert groups(np.array([1.0, 1.5, 2.1, 4.0]), 0.7) == [(0, 1), (1, 2)]
    assert groups(np.array([1.0, 2.0, 3.0]), 5.0) == [(0, 2)]
    assert groups(np.array([1.0, 2.0, 3.0]), 0.5) == []


def test_results_cannot_go_into_a_file(tmp_path, capsys):
    (tmp_path / "rows.csv").touch()
    with pytest.raises(SystemExit):
        main(["suite", "--results", str(tmp_path / "rows.csv")])
    assert "--results must be a folder. Got the file" in capsys.readouterr().err
