"""Reads a table from a file, with a specific error message for everything that can go wrong.

The encoding, the separator and the meaning of commas in numbers of a CSV are detected from its text.
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
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from annealed.app.tables.base import check_names
from annealed.app.tables.delimited import SAMPLE, read_csv_text
from annealed.errors import InputError
from annealed.optional import require

STANDARD_INPUT = Path("-")
PARQUET = b"PAR1"
WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")  # .xlsx and .ods, .xls
MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose byte-order mark is a prefix of this one
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
GUESSES = ("utf-8", "cp1252", "latin-1")  # latin-1 decodes any bytes
LETTERS_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
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
PARSER_INTERRUPTED = "Calling read(nbytes) on source failed"  # pandas' message after Ctrl-C: memory cannot fail to read
LONGER_ROW = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")  # pandas' message


def read_table(
    path: Path,
    *,
    separator: str | None = None,
    encoding: str | None = None,
    texts: Collection[str] = (),
    commas: str = "",
):
    """Read a CSV or Parquet file as a pandas DataFrame.

    Parameters
    ----------
    path : Path
        The file; ``-`` reads standard input.
    separator, encoding : str or None
        The format of a CSV; None detects it from the text.
    texts : collection of str
        Columns of a CSV whose cells are kept as texts even if they look like numbers, such as the `texts` of a model.
    commas : "decimal", "thousands" or ""
        The meaning of commas in the numbers of a CSV that does not determine it, such as the `columns.commas` of a
        model. "" means thousands if commas separate the cells, and decimal commas otherwise.

    Returns
    -------
    frame : pandas DataFrame
    """
    try:
        content = _content(path)
        if path.suffix.lower() in (".parquet", ".pq") or content.startswith(PARQUET):
            frame = _read_parquet(content)
        else:
            frame = read_csv_text(_text(path, content, encoding), separator, texts, commas)
    except InputError:
        raise
    except ImportError as error:
        raise InputError(str(error)) from error
    except UNREADABLE as error:
        if PARSER_INTERRUPTED in str(error):
            raise KeyboardInterrupt from error
        longer = LONGER_ROW.search(str(error))
        reason = _reason_of_longer_row(*map(int, longer.groups())) if longer else _first_line(error)
        raise InputError(f"'{path}' cannot be read as a table: {reason}") from error
    except Exception as error:  # pyarrow's errors do not derive from those above
        if type(error).__module__.partition(".")[0] != "pyarrow":
            raise
        raise InputError(f"'{path}' cannot be read as a table: {_first_line(error)}") from error
    return _checked(path, frame)


def _checked(path, frame):
    names = frame.columns = [str(name).strip() for name in frame.columns]
    check_names(names)
    if not len(frame):
        raise InputError(f"The table in '{path}' has no rows.")
    if _is_data(names):
        raise InputError(
            f"The first line of '{path}' must hold the names of the columns. Got {', '.join(names[:5])} ... Insert a "
            "line with the names."
        )
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(f"The columns of '{path}' must have different names. Got {repeated[0]!r} more than once.")
    return frame


def _content(path):
    if path == STANDARD_INPUT:
        return sys.stdin.buffer.read()
    if not path.exists():
        raise InputError(f"There is no file '{path}'.")
    if path.is_dir():
        raise InputError(f"'{path}' is a folder, not a table.")
    content, suffix = path.read_bytes(), path.suffix.lower()
    if suffix == ".zip":
        return _only_member(path, content)
    decompress = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}.get(suffix)
    return decompress(content) if decompress else content


def _only_member(path, content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        if len(names) != 1:
            raise InputError(f"'{path}' must hold one table. Got {len(names)} files.")
        try:
            return archive.read(names[0])
        except RuntimeError as error:  # a password, or an unsupported compression method
            raise InputError(
                f"'{path}' cannot be decompressed: {_first_line(error)}. Decompress it first, and give the table."
            ) from error


def _text(path, content, encoding):
    """The content as text: in the encoding of its byte-order mark, or in UTF-8, or else in Windows-1252."""
    if not content.strip():
        raise InputError(f"'{path}' is empty.")
    known = encoding or next((name for mark, name in MARKS.items() if content.startswith(mark)), None)
    if known is not None:
        return content.decode(known)
    if content.startswith(WORKBOOKS):
        raise InputError(f"'{path}' must be CSV or Parquet. Got a workbook of a spreadsheet program. Save it as CSV.")
    if b"\0" in content[:SAMPLE]:
        raise InputError(
            f"'{path}' must be CSV or Parquet. Got a file that is not text. If it is, give its --encoding, such as "
            "utf-16-le."
        )
    for name in GUESSES[:-1]:
        try:
            return content.decode(name)
        except UnicodeDecodeError as error:
            if name == "utf-8":
                _check_not_damaged(path, content, error.start)
    return content.decode(GUESSES[-1])


def _check_not_damaged(path, content, place):
    """Raise an error for UTF-8 with a few wrong bytes: in a Latin encoding, all its other letters would be wrong."""
    text = content.decode("utf-8", errors="replace")
    n_wrong = text.count("\ufffd")
    if sum(map(len, LETTERS_BEYOND_ASCII.findall(text))) > 2 * n_wrong:
        line = content.count(b"\n", 0, place) + 1
        raise InputError(
            f"'{path}' is UTF-8 except for {n_wrong} of its bytes, the first in line {line}. Correct them, or give "
            "its --encoding, such as cp1252."
        )


def _read_parquet(content):
    """Read Parquet; decimals become floats, durations become days, and named indices become columns."""
    require("pyarrow", extra="parquet")
    pandas = require("pandas", extra="cli")
    frame = pandas.read_parquet(io.BytesIO(content))
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    for position, (_, column) in enumerate(frame.items()):
        if pandas.api.types.is_timedelta64_dtype(column):
            frame.isetitem(position, column / pandas.Timedelta(days=1))
        elif pandas.api.types.infer_dtype(column, skipna=True) == "decimal":
            frame.isetitem(position, column.astype(float))
    return frame


def _is_data(names):
    """Whether the header is a row of data: its names are numbers, but not consecutive ones, which number columns."""
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return False
    return numbers != [numbers[0] + position for position in range(len(numbers))]


def _reason_of_longer_row(n_expected, line, n_cells):
    return (
        f"line {line} has {n_cells} cells, but the lines before it have {n_expected}. Quote cells that contain a "
        "separator, or give the --separator."
    )


def _first_line(error):
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
