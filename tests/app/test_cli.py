"""The command line: exit codes, files, and error messages of one line."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from sklearn.datasets import load_iris

pandas = pytest.importorskip("pandas")
pytest.importorskip("typer")
from annealed import AnnealedLogisticRegression  # noqa: E402
from annealed.app import comparison, load_model, save_model  # noqa: E402
from annealed.app.answers import path_table  # noqa: E402
from annealed.app.cli import app  # noqa: E402 - it needs typer
from annealed.app.comparison import fit_table  # noqa: E402
from annealed.app.predictions import json_of  # noqa: E402
from annealed.app.tables import label_table  # noqa: E402
from annealed.solvers.newton import GROUP_SIZE  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def frame():
    """Irises with a hostile class name, a category with missing cells, and missing numbers."""
    table = load_iris(as_frame=True).frame.rename(columns={"target": "species"})
    table["species"] = np.array(["setosa", HOSTILE, "virginica"])[table["species"]]
    table["colour"] = np.where(np.arange(150) % 7 == 0, None, np.where(table["species"] == "setosa", "blue", "red"))
    table.loc[::11, "sepal width (cm)"] = np.nan
    return table


@pytest.fixture
def folder(tmp_path, monkeypatch, frame):
    monkeypatch.chdir(tmp_path)
    frame.to_csv("flowers.csv", index=False)
    return tmp_path


class Answer(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


def run(*arguments, given=""):
    """Run a command as from a shell; typer's own runner does not separate the two outputs in all versions."""
    out, err, given = io.StringIO(), io.StringIO(), io.TextIOWrapper(io.BytesIO(given.encode()))
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", given)
        with pytest.raises(SystemExit) as ended:
            app([str(argument) for argument in arguments], prog_name="annealed")
    return Answer(ended.value.code or 0, out.getvalue(), err.getvalue())


def refused(*arguments):
    """The message of a failing command: one line on standard error, exit code 1, and no traceback."""
    answer = run(*arguments)
    assert answer.exit_code == 1, answer
    assert answer.stdout == ""
    assert answer.stderr.startswith("annealed: ")
    assert len(answer.stderr.strip().splitlines()) == 1
    return answer.stderr


@pytest.fixture
def model(folder):
    assert run("fit", "flowers.csv", "-t", "species", "-o", "model.safetensors").exit_code == 0
    return folder / "model.safetensors"


def test_fit_predict_and_path(model, frame):
    assert run("predict", model, "flowers.csv", "-o", "out.csv").exit_code == 0
    predicted = pandas.read_csv("out.csv")
    assert (predicted["predicted species"] == frame["species"]).mean() > 0.95
    assert np.allclose(predicted.iloc[:, 1:].sum(axis=1), 1)
    assert f"probability of {HOSTILE}" in predicted.columns
    records = json.loads(run("path", model, "--json").stdout)
    assert sum(record["chosen"] for record in records) == 1
    assert "validation" in run("path", model).stdout


def test_predict_prints_without_an_output(model):
    printed = pandas.read_csv(io.StringIO(run("predict", model, "flowers.csv").stdout))
    records = json.loads(run("predict", model, "flowers.csv", "--json").stdout)
    assert len(printed) == len(records) == 150
    again = run("predict", model, "flowers.csv", "--json", "-o", "-")
    assert json.loads(again.stdout) == records and not os.path.exists("-")
    exact = load_model(model)
    assert records == json.loads(json_of(exact.predict(pandas.read_csv("flowers.csv"))))
    temperatures = [row["temperature"] for row in json.loads(run("path", model, "--json").stdout)]
    assert temperatures == exact.path.temperatures.tolist()


def test_names_of_files(model):
    assert run("predict", model, "flowers.csv", "-o", "out.json").exit_code == 0
    assert len(json.loads(Path("out.json").read_text())) == 150
    assert "must end in .json" in refused("predict", model, "flowers.csv", "--json", "-o", "out.parquet")
    assert "Got '-', standard output" in refused("fit", "flowers.csv", "-t", "species", "-o", "-")


@pytest.mark.parametrize("name", ["lda", "kernel"])
def test_fit_as_json(folder, frame, name):
    answer = run("fit", "flowers.csv", "-t", "species", "--model", name, "--json")
    assert json.loads(answer.stdout)["model"] == name
    predicted = pandas.read_csv(io.StringIO(run("predict", "model.safetensors", "flowers.csv").stdout))
    assert (predicted["predicted species"] == frame["species"]).mean() > 0.95


def test_the_path_of_prototypes(folder):
    assert run("fit", "flowers.csv", "-t", "species", "-m", "potts", "-o", "potts.safetensors").exit_code == 0
    assert json.loads(run("path", "potts.safetensors", "--json").stdout)[-1]["n_prototypes"] >= 3
    assert "temperatures" in run("path", "potts.safetensors").stdout
    console = pytest.importorskip("rich.console").Console(width=60, file=io.StringIO())
    console.print(path_table(load_model(folder / "potts.safetensors").path))
    assert "…" not in console.file.getvalue()


def test_the_title_of_a_path_of_one_temperature():
    path = AnnealedLogisticRegression(schedule=[1.0]).fit(*load_iris(return_X_y=True)).path_
    assert path_table(path).title == "1 temperature"


def test_compare_names_the_best_and_saves_it(folder):
    answer = run("compare", "flowers.csv", "-t", "species", "--folds", "2", "--save", "best.safetensors", "--json")
    compared = json.loads(answer.stdout)
    losses = [row["log_loss"] for row in compared["models"]]
    assert losses == sorted(losses)
    assert compared["best"] == compared["models"][0]["model"]
    assert {"logistic", "lda", "melda", "kernel", "sklearn-lda"} <= {row["model"] for row in compared["models"]}
    assert compared["saved"]["model"] == compared["best"] == "sklearn-lda"
    assert run("predict", "best.safetensors", "flowers.csv", "-o", "by_lda.csv").exit_code == 0
    assert "must have an annealing path" in refused("path", "best.safetensors")


def test_sample_weights(folder, frame, monkeypatch):
    frame.assign(trust=np.arange(150) % 5 / 2).to_csv("weighed.csv", index=False)
    answer = run("fit", "weighed.csv", "-t", "species", "--weights", "trust")
    assert answer.exit_code == 0 and "30 of 150 rows have weight 0 and are left out" in answer.stderr
    by_name = [run("predict", "model.safetensors", name).stdout for name in ("weighed.csv", "flowers.csv")]
    assert by_name[0] == by_name[1] != ""
    assert run("report", "model.safetensors", "weighed.csv").exit_code == 0
    assert "has no column 'trust', with which" in refused("report", "model.safetensors", "flowers.csv")
    assert "--weights needs a table" in refused("compare", "--weights", "trust")
    few = {name: comparison.CANDIDATES[name] for name in ("logistic", "sklearn-lda")}
    for module in ("comparison", "cli"):
        monkeypatch.setattr(f"annealed.app.{module}.CANDIDATES", few)
    answer = run("compare", "weighed.csv", "-t", "species", "-w", "trust", "--folds", "2")
    assert "does not support" in answer.stdout and "Samples are weighted by 'trust'" in answer.stdout


def test_compare_prints_a_readable_table(folder):
    text = run("compare", "flowers.csv", "-t", "species", "--folds", "2").stdout
    assert "error" in text and "log-loss" in text and "seconds" in text and "Best log-loss:" in text


@pytest.mark.parametrize(
    ("content", "target", "message"),
    [
        ("", "b", "is empty"),
        ("a,b\n", "b", "has no rows"),
        ("a,b\n1,x\n2,x\n", "b", "at least two classes. Got only 'x'"),
        ("a,b\n1,x\n2,\n3,y\n", "b", "is missing in 1 of 3 rows, first in row 2"),
        ("a,b\n1,x\n2,y\n", "bb", "has no column 'bb'. Did you mean 'b'?"),
        ("b\nx\ny\n", "b", "no column besides the target"),
        ("a,b\n1,2,3\n1,2,3,4,5,6\n", "b", "cannot be read as a table"),
    ],
)
@pytest.mark.parametrize("command", ["fit", "compare"])
def test_tables_that_cannot_be_used(folder, command, content, target, message):
    (folder / "table.csv").write_text(content)
    assert message in refused(command, "table.csv", "--target", target)
    assert not (folder / "model.safetensors").exists()


def test_models_that_cannot_be_used(folder):
    (folder / "model.safetensors").write_text("hello")
    for arguments in (["predict", "model.safetensors", "flowers.csv"], ["path", "model.safetensors"]):
        assert "is not a model file" in refused(*arguments)
    assert "There is no model file" in refused("report", "absent.safetensors", "flowers.csv")
    assert "must end in .html, so that browsers open it. Got 'a.pdf'" in refused("demo", "-o", "a.pdf")


def test_a_model_without_a_path(folder, frame):
    save_model(fit_table(label_table(frame, "species"), "sklearn-lda"), folder / "peer.safetensors")
    assert "must have an annealing path. Got 'sklearn-lda', which has none" in refused("path", "peer.safetensors")
    assert "must have an annealing path" in refused("report", "peer.safetensors", "flowers.csv")
    assert run("predict", "peer.safetensors", "flowers.csv").exit_code == 0


def test_new_rows_without_a_column(model, frame):
    frame.rename(columns={"colour": "color"}).to_csv("new.csv", index=False)
    assert "has no column 'colour'. Did you mean 'color'" in refused("predict", model, "new.csv", "-o", "out.csv")
    assert not os.path.exists("out.csv")


def test_other_mistakes(folder, model):
    assert "There is no file" in refused("fit", "absent.csv", "-t", "species")
    assert "--model must be one of logistic" in refused("fit", "flowers.csv", "-t", "species", "-m", "sklearn-lda")
    assert "--target must name the column" in refused("compare", "flowers.csv")
    assert "--target needs a table" in refused("compare", "-t", "species")
    assert "does not exist" in refused("predict", model, "flowers.csv", "-o", "absent/out.csv")
    assert run("predict", model).exit_code == 2
    assert run("compare", "--folds", "1").exit_code == 2


def test_help_has_examples_and_completion():
    assert "--install-completion" in run("--help").stdout
    for command in ("compare", "fit", "predict", "report", "path", "demo"):
        assert f"Example: annealed {command}" in run(command, "--help").stdout
    assert run("--version").stdout.startswith("annealed ")


def test_the_error_of_a_missing_extra_has_the_pip_command():
    code = "import sys; sys.modules['typer'] = None; from annealed.__main__ import main; main()"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.returncode == 1
    assert 'pip install "annealed[cli]"' in answer.stderr
    assert "Traceback" not in answer.stderr


SLOW_FIT = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it by default
import annealed.path.cooling
visit = annealed.path.cooling._Path.add_nodes
def slowly(self, *arguments):
    print("visiting", file=sys.stderr, flush=True)
    time.sleep(2.0)
    return visit(self, *arguments)
annealed.path.cooling._Path.add_nodes = slowly
from annealed.__main__ import main
main()
"""


def interrupted(visits, *arguments):
    """Exit code and standard error of a command that receives Ctrl-C after the given number of visits."""
    command = [sys.executable, "-c", SLOW_FIT, *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        for _ in range(visits):
            process.stderr.readline()
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return process.returncode, errors


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_ctrl_c_keeps_the_path_so_far(folder):
    code, errors = interrupted(2, "fit", "flowers.csv", "-t", "species")
    assert code == 0, errors
    assert "the path so far is kept" in errors
    records = json.loads(run("path", "model.safetensors", "--json").stdout)
    assert GROUP_SIZE < len(records) <= 2 * GROUP_SIZE + 2  # the second group has begun, and intervals are refined


# --- tables from files ------------------------------------------------------------------------------


def test_standard_input_and_output(model, frame):
    text = frame.to_csv(index=False)
    printed = pandas.read_csv(io.StringIO(run("predict", model, "-", given=text).stdout))
    assert len(printed) == 150
    os.symlink("target.csv", "link.csv")
    assert run("predict", model, "flowers.csv", "-o", "link.csv").exit_code == 0
    assert os.path.islink("link.csv") and len(pandas.read_csv("target.csv")) == 150
    assert run("predict", model, "flowers.csv", "-o", os.devnull).exit_code == 0
    assert not os.path.isfile(os.devnull)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full")
def test_results_that_cannot_be_printed(model, frame):
    command = [sys.executable, "-m", "annealed", "predict", str(model), "flowers.csv"]
    with open("/dev/full", "w") as full:
        answer = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (answer.returncode, answer.stderr) == (
        1,
        "annealed: The result cannot be printed: No space left on device.\n",
    )
    frame.assign(species=frame["species"].replace("setosa", "sétosa")).to_csv("accents.csv", index=False)
    assert run("fit", "accents.csv", "-t", "species", "-o", "accents.safetensors").exit_code == 0
    command[-2:] = ["accents.safetensors", "accents.csv"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "cannot be printed: '\\xe9' is not in ascii. Set PYTHONIOENCODING=utf-8." in answer.stderr
    assert "Traceback" not in answer.stderr


def test_predictions_as_parquet(model):
    pytest.importorskip("pyarrow")
    assert run("predict", model, "flowers.csv", "-o", "out.parquet").exit_code == 0
    assert len(pandas.read_parquet("out.parquet")) == 150


def test_column_order_additional_columns_and_unknown_categories(model, frame):
    frame[frame.columns[::-1]].assign(further=1, colour=frame["colour"].fillna("violet")).to_csv("new.csv", index=False)
    assert run("predict", model, "new.csv", "-o", "new_out.csv").exit_code == 0
    assert run("predict", model, "flowers.csv", "-o", "out.csv").exit_code == 0
    old, new = pandas.read_csv("out.csv").iloc[:, 1:], pandas.read_csv("new_out.csv").iloc[:, 1:]
    known = frame["colour"].notna()
    np.testing.assert_allclose(old[known], new[known], atol=1e-12)


@pytest.mark.filterwarnings("default")
def test_codes_and_truth_values_in_another_table(folder):
    rows = [
        f"{row},{'1' if row % 2 else '02' if row % 3 else 'A'},{'TRUE' if row % 2 else 'FALSE'}" for row in range(60)
    ]
    (folder / "codes.csv").write_text("\n".join(["size,code,ill", *rows]))
    assert run("fit", "codes.csv", "-t", "ill", "-o", "codes.safetensors").exit_code == 0
    (folder / "new.csv").write_text("size,code,ill\n5,1,TRUE\n6,,FALSE\n7,02,FALSE\n")
    printed = pandas.read_csv(io.StringIO(run("predict", "codes.safetensors", "new.csv").stdout))
    assert printed["predicted ill"].tolist() == [True, False, False]
    assert "2 of 3 rows equal rows that the model was fitted on" in run("report", "codes.safetensors", "new.csv").stderr
    assert run("report", "codes.safetensors", "codes.csv").exit_code == 0
    assert "predicted by a cross-validation fit without it" in (folder / "report.html").read_text()


def test_notes_on_columns(folder, frame):
    frame = frame.assign(number=range(150), text=[f"text {row // 2}" for row in range(150)], again=frame["species"])
    frame["code"] = frame["species"].map({"setosa": 3, HOSTILE: 1, "virginica": 2})
    frame.to_csv("noted.csv", index=False)
    notes = run("fit", "noted.csv", "-t", "species").stderr
    assert "column 'number' is left out: it numbers the rows" in notes
    assert "column 'again' is left out: it repeats the target" in notes
    assert "column 'code' is left out: it recodes the target" in notes
    assert "column 'text' has 75 distinct texts" in notes


def test_narrow_terminals(folder, model):
    for arguments in (("path", str(model)), ("compare", "flowers.csv", "-t", "species", "--folds", "2")):
        command = [sys.executable, "-m", "annealed", *arguments]
        environment = {**os.environ, "COLUMNS": "60"}  # read once, when the program starts
        text = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        assert max(map(len, text.splitlines())) <= 60
        assert "…" not in text
    assert "gradient-boosting" in text and "\x1b" not in text


def test_json_of_every_command(folder, model):
    saved = json.loads(run("compare", "flowers.csv", "-t", "species", "--folds", "2", "--save", "b", "--json").stdout)
    assert saved["saved"]["model"] == saved["best"]
    assert os.path.exists(json.loads(run("report", model, "flowers.csv", "--json").stdout)["report"])


def test_the_best_annealed_model_is_saved_if_a_file_of_the_best_would_be_unsafe(folder, monkeypatch):
    monkeypatch.setattr("annealed.app.cli.NOT_SAVEABLE", ("sklearn-lda",))
    answer = run("compare", "flowers.csv", "-t", "species", "--folds", "2", "--save", "b", "--json")
    result = json.loads(answer.stdout)
    assert result["best"] == "sklearn-lda" and result["saved"]["model"] == result["best_of_ours"]
    assert "A model file cannot hold sklearn-lda" in answer.stderr


@pytest.mark.filterwarnings("default:20 of 20 rows equal rows")
def test_reports_of_few_rows(model, frame):
    frame.iloc[:1].to_csv("one.csv", index=False)
    assert "at least two rows" in refused("report", model, "one.csv")
    frame.iloc[:20].to_csv("one_class.csv", index=False)
    answer = run("report", model, "one_class.csv")
    assert answer.exit_code == 0 and "note: 20 of 20 rows equal rows that the model was fitted on" in answer.stderr


def test_an_output_that_cannot_be_written_is_an_error_before_the_fit(folder):
    assert "does not exist" in refused("fit", "flowers.csv", "-t", "species", "-o", "absent/model.safetensors")
    assert "Got the folder" in refused("compare", "flowers.csv", "-t", "species", "--save", folder)


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_ctrl_c_during_a_comparison_keeps_the_results_so_far(folder):
    code, errors = interrupted(1, "compare", "flowers.csv", "-t", "species", "--save", "best.safetensors")
    assert code == 130, errors
    assert "nothing was written" in errors and "Traceback" not in errors
    assert os.listdir() == ["flowers.csv"]


def documented_commands():
    page = (ROOT / "docs" / "command_line.md").read_text()
    return [line.split()[1:] for line in page.splitlines() if line.startswith("    annealed ")]


@pytest.mark.slow
def test_documented_commands_run(folder, frame):
    """In the order of the page, as a reader would run them."""
    frame.drop(columns="species").to_csv("new.csv", index=False)
    for command in documented_commands():
        answer = run(*command)
        assert answer.exit_code == 0, (command, answer)
    assert {"model.safetensors", "out.csv", "best.safetensors", "report.html"} <= set(os.listdir())


def test_labels_that_are_formulas(folder, frame):
    formula = '=HYPERLINK("http://example.org")'
    frame.assign(species=np.where(frame["species"] == "setosa", formula, "other")).to_csv("formula.csv", index=False)
    assert run("fit", "formula.csv", "-t", "species").exit_code == 0
    printed = pandas.read_csv(io.StringIO(run("predict", "model.safetensors", "formula.csv").stdout))
    assert set(printed["predicted species"]) == {f"'{formula}", "other"}
    exact = json.loads(run("predict", "model.safetensors", "formula.csv", "--json").stdout)
    assert exact[0]["predicted species"] == formula
