"""The command `annealed`: tables in, comparisons, models, predictions and reports out."""

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
from annealed.answers import comparison_table, path_table
from annealed.callbacks import StopOnInterrupt
from annealed.comparison import CANDIDATES, NOT_KEPT, OURS, compare, fit_table, table_splits
from annealed.export import (
    STANDARD_OUTPUT,
    check_writable,
    json_of,
    load_model,
    save_model,
    write_predictions,
    write_report,
)
from annealed.progress import CoolingBar
from annealed.tables import MOST_CATEGORIES, InputError, default_table, label_table, read_table, why_texts

INTERRUPTED = 130  # as shells count: 128 and the number of the signal

app = typer.Typer(
    name="annealed",
    help="Discriminant analysis by annealing, for tables: CSV or Parquet, numbers and categories mixed, cells missing.",
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
    Path | None, typer.Argument(help="The table; without one, the embedded default.", show_default=False)
]
Target = Annotated[str, typer.Option("--target", "-t", help="Column with the classes.", show_default=False)]
MaybeTarget = Annotated[str | None, typer.Option("--target", "-t", help="Column with the classes.")]
Weights = Annotated[
    str | None, typer.Option("--weights", "-w", help="Column that says how much each row counts; no feature.")
]
Separator = Annotated[str | None, typer.Option(help="Between the cells of a CSV; found from the file if not given.")]
Encoding = Annotated[str | None, typer.Option(help="Of a CSV; found from the file if not given.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
ModelFile = Annotated[Path, typer.Argument(help="A file that `annealed fit` wrote.", show_default=False)]


def one_sentence(command):
    """Say what is wrong with the input in one sentence, and exit with 1."""

    @wraps(command)
    def guarded(*args, **kwargs):
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning  # type: ignore[assignment]
                command(*args, **kwargs)
                print(end="", flush=True)
        except BrokenPipeError:  # who reads has seen enough
            raise
        except (OSError, UnicodeEncodeError) as error:
            _end_unprinted(error)
        except (InputError, ImportError) as error:
            _say_what_is_wrong(str(error))
        except KeyboardInterrupt:
            messages.print("[bold]annealed:[/] interrupted; nothing was written.", highlight=False)
            raise typer.Exit(INTERRUPTED) from None

    return guarded


def _end_unprinted(error):
    """What files raise is an InputError, so that this is of standard output; nothing is to be tried on it again."""
    sys.stdout = open(os.devnull, "w")
    if isinstance(error, UnicodeEncodeError):
        reason = f"{error.object[error.start]!r} is not in {error.encoding}. Set PYTHONIOENCODING=utf-8"
    else:
        reason = error.strerror
    _say_what_is_wrong(f"The answer cannot be printed: {reason}.")


def _say_what_is_wrong(sentence):
    messages.print(f"[bold red]annealed:[/] {escape(sentence)}", highlight=False, soft_wrap=True)
    raise typer.Exit(1) from None


def _show_warning(message, category, filename, line, file=None, text=None):
    messages.print(f"[yellow]note:[/] {escape(str(message))}", highlight=False, soft_wrap=True)


def _version(is_asked: bool):
    if is_asked:
        print(f"annealed {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
):
    pass


# --- the commands -------------------------------------------------------------------------------------


@app.command("compare", epilog="Example: annealed compare flowers.csv --target species --save best.skops")
@one_sentence
def compare_command(
    data: MaybeData = None,
    target: MaybeTarget = None,
    weights: Weights = None,
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")] = 5,
    save: Annotated[Path | None, typer.Option(help="Fit the best model on all rows and write it.")] = None,
    as_json: AsJson = False,
    separator: Separator = None,
    encoding: Encoding = None,
):
    """Cross-validate our estimators and their usual peers on a table, and name the best."""
    if save is not None:
        check_writable(save)
    table = _labelled(data, target, weights, separator, encoding)
    ranked = _ranked(table, folds)
    answer = _ranking(ranked)
    if not as_json:
        _print_comparison(ranked, table)
    if save is not None and len(ranked) == len(CANDIDATES):
        answer["saved"] = _fit_and_save(table, _kept(answer), save)
    if as_json:
        _print_json(answer)
    if len(ranked) < len(CANDIDATES):
        raise typer.Exit(INTERRUPTED)


@app.command(epilog="Example: annealed fit flowers.csv --target species --model logistic -o model.skops")
@one_sentence
def fit(
    data: Data,
    target: Target,
    weights: Weights = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The model file to write.")] = Path("model.skops"),
    model: Annotated[
        str, typer.Option("--model", "-m", help=f"One of {', '.join(OURS)}.", autocompletion=lambda: list(OURS))
    ] = "logistic",
    as_json: AsJson = False,
    separator: Separator = None,
    encoding: Encoding = None,
):
    """Fit one of our estimators and write it to a file; Ctrl-C ends the cooling and keeps the path so far."""
    if model not in OURS:
        raise InputError(f"There is no model {model!r}. Choose one of {', '.join(OURS)}.")
    check_writable(output)
    table = _labelled(data, target, weights, separator, encoding)
    saved = _fit_and_save(table, model, output)
    if as_json:
        _print_json(saved)


@app.command(epilog="Example: annealed predict model.skops new.csv -o out.csv")
@one_sentence
def predict(
    model: ModelFile,
    data: Data,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="CSV, JSON or Parquet to write; none prints CSV.")
    ] = None,
    as_json: AsJson = False,
    separator: Separator = None,
    encoding: Encoding = None,
):
    """Labels and probabilities for new rows; columns are found by name, others are ignored."""
    fitted = load_model(model)
    predictions = fitted.predict(_table_for(fitted, data, separator, encoding))
    if output is None or output == STANDARD_OUTPUT:
        print(json_of(predictions) if as_json else predictions.to_csv(index=False), end="")
        return
    write_predictions(predictions, output, as_json=as_json)
    _say(f"{len(predictions)} rows predicted, in {output}")


@app.command(epilog="Example: annealed report model.skops flowers.csv -o report.html")
@one_sentence
def report(
    model: ModelFile,
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")] = Path("report.html"),
    as_json: AsJson = False,
    separator: Separator = None,
    encoding: Encoding = None,
):
    """One HTML file that opens offline: the path with a temperature slider, and what the model says at each."""
    fitted = load_model(model)
    _check_report(output)
    write_report(fitted, _table_for(fitted, data, separator, encoding), output)
    _say(f"The report is in {output.resolve()}")
    if as_json:
        _print_json({"report": str(output.resolve())})


@app.command(epilog="Example: annealed path model.skops --json")
@one_sentence
def path(model: ModelFile, as_json: AsJson = False):
    """The annealing path of a model as a table, hot to cold."""
    record = load_model(model).path
    if as_json:
        print(json_of(record.to_frame()), end="")
    else:
        answers.print(path_table(record))


@app.command(epilog="Example: annealed demo")
@one_sentence
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="The report to write.")] = Path("report.html"),
    as_json: AsJson = False,
):
    """Compare on the embedded default, and write the report of the best annealed model."""
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
    _say(f"The report of {name} is in {output.resolve()}: open it in a browser and move the slider.")
    if as_json:
        _print_json({**_ranking(ranked), "report": str(output.resolve())})


# --- what they share ----------------------------------------------------------------------------------


def _labelled(data, target, weights, separator, encoding):
    if data is None:
        for name, given in {"target": target, "weights": weights}.items():
            if given is not None:
                raise InputError(f"--{name} was given without a table: annealed compare TABLE --target COLUMN.")
        _say("No table given, so the embedded default is used: breast-cancer cells, 569 rows.")
        return default_table()
    frame = read_table(data, separator=separator, encoding=encoding)
    if target is None:
        raise InputError(
            f"Say which column holds the classes: --target, one of {', '.join(map(repr, frame.columns[-5:]))} ..."
        )
    table = label_table(frame, target, weights)
    if len(table.labels) < len(frame):
        _say(f"note: {len(frame) - len(table.labels)} of {len(frame)} rows weigh 0 and are left out.")
    for name, reason in table.columns.left_out.items():
        _say(f"note: column {name!r} is left out, {reason}.")
    for name in table.columns.categories:
        n_texts, why = table.features[name].nunique(), why_texts(table.features[name])
        if why:
            _say(f"note: column {name!r} is taken for categories: {why}.")
        elif n_texts > MOST_CATEGORIES:
            _say(f"note: column {name!r} holds {n_texts} different texts; the rarest share one category.")
    return table


def _check_report(output):
    if output.suffix.lower() not in ("", ".html", ".htm"):
        raise InputError(f"A report is HTML, which browsers open by the name .html. Got '{output}'.")
    check_writable(output)


def _table_for(model, data, separator, encoding):
    """Read as the table was that the model was fitted on, where the file itself does not tell."""
    known = {"texts": model.texts, "commas": model.columns.commas}
    return read_table(data, separator=separator, encoding=encoding, **known)


def _ranked(table, folds):
    """Results of all candidates, or of those that were done when Ctrl-C was pressed, best first."""
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
        _say(f"Interrupted: {len(results)} of {len(CANDIDATES)} models were compared, and nothing was written.")
    return sorted(results, key=lambda result: result.log_loss)


def _ranking(ranked):
    ours = next((result.name for result in ranked if result.is_ours), None)
    return {"best": ranked[0].name, "best_of_ours": ours, "models": [result.as_dict() for result in ranked]}


def _kept(ranking):
    """The best model, or the best of ours where no file of the best is safe to open."""
    best, ours = ranking["best"], ranking["best_of_ours"]
    if best not in NOT_KEPT:
        return best
    _say(f"No file of {best} is safe to open, so {ours}, the best of ours, is kept.")
    return ours


def _fitted(table, name):
    guard = StopOnInterrupt()
    with CoolingBar(messages) as bar:
        bar.begin(name)
        fitted = fit_table(table, name, (guard, bar))
        bar.end()
    if guard.is_interrupted:
        coldest = fitted.path.temperatures[-1]
        _say(f"Interrupted at temperature {coldest:.3g}: the path walked so far is kept.")
    return fitted


def _fit_and_save(table, name, output):
    """Fit, write, and tell what was written."""
    fitted = _fitted(table, name)
    save_model(fitted, output)
    saved = {"model": name, "file": str(output)}
    if name not in OURS:
        _say(f"{name} fitted; the model is in {output}")
        return saved
    record = fitted.path
    saved |= {"temperature": float(fitted.classifier.temperature_), "n_temperatures": len(record)}
    loss = ""
    if getattr(record, "validation_score", None) is not None:
        saved["validation_log_loss"] = -float(record.validation_score[record.best_index].mean())
        loss = f", validation log-loss {saved['validation_log_loss']:.4f}"
    _say(f"{name} fitted at temperature {saved['temperature']:.4g}{loss}; the model is in {output}")
    return saved


def _print_json(value):
    print(json.dumps(value, indent=2, allow_nan=False))


def _print_comparison(ranked, table):
    answers.print(comparison_table(ranked, len(table.labels), len(table.classes)))
    best, ours = ranked[0].name, next((result.name for result in ranked if result.is_ours), None)
    of_ours = f"; of ours, [bold]{ours}[/]" if ours not in (best, None) else ""
    answers.print(f"Best by log-loss: [bold]{best}[/]{of_ours}. ± is one standard error over the folds.")
    if table.weights is not None:
        answers.print(f"Rows are weighted by {escape(repr(table.columns.weights))}, in fits and in scores.")


def _say(text):
    messages.print(escape(text), highlight=False, soft_wrap=True)
