"""Readers of tables that are stored on disk, outside the package."""

import os
import zipfile
import zlib
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array
from sklearn.utils import Bunch

REPOSITORY = Path(__file__).resolve().parents[2]


def data_home() -> Path | None:
    """Return the folder that contains the data.

    Returns
    -------
    folder : Path or None
        The folder named by the environment variable ``ANNEALED_DATA``; without it, ``shared/data`` next to the
        repository if that exists, else None.
    """
    named = os.environ.get("ANNEALED_DATA")
    if named:
        return Path(named).expanduser()
    beside = REPOSITORY.parent / "shared" / "data"
    return beside if beside.is_dir() else None


def table_names() -> list[str]:
    """List the tables that `load_table` can read, in alphabetical order.

    Returns
    -------
    names : list of str

    Raises
    ------
    FileNotFoundError
        If there is no folder of tables.
    """
    return sorted(path.stem for path in _suite().glob("*.npz"))


def load_table(name: str, *, dtype=np.float64) -> Bunch:
    """Read one table of the suite, ``<data_home>/suite/<name>.npz``.

    Parameters
    ----------
    name : str
        One of `table_names`.
    dtype : dtype, default=numpy.float64
        Type of ``X``; None keeps the type on disk.

    Returns
    -------
    table : Bunch
        ``name``, ``X`` (an array or a csr_array), ``y`` (integer codes), ``target_names``, and ``train`` and
        ``test``: indices of the samples in the canonical split, None if the table has none.

    Raises
    ------
    FileNotFoundError
        If there is no folder of tables, or no table of this name in it.
    ValueError
        If the file is damaged.
    """
    names = table_names()
    if name not in names:
        choices = ", ".join(names) or "(the folder is empty)"
        raise FileNotFoundError(f"There is no table {name!r} in {_suite()}. Choose one of: {choices}.")
    path = _suite() / f"{name}.npz"
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as parts:
            return Bunch(
                name=name,
                X=_features(parts, dtype),
                y=parts["y"],
                target_names=parts["classes"],
                train=parts.get("train"),
                test=parts.get("test"),
            )
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"The table {str(path)!r} is damaged, or does not contain plain arrays. Write it again."
        ) from error


def _features(parts, dtype):
    if "indptr" not in parts:
        return parts["X"].astype(dtype or parts["X"].dtype, copy=False)
    shape = tuple(int(size) for size in parts["shape"])
    return csr_array((parts["data"], parts["indices"], parts["indptr"]), shape=shape, dtype=dtype)


def _suite() -> Path:
    """The folder of tables, or an error that explains how to name it."""
    home = data_home()
    remedy = "Set the environment variable ANNEALED_DATA to a folder that contains suite/<name>.npz."
    if home is None:
        raise FileNotFoundError(f"No data folder was found. {remedy}")
    suite = home / "suite"
    if not suite.is_dir():
        raise FileNotFoundError(f"There is no folder {str(suite)!r}. {remedy}")
    return suite
