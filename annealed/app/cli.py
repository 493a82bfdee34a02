"""The command `annealed`, which compares, fits, predicts and reports on tables."""

from __future__ import annotations

import json
import os
import sys
import warnings
from functools import wraps
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from annealed import __version__
from annealed.app.answers import comparison_table, path_table
from annealed.app.comparison import CANDIDATES, NOT_SAVEABLE, OURS, compare, fit_table, table_splits
from annealed.app.model_files import load_model, save_model
from annealed.app.predictions import csv_of, json_of, write_predictions
from annealed.app.progress import CoolingBar
from annealed.app.report import write_report
from annealed.app.tables import MOST_CATEGORIES, default_table, label_table, read_table, why_texts
from annealed.callbacks import StopOnInterrupt
from annealed.errors import InputError
from annealed.export import STANDARD_OUTPUT, check_writable

MODELS = (
    "The classifier: logistic (multinomial logistic regression), lda (discriminant analysis with fitted class means), "
    "melda (maximum-entropy discriminant analysis), kernel (kernel logistic regression) or potts (prototypes)."
)
INTERRUPTED = 130  # exit code after Ctrl-C, by convention 128 plus the number of the signal

app = typer.Typer(
    name="annealed",
    help="Calibrated linear, kernel and prototype classifiers for tables: CSV or Parquet files with numbers, "
    "categories, dates and missing cells. Start with `annealed compare TABLE --target COLUMN`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
messages = Console(stderr=True)
answers = Console()

Data = Annotated[
    Path,
    typer.Argument(help="The table: CSV (also compressed) or Parquet; - reads standard input.", show_default=False),
]
MaybeData = Annotated[
    Path | None, typer.Argument(help="The table; if omitted, a built-in example is used.", show_default=False)
]
Target = Annotated[str, typer.Option("--target", "-t", help="Column with the class labels.", show_default=False)]
MaybeTarget = Annotated[str | None, typer.Option("--target", "-t", help="Column with the class labels.")]
Weights = Annotated[
    str | None, typer.Option("--weights", "-w", help="Column with sample weights; it is not used as a feature.")
]
Separator = Annotated[str | None, typer.Option(help="Separator of the cells of a CSV; detected by default.")]
Encoding = Annotated[str | None, typer.Option(help="Encoding of a CSV; detected by default.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
ModelFile = Annotated[
    Path, typer.Argument(help="A model file written by `annealed fit` or `compare --save`.", show_default=False)
]


def exits_with_message(command):
    """Decorate a command to print errors in the input as one line, and to exit with 1."""

    @wraps(command)
    def guarded(*args, **kwargs):
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning  # type: ignore[assignment]
                command(*args, **kwargs)
                print(end="", flush=True)
        except BrokenPipeError:  # the reader of standard output has closed it; typer exits quietly
            raise
        except (OSError, UnicodeEncodeError) as error:
            _exit_unprinted(error)
        except (InputError, ImportError) as error:
            _exit_with_error(str(error))
        except KeyboardInterrupt:
            messages.print("[bold]annealed:[/] Interrupted; nothing was written.", highlight=False)
            raise typer.Exit(INTERRUPTED) from None

    return guarded


def _exit_unprinted(error):
    """Exit after an error of standard output, and write nothing more to it; errors of files are InputErrors."""
    sys.stdout = open(os.devnull, "w")
    if isinstance(error, UnicodeEncodeError):
        reason = f"{error.object[error.start]!r} is not in {error.encoding}. Set PYTHONIOENCODING=utf-8"
    else:
        reason = error.strerror
    _exit_with_error(f"The result cannot be printed: {reason}.")


def _exit_with_error(message):
    messages.print(f"[bold red]annealed:[/] {escape(message)}", highlight=False, soft_wrap=True)
    raise typer.Exit(1) from None


def _show_warning(message, category, filename, line, file=None, text=None):
    messages.print(f"[yellow]note:[/] {escape(str(message))}", highlight=False, soft_wrap=True)


def _version(is_asked: bool):
    if is_asked:
        print(f"annealed {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
):
    pass


# --- the commands -------------------------------------------------------------------------------------


@app.command("compare", epilog="Example: annealed compare flowers.csv --target species --save best.safetensors")
@exits_with_message
def compare_command(
    data: MaybeData = None,
    target: MaybeTarget = None,
    weights: Weights = None,
    folds: Annotated[int, typer.Option(min=2, help="Number of folds of the cross-validation.")] = 5,
    save: Annotated[Path | None, typer.Option(help="Fit the best model on all rows and write it to this file.")] = None,
    as_json: AsJson = False,
    separator: Separator = None,
    encoding: Encoding = None,
):
    """Cross-validate the annealed classifiers and common ones of scikit-learn on a table, and rank them by log-loss."""
    if save is not None:
        check_writable(save)
    table = _labelled(data, target, weights, separator, encoding)
    ranked = _ranked(table, folds)
    result = _ranking(ranked)
    if not as_json:
        _print_comparison(ranked, table)
    if save is not None and len(ranked) == len(CANDIDATES):
        result["saved"] = _fit_and_save(table, _best_saveable(result), save)
    if as_json:
        _print_json(result)
    if len(ranked) < len(CANDIDATES):
        raise typer.Exit(INTERRUPTED)


@app.command(epilog="Example: annealed fit flowers.csv --target species --model logistic -o model.safetensors")
@exits_with_message
def fit(
    data: Data,
    target: Target,
    weights: Weights = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The model file to write.")] = Path(
        "model.safetensors"
    ),
    model: Annotated[
        str,
        typer.Option("--model", "-m", help=MODELS, autocompletion=lambda: list(OURS)),
    ] = "logistic",
    as_json: AsJson = False,
    separator: Separator = None,
    encoding: Encoding = None,
):
    """Fit an annealed classifier and write it to a file. Ctrl-C ends the fit early and keeps the path so far."""
    if model not in OURS:
        raise InputError(f"--model must be one of {', '.join(OURS)}. Got {model!r}.")
    check_writable(output)
    table = _labelled(data, target, weights, separator, encoding)
    saved = _fit_and_save(table, model, output)
    if as_json:
        _print_json(saved)


@app.command(epilog="Example: annealed predict model.safetensors new.csv -o out.csv")
@exits_with_message
def predict(
    model: ModelFile,
    data: Data,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="CSV, JSON or Parquet file to write; if omitted, CSV is printed."),
    ] = None,
    as_json: AsJson = False,
    separator: Separator = None,
    encoding: Encoding = None,
):
    """Predict the class and the class probabilities of new rows. Columns are found by name; others are ignored."""
    fitted = load_model(model)
    predictions = fitted.predict(_table_for(fitted, data, separator, encoding))
    if output is None or output == STANDARD_OUTPUT:
        print(json_of(predictions) if as_json else csv_of(predictions), end="")
        return
    write_predictions(predictions, output, as_json=as_json)
    _print_message(f"Predictions for {len(predictions)} rows written to {output}")


@app.command(epilog="Example: annealed report model.safetensors flowers.csv -o report.html")
@exits_with_message
def report(
    model: ModelFile,
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")] = Path("report.html"),
    as_json: AsJson = False,
    separator: Separator = None,
    encoding: Encoding = None,
):
    """Write an HTML report that opens offline: scores, predictions and features at every temperature, with a slider."""
    fitted = load_model(model)
    _check_report(output)
    write_report(fitted, _table_for(fitted, data, separator, encoding), output)
    _print_message(f"Report written to {output.resolve()}")
    if as_json:
        _print_json({"report": str(output.resolve())})


@app.command(epilog="Example: annealed path model.safetensors --json")
@exits_with_message
def path(model: ModelFile, as_json: AsJson = False):
    """Print the annealing path of a model: one row per temperature, hot to cold."""
    record = load_model(model).path
    if as_json:
        print(json_of(record.to_frame()), end="")
    else:
        answers.print(path_table(record))


@app.command(epilog="Example: annealed demo")
@exits_with_message
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="The report to write.")] = Path("report.html"),
    as_json: AsJson = False,
):
    """Compare the classifiers on a built-in example, and write the report of the best annealed one."""
    _check_report(output)
    table = default_table()
    ranked = _ranked(table, 5)
    if not as_json:
        _print_comparison(ranked, table)
    if len(ranked) < len(CANDIDATES):
        raise typer.Exit(INTERRUPTED)
    name = next((result.name for result in ranked if hasattr(OURS.get(result.name), "at")), "logistic")
    fitted = _fitted(table, name)
    write_report(fitted, table.features.assign(**{table.target: table.labels}), output)
    _print_message(
        f"Report of {name} written to {output.resolve()}: open it in a browser and move the temperature slider."
    )
    if as_json:
        _print_json({**_ranking(ranked), "report": str(output.resolve())})


# --- shared by the commands ---------------------------------------------------------------------------


def _labelled(data, target, weights, separator, encoding):
    """The table to learn from; prints a note for everything in it that is not used as it is."""
    if data is None:
        for name, value in {"target": target, "weights": weights}.items():
            if value is not None:
                raise InputError(f"--{name} needs a table. Got none. Run annealed compare TABLE --target COLUMN.")
        _print_message("No table was given: using the built-in example, breast-cancer cells, 569 rows.")
        return default_table()
    frame = read_table(data, separator=separator, encoding=encoding)
    if target is None:
        raise InputError(
            "--target must name the column with the class labels, for example one of "
            f"{', '.join(map(repr, frame.columns[-5:]))}."
        )
    table = label_table(frame, target, weights)
    if len(table.labels) < len(frame):
        _print_message(f"note: {len(frame) - len(table.labels)} of {len(frame)} rows have weight 0 and are left out.")
    for name, reason in table.columns.left_out.items():
        _print_message(f"note: column {name!r} is left out: {reason}.")
    for name in table.columns.categories:
        n_texts, explanation = table.features[name].nunique(), why_texts(table.features[name])
        if explanation:
            _print_message(f"note: column {name!r} is read as categories: {explanation}.")
        elif n_texts > MOST_CATEGORIES:
            _print_message(f"note: column {name!r} has {n_texts} distinct texts; the rarest share one category.")
    return table


def _check_report(output):
    if output.suffix.lower() not in ("", ".html", ".htm"):
        raise InputError(f"The name of a report must end in .html, so that browsers open it. Got '{output}'.")
    check_writable(output)


def _table_for(model, data, separator, encoding):
    """Read a table for a model, with the conventions of its training table if the file does not determine them."""
    known = {"texts": model.texts, "commas": model.columns.commas}
    return read_table(data, separator=separator, encoding=encoding, **known)


def _ranked(table, folds):
    """Results of all candidates, or of those that were finished when Ctrl-C was pressed, best first."""
    results = []
    n_folds = len(table_splits(table.labels, folds))
    with CoolingBar(messages, n_fits=n_folds * len(CANDIDATES)) as bar:
        try:
            for result in compare(table, folds, bar):
                results.append(result)
        except KeyboardInterrupt:
            pass
    if not results:
        raise KeyboardInterrupt
    if len(results) < len(CANDIDATES):
        _print_message(
            f"Interrupted: {len(results)} of {len(CANDIDATES)} models were compared, and nothing was written."
        )
    return sorted(results, key=lambda result: result.log_loss)


def _ranking(ranked):
    ours = next((result.name for result in ranked if result.is_ours), None)
    return {"best": ranked[0].name, "best_of_ours": ours, "models": [result.as_dict() for result in ranked]}


def _best_saveable(ranking):
    """The best model, or the best annealed one if a model file cannot hold the best."""
    best, ours = ranking["best"], ranking["best_of_ours"]
    if best not in NOT_SAVEABLE:
        return best
    _print_message(f"A model file cannot hold {best}: saving {ours}, the best annealed model, instead.")
    return ours


def _fitted(table, name):
    guard = StopOnInterrupt()
    with CoolingBar(messages) as bar:
        bar.begin(name)
        fitted = fit_table(table, name, (guard, bar))
        bar.end()
    if guard.is_interrupted:
        coldest = fitted.path.temperatures[-1]
        _print_message(f"Interrupted at temperature {coldest:.3g}: the path so far is kept.")
    return fitted


def _fit_and_save(table, name, output):
    """Fit a model, write it to a file, and return a summary for --json."""
    fitted = _fitted(table, name)
    save_model(fitted, output)
    saved = {"model": name, "file": str(output)}
    if name not in OURS:
        _print_message(f"{name} fitted and written to {output}")
        return saved
    record = fitted.path
    saved |= {"temperature": float(fitted.classifier.temperature_), "n_temperatures": len(record)}
    loss = ""
    if getattr(record, "validation_score", None) is not None:
        saved["validation_log_loss"] = -float(record.validation_score[record.best_index].mean())
        loss = f", validation log-loss {saved['validation_log_loss']:.4f}"
    _print_message(f"{name} fitted (temperature {saved['temperature']:.4g}{loss}) and written to {output}")
    return saved


def _print_json(value):
    print(json.dumps(value, indent=2, allow_nan=False))


def _print_comparison(ranked, table):
    answers.print(comparison_table(ranked, len(table.labels), len(table.classes)))
    best, ours = ranked[0].name, next((result.name for result in ranked if result.is_ours), None)
    best_of_ours = f" (best annealed model: [bold]{ours}[/])" if ours not in (best, None) else ""
    answers.print(f"Best log-loss: [bold]{best}[/]{best_of_ours}.")
    answers.print("Annealed models are bold. ± is one standard error over the folds.")
    if table.weights is not None:
        answers.print(f"Samples are weighted by {escape(repr(table.columns.weights))}, in fits and scores.")


def _print_message(text):
    messages.print(escape(text), highlight=False, soft_wrap=True)
