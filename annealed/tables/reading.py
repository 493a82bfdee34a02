"""Read a table from a file: every way in which that can fail has a sentence of its own.

A CSV does not say how it is written: encoding, separator and the use of commas in numbers are found from its text.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
import re
import sys
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path

from annealed.optional import require
from annealed.tables.base import NUMBER, InputError

STANDARD_INPUT = Path("-")
PARQUET = b"PAR1"
WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")  # .xlsx and .ods, .xls
SAMPLE = 65_536  # characters by which the separator is found
SEPARATORS = "\t;|,"  # a comma last: it also stands in numbers and in names
SEVERAL_BLANKS = r"\s+"
TYPED = {r"\t": "\t"}  # in a shell, where a tab is hard to type
ALSO_MISSING = ["?"]  # beyond what pandas takes for missing
AS_WRITTEN = {"dtype": str, "keep_default_na": False}
MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark begins it
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
GUESSES = ("utf-8", "cp1252", "latin-1")  # the last reads anything
LETTERS_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
QUOTED = re.compile(r'"[^"]*"')
BLANK_LINES = re.compile(r"\A\s*[\r\n]")  # before the names
SEPARATOR_LINE = re.compile(r"sep=(.)\r?\n")  # which Excel writes and reads
UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    LookupError,
    csv.Error,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
)
PARSER_INTERRUPTED = "Calling read(nbytes) on source failed"  # pandas says of Ctrl-C: no text in memory fails
LONGER_ROW = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")  # as pandas says it
COMMAS = {  # what they mean in a number, the likelier first
    "decimal": re.compile(r"\s*[-+]?(?=[\d,])(\d{1,3}(\.\d{3})+|\d*)(,\d+)?(e[-+]?\d+)?\s*", re.IGNORECASE),
    "thousands": re.compile(r"\s*[-+]?(?=[\d.])([1-9]\d{0,2}(,\d{3})+|\d*)(\.\d+)?(e[-+]?\d+)?\s*", re.IGNORECASE),
}
GROUPED = re.compile(r"\s*[-+]?([1-9]\d{0,2}(\.\d{3})+|\d{1,3})\s*")  # where points may mark thousands
LONG = 2.0**64  # a whole number from here on makes pandas keep the cells of its column as they are


def read_table(
    path: Path,
    *,
    separator: str | None = None,
    encoding: str | None = None,
    texts: Collection[str] = (),
    commas: str = "",
):
    """A pandas DataFrame from CSV or Parquet; `-` reads standard input.

    Parameters
    ----------
    path : Path
    separator, encoding : str or None
        Of a CSV; found from its text where they are None.
    texts : collection of str
        Columns of a CSV whose cells are kept as they are written, whatever they look like: the `texts` of a model.
    commas : "decimal", "thousands" or ""
        What they mean in the numbers of a CSV where nothing in it tells: the `columns.commas` of a model. "" is
        thousands between commas and decimals between other separators.

    Returns
    -------
    frame : pandas DataFrame
    """
    try:
        content = _content(path)
        if path.suffix.lower() in (".parquet", ".pq") or content.startswith(PARQUET):
            frame = _read_parquet(content)
        else:
            frame = _read_csv(_text(path, content, encoding), separator, texts, commas)
    except InputError:
        raise
    except ImportError as error:
        raise InputError(str(error)) from error
    except UNREADABLE as error:
        if PARSER_INTERRUPTED in str(error):
            raise KeyboardInterrupt from error
        longer = LONGER_ROW.search(str(error))
        reason = _tell_of_longer(*map(int, longer.groups())) if longer else _first_line(error)
        raise InputError(f"'{path}' cannot be read as a table: {reason}") from error
    except Exception as error:  # pyarrow's errors have a root of their own
        if type(error).__module__.partition(".")[0] != "pyarrow":
            raise
        raise InputError(f"'{path}' cannot be read as a table: {_first_line(error)}") from error
    return _checked(path, frame)


def _checked(path, frame):
    names = frame.columns = [str(name).strip() for name in frame.columns]
    if not len(frame):
        raise InputError(f"The table in '{path}' has no rows.")
    if _is_data(names):
        raise InputError(
            f"The first line of '{path}' must hold the names of the columns. Got {', '.join(names[:5])} ..."
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"The columns of '{path}' must have different names. Got {twice[0]!r} twice.")
    return frame


def _content(path):
    if path == STANDARD_INPUT:
        return sys.stdin.buffer.read()
    if not path.exists():
        raise InputError(f"There is no file '{path}'.")
    if path.is_dir():
        raise InputError(f"'{path}' is a folder, not a table.")
    content, packed = path.read_bytes(), path.suffix.lower()
    if packed == ".zip":
        return _only_member(path, content)
    unpack = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}.get(packed)
    return unpack(content) if unpack else content


def _only_member(path, content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        if len(names) != 1:
            raise InputError(f"'{path}' must hold one table. Got {len(names)} files.")
        try:
            return archive.read(names[0])
        except RuntimeError as error:  # it wants a password, or is packed in a way of its own
            raise InputError(f"'{path}' cannot be unpacked: {_first_line(error)}. Give the table itself.") from error


def _text(path, content, encoding):
    """A mark at the beginning tells the encoding; else UTF-8 if it is, or Windows' Latin alphabet."""
    if not content.strip():
        raise InputError(f"'{path}' is empty.")
    known = encoding or next((name for mark, name in MARKS.items() if content.startswith(mark)), None)
    if known is not None:
        return content.decode(known)
    if content.startswith(WORKBOOKS):
        raise InputError(f"'{path}' is a workbook of a spreadsheet program: save its table there as CSV.")
    if b"\0" in content[:SAMPLE]:
        raise InputError(f"'{path}' is no text: a table must be CSV or Parquet (or say its --encoding, as utf-16-le).")
    for name in GUESSES[:-1]:
        try:
            return content.decode(name)
        except UnicodeDecodeError as error:
            if name == "utf-8":
                _check_not_damaged(path, content, error.start)
    return content.decode(GUESSES[-1])


def _check_not_damaged(path, content, place):
    """Refuse UTF-8 with a few wrong bytes: as Latin letters all others would be wrong."""
    text = content.decode("utf-8", errors="replace")
    n_wrong = text.count("\ufffd")
    if sum(map(len, LETTERS_BEYOND_ASCII.findall(text))) > 2 * n_wrong:
        line = content.count(b"\n", 0, place) + 1
        raise InputError(
            f"'{path}' is UTF-8 but for {n_wrong} of its bytes, the first in line {line}: correct them, or say its "
            "--encoding, as cp1252."
        )


def _read_csv(text, separator, texts, commas):
    """Columns are read by their place and named afterwards: pandas would shift cells and rename names by itself."""
    pandas = require("pandas", extra="cli")
    said = SEPARATOR_LINE.match(text)
    if said:
        text = text[said.end() :]
    text = BLANK_LINES.sub("", text)
    separator = separator or (said[1] if said else _separator(text[:SAMPLE]))
    read = partial(pandas.read_csv, **_parser(separator), skipinitialspace=True)
    names = _names(read(io.StringIO(text), header=None, nrows=1, **AS_WRITTEN))
    try:
        n_cells = read(io.StringIO(text), header=None, skiprows=1, nrows=1).shape[1]
    except pandas.errors.EmptyDataError:
        n_cells = 0
    by_place = {"header": 0, "names": range(max(n_cells, len(names))), "index_col": False}

    def as_written(places, first=0):
        places = [first + place for place in places]
        return read(io.StringIO(text), usecols=places, **by_place, **AS_WRITTEN)

    first = 0
    if n_cells > len(names):
        last = as_written([n_cells - 1]).iloc[:, 0]
        first = _first_named(names, n_cells, last)
        if first and (last == "").any():
            _check_names_of_rows(names, text, separator)
    kept = {first + place: str for place, name in enumerate(names) if name.strip() in texts}
    frame = read(io.StringIO(text), na_values=ALSO_MISSING, dtype=kept, **by_place)
    frame = frame.iloc[:, first : first + len(names)].set_axis(names, axis=1)
    if len(names) > 1 and frame.iloc[:, -1].isna().any():
        _tell_of_short_rows(len(names), text, separator)
    frame = _with_long_numbers(frame, texts, pandas)
    return _without_commas(frame, separator, texts, commas, pandas, partial(as_written, first=first))


def _parser(separator):
    """The quick parser in one piece, or for several characters the one that takes them for a pattern."""
    separator = TYPED.get(separator, separator)
    if separator == SEVERAL_BLANKS or len(separator.encode()) == 1:
        return {"sep": separator, "low_memory": False}
    return {"sep": f"{re.escape(separator)} *", "engine": "python"}


def _names(header):
    """Of the columns; one without a name gets the one that pandas would give it."""
    return [name if name.strip() else f"Unnamed: {place}" for place, name in enumerate(header.iloc[0])]


def _read_parquet(content):
    """Numbers of any kind as floats, spans of time as days, and names of rows as columns."""
    require("pyarrow", extra="parquet")
    pandas = require("pandas", extra="cli")
    frame = pandas.read_parquet(io.BytesIO(content))
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    for place, (_, column) in enumerate(frame.items()):
        if pandas.api.types.is_timedelta64_dtype(column):
            frame.isetitem(place, column / pandas.Timedelta(days=1))
        elif pandas.api.types.infer_dtype(column, skipna=True) == "decimal":
            frame.isetitem(place, column.astype(float))
    return frame


def _separator(sample):
    """The one that stands equally often in every line, and most often in the first."""
    lines = [line for line in QUOTED.sub("", sample).splitlines() if line.strip()][:20]
    if len(sample) == SAMPLE and len(lines) > 1:
        lines.pop()  # it may be cut
    counts = {own: [line.count(own) for line in lines] for own in SEPARATORS}
    steady = [own for own, seen in counts.items() if lines and seen[0] and len(set(seen)) == 1]
    likely = steady or [own for own, seen in counts.items() if lines and seen[0]]
    if likely:
        return max(likely, key=lambda own: counts[own][0])
    return SEVERAL_BLANKS if lines and len(lines[0].split()) > 1 else ","


def _first_named(names, n_cells, last):
    """The place of the first name in rows with a cell more: R begins them with a name, others end them by a separator.

    An empty last cell is told from one that says NA, as a column of R's may do throughout.
    """
    if n_cells > len(names) + 1:
        raise InputError(f"The first line names {len(names)} columns, but the first row holds {n_cells} cells.")
    ends_by_separator = bool((last.str.strip() == "").all())
    return 0 if ends_by_separator else 1


def _check_names_of_rows(names, text, separator):
    """Refuse rows of different length: a cell more in some is a separator that stands in no quotes, not their name."""
    for row, n_cells in enumerate(_row_lengths(text, separator), start=1):
        if n_cells <= len(names):
            raise InputError(
                f"The first line names {len(names)} columns, but row 1 holds {len(names) + 1} cells and row {row} "
                f"holds {n_cells}: put cells that hold a separator in quotes."
            )


def _tell_of_short_rows(n_names, text, separator):
    if separator != SEVERAL_BLANKS and len(TYPED.get(separator, separator)) > 1:
        return
    try:
        lengths = list(_row_lengths(text, separator))
    except csv.Error:  # of a cell longer than it takes: nothing is told
        return
    short = [row for row, n_cells in enumerate(lengths, start=1) if n_cells < n_names]
    if short:
        warnings.warn(
            f"The first line names {n_names} columns, but {len(short)} of {len(lengths)} rows hold fewer cells, first "
            f"row {short[0]} with {lengths[short[0] - 1]}: what they lack at their end is taken as missing.",
            stacklevel=2,
        )


def _row_lengths(text, separator):
    """How many cells each row holds: pandas fills short ones up with empty cells."""
    lines: Iterable[str] = io.StringIO(text, newline="")
    separator = TYPED.get(separator, separator)
    if separator == SEVERAL_BLANKS:
        lines, separator = (line.replace("\t", " ").rstrip() + "\n" for line in lines), " "
    rows = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    next(rows)
    return (len(row) for row in rows if len(row) > 1 or "".join(row).strip())


def _without_commas(frame, separator, texts, commas, pandas, as_written):
    """Texts such as 1,5 or 1,250.5 as numbers, where all of a column are of one style.

    A cell such as 1,250 is of both: then the other columns tell, or else the table that a model was fitted on. Between
    commas a cell such as "1,5" may also be a list: it is no number where others have a point.
    """
    possible = ["thousands"] if separator == "," and _has_fractions(frame) else list(COMMAS)
    commas = commas or ("thousands" if separator == "," else "decimal")
    fitting = [_styles(column, possible, texts, pandas) for _, column in frame.items()]
    certain = {styles[0] for styles in fitting if len(styles) == 1}
    is_whole = [pandas.api.types.is_integer_dtype(dtype) for dtype in frame.dtypes]
    others = [place for place, styles in enumerate(fitting) if not styles and not is_whole[place]]
    if certain == {"decimal"} and others:
        _tell_of_points(frame.iloc[:, others], as_written(others))
    likely = certain.pop() if len(certain) == 1 else commas
    for place, styles in enumerate(fitting):
        if styles:
            style = likely if likely in styles else styles[0]
            frame.isetitem(place, _numbers(frame.iloc[:, place], style, pandas))
            frame.attrs["commas"] = likely
    return frame


def _has_fractions(frame):
    return bool((frame.select_dtypes("number") % 1 > 0).any(axis=None))


def _tell_of_points(columns, written):
    """Say that points before three digits mark no thousands here: a few rows to predict could not tell that they do."""
    for (name, column), (_, cells) in zip(columns.items(), written.items(), strict=True):
        cells = cells[column.notna()]
        pointed = cells[cells.str.contains(".", regex=False)]
        if len(pointed) and all(map(GROUPED.fullmatch, cells.tolist())):
            warnings.warn(
                f"Column {name!r} holds points before three digits, as in {pointed.iloc[0]}, which are not taken for "
                "marks of thousands, though other columns have decimal commas: delete them if they are.",
                stacklevel=2,
            )


def _styles(column, possible, texts, pandas):
    """Ways of using commas that all cells of a column follow; none where there is no comma."""
    if not _is_open(column, texts, pandas):
        return []
    cells = column.dropna().astype(str)
    if not cells.str.contains(",", regex=False).any():
        return []
    return [style for style in possible if all(map(COMMAS[style].fullmatch, cells.tolist()))]


def _numbers(column, style, pandas):
    cells = column.dropna().astype(str)
    cells = cells.str.replace("." if style == "decimal" else ",", "", regex=False).str.replace(",", ".", regex=False)
    return pandas.to_numeric(cells).reindex(column.index)


def _with_long_numbers(frame, texts, pandas):
    """Columns as floats where a number is longer than pandas reads; where most are, they are codes and stay."""
    for place, (_, column) in enumerate(frame.items()):
        if _is_open(column, texts, pandas) and all(NUMBER.fullmatch(str(cell)) for cell in column.dropna()):
            numbers = column.astype(float)
            if numbers.abs().median() < LONG:
                frame.isetitem(place, numbers)
    return frame


def _is_open(column, texts, pandas):
    """Whether pandas reads its cells as texts, and nobody asked for that."""
    return column.name.strip() not in texts and not pandas.api.types.is_numeric_dtype(column)


def _is_data(names):
    """Whether names are numbers, and not those of numbered columns: then the first row was taken for them."""
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return False
    return numbers != [numbers[0] + place for place in range(len(numbers))]


def _tell_of_longer(n_expected, line, n_cells):
    return (
        f"line {line} holds {n_cells} cells, but those before it hold {n_expected}. Put cells that hold a separator "
        "in quotes, or say which --separator it is."
    )


def _first_line(error):
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
