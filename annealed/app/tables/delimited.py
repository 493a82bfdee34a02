"""Parses the text of a CSV: its separator, its header, short and long rows, and numbers with commas."""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Iterable
from functools import partial

from annealed.app.tables.base import NUMBER, check_number_of_columns
from annealed.errors import InputError
from annealed.optional import require

SAMPLE = 65_536  # characters from which the separator is detected
SEPARATORS = "\t;|,"  # the comma last, because it also occurs in numbers and in names
SEVERAL_BLANKS = r"\s+"
TYPED = {r"\t": "\t"}  # separators as typed in a shell
ALSO_MISSING = ["?"]  # in addition to pandas' markers of missing cells
AS_WRITTEN = {"dtype": str, "keep_default_na": False}
QUOTED = re.compile(r'"[^"]*"')
LINE_END = re.compile(r"[\r\n]")
BLANK_LINES = re.compile(r"\A\s*[\r\n]")  # before the header
SEPARATOR_LINE = re.compile(r"sep=(.)\r?\n")  # as written by Excel
COMMAS = {  # numbers for each meaning of a comma, the likelier meaning first
    "decimal": re.compile(r"\s*[-+]?(?=[\d,])(\d{1,3}(\.\d{3})+|\d*)(,\d+)?(e[-+]?\d+)?\s*", re.IGNORECASE),
    "thousands": re.compile(r"\s*[-+]?(?=[\d.])([1-9]\d{0,2}(,\d{3})+|\d*)(\.\d+)?(e[-+]?\d+)?\s*", re.IGNORECASE),
}
GROUPED = re.compile(r"\s*[-+]?([1-9]\d{0,2}(\.\d{3})+|\d{1,3})\s*")  # numbers in which points may separate thousands
LONG = 2.0**64  # with a whole number this large, pandas keeps the cells of a column as texts


def read_csv_text(text, separator, texts, commas):
    """Read a CSV by column positions and name the columns afterwards: pandas would shift cells and change names."""
    pandas = require("pandas", extra="cli")
    separator_line = SEPARATOR_LINE.match(text)
    if separator_line:
        text = text[separator_line.end() :]
    text = BLANK_LINES.sub("", text)
    separator = separator or (separator_line[1] if separator_line else _separator(text[:SAMPLE]))
    check_number_of_columns(_most_names(text, separator))
    read = partial(pandas.read_csv, **_parser(separator), skipinitialspace=True)
    names = _names(read(io.StringIO(text), header=None, nrows=1, **AS_WRITTEN))
    try:
        n_cells = read(io.StringIO(text), header=None, skiprows=1, nrows=1).shape[1]
    except pandas.errors.EmptyDataError:
        n_cells = 0
    by_position = {"header": 0, "names": range(max(n_cells, len(names))), "index_col": False}

    def as_written(positions, first=0):
        positions = [first + position for position in positions]
        return read(io.StringIO(text), usecols=positions, **by_position, **AS_WRITTEN)

    first = 0
    if n_cells > len(names):
        last = as_written([n_cells - 1]).iloc[:, 0]
        first = _first_named(names, n_cells, last)
        if first and (last == "").any():
            _check_row_names(names, text, separator)
    dtypes = {first + position: str for position, name in enumerate(names) if name.strip() in texts}
    frame = read(io.StringIO(text), na_values=ALSO_MISSING, dtype=dtypes, **by_position)
    frame = frame.iloc[:, first : first + len(names)].set_axis(names, axis=1)
    if len(names) > 1 and frame.iloc[:, -1].isna().any():
        _warn_of_short_rows(len(names), text, separator)
    frame = _with_long_numbers(frame, texts, pandas)
    return _without_commas(frame, separator, texts, commas, pandas, partial(as_written, first=first))


def _parser(separator):
    """Options of pandas' fast parser or, for a separator of several characters, of the one that accepts a pattern.

    `low_memory=False` gives each column one type; in chunks, pandas reads 1 in some rows and 1.0 in others.
    """
    separator = TYPED.get(separator, separator)
    if separator == SEVERAL_BLANKS or len(separator.encode()) == 1:
        return {"sep": separator, "low_memory": False}
    return {"sep": f"{re.escape(separator)} *", "engine": "python"}


def _most_names(text, separator):
    """Number of columns as the first line names them, or more if names contain the separator."""
    line = QUOTED.sub("", LINE_END.split(text, maxsplit=1)[0])
    return len(line.split()) if separator == SEVERAL_BLANKS else 1 + line.count(TYPED.get(separator, separator))


def _names(header):
    """Column names; an empty one is replaced as by pandas."""
    return [name if name.strip() else f"Unnamed: {position}" for position, name in enumerate(header.iloc[0])]


def _separator(sample):
    """The most frequent separator of the first line, preferably one that occurs equally often in every line."""
    lines = [line for line in QUOTED.sub("", sample).splitlines() if line.strip()][:20]
    if len(sample) == SAMPLE and len(lines) > 1:
        lines.pop()  # it may be cut off
    counts = {separator: [line.count(separator) for line in lines] for separator in SEPARATORS}
    constant = [separator for separator, count in counts.items() if lines and count[0] and len(set(count)) == 1]
    likely = constant or [separator for separator, count in counts.items() if lines and count[0]]
    if likely:
        return max(likely, key=lambda separator: counts[separator][0])
    return SEVERAL_BLANKS if lines and len(lines[0].split()) > 1 else ","


def _first_named(names, n_cells, last):
    """Position of the first named column if rows have one cell more than the header.

    The additional cell is a row name at the beginning, as R writes it, or an empty cell after a trailing separator.
    The cells in `last` are unparsed: an empty one differs from NA, which R may write in every row of a column.
    """
    if n_cells > len(names) + 1:
        raise InputError(
            f"The first line must name every column. Got {len(names)} names, but {n_cells} cells in the first row."
        )
    has_trailing_separator = bool((last.str.strip() == "").all())
    return 0 if has_trailing_separator else 1


def _check_row_names(names, text, separator):
    """Raise an error if only some rows have an additional cell: it is due to an unquoted separator, not a row name."""
    for row, n_cells in enumerate(_row_lengths(text, separator), start=1):
        if n_cells <= len(names):
            raise InputError(
                f"The first line names {len(names)} columns, but row 1 has {len(names) + 1} cells and row {row} "
                f"has {n_cells}. Quote cells that contain a separator."
            )


def _warn_of_short_rows(n_names, text, separator):
    if separator != SEVERAL_BLANKS and len(TYPED.get(separator, separator)) > 1:
        return
    try:
        lengths = list(_row_lengths(text, separator))
    except csv.Error:  # a cell exceeds the size limit of the csv module
        return
    short = [row for row, n_cells in enumerate(lengths, start=1) if n_cells < n_names]
    if short:
        warnings.warn(
            f"The first line names {n_names} columns, but {len(short)} of {len(lengths)} rows have fewer cells, first "
            f"row {short[0]} with {lengths[short[0] - 1]}. The cells at the end of these rows are treated as missing.",
            stacklevel=2,
        )


def _row_lengths(text, separator):
    """Number of cells in each row, which pandas does not report, because it pads short rows."""
    lines: Iterable[str] = io.StringIO(text, newline="")
    separator = TYPED.get(separator, separator)
    if separator == SEVERAL_BLANKS:
        lines, separator = (line.replace("\t", " ").rstrip() + "\n" for line in lines), " "
    rows = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    next(rows)
    return (len(row) for row in rows if len(row) > 1 or "".join(row).strip())


def _without_commas(frame, separator, texts, commas, pandas, as_written):
    """Parse columns of numbers such as 1,5 or 1,250.5, if all cells of a column use commas in one of the two ways.

    A cell such as 1,250 fits both ways. Then the other columns decide, or else `commas`, the meaning in the table that
    a model was fitted on. If commas separate the cells, a quoted cell such as "1,5" may also be a list; it is not
    parsed as a number if other numbers have a decimal point.
    """
    possible = ["thousands"] if separator == "," and _has_fractions(frame) else list(COMMAS)
    commas = commas or ("thousands" if separator == "," else "decimal")
    fitting = [_styles(column, possible, texts, pandas) for _, column in frame.items()]
    certain = {styles[0] for styles in fitting if len(styles) == 1}
    is_whole = [pandas.api.types.is_integer_dtype(dtype) for dtype in frame.dtypes]
    others = [position for position, styles in enumerate(fitting) if not styles and not is_whole[position]]
    if certain == {"decimal"} and others:
        _warn_of_points(frame.iloc[:, others], as_written(others))
    likely = certain.pop() if len(certain) == 1 else commas
    for position, styles in enumerate(fitting):
        if styles:
            style = likely if likely in styles else styles[0]
            frame.isetitem(position, _numbers(frame.iloc[:, position], style, pandas))
            frame.attrs["commas"] = likely
    return frame


def _has_fractions(frame):
    return bool((frame.select_dtypes("number") % 1 > 0).any(axis=None))


def _warn_of_points(columns, written):
    """Warn that points before three digits are not read as thousands separators.

    They never are, because the few rows of a table to predict may not suffice to decide it in the same way.
    """
    for (name, column), (_, cells) in zip(columns.items(), written.items(), strict=True):
        cells = cells[column.notna()]
        pointed = cells[cells.str.contains(".", regex=False)]
        if len(pointed) and all(map(GROUPED.fullmatch, cells.tolist())):
            warnings.warn(
                f"Column {name!r} has points before three digits, as in {pointed.iloc[0]}, which are not read as "
                "thousands separators, although other columns have decimal commas. Delete them if they separate "
                "thousands.",
                stacklevel=2,
            )


def _styles(column, possible, texts, pandas):
    """Meanings of commas that suit all cells of a column; none if it contains no comma."""
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
    """Parse columns in which some integers exceed 64 bits; if most of them do, they are codes and stay texts."""
    for position, (_, column) in enumerate(frame.items()):
        if _is_open(column, texts, pandas) and all(NUMBER.fullmatch(str(cell)) for cell in column.dropna()):
            numbers = column.astype(float)
            if numbers.abs().median() < LONG:
                frame.isetitem(position, numbers)
    return frame


def _is_open(column, texts, pandas):
    """Whether pandas reads a column as texts, although it is not in `texts`."""
    return column.name.strip() not in texts and not pandas.api.types.is_numeric_dtype(column)
