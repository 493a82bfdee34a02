"""What the columns of a table are, and how a table is brought to the form that a model was fitted on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches

import numpy as np

from annealed.optional import require

MISSING = "missing"  # the category of a missing cell
SHOWN_NAMES = 12
MOST_IDENTIFIERS = 20  # a column with more values than this may only tell rows apart
IDENTIFIER = re.compile(r"(^|[\W_])(id|Id|ID|uid|UID|uuid|UUID)$|(?<=[a-z])I[dD]$")  # as the name of a column
MOST_CLASSES = 200  # of a numeric target; beyond them it is a quantity
MOST_LEVELS = 20  # of a target that holds fractions
MOST_STRAY = 0.1  # of the cells of a column, that are no numbers where the others are: told of
NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?\s*", re.IGNORECASE)
WITH_UNIT = re.compile(r"\s*([^\w\s]?)\s*([-+\u2212]?\d[\d.,']*)\s*(\D{0,8})")  # before it a sign, as of a currency
LARGEST = 1e100  # beyond it a number stands for none, and its square would overflow
NO_YEARS = ("0000", "0001", "9999")  # of dates by which databases write that there is none
SECONDS_OF_A_DAY = 86_400.0
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")


class InputError(ValueError):
    """Something the user gave cannot be used; the text is one sentence for them."""


@dataclass(frozen=True)
class TableColumns:
    """Columns by kind; `left_out` are those with nothing to learn from, each with the reason.

    commas : what they meant in the numbers of the file, "decimal" or "thousands"; "" where there were none
    weights : the column that says how much each row counts, which is no feature; None where all count alike
    """

    numbers: list[str]
    dates: list[str]
    categories: list[str]
    left_out: dict[str, str]
    commas: str = ""  # also of model files that do not say
    weights: str | None = None  # likewise

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
            raise InputError(f"The table has no column to learn from besides the target. Left out are {reasons}.")
        commas = frame.attrs.get("commas", cls.commas)  # as `read_table` found them
        return cls(kinds["number"], kinds["date"], kinds["category"], left_out, commas, weights)

    @property
    def used(self) -> list[str]:
        return [*self.numbers, *self.dates, *self.categories]

    def conform(self, frame):
        """The used columns as floats and texts; an error that names what is missing or is no number."""
        check_columns(self.used, frame)
        columns = _numbers_of(frame[self.numbers])
        columns |= {name: _as_days(frame[name]) for name in self.dates}
        columns |= {name: as_texts(frame[name]) for name in self.categories}
        return require("pandas", extra="cli").DataFrame(columns, index=frame.index)


def check_columns(wanted, frame):
    """Refuse a table that lacks a column, with the nearest names it has."""
    present = [str(name) for name in frame.columns]
    lacking = [name for name in wanted if name not in present]
    if not lacking:
        return
    if len(lacking) == 1:
        raise InputError(f"The table has no column {lacking[0]!r}. {nearest(lacking[0], present)}")
    raise InputError(f"The table lacks {len(lacking)} columns: {_listed(lacking)}. It has: {_listed(present)}.")


def nearest(name: str, known: list[str]) -> str:
    """A sentence with the names most like `name`, or all of them where none is."""
    lower = {own.lower(): own for own in reversed(known)}
    close = [lower[own] for own in get_close_matches(name.lower(), lower, n=3, cutoff=0.5)]
    return f"Nearest: {_listed(close)}." if close else f"It has: {_listed(known)}."


def labels_of(column) -> np.ndarray:
    """Labels of a target: whole numbers as they are, all else as text; missing cells and quantities are refused."""
    types = require("pandas", extra="cli").api.types
    texts = label_texts(column)
    is_text = types.is_bool_dtype(column) or not types.is_numeric_dtype(column)
    return texts if is_text else _labels_of_numbers(column)


def label_texts(column) -> np.ndarray:
    """Labels of a target as texts; missing cells are refused."""
    texts = np.array([str(label).strip() for label in column.tolist()], dtype=str)
    missing = column.isna().to_numpy() | (texts == "")
    if missing.any():
        raise InputError(
            f"The target {column.name!r} is missing in {int(missing.sum())} of {len(column)} rows, first in row "
            f"{int(np.argmax(missing)) + 1} (a cell that is empty, or says NA, None or ?): fill these cells or delete "
            "their rows."
        )
    return texts


def weights_of(column) -> np.ndarray:
    """How much each row counts; a cell that is no number of at least 0 is refused."""
    pandas = require("pandas", extra="cli")
    cells = column if pandas.api.types.is_numeric_dtype(column) else column.map(str, na_action="ignore")
    weights = pandas.to_numeric(cells, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    is_weight = (weights >= 0) & (weights < LARGEST)
    if not is_weight.all():
        row = int(np.argmin(is_weight))
        cell = "a missing cell" if column.isna().iloc[row] else str(cells.iloc[row])
        raise InputError(
            f"The weights {column.name!r} must be numbers of at least 0. Got {cell} in row {row + 1}: correct such "
            "cells, or write 0 for rows that shall not count."
        )
    if not weights.any():
        raise InputError(f"The weights {column.name!r} are 0 in every row: rows that shall count need a positive one.")
    return weights


def as_known(texts, known) -> list[str]:
    """Each text as a known one that is the same, or the same number or truth value: 1.0 is 1, and TRUE is True."""
    alike: dict[str | Decimal, list[str]] = {}
    for own in known:
        alike.setdefault(_plain(own), []).append(own)
    exact = set(known)
    found = {}
    for text in set(texts) - exact:
        same = alike.get(_plain(text), [])
        found[text] = same[0] if len(same) == 1 else text
    return [found.get(text, text) for text in texts]


def is_number(text: str) -> bool:
    """Whether a table would hold it as a number: Python also takes 1_0 for ten."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _plain(text):
    """A number by its exact value, if it can be told: a code may have more digits than a float holds."""
    if is_number(text):
        try:
            return Decimal(text)
        except InvalidOperation:  # of an exponent with many digits
            return text
    return text.capitalize() if text.lower() in ("true", "false") else text


def _labels_of_numbers(column):
    numbers = column.to_numpy()
    n_classes = len(np.unique(numbers))
    with np.errstate(invalid="ignore"):
        whole = numbers.astype(np.int64)
    is_whole = bool(np.all(whole == numbers))  # false of numbers that are larger than it can hold, too
    if n_classes > min(MOST_CLASSES if is_whole else MOST_LEVELS, len(numbers) // 2):
        raise InputError(
            f"The target {str(column.name)!r} is a quantity, with {n_classes} different numbers in {len(numbers)} "
            "rows; annealed tells classes apart."
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
    except TypeError:  # of cells that cannot be told apart, as lists in Parquet
        return "its cells are neither numbers nor texts"
    if not count:
        return "every cell is missing"
    if n_values == 1 and count == len(column):
        return "every cell is the same"
    if labels is not None and _repeats(column, labels):
        return "it repeats the target"
    return _reason_to_call_identifier(column, count, n_values) if n_values > MOST_IDENTIFIERS else None


def _repeats(column, labels):
    """Whether each cell is the label of its row, however both are written: labels 0 and 1 may have been read as 0.0."""
    return all(_plain(str(cell).strip()) == _plain(str(label)) for cell, label in zip(column, labels, strict=True))


def why_texts(column) -> str | None:
    """What keeps a column of texts from being one of numbers, where most cells are some, or all are but for a unit."""
    cells = column.dropna().map(str)
    is_number_cell = cells.map(NUMBER.fullmatch).notna().to_numpy()
    n_texts = len(cells) - int(is_number_cell.sum())
    if 0 < n_texts <= MOST_STRAY * len(cells):
        stray = int(np.argmin(is_number_cell))
        row = int(np.flatnonzero(column.notna())[stray]) + 1
        return (
            f"{len(cells) - n_texts} of its {len(cells)} cells are numbers, but not {cells.iloc[stray]!r} in row "
            f"{row}: correct such cells, or leave them empty"
        )
    if n_texts < len(cells) or column.nunique() <= MOST_IDENTIFIERS:
        return None
    units = {_unit(cell) for cell in cells}
    if len(units) == 1 and units.isdisjoint({None, ("", "")}):  # dates and versions are digits and points alone
        return f"its cells are numbers with a unit, such as {cells.iloc[0]!r}: write the numbers alone"
    return None


def _unit(cell):
    """What stands before and after a number, where that may be a unit."""
    found = WITH_UNIT.fullmatch(cell)
    return found.group(1, 3) if found else None


def _reason_to_call_identifier(column, count, n_values):
    """Why a column only tells rows apart: of a table sorted by class it would give the class away."""
    kind = _kind(column)
    if kind == "category" and n_values == count:
        return why_texts(column) or "every text is different"
    if kind == "number" and column.iloc[0] in (0, 1) and bool((column.diff().iloc[1:] == 1).all()):
        return "it numbers the rows"
    if IDENTIFIER.search(str(column.name)) and 2 * n_values > count:
        return "by its name it tells rows apart"
    return None


def _numbers_of(frame):
    """Each column as floats: those that are numbers already in one piece, as thousands take long one by one."""
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
            f"Got {column[wrong].iloc[0]!r} in row {int(np.argmax(wrong)) + 1}."
        )
    return numbers.where(numbers.abs() < LARGEST)


def _as_days(column):
    """Days since 1970 of cells as ISO 8601 writes them; those of years that stand for none are missing."""
    pandas = require("pandas", extra="cli")
    cells = column.map(str, na_action="ignore").astype(object).where(column.notna())  # no NaT, which is no text
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
