"""The kinds of columns in a table, and the conversion of a table to the form that a model was fitted on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches

import numpy as np

from annealed.errors import InputError
from annealed.optional import require

MISSING = "missing"  # the category of a missing cell
SHOWN_NAMES = 12
MOST_IDENTIFIERS = 20  # a column with more distinct values may be an identifier of the rows
IDENTIFIER = re.compile(r"(^|[\W_])(id|Id|ID|uid|UID|uuid|UUID)$|(?<=[a-z])I[dD]$")  # column names of identifiers
MOST_COLUMNS = 100_000
LONGEST_NAME = 1_000  # characters
MOST_CLASSES = 200  # a numeric target with more distinct values is a quantity
MOST_LEVELS = 20  # the same limit for a target with fractions
MOST_STRAY = 0.1  # share of non-numeric cells up to which a column is reported as numeric with stray cells
NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?\s*", re.IGNORECASE)
WITH_UNIT = re.compile(r"\s*([^\w\s]?)\s*([-+\u2212]?\d[\d.,']*)\s*(\D{0,8})")  # prefix such as $, number, unit
LARGEST = 1e100  # larger numbers are treated as missing: databases use them as placeholders, and squares overflow
NO_YEARS = ("0000", "0001", "9999")  # years that databases use as placeholders for a missing date
SECONDS_OF_A_DAY = 86_400.0
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table by kind.

    left_out : uninformative columns, which are not used, each with the reason
    commas : meaning of commas in the numbers of the file, "decimal" or "thousands"; "" if there were none
    weights : the column of sample weights, which is not a feature; None if the samples are unweighted
    """

    numbers: list[str]
    dates: list[str]
    categories: list[str]
    left_out: dict[str, str]
    commas: str = ""  # the defaults also apply to model files that lack these entries
    weights: str | None = None

    @classmethod
    def of(cls, frame, labels=None, weights=None) -> TableColumns:
        kinds: dict[str, list[str]] = {"number": [], "date": [], "category": []}
        left_out = {}
        for name in frame.columns:
            reason = _reason_to_leave_out(frame[name], labels)
            if reason:
                left_out[name] = reason
            else:
                kinds[_kind(frame[name])].append(name)
        if not any(kinds.values()):
            reasons = "; ".join(f"{name!r}: {reason}" for name, reason in list(left_out.items())[:SHOWN_NAMES])
            raise InputError(
                f"The table must have an informative column besides the target. Got only columns that are left out: "
                f"{reasons}."
            )
        commas = frame.attrs.get("commas", cls.commas)  # detected by `read_table`
        return cls(kinds["number"], kinds["date"], kinds["category"], left_out, commas, weights)

    @property
    def used(self) -> list[str]:
        return [*self.numbers, *self.dates, *self.categories]

    def conform(self, frame):
        """The used columns as floats and strings; raises an error that names a missing column or a non-numeric cell."""
        check_columns(self.used, frame)
        columns = _numbers_of(frame[self.numbers])
        columns |= {name: _as_days(frame[name]) for name in self.dates}
        columns |= {name: as_texts(frame[name]) for name in self.categories}
        return require("pandas", extra="cli").DataFrame(columns, index=frame.index)


def check_number_of_columns(number: int) -> None:
    if number > MOST_COLUMNS:
        raise InputError(
            f"A table must have at most {MOST_COLUMNS:,} columns. Got {number:,}. Transpose it if its rows and "
            "columns are exchanged, or choose some columns."
        )


def check_names(names: list[str]) -> None:
    """Raise an error for too many columns, or for a name so long that messages and comparisons would be, too."""
    check_number_of_columns(len(names))
    longest = max(names, key=len, default="")
    if len(longest) > LONGEST_NAME:
        raise InputError(
            f"The name of a column must have at most {LONGEST_NAME:,} characters. Got {len(longest):,} that begin with "
            f"{longest[:SHOWN_NAMES]!r}. Check the quotes of the first line."
        )


def check_columns(wanted, frame):
    """Raise an error if the table lacks a column, with the most similar names that it has."""
    present = [str(name) for name in frame.columns]
    known = set(present)
    missing = [name for name in wanted if name not in known]
    if not missing:
        return
    if len(missing) == 1:
        raise InputError(f"The table has no column {missing[0]!r}. {nearest(missing[0], present)}")
    raise InputError(
        f"The table lacks {len(missing)} columns: {_listed(missing)}. Available columns: {_listed(present)}."
    )


def nearest(name: str, known: list[str]) -> str:
    """A sentence with the names most similar to `name`, or with all names if none is similar."""
    by_lower_case = {candidate.lower(): candidate for candidate in reversed(known)}
    close = [by_lower_case[match] for match in get_close_matches(name.lower(), by_lower_case, n=3, cutoff=0.5)]
    return f"Did you mean {' or '.join(map(repr, close))}?" if close else f"Available: {_listed(known)}."


def labels_of(column) -> np.ndarray:
    """Labels of a target: whole numbers stay numbers, other labels become strings.

    Missing labels raise an error, and so do numbers or texts with too many distinct values to be classes.
    """
    types = require("pandas", extra="cli").api.types
    texts = label_texts(column)
    if types.is_numeric_dtype(column) and not types.is_bool_dtype(column):
        return _labels_of_numbers(column)
    n_classes = len(np.unique(texts))
    if n_classes > max(MOST_IDENTIFIERS, len(texts) // 2):
        raise InputError(
            f"The target {str(column.name)!r} must hold class labels. Got {n_classes} different texts in {len(texts)} "
            "rows, which identify rows. Choose another target, or merge these texts into classes."
        )
    return texts


def label_texts(column) -> np.ndarray:
    """Labels of a target as strings; missing labels raise an error."""
    texts = np.array([str(label).strip() for label in column.tolist()], dtype=str)
    missing = column.isna().to_numpy() | (texts == "")
    if missing.any():
        raise InputError(
            f"The target {column.name!r} must have a label in every row. It is missing in {int(missing.sum())} of "
            f"{len(column)} rows, first in row {int(np.argmax(missing)) + 1} (empty, NA, None or ?). Fill these cells "
            "or delete their rows."
        )
    return texts


def weights_of(column) -> np.ndarray:
    """Sample weights; a cell that is not a non-negative number raises an error."""
    pandas = require("pandas", extra="cli")
    cells = column if pandas.api.types.is_numeric_dtype(column) else column.map(str, na_action="ignore")
    weights = pandas.to_numeric(cells, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    is_weight = (weights >= 0) & (weights < LARGEST)
    if not is_weight.all():
        row = int(np.argmin(is_weight))
        cell = "a missing cell" if column.isna().iloc[row] else str(cells.iloc[row])
        raise InputError(
            f"The weights {column.name!r} must be non-negative numbers. Got {cell} in row {row + 1}. Correct such "
            "cells, or write 0 to exclude a row."
        )
    if not weights.any():
        raise InputError(f"The weights {column.name!r} must be positive in some rows. Got 0 in every row.")
    return weights


def as_known(texts, known) -> list[str]:
    """Replace each text by the known text that denotes the same number or truth value: 1.0 by 1, TRUE by True.

    A text without such a counterpart, or with several, is left unchanged.
    """
    by_value: dict[str | Decimal, list[str]] = {}
    for known_text in known:
        by_value.setdefault(_value(known_text), []).append(known_text)
    exact = set(known)
    replacements = {}
    for text in set(texts) - exact:
        same = by_value.get(_value(text), [])
        replacements[text] = same[0] if len(same) == 1 else text
    return [replacements.get(text, text) for text in texts]


def is_number(text: str) -> bool:
    """Whether a text is a number in a table; Python's `float` would also accept 1_0."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _value(text):
    """The exact value of a number, because a code may have more digits than a float; other texts are unchanged."""
    if is_number(text):
        try:
            return Decimal(text)
        except InvalidOperation:  # an exponent with too many digits
            return text
    return text.capitalize() if text.lower() in ("true", "false") else text


def _labels_of_numbers(column):
    numbers = column.to_numpy()
    n_classes = len(np.unique(numbers))
    with np.errstate(invalid="ignore"):
        whole = numbers.astype(np.int64)
    is_whole = bool(np.all(whole == numbers))  # also False if a number does not fit into 64 bits
    if n_classes > min(MOST_CLASSES if is_whole else MOST_LEVELS, len(numbers) // 2):
        raise InputError(
            f"The target {str(column.name)!r} must hold class labels. Got a quantity with {n_classes} distinct "
            f"numbers in {len(numbers)} rows. annealed has no regression: choose another target, or bin this one."
        )
    return whole if is_whole else np.array([str(number) for number in numbers], dtype=str)


def _listed(names) -> str:
    names = [repr(str(name)) for name in names]
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more


def _kind(column):
    types = require("pandas", extra="cli").api.types
    if types.is_datetime64_any_dtype(column) or _holds_iso_dates(column, types):
        return "date"
    return "number" if types.is_numeric_dtype(column) and not types.is_bool_dtype(column) else "category"


def _holds_iso_dates(column, types):
    if types.is_numeric_dtype(column):
        return False
    cells = column.dropna().tolist()
    return len(cells) > 0 and all(ISO_DATE.fullmatch(str(cell)) for cell in cells)


def _reason_to_leave_out(column, labels):
    try:
        count, n_values = column.notna().sum(), column.nunique()
    except TypeError:  # unhashable cells, such as lists in Parquet
        return "its cells are neither numbers nor texts"
    if not count:
        return "every cell is missing"
    if n_values == 1 and count == len(column):
        return "every cell is the same"
    if labels is not None and _repeats(column, labels):
        return "it repeats the target"
    if labels is not None and _recodes(column, labels):
        return "it recodes the target: each of its values stands for one class"
    return _reason_to_call_identifier(column, count, n_values) if n_values > MOST_IDENTIFIERS else None


def _repeats(column, labels):
    """Whether every cell has the value of its row's label, even if they are written differently, as 0 and 0.0."""
    return all(_value(str(cell).strip()) == _value(str(label)) for cell, label in zip(column, labels, strict=True))


def _recodes(column, labels):
    """Whether values, or a missing cell, and classes map one-to-one, in rows enough for this not to be chance."""
    pandas = require("pandas", extra="cli")
    codes, values = pandas.factorize(column, use_na_sentinel=False)
    classes, labels = np.unique(labels, return_inverse=True)
    if len(values) != len(classes) or len(labels) <= max(MOST_IDENTIFIERS, 2 * len(classes)):
        return False
    return len(np.unique(codes * len(classes) + labels)) == len(classes)


def why_texts(column) -> str | None:
    """Why a column that looks numeric holds texts: a few non-numeric cells, or numbers with a unit; None otherwise."""
    cells = column.dropna().map(str)
    is_number_cell = cells.map(NUMBER.fullmatch).notna().to_numpy()
    n_texts = len(cells) - int(is_number_cell.sum())
    if 0 < n_texts <= MOST_STRAY * len(cells):
        stray = int(np.argmin(is_number_cell))
        row = int(np.flatnonzero(column.notna())[stray]) + 1
        return (
            f"{len(cells) - n_texts} of its {len(cells)} cells are numbers, but {cells.iloc[stray]!r} in row {row} is "
            "not; correct such cells or leave them empty"
        )
    if n_texts < len(cells) or column.nunique() <= MOST_IDENTIFIERS:
        return None
    units = {_unit(cell) for cell in cells}
    if len(units) == 1 and units.isdisjoint({None, ("", "")}):  # ("", ""): digits and points, as in dates and versions
        return f"its cells are numbers with a unit, such as {cells.iloc[0]!r}; write the numbers without the unit"
    return None


def _unit(cell):
    """The texts before and after a number, if they may be a unit."""
    found = WITH_UNIT.fullmatch(cell)
    return found.group(1, 3) if found else None


def _reason_to_call_identifier(column, count, n_values):
    """Why a column only identifies the rows; in a table that is sorted by class, such a column reveals the class."""
    kind = _kind(column)
    if kind == "category" and n_values == count:
        return why_texts(column) or "every text is different"
    if kind == "number" and column.iloc[0] in (0, 1) and bool((column.diff().iloc[1:] == 1).all()):
        return "it numbers the rows"
    if IDENTIFIER.search(str(column.name)) and 2 * n_values > count:
        return "its name is that of an identifier"
    return None


def _numbers_of(frame):
    """Each column as floats; numeric columns are converted together, which is faster than one by one."""
    types = require("pandas", extra="cli").api.types
    ready = [types.is_numeric_dtype(dtype) and not types.is_bool_dtype(dtype) for dtype in frame.dtypes]
    values = frame.loc[:, ready].to_numpy(dtype=float, na_value=np.nan)
    values = np.where(np.abs(values) < LARGEST, values, np.nan)
    block = dict(zip(frame.columns[ready], values.T, strict=True))
    return {name: block[name] if name in block else _as_numbers(frame[name]) for name in frame.columns}


def _as_numbers(column):
    pandas = require("pandas", extra="cli")
    numbers = pandas.to_numeric(column, errors="coerce").astype(float)
    wrong = numbers.isna() & column.notna()
    if wrong.any():
        raise InputError(
            f"Column {column.name!r} must hold numbers, as it did when the model was fitted. "
            f"Got {column[wrong].iloc[0]!r} in row {int(np.argmax(wrong)) + 1}. Correct such cells or leave them empty."
        )
    return numbers.where(numbers.abs() < LARGEST)


def _as_days(column):
    """ISO 8601 dates as days since 1970; dates of placeholder years are missing."""
    pandas = require("pandas", extra="cli")
    cells = column.map(str, na_action="ignore").astype(object).where(column.notna())  # NaT has no string methods
    cells = cells.where(~cells.str[:4].isin(NO_YEARS))
    dates = pandas.to_datetime(cells, utc=True, format="ISO8601", errors="coerce")
    wrong = dates.isna() & cells.notna()
    if wrong.any():
        raise InputError(
            f"Column {column.name!r} must hold dates such as 2024-05-31. Got {cells[wrong].iloc[0]!r} in row "
            f"{int(np.argmax(wrong)) + 1}. Correct such cells or leave them empty."
        )
    return (dates - pandas.Timestamp("1970-01-01", tz="UTC")).dt.total_seconds() / SECONDS_OF_A_DAY


def as_texts(column):
    return column.astype(object).where(column.notna(), MISSING).map(str).astype(object)
