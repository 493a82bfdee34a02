"""Files that are whole or not there."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from annealed.tables import InputError

STANDARD_OUTPUT = Path("-")


def check_writable(path: Path) -> None:
    """Say before a long job that its answer could not be written."""
    if path == STANDARD_OUTPUT:
        raise InputError("'-' is standard output, which only predictions can go to; give the name of a file to write.")
    try:
        folder = path.resolve().parent
        if not _is_folder(folder):
            raise InputError(f"There is no folder '{folder}' to write '{path.name}' in.")
        if _is_folder(path):
            raise InputError(f"'{path}' is a folder; give the name of a file to write.")
    except OSError as error:
        raise InputError(f"'{path}' cannot be written: {error.strerror}.") from error
    if not os.access(folder, os.W_OK):
        raise InputError(f"'{path}' cannot be written: the folder '{folder}' is closed to you.")


def _is_folder(path):
    """Unlike pathlib's of some versions, it raises where that cannot be told: a closed folder, too long a name."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def write_then_rename(path: Path, content: bytes) -> None:
    """Write beside `path` and rename: whoever looks sees the old file or the new one, never a part."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(content)  # a pipe or a device, such as /dev/stdout, has nothing to be renamed
            return
        check_writable(path)
        _replace(path.resolve(), content)
    except OSError as error:
        raise InputError(f"'{path}' cannot be written: {error.strerror}.") from error


def _replace(path, content):
    partial = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".annealed.", delete=False) as file:
            partial = file.name
            file.write(content)
        os.chmod(partial, _mode(path))
        os.replace(partial, path)
    finally:
        if partial is not None and os.path.exists(partial):
            os.unlink(partial)


def _mode(path):
    """That of the file that is replaced: one that was closed to others stays so."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
