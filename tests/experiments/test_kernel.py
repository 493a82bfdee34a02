"""The comparison of the kernel classifier on small tables: measured once, resumed, limited, and summarized."""

import csv

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.svm import SVC

pytest.importorskip("matplotlib")
pytest.importorskip("resource", reason="the limit of CPU time needs POSIX")

from experiments import kernel, kernel_methods, kernel_summary, suite_summary
from experiments.__main__ import main
from experiments.kernel_methods import METHODS, KernelMethod, NotTried
from experiments.suite import Task

QUICK = ["linear", "knn"]


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """Iris, and a sparse table with the same classes."""
    folder = tmp_path / "data" / "suite"
    folder.mkdir(parents=True)
    X, y = load_iris(return_X_y=True)
    classes = np.array(["a", "b", "c"])
    np.savez(folder / "flowers.npz", X=X, y=y, classes=classes)
    parts = sparse.csr_array(np.where(X > 2, X, 0))
    arrays = {name: getattr(parts, name) for name in ("data", "indices", "indptr", "shape")}
    np.savez(folder / "sparse.npz", **arrays, y=y, classes=classes)
    monkeypatch.setenv("ANNEALED_DATA", str(tmp_path / "data"))
    kernel.split_rows.cache_clear()
    yield tmp_path
    kernel.split_rows.cache_clear()


def rows_of(folder):
    with (folder / kernel.FILE).open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_fit_is_one_row_and_is_measured_once(data_folder, capsys):
    arguments = ["kernel", "--results", str(data_folder), "--tables", "flowers", "--splits", "2", "--methods", *QUICK]
    assert main(arguments) == 0
    first = rows_of(data_folder)
    assert [(row["method"], row["split"]) for row in first] == [(name, split) for split in "01" for name in QUICK]
    assert {(row["failure"], row["n_train"], row["n_test"]) for row in first} == {("", "105", "45")}
    assert all(0 < float(row["log_loss"]) < np.log(3) and float(row["cpu_seconds"]) > 0 for row in first)
    assert main(arguments) == 0
    assert rows_of(data_folder) == first
    printed = capsys.readouterr().out
    assert "1 tables, 2 methods, 4 fits" in printed
    assert (data_folder / kernel_summary.TEXT).read_text() in printed


def test_a_fit_beyond_the_limit_of_time_is_a_row_with_this_reason(data_folder, monkeypatch):
    endless = KernelMethod("forest", lambda: RandomForestClassifier(10**6))
    monkeypatch.setitem(METHODS, "forest", endless)
    row = kernel.measure(Task("flowers", 0, "forest"), 0.1)
    assert row["failure"] == "Limit: more than 0.1 CPU seconds"
    assert "log_loss" not in row


@pytest.mark.parametrize("method", ["potts", "gpc", "boosting"])
def test_sparse_tables_are_not_tried_by_methods_that_do_not_support_them(data_folder, method):
    assert kernel.measure(Task("sparse", 0, method), 1)["failure"] == "NotTried: it does not support sparse X"


def test_a_gaussian_process_is_not_tried_on_many_samples():
    with pytest.raises(NotTried, match="1000 training samples"):
        METHODS["gpc"].estimator(np.zeros((1001, 2)))


def test_an_exception_of_a_method_is_its_result():
    X, y = np.zeros((6, 2)), np.zeros(6, dtype=int)
    assert kernel.fit_and_score(SVC(), (X, X, y, y), np.inf)["failure"].startswith("ValueError: The number of classes")


@pytest.mark.parametrize("store", [np.asarray, sparse.csr_array])
def test_the_scale_of_gamma_is_that_of_svc(store):
    X, y = load_iris(return_X_y=True)
    assert kernel_methods.scale_of(store(X)) == pytest.approx(SVC().fit(X, y)._gamma)


def test_large_tables_are_left_out(data_folder, monkeypatch, capsys):
    monkeypatch.setattr(kernel, "MOST_ROWS", 149)
    assert kernel.small_tables(["flowers"]) == []
    assert "flowers (150)" in capsys.readouterr().out


def test_a_missing_folder_is_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ANNEALED_DATA", str(tmp_path))
    main(["kernel", "--results", str(tmp_path)])
    assert "skipped" in capsys.readouterr().out


# --- the summary ------------------------------------------------------------------------------------


def made_up(log_losses, failures):
    """Results from {table: {method: log-loss}}; its number is also that of the seconds, and the error is a tenth."""
    lines = []
    for table, losses in log_losses.items():
        for method, loss in losses.items():
            failure = failures.get((table, method), "")
            numbers = dict.fromkeys(suite_summary.MEASURES, np.nan if failure else loss)
            numbers |= {"error": np.nan if failure else loss / 10, "cpu_seconds": loss}
            path = dict.fromkeys(kernel.OF_PATH, "0" if method == "kernel" and not failure else "")
            lines.append({"table": table, "split": 0, "method": method, **numbers, **path, "failure": failure})
    return pd.DataFrame(lines).assign(warnings="")


LOSSES = {"kernel": 0.1, "svc_grid": 0.3, "gpc": 0.05}


def tables_of(failures):
    return suite_summary.Tables(made_up({"one": LOSSES, "two": LOSSES, "three": LOSSES}, failures), METHODS)


def test_ranks_over_each_set_of_tables_and_targets():
    tables = tables_of({("one", "gpc"): "NotTried: large", ("two", "gpc"): "Limit: long"})
    assert kernel_summary.ended(tables, ["kernel", "gpc"]) == ["three"]
    lines = kernel_summary.method_lines(tables)
    assert [line for line in lines if line.startswith("| kernel")] == [
        "| kernel | 2.00 | 1.00 | 1.00 | 1.00 | 1.33 | 1.00 | 0.3 | 3 |"
    ]
    assert [is_met for is_met, _ in kernel_summary.targets(tables)] == [False, True, True, True, True]
    assert "| one | **0.1000** | 0.3000 | not tried |" in kernel_summary.loss_lines(tables)
    assert "| two | **0.1000** | 0.3000 | limit |" in kernel_summary.loss_lines(tables)


def test_a_failed_fit_and_a_temperature_that_did_not_converge_miss_the_target():
    failed = tables_of({("one", "kernel"): "ValueError: broke"})
    assert not kernel_summary.targets(failed)[-1][0]
    rough = tables_of({})
    rough.rows.loc[rough.rows["method"] == "kernel", "n_unconverged"] = "1"
    assert not kernel_summary.targets(rough)[-1][0]


def test_the_path_is_recorded():
    class Path:
        converged = np.array([True, False, True])
        certificate = np.array([1e-6, np.nan, 1e-4])

    class Model:
        path_, gamma_, n_landmarks_, n_support_ = Path(), 0.25, 50, np.array([10, 20])

    traits = kernel.path_traits(Model())
    assert traits == {
        **{"gamma": "0.25", "n_landmarks": "50", "n_support": "30", "n_temperatures": "3"},
        **{"n_unconverged": "1", "n_uncertified": "1", "certificate": "0.0001"},
    }
