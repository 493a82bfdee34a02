"""The code of the benchmarks on tiny problems: loaders, certificates, interleaving, results, the page."""

import csv
from pathlib import Path
from threading import Thread
from time import perf_counter
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

pytest.importorskip("pandas")
pytest.importorskip("matplotlib")

from annealed import AnnealedLogisticRegression
from annealed.datasets import make_gaussian_classes
from benchmarks import generators, ours, population, population_report, rows, runner, table
from benchmarks.__main__ import parse
from benchmarks.contract import Anchor, Method, Skipped, Table
from benchmarks.machine import Machine, measure_machine
from benchmarks.measure import Estimate, Timing, interleaved, peak_extra_bytes, settle, timed
from benchmarks.peers import coordinate_descent, lda, logistic_regression, logistic_regression_cv
from benchmarks.peers.logistic_regression import in_raw_columns, one_row_per_class
from benchmarks.problems import PROBLEMS, QUICK, dense_ill_conditioned, scaling
from benchmarks.quality import Gap, PenalizedLikelihood, Yardstick

FOLDER = Path(runner.__file__).parent
MACHINE = Machine(threads=1, gemm_gflops=10.0, bandwidth_gbs=10.0)


def made_table(n_classes=3, n_rows=60, n_features=4, **settings):
    made = make_gaussian_classes(n_rows, n_features, n_classes, separation=2.0, random_state=0)
    return Table("made", made.X * [1, 10, 100, 1000][:n_features] + 5, made.y, **settings)


def sparse_table():
    made = make_gaussian_classes(60, 4, 3, separation=2.0, random_state=0)
    return Table("sparse", sparse.csr_array(np.where(made.X > 0.2, made.X, 0)), made.y)


# --- problems ---------------------------------------------------------------------------------------


def test_every_module_of_problems_is_listed_and_has_a_title():
    files = {path.stem for path in (FOLDER / "problems").glob("*.py")} - {"__init__"}
    assert files == set(PROBLEMS)
    assert all(module.TITLE and callable(module.tables) for module in PROBLEMS.values())
    assert set(QUICK) == {"small_tables", "small_text", "genes"}


def test_made_problems_have_the_requested_size():
    (dense,) = dense_ill_conditioned.tables(n_rows=80, n_features=5, n_classes=3)
    assert dense.shape == (80, 5, 3)
    assert [made.shape for made in scaling.tables(sizes=(40, 60), n_features=3, n_classes=2)] == [
        (40, 3, 2),
        (60, 3, 2),
    ]


def test_tables_on_disk_are_read(tmp_path, monkeypatch):
    suite = tmp_path / "suite"
    suite.mkdir()
    made = made_table()
    classes = np.array(["a", "b", "c"])
    np.savez(suite / "gene_made.npz", X=made.X, y=made.y, classes=classes)
    np.savez(suite / "mnist.npz", X=np.uint8(made.X % 256), y=made.y, classes=classes, train=np.arange(50))
    text = sparse_table().X
    parts = {"data": text.data, "indices": text.indices, "indptr": text.indptr, "shape": text.shape}
    for name in ("text_pcmac", "text_relathe"):
        np.savez(suite / f"{name}.npz", **parts, y=made.y, classes=classes)
    monkeypatch.setenv("ANNEALED_DATA", str(tmp_path))

    read = {found.name: found for name in ("genes", "mnist", "small_text") for found in PROBLEMS[name].tables()}
    assert read["gene_made"].shape == (60, 4, 3)
    assert read["mnist"].shape == (50, 4, 3)
    assert read["mnist"].X.dtype == np.float64
    assert read["text_pcmac"].is_sparse and read["text_relathe"].is_sparse


@pytest.mark.parametrize("name", ["genes", "mnist", "newsgroups", "small_text"])
def test_missing_data_are_skipped_with_the_reason(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ANNEALED_DATA", str(tmp_path))
    runner.run_problem(name, options_of(tmp_path), MACHINE, "now")
    assert "skipped: " in capsys.readouterr().out


def test_names_of_problems_are_checked():
    assert runner.chosen_problems([]) == QUICK
    assert runner.chosen_problems(["all"]) == list(PROBLEMS)
    with pytest.raises(SystemExit, match="there is no problem iris"):
        runner.chosen_problems(["iris"])


def test_a_run_on_part_of_the_samples_is_a_rehearsal():
    part = made_table().first_rows(20)
    assert part.is_rehearsal
    assert part.X.shape == (20, 4)


# --- quality ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty_scaling", ["standardize", "none"])
@pytest.mark.parametrize("made", [made_table(3), made_table(2), sparse_table()], ids=["three", "two", "sparse"])
def test_certificate_agrees_with_a_known_optimum(made, penalty_scaling):
    """At scikit-learn's optimum at a tight tolerance it vanishes; elsewhere it bounds the excess."""
    temperature = 0.05
    X = made.columns_in(penalty_scaling)
    peer = LogisticRegression(C=made.C_at(temperature), tol=1e-12, max_iter=10_000, solver="newton-cg").fit(X, made.y)
    coef, intercept = in_raw_columns(made, penalty_scaling, *one_row_per_class(peer.coef_, peer.intercept_))
    likelihood = PenalizedLikelihood(made.X, made.y, penalty_scaling)
    best = likelihood.gap(coef, intercept, temperature)
    assert best.relative < 1e-10
    assert np.isclose(best.value, likelihood.value(coef, intercept, temperature), rtol=1e-14)

    generator = np.random.RandomState(0)
    for size in (1e-3, 1e-2, 1e-1):
        moved = coef + size * generator.standard_normal(coef.shape) / likelihood.spread
        shifted = intercept + size * generator.standard_normal(intercept.shape)
        gap = likelihood.gap(moved, shifted, temperature)
        excess = gap.value - best.value
        assert 0 < excess <= gap.bound * (1 + 1e-9)
        assert gap.relative == np.inf or excess / best.value <= gap.relative * (1 + 1e-9)
    only_shifted = likelihood.gap(coef, intercept + np.arange(len(intercept)), temperature)
    assert np.isclose(only_shifted.bound, only_shifted.value - best.value, rtol=1e-6)


@pytest.mark.parametrize(("penalty_scaling", "power"), [("half-whiten", 0.25), ("whiten", 0.5)])
@pytest.mark.parametrize("n_rows", [60, 12], ids=["tall", "wide"])
def test_certificate_agrees_along_principal_directions(penalty_scaling, power, n_rows):
    temperature = 0.05
    generator = np.random.RandomState(0)
    X = generator.standard_normal((n_rows, 20)) @ generator.standard_normal((20, 20))
    y = np.arange(n_rows) % 3
    made = Table("principal", X, y)
    spread = X.std(axis=0)
    size, across = np.linalg.svd((X - X.mean(axis=0)) / spread / np.sqrt(n_rows), full_matrices=False)[1:]
    is_kept = size > 1e-6
    turn = (across[is_kept] / size[is_kept, None] ** (2 * power)).T / spread[:, None]
    peer = LogisticRegression(C=made.C_at(temperature), tol=1e-12, max_iter=10_000, solver="newton-cg")
    peer.fit(X @ turn, y)
    coef, intercept = one_row_per_class(peer.coef_, peer.intercept_)
    likelihood = PenalizedLikelihood(X, y, penalty_scaling)
    best = likelihood.gap(coef @ turn.T, intercept, temperature)
    assert best.relative < 1e-9
    moved = likelihood.gap(coef @ turn.T * 1.01, intercept, temperature)
    assert 0 < moved.value - best.value <= moved.bound
    model = AnnealedLogisticRegression(
        penalty_scaling=penalty_scaling, schedule=[temperature], selection="last", tol=1e-6
    ).fit(X, y)
    ours = likelihood.gap(model.path_.coef[0], model.path_.intercept[0], temperature)
    assert ours.value == pytest.approx(best.value, rel=1e-8)


def test_a_bound_as_large_as_the_value_is_infinite():
    assert Gap(value=1.0, bound=2.0).relative == np.inf
    assert np.isclose(Gap(value=1.1, bound=0.1).relative, 0.1)


def test_the_yardstick_confirms_our_path_and_finds_an_unconverged_peer_above_the_optimum():
    made = made_table()
    yardstick = Yardstick(made)
    model = AnnealedLogisticRegression().fit(made.X, made.y)
    evaluated = yardstick.evaluate_path(model.path_)
    assert evaluated["suboptimality"] <= 1e-6
    anchor = Anchor.of(model)
    assert abs(yardstick.excess_at(model.path_, anchor)) <= 1e-6
    loose = LogisticRegression(C=made.C_at(anchor.chosen), tol=0.1).fit(made.standardized, made.y)
    raw = in_raw_columns(made, anchor.penalty_scaling, *one_row_per_class(loose.coef_, loose.intercept_))
    evaluated = yardstick.evaluate(*raw, anchor.chosen)
    assert 1e-6 < evaluated["reference_suboptimality"] <= evaluated["suboptimality"]
    assert yardstick.reference(anchor.chosen).relative <= 1e-7


def test_conversions_between_c_and_temperature_are_inverse():
    for made in (made_table(2), made_table(3)):
        assert np.isclose(made.temperature_at(made.C_at(0.3)), 0.3)


# --- measuring --------------------------------------------------------------------------------------


def test_a_run_waits_until_the_threads_of_the_previous_one_are_idle():
    """A thread keeps spinning for a while, as BLAS threads do."""
    ends = perf_counter() + 0.3

    def spin():
        while perf_counter() < ends:
            pass

    thread = Thread(target=spin)
    thread.start()
    settle()
    assert perf_counter() >= ends
    thread.join()


def test_runs_of_methods_alternate_and_slow_methods_run_once():
    quick = Method("quick", lambda: "done")
    slow = Method("slow", lambda: "done", patience=0.0)
    order = [(run.repeat, run.method.name) for run in interleaved([quick, slow], repeats=3)]
    assert order == [(0, "quick"), (0, "slow"), (1, "quick"), (2, "quick")]


def test_an_estimate_replaces_the_measured_seconds():
    estimate = Estimate(Timing(100.0, 200.0), "estimated")
    assert timed(lambda: estimate)[1] == estimate.timing


def test_peak_memory_counts_what_is_freed_again():
    def solve():
        np.ones(1_000_000).sum()
        return "done"

    result, peak = peak_extra_bytes(solve)
    assert result == "done"
    assert 8_000_000 <= peak < 9_000_000


def test_an_unconverged_peer_is_noted():
    made = made_table()
    _, _, complaint = timed(lambda: LogisticRegression(max_iter=1).fit(made.X, made.y))
    assert complaint == "not converged"


def test_rates_of_the_machine_are_measured():
    machine = measure_machine(product_size=16, copied_bytes=1 << 12)
    assert machine.gemm_gflops > 0 and machine.bandwidth_gbs > 0 and machine.threads >= 1


# --- peers ------------------------------------------------------------------------------------------


def skipped(peer, made, peers="usual", penalty_scaling="standardize"):
    options = SimpleNamespace(peers=peers, grid="auto")
    methods = peer.methods(made, Anchor(1.0, 0.1, 0.01, penalty_scaling), Yardstick(made), options)
    return [method.name for method in methods if isinstance(method, Skipped)]


def test_methods_that_do_not_run_are_skipped():
    assert skipped(lda, sparse_table()) == [lda.NAME]
    assert skipped(lda, made_table()) == []
    assert skipped(logistic_regression, sparse_table(), penalty_scaling="none") == [
        "LogisticRegression lbfgs, raw columns"
    ]
    assert skipped(logistic_regression, sparse_table()) == []
    assert skipped(logistic_regression_cv, made_table(is_large=True)) == ["LogisticRegressionCV"]
    assert skipped(logistic_regression_cv, made_table(is_large=True), peers="all") == []
    assert skipped(logistic_regression_cv, made_table()) == []


@pytest.mark.parametrize("is_installed", [True, False])
def test_glmnet_runs_on_small_tables_where_it_is_installed(is_installed, monkeypatch):
    monkeypatch.setattr(coordinate_descent, "find_spec", lambda name: object() if is_installed else None)
    assert skipped(coordinate_descent, made_table()) == ([] if is_installed else [coordinate_descent.NAME])
    assert skipped(coordinate_descent, made_table(is_large=True)) == [coordinate_descent.NAME]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_glmnets_path_is_evaluated_at_its_worst_point(n_classes):
    """Uses our minima in glmnet's shapes: one coefficient vector for two classes."""
    made, temperatures = made_table(n_classes), np.array([0.1, 0.01])
    solved = AnnealedLogisticRegression(schedule=temperatures, selection="last", tol=1e-6).fit(made.X, made.y).path_
    coef, intercept = solved.coef.transpose(1, 2, 0), solved.intercept.T
    if n_classes == 2:
        coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
    path = SimpleNamespace(coef_path_=coef, intercept_path_=intercept, n_lambda_=2)
    solved = coordinate_descent.described(path, temperatures, "standardize", Yardstick(made))
    assert solved["suboptimality"] <= 1e-7
    assert solved["note"] == ""
    path.intercept_path_ = intercept + np.outer(1 + np.arange(len(intercept)), [0.0, 0.1])
    assert coordinate_descent.described(path, temperatures, "standardize", Yardstick(made))["suboptimality"] > 1e-4
    path.coef_path_, path.intercept_path_, path.n_lambda_ = coef[..., :1], intercept[:, :1], 1
    assert (
        coordinate_descent.described(path, temperatures, "standardize", Yardstick(made))["note"] == "1 of 2 penalties"
    )


@pytest.mark.parametrize("made", [made_table(2), made_table(3), sparse_table()], ids=["two", "three", "sparse"])
@pytest.mark.parametrize("penalty_scaling", ["standardize", "none"])
def test_glmnet_reaches_the_same_minimum(made, penalty_scaling):
    pytest.importorskip("glmnet", reason="python-glmnet has wheels for Linux on x86 only")
    temperatures = np.array([1.0, 0.1]) * (1 if penalty_scaling == "standardize" else np.max(made.scaler.scale_) ** 2)
    path = coordinate_descent.six_paths(made, temperatures, penalty_scaling)
    evaluated = coordinate_descent.described(path, temperatures, penalty_scaling, Yardstick(made))
    assert evaluated == {"suboptimality": pytest.approx(0, abs=1e-3), "note": ""}


def test_the_time_of_a_grid_is_estimated_from_part_of_it():
    made = made_table()
    estimate = logistic_regression_cv.estimated(made.X, made.y, np.geomspace(0.01, 1, 10))
    assert estimate.note == "estimated from 1 of its 51 fits"
    assert estimate.timing.wall_seconds > 0


def test_coarse_and_fine_ladders_have_the_same_ends():
    ladder, finer = ours.ladder(8.0, 50), ours.ladder(8.0, 50, finer=4)
    assert len(ladder) == 50 and len(finer) == 200
    assert np.allclose(ladder[[0, -1]], finer[[0, -1]])
    assert np.allclose(ladder[1:] / ladder[:-1], 0.7)


# --- rows and the page ------------------------------------------------------------------------------


def options_of(folder, *arguments):
    return parse(["--repeats", "2", "--results", str(folder), *arguments])


def test_a_run_becomes_rows_a_table_and_a_picture(tmp_path, capsys):
    results, page, picture = tmp_path / "results", tmp_path / "speed.md", tmp_path / "images" / "speed.png"
    made = made_table(problem="small_tables")
    runner.run_table(made, options_of(results, "--grid", "estimated"), MACHINE, "2000-01-01T00:00:00")
    printed = capsys.readouterr().out
    assert all(word in printed for word in [ours.FIFTY, "above the optimum", "of GEMM", "estimated from"])

    page.write_text(f"before\n\n{table.BEGIN}\nold\n{table.END}\n\nafter\n")
    table.write_report(results, page, picture)
    text = page.read_text()
    assert text.startswith("before") and text.endswith("after\n")
    assert "old" not in text
    assert "| made | 60 x 4, 3 |" in text and "(estimated)" in text
    assert picture.stat().st_size > 0
    assert "newton-cg" in (results / "every_method.md").read_text()


def test_scaling_is_a_table_of_ratios(tmp_path):
    for n_rows, seconds in [(10, 1.0), (20, 2.0)]:
        for method, factor in [(scaling.BASE, 1.0), (scaling.FINER, 1.5), (scaling.MORE_FOLDS, 1.25)]:
            rows.append(made_row(method, factor * seconds, n_rows=n_rows), tmp_path)
    lines = table.scaling_lines(table.medians(table.latest(tmp_path)))
    assert lines == [["10", "1", "1.00", "1.50", "1.25"], ["20", "2", "1.00", "1.50", "1.25"]]


def test_only_the_last_run_counts_and_rehearsals_are_ignored(tmp_path):
    for seconds in (1.0, 3.0):
        rows.append(made_row("old", seconds, run="2000"), tmp_path)
        rows.append(made_row("new", seconds, run="2001"), tmp_path)
    rows.append(made_row("rehearsed", 9.0, run="2002", is_rehearsal=True), tmp_path)
    found = table.medians(table.latest(tmp_path))
    assert found[["method", "wall_seconds"]].to_numpy().tolist() == [["new", 2.0]]


def made_row(method, seconds, n_rows=10, run="2000", is_rehearsal=False):
    place = {"run": run, "problem": "scaling", "table": f"scaling, {n_rows} rows", "n_rows": n_rows, "threads": 1}
    return place | {"is_rehearsal": is_rehearsal, "method": method, "wall_seconds": seconds, "load": 0.0}


def test_rows_with_unknown_columns_are_refused(tmp_path):
    with pytest.raises(ValueError, match="does not name"):
        rows.append({"problem": "scaling", "colour": "red"}, tmp_path)
    (tmp_path / "scaling.csv").write_text("an,older,header\n")
    with pytest.raises(ValueError, match="move it away"):
        rows.append(made_row("ours", 1.0), tmp_path)


@pytest.mark.parametrize("n_lost", [1, 20, 10_000])
def test_a_row_that_was_cut_off_is_dropped(tmp_path, n_lost):
    for method in ("ours", "cut off"):
        rows.append(made_row(method, 1.0), tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-n_lost])
    rows.append(made_row("next", 1.0), tmp_path)
    assert table.latest(tmp_path)["method"].tolist() == ["ours", "next"][n_lost > 1000 :]


def test_missing_results_are_an_error(tmp_path):
    with pytest.raises(SystemExit, match="no results yet"):
        table.latest(tmp_path)
    rows.append(made_row("ours", 1.0, is_rehearsal=True), tmp_path)
    with pytest.raises(SystemExit, match="no results yet"):
        table.latest(tmp_path)


def test_measured_tables_have_a_place_in_the_page():
    page = table.PAGE.read_text()
    assert table.put_between_marks(page, "measured").count("measured: ") == 2
    assert f"images/{table.PICTURE.name}" in page.partition(table.BEGIN)[0]
    with pytest.raises(ValueError, match="must hold the lines"):
        table.put_between_marks("no marks", "measured")


@pytest.mark.parametrize("option", ["--repeats", "--threads", "--rows"])
@pytest.mark.parametrize("number", ["0", "-2"])
def test_numbers_below_one_are_errors(option, number, capsys):
    with pytest.raises(SystemExit):
        parse([option, number])
    assert f"{option} must be at least 1. Got {number}." in capsys.readouterr().err


def test_a_file_instead_of_a_results_folder_is_an_error(tmp_path, capsys):
    (tmp_path / "rows.csv").touch()
    with pytest.raises(SystemExit):
        parse(["--results", str(tmp_path / "rows.csv")])
    assert "--results must be a folder. Got the file" in capsys.readouterr().err


# --- a population of random problems ----------------------------------------------------------------


@pytest.mark.parametrize("kind", [generators.RANDOM, *generators.KINDS])
def test_random_problems_are_the_same_every_time(kind):
    for seed in range(3):
        made, again = generators.make(kind, seed, 5000), generators.make(kind, seed, 5000)
        values = made.X.data if made.is_sparse else made.X
        assert np.isfinite(values).all() and (values == (again.X.data if again.is_sparse else again.X)).all()
        assert (made.y == again.y).all() and made.n_classes > 1 and set(made.y_test) <= set(made.y)
        assert len(made.y_test) == made.X_test.shape[0] > 0
        assert made.name == again.name and made.name.startswith(f"{kind} {seed}: {made.X.shape[0]} x {made.X.shape[1]}")


def test_problems_that_once_took_long_have_the_shapes_of_the_real_ones():
    shapes = {(*made.X.shape, made.n_classes) for made in map(generators.make, generators.CLIFFS)}
    real = {(7674, 7097, 8), (10_666, 1105, 2), (58_000, 18, 7), (1440, 1024, 20), (1560, 617, 26)}
    assert shapes == real


def test_a_population_is_measured_and_reported(tmp_path, capsys):
    some = ["--only", "heavy tails 1", "collinear 0", "--results", str(tmp_path)]
    assert population.main(["--quick", "--workers", "1", *some]) == 0
    results = population_report.results_of(tmp_path / "population.csv")
    assert [own.row["kind"] for own in results] == ["collinear", "heavy tails"]
    assert all(own.per_fit > 0 and own.cv_per_path > 0 and not (own.error or own.is_cut) for own in results)
    assert all(float(own.row["certificate"]) <= 1e-6 and float(own.row["passes64"]) > 1 for own in results)
    printed = capsys.readouterr().out
    assert "Worst of the others" in printed and "pass  no RuntimeWarning" in printed
    with pytest.raises(SystemExit, match="no problem holds nothing"):
        population.main(["--only", "nothing"])
    with pytest.raises(SystemExit, match="no results yet"):
        population.main(["--report", "--results", str(tmp_path / "empty")])


def test_runs_that_take_too_long_are_bounds_and_misses(tmp_path, capsys):
    cut, slow, failing = (dict.fromkeys(population.COLUMNS, "") for _ in range(3))
    cut |= {"name": "cut", "path_seconds": 9.0, "path_is_cut": True, "one_seconds": 0.1, "cv_seconds": 5.0}
    slow |= {"name": "slow", "path_seconds": 9.0, "one_seconds": 1.0, "tight_seconds": 0.1, "cv_seconds": 99.0}
    failing |= {
        "name": "failing",
        "path_seconds": 1.0,
        "one_seconds": 0.1,
        "cv_error": "ValueError",
        "warnings": "RuntimeWarning: overflow",
    }
    file = tmp_path / "population.csv"
    with file.open("w", newline="") as open_file:
        writer = csv.DictWriter(open_file, population.COLUMNS)
        writer.writeheader()
        writer.writerows([cut, slow, failing])
    population_report.print_report(file)
    printed = capsys.readouterr().out
    assert "MISS  never slower than LogisticRegressionCV: 1 of 3" in printed
    assert "times one fit to 1e-6, where it takes more than 2 s: 2 of 3" in printed
    assert "times one default fit, where it takes more than 2 s: 1 of 3" in printed
    assert "MISS  no RuntimeWarning: 1 of 3" in printed
    spec = population.Spec("gaussian", 0, 2000, limit=0.0, cv_seconds=1.0)
    row = population.measured(spec)
    assert row["path_is_cut"] and row["path_seconds"] < 1 and row["cv_seconds"] > 0


# --- GPU benchmarks, run on a CPU -------------------------------------------------------------------


def test_a_sweep_goes_to_the_next_penalty_after_the_first_pass_that_meets_the_goal():
    torch = pytest.importorskip("torch")
    from benchmarks.gpu_sweep import Probe, sweep

    made = make_gaussian_classes(200, 5, 3, random_state=0)
    Z = torch.asarray(made.X, dtype=torch.float32)
    probe, losses = Probe(Z, torch.asarray(made.y), 3), {0.1: [], 0.01: [], 0.001: []}
    closure = probe.closure
    probe.closure = lambda strength: losses[strength].append(closure(strength)) or losses[strength][-1]
    goals = [0.9, 0.6, 0.0]
    _, values = sweep(probe, list(losses), goals, 0.0, most=20)
    for goal, value, passes in zip(goals, values, losses.values(), strict=True):
        *before, last = (loss.item() for loss in passes)
        assert value == last and all(loss > goal for loss in before)
        assert value <= goal or len(passes) == 20
    assert values[0] <= 0.9 and len(losses[0.001]) == 20
